/* How: a path is looked up layer by layer, from its first part on, since any directory on the way
 * may end the search (whiteout, opaque, file in place of a directory). Links are taken one part at
 * a time, by looking up all that was walked so far: depth times layers, which images keep small.
 *
 * What may go wrong: an image made so that each step is as long as can be. STEPS_MAX names looked
 * up are the end of it, a tenth of a second. */
#include "base/layers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define PATH_CAP 4096
#define LINKS_MAX 40 /* what the kernel allows */
#define STEPS_MAX 100000

struct walk {
	const struct layers *l;
	char done[PATH_CAP]; /* relative, without links */
	char rest[PATH_CAP];
	unsigned links, steps;
	bool gone;		/* there is no `done`, nor anything below it */
	struct layers_found at; /* what `done` is; its dir is -1 when that is not known */
};

static bool is_opaque(int dir)
{
	char v[2];

	return fgetxattr(dir, "user.overlay.opaque", v, sizeof(v)) == 1 && v[0] == 'y';
}

static bool is_whiteout(const struct stat *st)
{
	return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

/* A directory on the way. 0, and *at is it; 1: there is none; 2: something else is in its place. */
static int enter(int *at, const char *name)
{
	int next = openat(*at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (next >= 0) {
		*at = next;
		return 0;
	}
	return errno == ENOENT ? 1 : errno == ENOTDIR || errno == ELOOP ? 2 : -1;
}

int layers_find_in(int root, const char *path, struct layers_found *ret)
{
	_cleanup_fd_ int own = -1;
	int at = root, r;
	bool hides = false; /* an opaque root is no word of overlayfs */
	size_t n;

	for (;; path += n + 1) {
		n = strcspn(path, "/");
		if (n > NAME_MAX) {
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(ret->name, path, n);
		ret->name[n] = '\0';
		if (!path[n])
			break;
		r = enter(&at, ret->name);
		if (r != 0)
			return r == 1 ? (hides ? 2 : 0) : r;
		fd_close(&own);
		own = at;
		hides = hides || is_opaque(at);
	}
	if (fstatat(at, ret->name, &ret->st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno != ENOENT ? -1 : hides ? 2 : 0;
	if (is_whiteout(&ret->st))
		return 2;
	ret->dir =
		at == root ? openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : fd_steal(&own);
	return ret->dir < 0 ? -1 : 1;
}

/* Looks for w->done, into w->at. 1, 0, or -1 with errno. */
static int find(struct walk *w)
{
	unsigned parts = 1;
	int r = 0;

	fd_close(&w->at.dir);
	if (w->gone)
		return 0;
	for (const char *s = w->done; *s; s++)
		parts += *s == '/';
	for (size_t i = 0; r == 0 && i < w->l->n; i++) {
		w->steps += parts;
		if (w->steps > STEPS_MAX) {
			errno = ELOOP;
			return -1;
		}
		r = layers_find_in(w->l->fds[i], w->done, &w->at);
	}
	w->gone = r != 1;
	return r == 2 ? 0 : r;
}

static void up(struct walk *w)
{
	char *slash = strrchr(w->done, '/');

	*(slash ? slash : w->done) = '\0';
	fd_close(&w->at.dir);
	w->gone = false;
}

/* `rest` becomes the link's text and what was left; the link's own name is in `done` no more. */
static int follow(struct walk *w, const char *left)
{
	char text[PATH_CAP];
	ssize_t n = readlinkat(w->at.dir, w->at.name, text, sizeof(text) - 1);

	if (n < 0)
		return -1;
	if (n == 0 || ++w->links > LINKS_MAX) {
		errno = n == 0 ? ENOENT : ELOOP;
		return -1;
	}
	text[n] = '\0';
	if (path_join(text, sizeof(text), text, left) < 0)
		return -1;
	up(w);
	if (text[0] == '/')
		w->done[0] = '\0';
	memcpy(w->rest, text, sizeof(text));
	return 0;
}

/* One part more in `done`: 1 when it was a link and `rest` starts anew. */
static int advance(struct walk *w, const char *part, size_t n, const char *left)
{
	char name[NAME_MAX + 1];
	int r;

	if (n > NAME_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(name, part, n);
	name[n] = '\0';
	if (w->done[0] ? path_join(w->done, sizeof(w->done), w->done, name) < 0
		       : snprintf(w->done, sizeof(w->done), "%s", name) < 0)
		return -1;
	r = find(w);
	if (r != 1)
		return r;
	if (S_ISLNK(w->at.st.st_mode))
		return follow(w, left) < 0 ? -1 : 1;
	if (!S_ISDIR(w->at.st.st_mode) && *left) {
		errno = ENOTDIR;
		return -1;
	}
	return 0;
}

static void walk_end(struct walk *w)
{
	fd_close(&w->at.dir);
}

static int walk(struct walk *w, const struct layers *l, const char *path)
{
	const char *s = w->rest;

	w->l = l;
	w->links = w->steps = 0;
	w->done[0] = '\0';
	if (strlen(path) >= sizeof(w->rest)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(w->rest, path, strlen(path) + 1);
	while (*s) {
		size_t n = strcspn(s, "/");
		const char *left = s + n + (s[n] == '/');
		int r = 0;

		if (n == 2 && s[0] == '.' && s[1] == '.')
			up(w);
		else if (n > 0 && !(n == 1 && *s == '.'))
			r = advance(w, s, n, left);
		if (r < 0)
			return -1;
		s = r == 1 ? w->rest : left;
	}
	return 0;
}

int layers_resolve(const struct layers *l, const char *path, char ret[4096])
{
	__attribute__((cleanup(walk_end))) struct walk w = { .at.dir = -1 };

	if (walk(&w, l, path) < 0)
		return -1;
	if (strlen(w.done) + 2 > PATH_CAP) {
		errno = ENAMETOOLONG;
		return -1;
	}
	ret[0] = '/';
	memcpy(ret + 1, w.done, strlen(w.done) + 1);
	return 0;
}

/* Is there surely nothing, at the price of one call a layer? What is in no layer by its own name,
 * and below no link, is nowhere. */
static bool absent(const struct layers *l, const char *path)
{
	for (size_t i = 0; i < l->n; i++) {
		_cleanup_fd_ int fd = path_open_beneath(l->fds[i], path, 0);

		if (fd >= 0 || (errno != ENOENT && errno != ENOTDIR))
			return false;
	}
	return true;
}

int layers_open(const struct layers *l, const char *path)
{
	__attribute__((cleanup(walk_end))) struct walk w = { .at.dir = -1 };
	int r = 1;

	path += strspn(path, "/");
	if (absent(l, path)) {
		errno = ENOENT;
		return -1;
	}
	if (walk(&w, l, path) < 0)
		return -1;
	if (!w.done[0] && l->n > 0)
		return openat(l->fds[0], ".", O_PATH | O_CLOEXEC);
	if (w.at.dir < 0) /* nothing there, or what ".." led back to */
		r = find(&w);
	if (r == 0)
		errno = ENOENT;
	return r == 1 ? openat(w.at.dir, w.at.name, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
}
