/* Removing a tree while a box may be working in it.
 *
 * How: depth first, a descriptor a level. A directory that lies deeper than DEPTH is moved up to
 * the directory that is being emptied, under a name of chance, and removed from there: so a tree of
 * any depth takes DEPTH descriptors. Each directory is opened without links and looked at through
 * its descriptor; its mode, when it is closed to its owner, is set through that, too.
 *
 * What may go wrong: a box goes on making files in what is being removed. Each directory is emptied
 * a bounded number of times; then it is an error that says so. Other file systems are not gone
 * into. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/workspace_impl.h"

#define DEPTH 32
#define TRIES 8
#define ROUNDS 100000 /* more than any tree is deep */
#define MOVED ".cloche-removed"

struct removal {
	int top;
	dev_t dev;
	bool again; /* something was moved to the top */
};

static int empty(struct removal *r, int fd, unsigned depth);

/* Leaves errno. */
static int remove_dir(struct removal *r, int dir, const char *name, unsigned depth)
{
	char up[SES_DRAFT_CAP];
	_cleanup_fd_ int fd = -1;

	if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST && errno != EACCES)
		return -1;
	if (depth >= DEPTH) {
		/* A directory that its owner may not write to can't be moved elsewhere. */
		fd = ses_open_dir(dir, name, true);
		ses_draft(up, MOVED);
		if (renameat(dir, name, r->top, up) < 0)
			return -1;
		r->again = true;
		return 0;
	}
	for (int i = 0; i < TRIES; i++) {
		fd_close(&fd);
		fd = ses_open_dir(dir, name, true);
		if (fd < 0)
			return errno == ENOENT ? 0 : -1;
		if (empty(r, fd, depth + 1) < 0)
			return -1;
		if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			return 0;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return -1;
	}
	return -1;
}

static int remove_one(struct removal *r, int dir, const char *name, unsigned depth)
{
	int e;

	if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	e = errno;
	if (remove_dir(r, dir, name, depth) == 0)
		return 0;
	if (errno == ENOTDIR)
		errno = e;
	return -1;
}

/* NOLINTNEXTLINE(misc-no-recursion): of depth DEPTH */
static int empty(struct removal *r, int fd, unsigned depth)
{
	struct stat st;
	struct ses_name name;
	struct ses_dir d;
	int got;

	if (fstat(fd, &st) < 0)
		return -1;
	if (st.st_dev != r->dev) {
		errno = EBUSY;
		return -1;
	}
	ses_dir(&d, fd);
	while ((got = ses_dir_next(&d, &name)) > 0)
		if (remove_one(r, fd, name.name, depth) < 0)
			return -1;
	return got;
}

int ses_remove_tree(int dir, const char *name)
{
	_cleanup_fd_ int top = ses_open_dir(dir, name, true);
	struct removal r = { .top = top };
	struct stat st;

	if (top < 0 || fstat(top, &st) < 0)
		return -1;
	r.dev = st.st_dev;
	for (int left = TRIES, round = 0; left > 0 && round < ROUNDS; round++) {
		r.again = false;
		if (lseek(top, 0, SEEK_SET) < 0 || empty(&r, top, 0) < 0)
			return -1;
		if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
			return 0;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return -1;
		left -= !r.again;
	}
	errno = ENOTEMPTY;
	return -1;
}

int ses_remove(const struct ses_workspace *w, const char *text, bool recursive, struct err *e)
{
	SES_AS_OWNER(w);
	char path[SES_PATH_CAP];
	_cleanup_fd_ int dir = -1;
	const char *name;

	if (ses_path(text, path, e) < 0)
		return -1;
	dir = ses_parent(w, path, false, &name, e);
	if (dir < 0)
		return -1;
	if (unlinkat(dir, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return ses_fail(e, path);
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno == ENOTDIR) { /* a file that may not be removed */
		errno = EPERM;
		return ses_fail(e, path);
	}
	if (!recursive && (errno == ENOTEMPTY || errno == EEXIST))
		return ses_refuse(
			e, ERR_PATH, path,
			"the directory is not empty; recursive removes it with all in it");
	if (!recursive || ses_remove_tree(dir, name) == 0)
		return recursive ? 0 : ses_fail(e, path);
	if (errno == ENOTEMPTY || errno == EEXIST)
		return ses_refuse(e, ERR_SYS, path,
				  "files are made in it as fast as it is emptied");
	return ses_fail(e, path);
}
