/* Copying a workspace into an empty one, for fork.
 *
 * How: directories are a list of work, opened by their paths beneath either workspace, without
 * links; a file's content is shared where the file system can (FICLONE), else copied piece by
 * piece, so that holes stay. Directories get their modes and times at the end, the deepest first.
 *
 * What may go wrong: boxes change the source meanwhile (what has gone is left out, what was opened
 * is looked at through its descriptor); a tree too large (bounded); the target runs full (an error:
 * the caller removes it). What is mounted in the source is not gone into. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "session/workspace_impl.h"

#define FILES_MAX 1000000
#define PATHS_MAX (256u << 20)
#define OVERLAY "user.overlay."
#define PIECE 65536

/* A directory, or the first name of a file that has several. */
struct place {
	char *path;
	dev_t dev;
	ino_t ino;
	mode_t mode;
	struct timespec mtime;
};

struct places {
	struct place *v;
	size_t n, cap;
};

struct copy {
	const struct ses_workspace *from, *to;
	dev_t dev;
	struct places dirs;
	struct places linked; /* as a table: open addressing, cap a power of two */
	size_t files, bytes;
	char piece[PIECE];
	char names[65536], value[65536];
};

static int no_memory(struct err *e)
{
	return err_sys(e, "copy the workspace");
}

static int place_fill(struct copy *c, struct place *p, const char *path, const struct stat *st,
		      struct err *e)
{
	c->bytes += strlen(path) + 1;
	if (c->bytes > PATHS_MAX)
		return ses_refuse(e, ERR_TOO_LARGE, "", "its paths have more than %u bytes",
				  PATHS_MAX);
	*p = (struct place){ strdup(path), st->st_dev, st->st_ino, st->st_mode, st->st_mtim };
	return p->path ? 0 : no_memory(e);
}

static int add_dir(struct copy *c, const char *path, const struct stat *st, struct err *e)
{
	struct places *l = &c->dirs;

	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct place *v = reallocarray(l->v, cap, sizeof(*v));

		if (!v)
			return no_memory(e);
		l->v = v;
		l->cap = cap;
	}
	if (place_fill(c, &l->v[l->n], path, st, e) < 0)
		return -1;
	l->n++;
	return 0;
}

static struct place *slot(struct place *v, size_t cap, const struct stat *st)
{
	size_t i = (size_t)(st->st_ino * 0x9e3779b97f4a7c15ULL) & (cap - 1);

	while (v[i].path && (v[i].ino != st->st_ino || v[i].dev != st->st_dev))
		i = (i + 1) & (cap - 1);
	return &v[i];
}

/* The first name of the file; it is this one, and remembered, when path is NULL afterwards. */
static int first_name(struct copy *c, const struct stat *st, const char *path, const char **ret,
		      struct err *e)
{
	struct places *l = &c->linked;
	struct place *p;

	if (2 * l->n >= l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 256;
		struct place *v = calloc(cap, sizeof(*v));

		if (!v)
			return no_memory(e);
		for (size_t i = 0; i < l->cap; i++)
			if (l->v[i].path)
				*slot(v, cap,
				      &(struct stat){ .st_ino = l->v[i].ino,
						      .st_dev = l->v[i].dev }) = l->v[i];
		free(l->v);
		l->v = v;
		l->cap = cap;
	}
	p = slot(l->v, l->cap, st);
	*ret = p->path;
	if (p->path)
		return 0;
	l->n++;
	return place_fill(c, p, path, st, e);
}

static bool has_gone(void)
{
	return errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == ENXIO ||
	       errno == EINVAL;
}

static int copy_xattrs(struct copy *c, int from, int to, const char *path, struct err *e)
{
	ssize_t n = flistxattr(from, c->names, sizeof(c->names)), len;

	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : ses_fail(e, path);
	for (const char *s = c->names; s < c->names + n; s += strlen(s) + 1) {
		if (strncmp(s, "user.", 5) != 0 || !strncmp(s, OVERLAY, strlen(OVERLAY)))
			continue;
		len = fgetxattr(from, s, c->value, sizeof(c->value));
		SES_AS_OWNER(c->to);
		if (len >= 0 && fsetxattr(to, s, c->value, (size_t)len, 0) < 0 &&
		    errno != EOPNOTSUPP)
			return ses_fail(e, path);
	}
	return 0;
}

/* n bytes of both files from `at`, by whatever the file systems can. */
static int copy_piece(struct copy *c, int from, int to, off_t at, off_t n)
{
	bool in_kernel = true;

	while (n > 0) {
		off_t in = at, out = at;
		ssize_t r = -1;

		if (in_kernel) {
			r = copy_file_range(from, &in, to, &out, (size_t)n, 0);
			if (r == 0 || (r < 0 && errno != EINTR))
				in_kernel = false;
		}
		if (r <= 0 && !in_kernel) {
			r = pread(from, c->piece, n < PIECE ? (size_t)n : PIECE, at);
			if (r == 0) /* it has become shorter */
				return 0;
			if (r > 0)
				r = pwrite(to, c->piece, (size_t)r, at);
		}
		if (r < 0 && errno != EINTR)
			return -1;
		if (r > 0) {
			at += r;
			n -= r;
		}
	}
	return 0;
}

static int copy_content(struct copy *c, int from, int to, off_t size)
{
	off_t at = 0;

	if (size == 0 || ioctl(to, FICLONE, from) == 0)
		return 0;
	while (at < size) {
		off_t data = lseek(from, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO) /* a hole up to the end */
			break;
		hole = data < 0 ? size : lseek(from, data, SEEK_HOLE);
		if (data < 0)
			data = at;
		if (hole < 0 || hole > size)
			hole = size;
		if (hole <= data)
			break;
		if (copy_piece(c, from, to, data, hole - data) < 0)
			return -1;
		at = hole;
	}
	return ftruncate(to, size);
}

static int make_file(const struct copy *c, int dir, const char *name)
{
	SES_AS_OWNER(c->to);

	return openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static int make_dir(const struct copy *c, int dir, const char *name)
{
	SES_AS_OWNER(c->to);

	return mkdirat(dir, name, 0700);
}

static int open_target(const struct copy *c, const char *path)
{
	SES_AS_OWNER(c->to);

	return ses_open_dir(c->to->fd, path, false);
}

static int copy_file(struct copy *c, int from_dir, int to_dir, const char *name, const char *path,
		     struct err *e)
{
	_cleanup_fd_ int from = openat(from_dir, name,
				       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC),
			 to = -1;
	const char *first = NULL;
	struct stat st;

	if (from < 0)
		return has_gone() ? 0 : ses_fail(e, path);
	if (fstat(from, &st) < 0)
		return ses_fail(e, path);
	if (!S_ISREG(st.st_mode))
		return 0;
	if (st.st_nlink > 1 && first_name(c, &st, path, &first, e) < 0)
		return -1;
	if (first) {
		char at[SES_PATH_CAP];
		const char *last;
		_cleanup_fd_ int dir = -1;
		SES_AS_OWNER(c->to);

		if (ses_path(first, at, e) < 0)
			return -1;
		dir = ses_parent(c->to, at, false, &last, e);
		if (dir < 0)
			return -1;
		return linkat(dir, last, to_dir, name, 0) < 0 ? ses_fail(e, path) : 0;
	}
	to = make_file(c, to_dir, name);
	if (to < 0 || copy_content(c, from, to, st.st_size) < 0)
		return ses_fail(e, path);
	if (copy_xattrs(c, from, to, path, e) < 0)
		return -1;
	SES_AS_OWNER(c->to);
	if (fchmod(to, st.st_mode & 0777) < 0 ||
	    futimens(to, (struct timespec[2]){ { .tv_nsec = UTIME_OMIT }, st.st_mtim }) < 0)
		return ses_fail(e, path);
	return 0;
}

static int copy_link(const struct copy *c, int from_dir, int to_dir, const char *name,
		     const char *path, const struct stat *st, struct err *e)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, st->st_mtim };
	char text[SES_PATH_CAP + 1];
	ssize_t n = readlinkat(from_dir, name, text, sizeof(text) - 1);

	if (n < 0)
		return has_gone() ? 0 : ses_fail(e, path);
	text[n] = '\0';
	SES_AS_OWNER(c->to);
	if (symlinkat(text, to_dir, name) < 0 ||
	    utimensat(to_dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return ses_fail(e, path);
	return 0;
}

static int copy_one(struct copy *c, int from, int to, const char *name, const char *path,
		    struct err *e)
{
	struct stat st;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return has_gone() ? 0 : ses_fail(e, path);
	if (++c->files > FILES_MAX)
		return ses_refuse(e, ERR_TOO_LARGE, "", "more than %d files", FILES_MAX);
	if (S_ISREG(st.st_mode))
		return copy_file(c, from, to, name, path, e);
	if (S_ISLNK(st.st_mode))
		return copy_link(c, from, to, name, path, &st, e);
	if (!S_ISDIR(st.st_mode))
		return 0;
	if (make_dir(c, to, name) < 0)
		return ses_fail(e, path);
	return add_dir(c, path, &st, e);
}

static int copy_dir(struct copy *c, const char *path, struct err *e)
{
	_cleanup_fd_ int from = ses_open_dir(c->from->fd, path, false),
			 to = from < 0 ? -1 : open_target(c, path);
	char below[SES_PATH_CAP];
	struct ses_name name;
	struct ses_dir d;

	if (from < 0 && has_gone())
		return 0;
	if (from < 0 || to < 0)
		return ses_fail(e, path);
	if (copy_xattrs(c, from, to, path, e) < 0)
		return -1;
	ses_dir(&d, from);
	while (ses_dir_next(&d, &name) > 0) {
		if (path_join(below, sizeof(below), path, name.name) < 0)
			return ses_fail(e, path);
		if (copy_one(c, from, to, name.name, below, e) < 0)
			return -1;
	}
	return 0;
}

static int finish_dir(const struct copy *c, const struct place *p, struct err *e)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, p->mtime };
	_cleanup_fd_ int fd = open_target(c, p->path);
	SES_AS_OWNER(c->to);

	if (fd < 0 || futimens(fd, times) < 0 || fchmod(fd, p->mode & 03777) < 0)
		return ses_fail(e, p->path);
	return 0;
}

static int copy_all(struct copy *c, struct err *e)
{
	struct stat st;

	if (fstat(c->from->fd, &st) < 0)
		return ses_fail(e, "");
	c->dev = st.st_dev;
	if (copy_dir(c, "", e) < 0)
		return -1;
	for (size_t i = 0; i < c->dirs.n; i++)
		if (c->dirs.v[i].dev == c->dev && copy_dir(c, c->dirs.v[i].path, e) < 0)
			return -1;
	for (size_t i = c->dirs.n; i-- > 0;)
		if (finish_dir(c, &c->dirs.v[i], e) < 0)
			return -1;
	return 0;
}

static void places_free(struct places *l, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(l->v[i].path);
	free(l->v);
}

int ses_copy(const struct ses_workspace *from, const struct ses_workspace *to, struct err *e)
{
	struct copy *c;
	int r;

	/* One owner for both: what the boxes of either can be. A workspace in memory has its own,
	 * and can hold files of no other. */
	if (from->give && to->uid == geteuid() && fchown(to->fd, from->uid, from->gid) < 0)
		return ses_fail(e, "");
	c = calloc(1, sizeof(*c)); /* large */
	if (!c)
		return no_memory(e);
	c->from = from;
	c->to = to;
	SES_AS_OWNER(from);
	r = copy_all(c, e);
	places_free(&c->dirs, c->dirs.n);
	places_free(&c->linked, c->linked.cap);
	free(c);
	return r;
}
