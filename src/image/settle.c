/* A walk, one open directory a level. A directory is made accessible before it is entered and gets
 * its mode when it is left, so that an ordinary caller gets into what the box's root, who needs no
 * permission, has closed. Bits go before the owner changes: no file is ever root's and set-id. */
#include "image/settle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"

#define DEPTH_MAX 256
#define XATTRS_MAX 65536 /* the kernel's own bound on the list of one file */
#define OPAQUE "user.overlay.opaque"

struct settle {
	struct img_unpacked done;
	uid_t uid;
	gid_t gid;
	unsigned depth;
};

/* What names the entry in a message. */
static int failed(const char *name, struct err *e)
{
	return err_sys(e, "settle \"%.200s\" of the new layer", name);
}

static bool is_opaque(const char *path)
{
	char value[4];

	return lgetxattr(path, OPAQUE, value, sizeof(value)) == 1 && value[0] == 'y';
}

static bool keeps(const char *path, const char *attr, const struct stat *st)
{
	if (strcmp(attr, OPAQUE) == 0)
		return S_ISDIR(st->st_mode) && is_opaque(path);
	if (strncmp(attr, "user.overlay.", 13) == 0)
		return false;
	return strcmp(attr, "security.capability") != 0 &&
	       strncmp(attr, "system.posix_acl_", 17) != 0;
}

/* A file's capabilities are the user namespace's to remove; a change of owner, though it be to the
 * same, drops them for anybody (chown(2)). */
static int drop_attr(int dir, const char *name, const char *path, const char *attr)
{
	char value[64];

	if (lremovexattr(path, attr) == 0)
		return 0;
	if (errno != EPERM || strcmp(attr, "security.capability") != 0 ||
	    fchownat(dir, name, (uid_t)-1, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (lgetxattr(path, attr, value, sizeof(value)) < 0 && errno == ENODATA)
		return 0;
	errno = EPERM;
	return -1;
}

/* Apart from its caller, which hardly ever needs all this room. */
static int settle_list_of_attrs(struct settle *s, int dir, const char *name, const char *path,
				const struct stat *st, struct err *e)
{
	char list[XATTRS_MAX];
	ssize_t n = llistxattr(path, list, sizeof(list));

	if (n < 0)
		return failed(name, e);
	for (const char *attr = list; attr < list + n; attr += strlen(attr) + 1) {
		if (keeps(path, attr, st))
			continue;
		if (drop_attr(dir, name, path, attr) < 0)
			return failed(name, e);
		if (strncmp(attr, "user.overlay.", 13) != 0)
			s->done.xattrs++;
	}
	return 0;
}

static int settle_attrs(struct settle *s, int dir, const char *name, const struct stat *st,
			struct err *e)
{
	char path[NAME_MAX + 64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir, name);
	n = llistxattr(path, NULL, 0);
	if (n < 0 && errno != EOPNOTSUPP)
		return failed(name, e);
	return n > 0 ? settle_list_of_attrs(s, dir, name, path, st, e) : 0;
}

static int settle_owner(const struct settle *s, int dir, const char *name, const struct stat *st)
{
	if (st->st_uid == s->uid && (st->st_gid == s->gid || s->uid != 0))
		return 0;
	return fchownat(dir, name, s->uid, s->gid, AT_SYMLINK_NOFOLLOW);
}

static int settle_file(struct settle *s, int dir, const char *name, const struct stat *st,
		       struct err *e)
{
	mode_t mode = st->st_mode & 07777;

	if (mode & (S_ISUID | S_ISGID)) {
		s->done.set_ids++;
		if (fchmodat(dir, name, mode & 01777, 0) < 0)
			return failed(name, e);
	}
	if (settle_attrs(s, dir, name, st, e) < 0)
		return -1;
	s->done.bytes += (uint64_t)st->st_size / (st->st_nlink > 0 ? st->st_nlink : 1);
	return 0;
}

static int settle_dir(struct settle *s, int dir, const char *name, const struct stat *st,
		      struct err *e);

static int settle_entry(struct settle *s, int dir, const char *name, struct err *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return failed(name, e);
	if (++s->done.entries > img_unpack_default.entries ||
	    s->done.bytes > img_unpack_default.bytes)
		return err_set(e, ERR_REFUSED,
			       "the new layer is too large: at most %llu entries and %llu GiB",
			       (unsigned long long)img_unpack_default.entries,
			       (unsigned long long)(img_unpack_default.bytes >> 30));
	if (S_ISDIR(st.st_mode))
		return settle_dir(s, dir, name, &st, e);
	if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0)) {
		s->done.whiteouts++;
	} else if (S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode)) {
		if (settle_file(s, dir, name, &st, e) < 0)
			return -1;
	} else if (!S_ISLNK(st.st_mode)) {
		s->done.entries--;
		s->done.devices += !S_ISSOCK(st.st_mode);
		return unlinkat(dir, name, 0) < 0 ? failed(name, e) : 0;
	}
	return settle_owner(s, dir, name, &st) < 0 ? failed(name, e) : 0;
}

static int settle_list(struct settle *s, int fd, struct err *e)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *en;
	int r = 0;

	if (!d) {
		err_sys(e, "list a directory of the new layer");
		fd_close(&copy);
		return -1;
	}
	errno = 0;
	while (r == 0 && (en = readdir(d))) {
		if (strcmp(en->d_name, ".") != 0 && strcmp(en->d_name, "..") != 0)
			r = settle_entry(s, fd, en->d_name, e);
		errno = 0;
	}
	if (r == 0 && errno != 0)
		r = err_sys(e, "list a directory of the new layer");
	closedir(d);
	return r;
}

static int settle_dir(struct settle *s, int dir, const char *name, const struct stat *st,
		      struct err *e)
{
	mode_t mode = st->st_mode & 03777;
	_cleanup_fd_ int fd = -1;

	if (s->depth == DEPTH_MAX)
		return err_set(e, ERR_REFUSED,
			       "the new layer is more than %d directories deep, at \"%.200s\"",
			       DEPTH_MAX, name);
	if ((mode & 0700) != 0700 && fchmodat(dir, name, mode | 0700, 0) < 0)
		return failed(name, e);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return failed(name, e);
	s->depth++;
	if (settle_attrs(s, dir, name, st, e) < 0 || settle_list(s, fd, e) < 0)
		return -1;
	s->depth--;
	if (settle_owner(s, dir, name, st) < 0)
		return failed(name, e);
	if (((st->st_mode & 07777) != mode || (mode & 0700) != 0700) && fchmod(fd, mode) < 0)
		return failed(name, e);
	return 0;
}

int img_settle(int tree, struct img_unpacked *ret, struct err *e)
{
	struct settle s = { .uid = geteuid(), .gid = getegid() };
	struct stat st;

	if (fstat(tree, &st) < 0 || settle_attrs(&s, tree, ".", &st, e) < 0)
		return failed("/", e);
	if (settle_list(&s, tree, e) < 0)
		return -1;
	if (settle_owner(&s, tree, ".", &st) < 0)
		return failed("/", e);
	*ret = s.done;
	return 0;
}
