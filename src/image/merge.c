/* Merging layers: each is laid over the tree in turn, from the lowest up, as overlayfs would show
 * them.
 *
 * What may go wrong: a tree is deeper than there are descriptors (bounded as unpacking is), a file
 * has more links than the file system takes (said). */
#include "image/merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "image/tree.h"

#define DEPTH_MAX 256
#define OVERLAY "user.overlay."
#define XATTRS_MAX 65536

static bool is_opaque(int dir)
{
	char v[2];

	return fgetxattr(dir, OVERLAY "opaque", v, sizeof(v)) == 1 && v[0] == 'y';
}

/* Attributes that are overlayfs's own say how this layer lies on others, and have no use now. */
static int copy_xattrs(int from, int to, struct err *e)
{
	static char names[XATTRS_MAX], value[XATTRS_MAX];
	ssize_t n = flistxattr(from, names, sizeof(names)), len;

	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : err_sys(e, "listxattr");
	for (const char *s = names; s < names + n; s += strlen(s) + 1) {
		if (strncmp(s, "user.", 5) != 0 || !strncmp(s, OVERLAY, strlen(OVERLAY)))
			continue;
		len = fgetxattr(from, s, value, sizeof(value));
		if (len < 0 || fsetxattr(to, s, value, (size_t)len, 0) < 0)
			return err_sys(e, "setxattr");
	}
	return 0;
}

/* The directory is as the layer at hand has it. */
static int finish(int from, int to, const struct stat *st, struct err *e)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	struct stat now;

	if (copy_xattrs(from, to, e) < 0)
		return -1;
	if (fstat(to, &now) < 0)
		return err_sys(e, "stat");
	if ((now.st_uid != st->st_uid || now.st_gid != st->st_gid) &&
	    fchown(to, st->st_uid, st->st_gid) < 0)
		return err_sys(e, "chown");
	return fchmod(to, st->st_mode & 07777) < 0 || futimens(to, times) < 0 ? err_sys(e, "chmod")
									      : 0;
}

static int lay(int from, int to, unsigned depth, struct err *e);

/* Opens the directory `name` of the tree, made when there is none, with all rights. */
static int target(int to, const char *name, bool fresh, struct err *e)
{
	struct stat st;
	int fd;

	if (fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (!S_ISDIR(st.st_mode) || fresh) {
			if (img_tree_remove(to, name, e) < 0)
				return -1;
		} else if (fchmodat(to, name, 0700, 0) < 0) {
			return err_sys(e, "chmod");
		}
	}
	if (mkdirat(to, name, 0700) < 0 && errno != EEXIST)
		return err_sys(e, "mkdir");
	fd = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? err_sys(e, "open") : fd;
}

static int lay_dir(int from, int to, const char *name, const struct stat *st, unsigned depth,
		   struct err *e) /* NOLINT(misc-no-recursion) */
{
	_cleanup_fd_ int in = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
			 out = -1;

	if (in < 0)
		return err_sys(e, "open");
	if (depth == DEPTH_MAX)
		return err_set(e, ERR_REFUSED, "it is more than %d directories deep", DEPTH_MAX);
	out = target(to, name, is_opaque(in), e);
	return out < 0 || lay(in, out, depth + 1, e) < 0 ? -1 : finish(in, out, st, e);
}

static int lay_one(int from, int to, const char *name, unsigned depth,
		   struct err *e) /* NOLINT(misc-no-recursion) */
{
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "stat");
	if (S_ISDIR(st.st_mode))
		return lay_dir(from, to, name, &st, depth, e);
	if (img_tree_remove(to, name, e) < 0)
		return -1;
	if (S_ISCHR(st.st_mode)) /* a whiteout: no other device is in a layer */
		return 0;
	return linkat(from, name, to, name, 0) < 0 ? err_sys(e, "link") : 0;
}

static int lay(int from, int to, unsigned depth, struct err *e) /* NOLINT(misc-no-recursion) */
{
	int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;
	char shown[200];

	if (!d) {
		r = err_sys(e, "open");
		fd_close(&fd);
		return r;
	}
	while (r == 0 && (errno = 0, ent = readdir(d))) {
		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		r = lay_one(from, to, ent->d_name, depth, e);
		if (r < 0)
			err_prefix(e, "%s", str_printable(shown, sizeof(shown), ent->d_name));
	}
	if (r == 0 && errno)
		r = err_sys(e, "readdir");
	closedir(d);
	return r;
}

int img_merge(int tree, const int *layers, size_t n, struct err *e)
{
	struct stat st;

	for (size_t i = 0; i < n; i++) {
		if (fstat(layers[i], &st) < 0)
			return err_sys(e, "merge layers");
		if (lay(layers[i], tree, 0, e) < 0 || finish(layers[i], tree, &st, e) < 0 ||
		    fchmod(tree, (st.st_mode & 07777) | 0700) < 0)
			return err_prefix(e, "merge layers");
	}
	return 0;
}
