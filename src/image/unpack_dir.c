/* Unpacking: names, and the directories that entries go into.
 *
 * How: a parent is opened in one step beneath the layer's directory, without links (base/path.h).
 * Where that fails, it is walked and made part by part, again without following anything. While a
 * layer is unpacked all its directories are 0700, so that those without write permission can be
 * filled and emptied by a caller without privilege; what the archive says about them is set at the
 * end, children before parents.
 *
 * What may go wrong: a descriptor of a directory would outlive it when a later entry replaces it.
 * Only the parent of the entry at hand is kept, and what an entry removes is never its own parent.
 */
#include "image/unpack_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

#define WH ".wh."

int unpack_name(const char *text, char ret[TAR_PATH_CAP], struct err *e)
{
	size_t len = 0, parts = 0, n;

	if (*text == '/' && text[strspn(text, "/.")])
		return err_set(e, ERR_REFUSED, "the name is absolute");
	for (const char *s = text; *s; s += n) {
		s += strspn(s, "/");
		n = strcspn(s, "/");
		if (n == 0 || (n == 1 && *s == '.'))
			continue;
		if (n == 2 && !memcmp(s, "..", 2))
			return err_set(e, ERR_REFUSED, "the name has a \"..\"");
		if (n > NAME_MAX)
			return err_set(e, ERR_REFUSED, "a part of the name is longer than %d bytes",
				       NAME_MAX);
		if (++parts > UNPACK_DEPTH_MAX)
			return err_set(e, ERR_REFUSED, "it is more than %d directories deep",
				       UNPACK_DEPTH_MAX);
		if (len > 0)
			ret[len++] = '/';
		memcpy(ret + len, s, n); /* never longer than the text, which fits */
		len += n;
	}
	ret[len] = '\0';
	return 0;
}

int unpack_count(struct unpack *u, struct err *e)
{
	if (u->done.entries >= u->how->limits.entries)
		return err_set(e, ERR_REFUSED, "the %s has more than %llu entries", unpack_what(u),
			       (unsigned long long)u->how->limits.entries);
	u->done.entries++;
	return 0;
}

int unpack_count_bytes(struct unpack *u, size_t n, struct err *e)
{
	if (n > u->how->limits.bytes - u->done.bytes)
		return err_set(e, ERR_REFUSED, "the %s has more than %llu bytes of content",
			       unpack_what(u), (unsigned long long)u->how->limits.bytes);
	u->done.bytes += n;
	return 0;
}

int unpack_there(int dir, const char *name, struct err *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? THERE_NOTHING : err_sys(e, "stat");
	if (S_ISDIR(st.st_mode))
		return THERE_DIR;
	/* No device is ever made here but whiteouts. */
	return S_ISCHR(st.st_mode) ? THERE_WHITEOUT : THERE_OTHER;
}

/* Depth is bounded by that of names. */
static int remove_tree(int dir, const char *name, struct err *e) /* NOLINT(misc-no-recursion) */
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		r = err_sys(e, "open");
		fd_close(&fd);
		return r;
	}
	while (r == 0 && (errno = 0, ent = readdir(d))) {
		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		if (unlinkat(fd, ent->d_name, 0) == 0)
			continue;
		r = errno == EISDIR || errno == EPERM ? remove_tree(fd, ent->d_name, e)
						      : err_sys(e, "unlink");
	}
	if (r == 0 && errno)
		r = err_sys(e, "readdir");
	closedir(d);
	if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0)
		r = err_sys(e, "rmdir");
	return r;
}

int unpack_remove(int dir, const char *name, struct err *e)
{
	int there = unpack_there(dir, name, e);

	if (there < 0)
		return -1;
	if (there == THERE_DIR)
		return remove_tree(dir, name, e);
	return there != THERE_NOTHING && unlinkat(dir, name, 0) < 0 ? err_sys(e, "unlink") : 0;
}

int unpack_opaque(int dir, const char *name, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return err_sys(e, "open");
	if (fsetxattr(fd, "user.overlay.opaque", "y", 1, 0) < 0)
		return err_sys(
			e,
			"the file system takes no user extended attributes, which opaque directories need");
	return 0;
}

int unpack_mkdir(int dir, const char *name, struct err *e)
{
	int there = unpack_there(dir, name, e);

	if (there < 0)
		return -1;
	if (there == THERE_DIR)
		return 0;
	if (there != THERE_NOTHING && unlinkat(dir, name, 0) < 0)
		return err_sys(e, "unlink");
	if (mkdirat(dir, name, 0700) < 0)
		return err_sys(e, "mkdir");
	/* What was there hid the directory of that name in the layers below; so must this. */
	return there == THERE_NOTHING ? 0 : unpack_opaque(dir, name, e);
}

/* One step down to the first `len` bytes of path. */
static int step(struct unpack *u, int at, const char *path, size_t len, const char *name,
		struct err *e)
{
	char upto[TAR_PATH_CAP], shown[200];
	int there = unpack_there(at, name, e), fd;

	if (there < 0)
		return -1;
	memcpy(upto, path, len);
	upto[len] = '\0';
	if (there == THERE_OTHER)
		return err_set(e, ERR_REFUSED,
			       "it is below %s, which this %s gives as a link or a file",
			       str_printable(shown, sizeof(shown), upto), unpack_what(u));
	if (there != THERE_DIR &&
	    (unpack_count(u, e) < 0 || unpack_implied(u, upto, e) < 0 ||
	     unpack_mkdir(at, name, e) < 0 || unpack_dir_note(u, upto, &u->implied, e) < 0))
		return -1;
	fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "open") : fd;
}

/* Walks to the directory `path`, making what is missing. */
static int walk(struct unpack *u, const char *path, struct err *e)
{
	_cleanup_fd_ int at = openat(u->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char name[NAME_MAX + 1];
	size_t n;

	if (at < 0)
		return err_sys(e, "open");
	for (const char *s = path; *s; s += n + (s[n] == '/')) {
		int next;

		n = strcspn(s, "/");
		memcpy(name, s, n);
		name[n] = '\0';
		next = step(u, at, path, (size_t)(s - path) + n, name, e);
		if (next < 0)
			return -1;
		fd_close(&at);
		at = next;
	}
	return fd_steal(&at);
}

/* Opens the directory as far as links of layers below lead; `dir` becomes what it is. */
static int open_parent(struct unpack *u, char dir[TAR_PATH_CAP], struct err *e)
{
	int fd = path_open_beneath(u->root, dir, O_DIRECTORY);

	if (fd >= 0)
		return fd;
	if (u->how->n_lowers > 0 && unpack_resolve(u, dir, dir, e) < 0)
		return -1;
	return walk(u, dir, e);
}

int unpack_parent(struct unpack *u, char path[TAR_PATH_CAP], const char **ret_name, struct err *e)
{
	char dir[TAR_PATH_CAP], asked[TAR_PATH_CAP], last[NAME_MAX + 1];
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t n = slash ? (size_t)(slash - path) : 0;
	int fd;

	memcpy(last, name, strlen(name) + 1);
	memcpy(dir, path, n);
	dir[n] = '\0';
	if (!u->how->files && (!strncmp(dir, WH, strlen(WH)) || strstr(dir, "/" WH)))
		return err_set(e, ERR_REFUSED, "it is below a whiteout");
	if (u->parent < 0 || strcmp(dir, u->parent_asked) != 0) {
		memcpy(asked, dir, n + 1);
		fd = open_parent(u, dir, e);
		if (fd < 0)
			return -1;
		fd_close(&u->parent);
		u->parent = fd;
		memcpy(u->parent_path, dir, strlen(dir) + 1);
		memcpy(u->parent_asked, asked, n + 1);
	}
	n = strlen(u->parent_path);
	if (n + strlen(last) + 2 > TAR_PATH_CAP)
		return err_set(e, ERR_REFUSED, "it is below a link that makes its name too long");
	memcpy(path, u->parent_path, n);
	if (n > 0)
		path[n++] = '/';
	memcpy(path + n, last, strlen(last) + 1);
	*ret_name = path + n;
	return u->parent;
}

int unpack_dir_note(struct unpack *u, const char *path, const struct tar_entry *en, struct err *e)
{
	struct unpack_dir *d;
	size_t len = strlen(path) + 1;

	if (u->names + len > UNPACK_NAMES_MAX)
		return err_set(e, ERR_REFUSED,
			       "the names of the %s's directories have more than %u bytes",
			       unpack_what(u), UNPACK_NAMES_MAX);
	if (u->n_dirs == u->cap_dirs) {
		size_t cap = u->cap_dirs ? u->cap_dirs * 2 : 256;

		d = realloc(u->dirs, cap * sizeof(*d));
		if (!d)
			return err_sys(e, "unpacking");
		u->dirs = d;
		u->cap_dirs = cap;
	}
	d = &u->dirs[u->n_dirs];
	*d = (struct unpack_dir){ strdup(path),	     u->n_dirs, en->mode & 03777, (uint32_t)en->uid,
				  (uint32_t)en->gid, en->mtime, en->mtime_ns };
	if (!d->path)
		return err_sys(e, "unpacking");
	u->n_dirs++;
	u->names += len;
	return 0;
}

/* Children before parents ("a/b" is greater than "a"), the latest of a path first. */
static int deepest_first(const void *a, const void *b)
{
	const struct unpack_dir *x = a, *y = b;
	int r = strcmp(y->path, x->path);

	return r ? r : (y->seq > x->seq) - (y->seq < x->seq);
}

static int finish_one(struct unpack *u, const struct unpack_dir *d, struct err *e)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { d->mtime, d->mtime_ns } };
	_cleanup_fd_ int at = path_open_beneath(u->root, d->path, O_DIRECTORY), fd = -1;

	/* Something else has taken its place since. */
	if (at < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0
									     : err_sys(e, "open");
	fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "open");
	if (u->how->keep_owners && fchown(fd, d->uid, d->gid) < 0)
		return err_sys(e, "chown to %u:%u", d->uid, d->gid);
	if (futimens(fd, times) < 0)
		return err_sys(e, "utimens");
	return fchmod(fd, d->mode) < 0 ? err_sys(e, "chmod") : 0;
}

int unpack_dirs_finish(struct unpack *u, struct err *e)
{
	char shown[200];

	if (u->n_dirs == 0)
		return 0;
	qsort(u->dirs, u->n_dirs, sizeof(*u->dirs), deepest_first);
	for (size_t i = 0; i < u->n_dirs; i++) {
		if (i > 0 && !strcmp(u->dirs[i].path, u->dirs[i - 1].path))
			continue;
		if (finish_one(u, &u->dirs[i], e) < 0)
			return err_prefix(e, "%s",
					  str_printable(shown, sizeof(shown), u->dirs[i].path));
	}
	return 0;
}

void unpack_dirs_free(struct unpack *u)
{
	for (size_t i = 0; i < u->n_dirs; i++)
		free(u->dirs[i].path);
	free(u->dirs);
}
