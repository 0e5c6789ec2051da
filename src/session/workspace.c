/* What all operations on a workspace's files share, and the short ones.
 *
 * How: the directory of a path's last component is opened beneath the workspace without links
 * (base/path.h), and everything is then done by one name in that open directory. A box that renames
 * directories meanwhile can make it another directory of the workspace, never one outside: it has
 * no way to move a directory out of what it was given.
 *
 * What may go wrong: a name is something else each time it is looked at. So what was opened is
 * looked at through its descriptor, nothing is opened that could make us wait, and no mode or owner
 * is ever changed by name. Mounts below the workspace are the user's, and are gone into. */
#include "session/workspace.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "base/sys.h"
#include "session/workspace_impl.h"

static const char *const type_names[] = {
	[SES_FILE] = "file", [SES_DIRECTORY] = "directory", [SES_SYMLINK] = "symlink",
	[SES_FIFO] = "fifo", [SES_SOCKET] = "socket",	    [SES_DEVICE] = "device",
};
static_assert(sizeof(type_names) / sizeof(type_names[0]) == SES_TYPE_N, "a name for every type");

const char *ses_type_name(enum ses_type type)
{
	return type_names[type];
}

enum ses_type ses_type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return SES_FILE;
	case S_IFDIR:
		return SES_DIRECTORY;
	case S_IFLNK:
		return SES_SYMLINK;
	case S_IFIFO:
		return SES_FIFO;
	case S_IFSOCK:
		return SES_SOCKET;
	default:
		return SES_DEVICE;
	}
}

int ses_workspace(int dirfd, struct ses_workspace *ret, struct err *e)
{
	struct stat st;

	if (fstat(dirfd, &st) < 0)
		return err_sys(e, "the workspace");
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_PATH, "the workspace is no directory");
	*ret = (struct ses_workspace){
		.fd = dirfd,
		.give = geteuid() == 0,
		.uid = st.st_uid,
		.gid = st.st_gid,
	};
	return 0;
}

/* An owner that has no number in this user namespace can't be become: then whoever runs in it is
 * all there is, and the kernel's answers are those that its boxes get. */
struct ses_as ses_become(const struct ses_workspace *w)
{
	struct ses_as as = { .changed = w->give && (w->uid != 0 || w->gid != 0) };

	if (as.changed) {
		as.gid = setfsgid(w->gid);
		as.uid = setfsuid(w->uid);
	}
	return as;
}

void ses_return(struct ses_as *as)
{
	int keep = errno;

	if (as->changed) {
		setfsuid((uid_t)as->uid);
		setfsgid((gid_t)as->gid);
	}
	as->changed = false;
	errno = keep;
}

/* Leaves room for the reason behind the longest path. */
static const char *shown(char text[300], const char *path)
{
	return *path ? str_printable(text, 300, path) : "the workspace";
}

/* By which errno a name turns out to be what kind of error, and how it is said. */
static const struct {
	int num;
	enum err_kind kind;
	const char *text;
} reasons[] = {
	{ ENOENT, ERR_NOT_FOUND, "not there" },
	{ EEXIST, ERR_EXISTS, "something is there already" },
	{ ENOTEMPTY, ERR_EXISTS, "a directory is there, and it is not empty" },
	{ ELOOP, ERR_PATH, "a symbolic link is in the path, and links are not followed" },
	{ EXDEV, ERR_PATH, "leads out of the workspace, or to another file system" },
	{ ENOTDIR, ERR_PATH, "something that is no directory stands in the place of one" },
	{ EISDIR, ERR_PATH, "is a directory" },
	{ ENXIO, ERR_PATH, "is no regular file" },
	{ ENAMETOOLONG, ERR_PATH, "a name in it is longer than the file system takes" },
	{ EBUSY, ERR_PATH, "something is mounted there" },
	{ EINVAL, ERR_PATH, "can't be that" },
	{ EAGAIN, ERR_SYS, "somebody holds a lease on it" },
};

int ses_fail(struct err *e, const char *path)
{
	char text[300];

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].num == errno) {
			err_set(e, reasons[i].kind, "%s: %s", shown(text, path), reasons[i].text);
			return -1;
		}
	err_sys(e, "%s", shown(text, path));
	return -1;
}

int ses_refuse(struct err *e, enum err_kind kind, const char *path, const char *fmt, ...)
{
	char why[200], text[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	err_set(e, kind, "%s: %s", shown(text, path), why);
	return -1;
}

int ses_path(const char *text, char ret[SES_PATH_CAP], struct err *e)
{
	char out[SES_PATH_CAP] = "";
	size_t len = 0, n;

	if (strlen(text) >= SES_PATH_CAP)
		return ses_refuse(e, ERR_PATH, text, "the path is longer than %d bytes",
				  SES_PATH_CAP - 1);
	if (*text == '/')
		return ses_refuse(e, ERR_PATH, text,
				  "the path is absolute; write it relative to the workspace");
	for (const char *s = text; *s; s += n) {
		s += strspn(s, "/");
		n = strcspn(s, "/");
		if (n == 0 || (n == 1 && *s == '.'))
			continue;
		if (n == 2 && !memcmp(s, "..", 2))
			return ses_refuse(e, ERR_PATH, text, "the path has a \"..\"");
		if (n > NAME_MAX)
			return ses_refuse(e, ERR_PATH, text, "a name in it is longer than %d bytes",
					  NAME_MAX);
		if (len > 0)
			out[len++] = '/';
		memcpy(out + len, s, n); /* never longer than the text, which fits */
		len += n;
	}
	memcpy(ret, out, len);
	ret[len] = '\0';
	return 0;
}

/* Opens the directory that the first n bytes of the path are, made where missing. */
static int make_parents(const struct ses_workspace *w, const char *path, size_t n)
{
	_cleanup_fd_ int at = path_open_beneath(w->fd, "", O_DIRECTORY);
	char name[NAME_MAX + 1];
	size_t len;

	for (size_t i = 0; i < n && at >= 0; i += len + 1) {
		int next;

		len = strcspn(path + i, "/");
		memcpy(name, path + i, len);
		name[len] = '\0';
		if (mkdirat(at, name, SES_MODE_DIR) < 0 && errno != EEXIST)
			return -1;
		next = path_open_beneath(at, name, O_DIRECTORY);
		fd_close(&at);
		at = next;
	}
	return fd_steal(&at);
}

int ses_parent(const struct ses_workspace *w, const char *path, bool make, const char **ret_name,
	       struct err *e)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	char dir[SES_PATH_CAP];
	int fd;

	if (!*path)
		return ses_refuse(e, ERR_PATH, path, "a name of something in it is needed");
	memcpy(dir, path, n);
	dir[n] = '\0';
	fd = path_open_beneath(w->fd, dir, O_DIRECTORY);
	if (fd < 0 && errno == ENOENT && make)
		fd = make_parents(w, path, n);
	if (fd < 0)
		return ses_fail(e, path);
	*ret_name = slash ? slash + 1 : path;
	return fd;
}

/* Through the descriptor, so that it is the directory that was looked at. */
static int let_in(int dir)
{
	char self[40];
	struct stat st;

	if (fstat(dir, &st) < 0 || (st.st_mode & 0700) == 0700)
		return 0;
	snprintf(self, sizeof(self), "/proc/self/fd/%d", dir);
	return fchmodat(AT_FDCWD, self, (st.st_mode & 07777) | 0700, 0);
}

int ses_open_dir(int dir, const char *name, bool open_up)
{
	_cleanup_fd_ int at = path_open_beneath(dir, name, O_DIRECTORY);

	if (at < 0 || (open_up && let_in(at) < 0))
		return -1;
	return openat(at, ".", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
}

void ses_draft(char ret[SES_DRAFT_CAP], const char *prefix)
{
	unsigned long long chance = 0;

	/* Of a name that is taken the caller hears, and asks again. */
	if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) != sizeof(chance))
		chance = (unsigned long long)getpid() << 32 ^ (uintptr_t)ret;
	snprintf(ret, SES_DRAFT_CAP, "%s-%016llx", prefix, chance);
}

/* getdents64(2) */
struct dirent_head {
	uint64_t ino, off;
	uint16_t len;
	uint8_t type;
	char name[];
};

int ses_dir_next(struct ses_dir *d, struct ses_name *ret)
{
	for (;;) {
		const struct dirent_head *h;

		if (d->at >= d->n) {
			long n = syscall(SYS_getdents64, d->fd, d->buf, sizeof(d->buf));

			if (n <= 0)
				return (int)n;
			d->at = 0;
			d->n = (unsigned)n;
		}
		h = (const void *)(d->buf + d->at);
		d->at += h->len;
		if (!strcmp(h->name, ".") || !strcmp(h->name, ".."))
			continue;
		ret->name = h->name;
		ret->type = h->type;
		return 1;
	}
}

int ses_make_dir(const struct ses_workspace *w, const char *text, bool parents, struct err *e)
{
	SES_AS_OWNER(w);
	char path[SES_PATH_CAP];
	_cleanup_fd_ int dir = -1, made = -1;
	const char *name = "";

	if (ses_path(text, path, e) < 0)
		return -1;
	if (!*path && parents)
		return 0;
	dir = ses_parent(w, path, parents, &name, e);
	if (dir < 0)
		return -1;
	if (mkdirat(dir, name, SES_MODE_DIR) == 0)
		return 0;
	if (errno != EEXIST || !parents)
		return ses_fail(e, path);
	made = path_open_beneath(dir, name, O_DIRECTORY);
	if (made >= 0)
		return 0;
	if (errno == ENOTDIR)
		errno = EEXIST;
	return ses_fail(e, path);
}

int ses_rename(const struct ses_workspace *w, const char *from, const char *to, bool replace,
	       struct err *e)
{
	SES_AS_OWNER(w);
	char old[SES_PATH_CAP], new[SES_PATH_CAP];
	_cleanup_fd_ int old_dir = -1, new_dir = -1;
	const char *old_name = "", *new_name = "";

	if (ses_path(from, old, e) < 0 || ses_path(to, new, e) < 0)
		return -1;
	old_dir = ses_parent(w, old, false, &old_name, e);
	if (old_dir < 0)
		return -1;
	new_dir = ses_parent(w, new, false, &new_name, e);
	if (new_dir < 0)
		return -1;
	if (syscall(SYS_renameat2, old_dir, old_name, new_dir, new_name,
		    replace ? 0 : RENAME_NOREPLACE) == 0)
		return 0;
	/* Which of both names it is about. */
	if (errno == ENOENT)
		return ses_fail(e, old);
	if (errno == EINVAL && path_within(new, old))
		return ses_refuse(e, ERR_PATH, new, "a directory can't be moved into itself");
	if (errno == EISDIR || errno == ENOTDIR) /* a file over a directory, or the other way */
		errno = EEXIST;
	return ses_fail(e, new);
}

/* The target's length is what stat said, or a little more. */
static char *read_link(int dir, const char *name)
{
	char text[SES_PATH_CAP + 1];
	ssize_t n = readlinkat(dir, name, text, sizeof(text) - 1);

	if (n < 0)
		return NULL;
	text[n] = '\0';
	return strdup(text);
}

int ses_file_fill(int dir, const char *name, const char *path, struct ses_file *ret)
{
	struct ses_file f = { 0 };
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	f.type = ses_type_of(st.st_mode);
	f.mode = st.st_mode & 07777;
	f.size = (uint64_t)st.st_size;
	/* A time that a box chose may be any; what does not fit in 64 bits wraps. */
	f.mtime_ns =
		(int64_t)((uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec);
	if (f.type == SES_SYMLINK && !(f.target = read_link(dir, name)))
		return -1;
	f.path = strdup(path);
	if (!f.path) {
		ses_file_free(&f);
		errno = ENOMEM;
		return -1;
	}
	*ret = f;
	return 0;
}

int ses_stat(const struct ses_workspace *w, const char *text, struct ses_file *ret, struct err *e)
{
	SES_AS_OWNER(w);
	char path[SES_PATH_CAP] = "";
	_cleanup_fd_ int dir = -1;
	const char *name = ".";

	if (ses_path(text, path, e) < 0)
		return -1;
	if (*path)
		dir = ses_parent(w, path, false, &name, e);
	else if ((dir = path_open_beneath(w->fd, "", O_DIRECTORY)) < 0)
		return ses_fail(e, path);
	if (dir < 0)
		return -1;
	return ses_file_fill(dir, name, path, ret) < 0 ? ses_fail(e, path) : 0;
}

void ses_file_free(struct ses_file *f)
{
	free(f->path);
	free(f->target);
	*f = (struct ses_file){ 0 };
}

void ses_file_json(struct json *j, const struct ses_file *f)
{
	json_obj(j);
	json_key(j, "path");
	json_bytes(j, f->path, strlen(f->path));
	json_kstr(j, "type", ses_type_name(f->type));
	json_ku64(j, "size", f->size);
	json_ku64(j, "mode", f->mode);
	json_key(j, "mtime_ns");
	json_i64(j, f->mtime_ns);
	if (f->target) {
		json_key(j, "target");
		json_bytes(j, f->target, strlen(f->target));
	}
	json_obj_end(j);
}
