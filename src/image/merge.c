/* Merging: a walk over all layers at once, the topmost first. A name is what the topmost layer has
 * of it; a directory is the union of the directories of that name down to the first layer that
 * hides what is below it.
 *
 * What may go wrong: trees that are deep (a bound, as when they were unpacked), directories that
 * are closed to their owner (read with the right to; else made anew and entered before they get
 * their mode), file systems without links to a file that has too many (copied then is nothing: it
 * is an error that says so). */
#include "image/merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"

#define DEPTH_MAX 256
#define LAYERS_MAX 128
#define LIST_MAX 65536

struct merge {
	struct img_unpacked done;
	unsigned depth;
};

static int walk(struct merge *m, int to, const int *from, size_t n, struct err *e);

/* Modes, times, owners and attributes of the directory `from`. */
static int dress(int to, int from, struct err *e)
{
	char names[LIST_MAX], value[LIST_MAX];
	struct timespec times[2];
	struct stat st;
	ssize_t n;

	if (fstat(from, &st) < 0)
		return err_sys(e, "stat");
	n = flistxattr(from, names, sizeof(names));
	for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1) {
		ssize_t len;

		if (strncmp(name, "user.", 5) != 0 || !strncmp(name, "user.overlay.", 13))
			continue;
		len = fgetxattr(from, name, value, sizeof(value));
		if (len >= 0 && fsetxattr(to, name, value, (size_t)len, 0) < 0)
			return err_sys(e, "setxattr");
	}
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	if (geteuid() == 0 && fchown(to, st.st_uid, st.st_gid) < 0)
		return err_sys(e, "chown");
	if (fchmod(to, st.st_mode & 07777) < 0 || futimens(to, times) < 0)
		return err_sys(e, "chmod");
	return 0;
}

static bool opaque(int dir)
{
	char v[2];

	return fgetxattr(dir, "user.overlay.opaque", v, sizeof(v)) == 1 && v[0] == 'y';
}

static int open_dir(int at, const char *name)
{
	return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The directory `name` of from[0] and of what shows through it. */
static int merge_dir(struct merge *m, int to, const int *from, size_t n, const char *name,
		     struct err *e)
{
	int dirs[LAYERS_MAX], r = -1;
	_cleanup_fd_ int made = -1;
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		struct stat st;

		if (fstatat(from[i], name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			if (errno == ENOENT)
				continue;
			err_sys(e, "stat");
			goto out;
		}
		if (!S_ISDIR(st.st_mode))
			break;
		dirs[k] = open_dir(from[i], name);
		if (dirs[k] < 0) {
			err_sys(e, "open");
			goto out;
		}
		if (opaque(dirs[k++]))
			break;
	}
	if (k == 0) { /* it was one when it was listed */
		err_set(e, ERR_REFUSED, "a layer is being changed by somebody else");
		return -1;
	}
	if (mkdirat(to, name, 0700) < 0 || (made = open_dir(to, name)) < 0) {
		err_sys(e, "make a directory");
		goto out;
	}
	if (walk(m, made, dirs, k, e) == 0)
		r = dress(made, dirs[0], e);
out:
	while (k > 0)
		fd_close(&dirs[--k]);
	return r;
}

/* The name as from[0], the topmost layer that has it, shows it. */
static int merge_name(struct merge *m, int to, const int *from, size_t n, const char *name,
		      struct err *e)
{
	struct stat st;

	if (fstatat(to, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0; /* a layer above gave it */
	if (fstatat(from[0], name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "stat");
	if (++m->done.entries > img_unpack_default.entries)
		return err_set(e, ERR_REFUSED, "more than %llu entries",
			       (unsigned long long)img_unpack_default.entries);
	if (S_ISDIR(st.st_mode))
		return merge_dir(m, to, from, n, name, e);
	/* Whiteouts come along until the directory is whole: they keep away what is below. */
	if (linkat(from[0], name, to, name, 0) < 0)
		return err_sys(e, "link");
	if (S_ISREG(st.st_mode))
		m->done.bytes += (uint64_t)st.st_size;
	return 0;
}

static int each_name(struct merge *m, int to, const int *from, size_t n, int dir, bool whiteouts,
		     struct err *e)
{
	int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = again < 0 ? NULL : fdopendir(again);
	const struct dirent *en;
	struct stat st;
	int r = 0;

	if (!d) {
		fd_close(&again);
		return err_sys(e, "read a directory");
	}
	while (r == 0 && (errno = 0, en = readdir(d))) {
		if (!strcmp(en->d_name, ".") || !strcmp(en->d_name, ".."))
			continue;
		if (!whiteouts)
			r = merge_name(m, to, from, n, en->d_name, e);
		else if (fstatat(to, en->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			 S_ISCHR(st.st_mode) && unlinkat(to, en->d_name, 0) < 0)
			r = err_sys(e, "unlink");
		if (r < 0)
			err_prefix(e, "%.60s", en->d_name);
	}
	if (r == 0 && errno)
		r = err_sys(e, "read a directory");
	closedir(d);
	return r;
}

static int walk(struct merge *m, int to, const int *from, size_t n, struct err *e)
{
	int r = 0;

	if (++m->depth > DEPTH_MAX)
		return err_set(e, ERR_REFUSED, "more than %d directories deep", DEPTH_MAX);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = each_name(m, to, from + i, n - i, from[i], false, e);
	if (r == 0)
		r = each_name(m, to, NULL, 0, to, true, e);
	m->depth--;
	return r;
}

int img_merge(int tree, const int *layers, size_t n, struct img_unpacked *ret, struct err *e)
{
	struct merge m = { 0 };

	if (n == 0 || n > LAYERS_MAX)
		return err_set(e, ERR_REFUSED, "%zu layers can't be merged", n);
	if (walk(&m, tree, layers, n, e) < 0 || dress(tree, layers[0], e) < 0)
		return -1;
	m.done.opaque_root = false;
	*ret = m.done;
	return 0;
}
