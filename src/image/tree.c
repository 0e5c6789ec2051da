/* Removing a tree that somebody else's archive or program has made.
 *
 * How: depth first, a descriptor a level. A directory that lies deeper than DEPTH is moved up to
 * the top, under a name of its own, and removed from there in a later round: so a tree of any depth
 * takes DEPTH descriptors.
 *
 * What may go wrong: a directory that its owner can't read, write or search (0500, 0000). Its mode
 * is set before it is opened, and never through a link. */
#include "image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define DEPTH 32

struct removal {
	int top;
	dev_t dev;
	unsigned long long moved; /* directories brought up so far */
	unsigned long long left;  /* in this round */
};

/* Opens a directory for emptying. It was one when it was looked at, and is nobody else's: its mode
 * may be set by its name. */
static int open_dir(const struct removal *r, int dir, const char *name, struct err *e)
{
	struct stat st;
	int fd;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "stat");
	if (!S_ISDIR(st.st_mode)) { /* so this is what kept it from being unlinked */
		errno = EPERM;
		return err_sys(e, "unlink");
	}
	if (r && st.st_dev != r->dev)
		return err_set(e, ERR_REFUSED, "something is mounted in it");
	if ((st.st_mode & 0700) != 0700 && fchmodat(dir, name, 0700, 0) < 0)
		return err_sys(e, "chmod");
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "open") : fd;
}

static int bring_up(struct removal *r, int dir, const char *name, struct err *e)
{
	char up[64];

	do
		snprintf(up, sizeof(up), "up-%llu", r->moved++);
	while (faccessat(r->top, up, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	if (renameat(dir, name, r->top, up) < 0)
		return err_sys(e, "rename");
	r->left++;
	return 0;
}

static int empty(struct removal *r, int fd, unsigned depth, struct err *e);

static int remove_one(struct removal *r, int dir, const char *name, unsigned depth,
		      struct err *e) /* NOLINT(misc-no-recursion) */
{
	_cleanup_fd_ int fd = -1;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return err_sys(e, "unlink");
	fd = open_dir(r, dir, name, e);
	if (fd < 0)
		return -1;
	if (depth >= DEPTH)
		return bring_up(r, dir, name, e);
	if (empty(r, fd, depth + 1, e) < 0)
		return -1;
	return unlinkat(dir, name, AT_REMOVEDIR) < 0 ? err_sys(e, "rmdir") : 0;
}

static int empty(struct removal *r, int fd, unsigned depth,
		 struct err *e) /* NOLINT(misc-no-recursion) */
{
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;
	DIR *d = again < 0 ? NULL : fdopendir(again);
	struct dirent *ent;

	if (!d) {
		rc = err_sys(e, "open");
		fd_close(&again);
		return rc;
	}
	while (rc == 0 && (errno = 0, ent = readdir(d)))
		if (strcmp(ent->d_name, ".") != 0 && strcmp(ent->d_name, "..") != 0)
			rc = remove_one(r, fd, ent->d_name, depth, e);
	if (rc == 0 && errno)
		rc = err_sys(e, "readdir");
	closedir(d);
	return rc;
}

int img_tree_remove(int dir, const char *name, struct err *e)
{
	struct removal r = { 0 };
	_cleanup_fd_ int top = -1;
	struct stat st;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return err_sys(e, "unlink");
	top = open_dir(NULL, dir, name, e);
	if (top < 0)
		return -1;
	if (fstat(top, &st) < 0)
		return err_sys(e, "stat");
	r.top = top;
	r.dev = st.st_dev;
	do {
		r.left = 0;
		if (empty(&r, top, 0, e) < 0)
			return -1;
	} while (r.left > 0);
	return unlinkat(dir, name, AT_REMOVEDIR) < 0 ? err_sys(e, "rmdir") : 0;
}
