/* Walking a layer: a directory, its opaque marker, then its names in order. Or the files of a
 * workspace, which may be anything by the time they are opened.
 *
 * What stands in the store and not in the archive it came from is left out or the same everywhere:
 * a whiteout's times, and a root directory that is as usual.
 *
 * What may go wrong: a file changes while it is written (the store's never do; it is noticed), or
 * is no file any more (what was opened is looked at, and no FIFO is waited for); a tree is deeper
 * than there are descriptors (bounded). */
#include "image/layer_tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define DEPTH_MAX 256
#define OVERLAY "user.overlay."
#define XATTRS_CAP 65536
#define PIECE 65536
#define PIECES_MAX (TAR_SPARSE_MAX - 1)

/* Where a file of several names was first seen. */
struct seen {
	ino_t ino;
	char *path;
};

struct walk {
	const struct tar_sink *sink;
	struct tar_entry en;
	char names[XATTRS_CAP], values[XATTRS_CAP];
	struct seen *seen; /* open addressing; a power of two */
	size_t n_seen, cap_seen;

	bool files; /* of a workspace */
	bool (*passes)(const char *name);
	dev_t dev;
	struct img_files_tarred done;
	struct tar_piece *pieces; /* room for PIECES_MAX */
};

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static struct seen *slot(struct seen *v, size_t cap, ino_t ino)
{
	size_t i = (size_t)ino * 0x9e3779b97f4a7c15ULL & (cap - 1);

	while (v[i].path && v[i].ino != ino)
		i = (i + 1) & (cap - 1);
	return &v[i];
}

/* The first name of the file, or NULL: it is this one, and remembered. */
static int first_name(struct walk *w, ino_t ino, const char *path, const char **ret, struct err *e)
{
	struct seen *s;

	if (2 * w->n_seen >= w->cap_seen) {
		size_t cap = w->cap_seen ? 2 * w->cap_seen : 256;
		struct seen *v = calloc(cap, sizeof(*v));

		if (!v)
			return err_sys(e, "the names of files");
		for (size_t i = 0; i < w->cap_seen; i++)
			if (w->seen[i].path)
				*slot(v, cap, w->seen[i].ino) = w->seen[i];
		free(w->seen);
		w->seen = v;
		w->cap_seen = cap;
	}
	s = slot(w->seen, w->cap_seen, ino);
	*ret = s->path;
	if (s->path)
		return 0;
	s->path = strdup(path);
	s->ino = ino;
	w->n_seen++;
	return s->path ? 0 : err_sys(e, "the names of files");
}

/* user.* but overlayfs's own, in order. */
static int take_xattrs(struct walk *w, int fd, struct err *e)
{
	char *list[TAR_XATTRS_MAX];
	ssize_t n = flistxattr(fd, w->names, sizeof(w->names)), len;
	size_t k = 0, used = 0;

	if (n < 0)
		return errno == EOPNOTSUPP ? 0 : err_sys(e, "listxattr");
	for (char *s = w->names; s < w->names + n; s += strlen(s) + 1) {
		if (strncmp(s, "user.", 5) != 0 || !strncmp(s, OVERLAY, strlen(OVERLAY)))
			continue;
		if (k == TAR_XATTRS_MAX)
			return err_set(e, ERR_REFUSED, "it has too many extended attributes");
		list[k++] = s;
	}
	qsort(list, k, sizeof(*list), by_text);
	for (size_t i = 0; i < k; i++) {
		len = fgetxattr(fd, list[i], w->values + used, sizeof(w->values) - used);
		if (len < 0)
			return err_sys(e, "getxattr");
		w->en.xattrs[i] = (struct tar_xattr){ list[i], w->values + used, (size_t)len };
		used += (size_t)len;
	}
	w->en.n_xattrs = k;
	return 0;
}

static int begin(struct walk *w, const char *path, const struct stat *st, struct err *e)
{
	struct tar_entry *en = &w->en;

	if (strlen(path) >= sizeof(en->path))
		return err_set(e, ERR_REFUSED, "its name is too long");
	memcpy(en->path, path, strlen(path) + 1);
	en->link[0] = '\0';
	en->mode = st->st_mode & 07777;
	en->uid = w->files || st->st_uid == geteuid() ? 0 : st->st_uid;
	en->gid = w->files || st->st_gid == getegid() ? 0 : st->st_gid;
	en->mtime = st->st_mtim.tv_sec;
	en->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
	en->size = 0;
	en->n_xattrs = 0;
	return 0;
}

/* `n` bytes of the file from `offset`. */
static int put_piece(struct walk *w, int fd, uint64_t offset, uint64_t n, struct err *e)
{
	char piece[PIECE];

	while (n > 0) {
		size_t want = n < PIECE ? (size_t)n : PIECE;
		ssize_t got = pread(fd, piece, want, (off_t)offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return err_sys(e, "read");
		if (got == 0 && !w->files)
			return err_set(e, ERR_REFUSED, "it became shorter while it was read");
		if (got == 0) {
			memset(piece, 0, want);
			got = (ssize_t)want;
		}
		if (w->sink->write(w->sink->ctx, piece, (size_t)got, e) < 0)
			return -1;
		n -= (uint64_t)got;
		offset += (uint64_t)got;
	}
	return 0;
}

/* Where there is content. 0: the file has no holes, or its file system can't tell. */
static size_t find_pieces(struct walk *w, int fd, uint64_t size)
{
	off_t at = 0, end = (off_t)size;
	size_t n = 0;

	while (at < end && n < PIECES_MAX) {
		off_t data = lseek(fd, at, SEEK_DATA), hole;

		if (data < 0 && errno != ENXIO)
			return 0;
		if (data < 0 || data >= end) /* a hole up to the end */
			break;
		hole = n == PIECES_MAX - 1 ? end : lseek(fd, data, SEEK_HOLE);
		if (hole < 0 || hole > end)
			hole = end;
		if (hole <= data) /* it changes */
			return 0;
		w->pieces[n++] = (struct tar_piece){ (uint64_t)data, (uint64_t)(hole - data) };
		at = hole;
	}
	if (n == 0 && size > 0)
		w->pieces[n++] = (struct tar_piece){ size, 0 };
	return n;
}

static int put_content(struct walk *w, int fd, const struct stat *st, struct err *e)
{
	uint64_t size = (uint64_t)st->st_size, stored = 0;
	size_t n = w->files && (uint64_t)st->st_blocks * 512 < size ? find_pieces(w, fd, size) : 0;

	if (n == 0) {
		if (tar_put(w->sink, &w->en, e) < 0 || put_piece(w, fd, 0, size, e) < 0)
			return -1;
		return tar_put_padding(w->sink, size, e);
	}
	if (tar_put_sparse(w->sink, &w->en, w->pieces, n, e) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (put_piece(w, fd, w->pieces[i].offset, w->pieces[i].len, e) < 0)
			return -1;
		stored += w->pieces[i].len;
	}
	return tar_put_padding(w->sink, stored, e);
}

/* Something of a workspace is no longer what it was when it was looked at. */
static bool has_gone(const struct walk *w)
{
	return w->files && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP ||
			    errno == ENXIO || errno == EINVAL);
}

static int put_file(struct walk *w, int dir, const char *name, const char *path, struct err *e)
{
	_cleanup_fd_ int fd =
		openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	const char *first = NULL;
	struct stat st;

	if (fd < 0)
		return has_gone(w) ? 0 : err_sys(e, "open");
	if (fstat(fd, &st) < 0)
		return err_sys(e, "stat");
	if (!S_ISREG(st.st_mode))
		return 0;
	/* Inodes are those of one file system. */
	if (st.st_nlink > 1 && (!w->files || st.st_dev == w->dev) &&
	    first_name(w, st.st_ino, path, &first, e) < 0)
		return -1;
	if (begin(w, path, &st, e) < 0)
		return -1;
	w->done.files++;
	if (first) {
		w->en.type = TAR_HARDLINK;
		memcpy(w->en.link, first, strlen(first) + 1);
		return tar_put(w->sink, &w->en, e);
	}
	w->en.type = TAR_FILE;
	w->en.size = (uint64_t)st.st_size;
	return take_xattrs(w, fd, e) < 0 ? -1 : put_content(w, fd, &st, e);
}

static int put_symlink(struct walk *w, int dir, const char *name, const char *path,
		       const struct stat *st, struct err *e)
{
	ssize_t n;

	if (begin(w, path, st, e) < 0)
		return -1;
	n = readlinkat(dir, name, w->en.link, sizeof(w->en.link) - 1);
	if (n < 0)
		return has_gone(w) ? 0 : err_sys(e, "readlink");
	w->done.files++;
	w->en.link[n] = '\0';
	w->en.type = TAR_SYMLINK;
	w->en.mode = 0777;
	return tar_put(w->sink, &w->en, e);
}

/* An empty file of that name, without times. */
static int put_mark(struct walk *w, const char *dir, const char *prefix, const char *name,
		    struct err *e)
{
	static const struct stat none;
	char path[TAR_PATH_CAP];

	if (snprintf(path, sizeof(path), "%s%s%s%s", dir, *dir ? "/" : "", prefix, name) >=
	    (int)sizeof(path))
		return err_set(e, ERR_REFUSED, "its name is too long");
	if (begin(w, path, &none, e) < 0)
		return -1;
	w->en.uid = w->en.gid = 0;
	w->en.type = TAR_FILE;
	return tar_put(w->sink, &w->en, e);
}

static int put_tree(struct walk *w, int fd, const char *path, unsigned depth, struct err *e);

static bool is_opaque(int dir)
{
	char v[2];

	return fgetxattr(dir, OVERLAY "opaque", v, sizeof(v)) == 1 && v[0] == 'y';
}

static int put_dir(struct walk *w, int dir, const char *name, const char *path, unsigned depth,
		   struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return has_gone(w) ? 0 : err_sys(e, "open");
	if (fstat(fd, &st) < 0)
		return err_sys(e, "stat");
	if (depth == DEPTH_MAX)
		return err_set(e, ERR_REFUSED, "it is more than %d directories deep", DEPTH_MAX);
	if (begin(w, path, &st, e) < 0)
		return -1;
	w->en.type = TAR_DIR;
	w->done.files++;
	if (take_xattrs(w, fd, e) < 0 || tar_put(w->sink, &w->en, e) < 0)
		return -1;
	if (w->files)
		return st.st_dev == w->dev ? put_tree(w, fd, path, depth + 1, e) : 0;
	if (is_opaque(fd) && put_mark(w, path, "", ".wh..wh..opq", e) < 0)
		return -1;
	return put_tree(w, fd, path, depth + 1, e);
}

static int put_one(struct walk *w, int dir, const char *at, const char *name, unsigned depth,
		   struct err *e)
{
	char path[TAR_PATH_CAP];
	struct stat st;

	if (snprintf(path, sizeof(path), "%s%s%s", at, *at ? "/" : "", name) >= (int)sizeof(path))
		return err_set(e, ERR_REFUSED, "its name is too long");
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return has_gone(w) ? 0 : err_sys(e, "stat");
	switch (st.st_mode & S_IFMT) {
	case S_IFREG:
		return put_file(w, dir, name, path, e);
	case S_IFDIR:
		return put_dir(w, dir, name, path, depth, e);
	case S_IFLNK:
		return put_symlink(w, dir, name, path, &st, e);
	}
	if (w->files) {
		w->done.special++;
		return 0;
	}
	switch (st.st_mode & S_IFMT) {
	case S_IFCHR:
		return st.st_rdev == 0 ? put_mark(w, at, ".wh.", name, e) : 0;
	case S_IFIFO:
		if (begin(w, path, &st, e) < 0)
			return -1;
		w->en.type = TAR_FIFO;
		return tar_put(w->sink, &w->en, e);
	}
	return 0;
}

struct list {
	char **v;
	size_t n, cap;
};

static int list_dir(int fd, struct list *l, struct err *e)
{
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = again < 0 ? NULL : fdopendir(again);
	struct dirent *ent;

	if (!d) {
		r = err_sys(e, "open");
		fd_close(&again);
		return r;
	}
	while (r == 0 && (errno = 0, ent = readdir(d))) {
		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		if (l->n == l->cap) {
			size_t cap = l->cap ? 2 * l->cap : 64;
			char **v = reallocarray(l->v, cap, sizeof(*v));

			if (!v) {
				r = err_sys(e, "the names of files");
				break;
			}
			l->v = v;
			l->cap = cap;
		}
		l->v[l->n] = strdup(ent->d_name);
		if (!l->v[l->n])
			r = err_sys(e, "the names of files");
		else
			l->n++;
	}
	if (r == 0 && errno)
		r = err_sys(e, "readdir");
	closedir(d);
	if (r == 0 && l->n > 0)
		qsort(l->v, l->n, sizeof(*l->v), by_text);
	return r;
}

static int put_tree(struct walk *w, int fd, const char *path, unsigned depth, struct err *e)
{
	struct list l = { 0 };
	char shown[200];
	int r = list_dir(fd, &l, e);

	for (size_t i = 0; i < l.n && r == 0; i++) {
		if (!depth && w->passes && w->passes(l.v[i]))
			continue;
		r = put_one(w, fd, path, l.v[i], depth, e);
		if (r < 0)
			err_prefix(e, "%s", str_printable(shown, sizeof(shown), l.v[i]));
	}
	for (size_t i = 0; i < l.n; i++)
		free(l.v[i]);
	free(l.v);
	return r;
}

/* The root is in the archive when there is something to say of it. */
static int put_root(struct walk *w, int dir, uint32_t mode, struct err *e)
{
	struct stat st;

	if (fstat(dir, &st) < 0)
		return err_sys(e, "stat");
	st.st_mode = mode;
	st.st_mtim = (struct timespec){ 0 };
	if (begin(w, ".", &st, e) < 0 || take_xattrs(w, dir, e) < 0)
		return -1;
	if (mode == 0755 && w->en.uid == 0 && w->en.gid == 0 && w->en.n_xattrs == 0)
		return 0;
	w->en.type = TAR_DIR;
	return tar_put(w->sink, &w->en, e);
}

static void walk_free(struct walk *w)
{
	for (size_t i = 0; i < w->cap_seen; i++)
		free(w->seen[i].path);
	free(w->seen);
	free(w->pieces);
	free(w);
}

int img_layer_tar(int dir, uint32_t mode, const struct tar_sink *sink, struct err *e)
{
	struct walk *w = calloc(1, sizeof(*w)); /* large */
	int r;

	if (!w)
		return err_sys(e, "write a layer");
	w->sink = sink;
	r = put_root(w, dir, mode, e) < 0 || put_tree(w, dir, "", 0, e) < 0 ||
			    tar_put_end(sink, e) < 0
		    ? -1
		    : 0;
	walk_free(w);
	return r;
}

int img_files_tar(int dir, bool (*passes)(const char *name), const struct tar_sink *sink,
		  struct img_files_tarred *ret, struct err *e)
{
	struct walk *w = calloc(1, sizeof(*w)); /* large */
	struct stat st;
	int r = -1;

	if (!w || fstat(dir, &st) < 0)
		err_sys(e, "write an archive");
	else if (!(w->pieces = calloc(PIECES_MAX, sizeof(*w->pieces))))
		err_sys(e, "write an archive");
	else
		r = 0;
	if (r == 0) {
		w->sink = sink;
		w->files = true;
		w->passes = passes;
		w->dev = st.st_dev;
		r = put_tree(w, dir, "", 0, e) < 0 || tar_put_end(sink, e) < 0 ? -1 : 0;
	}
	if (r == 0)
		*ret = w->done;
	if (w)
		walk_free(w);
	return r;
}
