/* Writing and reading a file of a workspace.
 *
 * Writing: into a file without a name (O_TMPFILE), which nobody sees and which is gone when we are
 * killed; where the file system has none, into one with a name of chance. At the end it gets such a
 * name for a moment and is renamed: over a file, that is the one step that can't be half done. A
 * box that exchanges the file behind that name has exchanged what it could have written to itself.
 *
 * Reading: only what is a regular file before it is opened and after; without waiting in between,
 * should it have become a FIFO. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "session/workspace_impl.h"

#define DRAFT ".cloche-write"
#define TRIES 16

static int open_draft(struct ses_write *f)
{
	f->fd = openat(f->dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (f->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return f->fd;
	for (int i = 0; i < TRIES; i++) {
		ses_draft(f->draft, DRAFT);
		f->fd = openat(f->dir, f->draft,
			       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (f->fd >= 0)
			return f->fd;
		f->draft[0] = '\0';
		if (errno != EEXIST)
			break;
	}
	return -1;
}

/* What may be in the place of the new file. */
static int check_target(int dir, const char *name, const char *path, struct err *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : ses_fail(e, path);
	if (S_ISREG(st.st_mode))
		return 0;
	errno = S_ISDIR(st.st_mode) ? EISDIR : S_ISLNK(st.st_mode) ? ELOOP : ENXIO;
	return ses_fail(e, path);
}

int ses_write_open(const struct ses_workspace *w, const char *text, mode_t mode,
		   struct ses_write *ret, struct err *e)
{
	SES_AS_OWNER(w);
	struct ses_write f = SES_WRITE_NONE;
	const char *name;

	f.w = w;
	f.mode = mode & 0777;
	if (ses_path(text, f.path, e) < 0)
		return -1;
	f.dir = ses_parent(w, f.path, true, &name, e);
	if (f.dir < 0)
		return -1;
	memcpy(f.name, name, strlen(name) + 1); /* ses_path has seen that it fits */
	if (check_target(f.dir, f.name, f.path, e) < 0) {
		fd_close(&f.dir);
		return -1;
	}
	if (open_draft(&f) < 0) {
		ses_fail(e, f.path);
		fd_close(&f.dir);
		return -1;
	}
	*ret = f;
	return 0;
}

int ses_write_data(struct ses_write *f, const void *data, size_t n, struct err *e)
{
	if (fd_write_all(f->fd, data, n) < 0)
		return ses_fail(e, f->path);
	f->size += n;
	return 0;
}

/* The nameless file gets a name: through /proc, as linkat(2) wants it from those without
 * CAP_DAC_READ_SEARCH. */
static int name_draft(struct ses_write *f)
{
	char self[40];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
	for (int i = 0; i < TRIES; i++) {
		ses_draft(f->draft, DRAFT);
		if (linkat(AT_FDCWD, self, f->dir, f->draft, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		f->draft[0] = '\0';
		if (errno != EEXIST)
			break;
	}
	return -1;
}

int ses_write_end(struct ses_write *f, struct err *e)
{
	SES_AS_OWNER(f->w);
	int r = 0;

	if (fchmod(f->fd, f->mode) < 0 || (!*f->draft && name_draft(f) < 0))
		r = ses_fail(e, f->path);
	else if (check_target(f->dir, f->name, f->path, e) < 0)
		r = -1;
	else if (renameat(f->dir, f->draft, f->dir, f->name) < 0)
		r = ses_fail(e, f->path);
	else
		f->draft[0] = '\0';
	ses_write_drop(f);
	return r;
}

void ses_write_drop(struct ses_write *f)
{
	if (*f->draft) {
		SES_AS_OWNER(f->w);
		unlinkat(f->dir, f->draft, 0);
	}
	f->draft[0] = '\0';
	fd_close(&f->fd);
	fd_close(&f->dir);
}

/* Opens a regular file, and nothing else. */
static int open_file(int dir, const char *name, struct stat *ret)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (S_ISREG(st.st_mode)) { /* a device is not opened even to look at it */
		fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0)
			return -1;
	}
	if (!S_ISREG(st.st_mode)) {
		errno = S_ISDIR(st.st_mode) ? EISDIR : S_ISLNK(st.st_mode) ? ELOOP : ENXIO;
		return -1;
	}
	*ret = st;
	return fd_steal(&fd);
}

int ses_read_open(const struct ses_workspace *w, const char *text, uint64_t offset, uint64_t length,
		  uint64_t max, struct ses_read *ret, struct err *e)
{
	SES_AS_OWNER(w);
	char path[SES_PATH_CAP];
	_cleanup_fd_ int dir = -1, fd = -1;
	const char *name;
	struct stat st;
	uint64_t size, there;

	if (ses_path(text, path, e) < 0)
		return -1;
	dir = ses_parent(w, path, false, &name, e);
	if (dir < 0)
		return -1;
	fd = open_file(dir, name, &st);
	if (fd < 0)
		return ses_fail(e, path);
	size = (uint64_t)st.st_size;
	there = offset < size ? size - offset : 0;
	if (length > there)
		length = there;
	if (length > max)
		return ses_refuse(e, ERR_TOO_LARGE, path,
				  "%llu bytes, and at most %llu were asked for",
				  (unsigned long long)length, (unsigned long long)max);
	*ret = (struct ses_read){
		.fd = fd_steal(&fd),
		.offset = offset,
		.left = length,
		.size = size,
	};
	return 0;
}

ssize_t ses_read_data(struct ses_read *f, void *buf, size_t n, struct err *e)
{
	ssize_t r;

	if (n > f->left)
		n = (size_t)f->left;
	if (n == 0)
		return 0;
	do
		r = pread(f->fd, buf, n, (off_t)f->offset);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return err_sys(e, "read");
	f->offset += (uint64_t)r;
	f->left = r > 0 ? f->left - (uint64_t)r : 0; /* it has become shorter */
	return r;
}

void ses_read_close(struct ses_read *f)
{
	fd_close(&f->fd);
	f->left = 0;
}
