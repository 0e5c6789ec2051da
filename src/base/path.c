/* The one place that walks paths from outside.
 *
 * How: openat2(2) does the walk in the kernel, without links (NO_SYMLINKS, BENEATH) or inside a
 * root (IN_ROOT). Where it is missing (ENOSYS) or an outer sandbox refuses it (EPERM), `walk` below
 * does the same by hand: one O_NOFOLLOW open a component, links read and resolved as text, ".."
 * taken by walking again from the root. Its verdicts are those of openat2.
 *
 * What may go wrong: another process changes the tree while it is walked. A component is opened
 * once, by name, from a descriptor that was reached the same way, so the result is always a file
 * inside; it may be a file that has since been moved. The caller compares device and inode when it
 * matters which one. No heap anywhere: this runs between clone and exec. */
#include "base/path.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

#ifndef SYS_openat2
#define SYS_openat2 437
#endif

#define PATH_CAP 4096
#define LINKS_MAX 40 /* what the kernel allows */
#define AGAIN_MAX 32 /* openat2 answers EAGAIN when a rename elsewhere races with ".." */

/* -1 with ENOSYS when openat2 can't be had, whatever the reason. */
static int kernel_walk(int dirfd, const char *path, int flags, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_PATH | O_CLOEXEC),
		.resolve = resolve | RESOLVE_NO_MAGICLINKS,
	};
	long fd = -1;

	for (int i = 0; i < AGAIN_MAX; i++) {
		fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
		if (fd >= 0 || errno != EAGAIN)
			break;
	}
	if (fd < 0 && errno == EPERM)
		errno = ENOSYS;
	return (int)fd;
}

/* Takes the next component off *rest. Returns its length (0 at the end), -1 with ENAMETOOLONG. */
static int next_component(const char **rest, char name[NAME_MAX + 1])
{
	size_t n;

	*rest += strspn(*rest, "/");
	n = strcspn(*rest, "/");
	if (n > NAME_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(name, *rest, n);
	name[n] = '\0';
	*rest += n;
	return (int)n;
}

static bool has_dotdot(const char *path)
{
	while (*path) {
		size_t n;

		path += strspn(path, "/");
		n = strcspn(path, "/");
		if (n == 2 && path[0] == '.' && path[1] == '.')
			return true;
		path += n;
	}
	return false;
}

static int open_self(int dirfd, int flags)
{
	return openat(dirfd, ".", O_PATH | O_CLOEXEC | O_NOFOLLOW | (flags & O_DIRECTORY));
}

/* One component at a time, no link anywhere. */
static int walk_nolinks(int dirfd, const char *path, int flags)
{
	char name[NAME_MAX + 1];
	_cleanup_fd_ int at = open_self(dirfd, 0);
	struct stat st;
	int n;

	if (at < 0)
		return -1;
	if (*path && path[strlen(path) - 1] == '/')
		flags |= O_DIRECTORY;
	while ((n = next_component(&path, name)) > 0) {
		int next = openat(at, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);

		if (next < 0)
			return -1;
		fd_close(&at);
		at = next;
		if (fstat(at, &st) < 0)
			return -1;
		if (S_ISLNK(st.st_mode)) {
			errno = ELOOP;
			return -1;
		}
	}
	if (n < 0)
		return -1;
	if ((flags & O_DIRECTORY) && (fstat(at, &st) < 0 || !S_ISDIR(st.st_mode))) {
		errno = ENOTDIR;
		return -1;
	}
	return fd_steal(&at);
}

int path_open_beneath(int dirfd, const char *path, int flags)
{
	int fd;

	/* openat2 would let a ".." through that stays inside; the walk by hand would not. One
	 * answer for both. */
	if (*path == '/' || has_dotdot(path)) {
		errno = EXDEV;
		return -1;
	}
	if (!*path)
		return open_self(dirfd, flags);
	fd = kernel_walk(dirfd, path, flags, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (fd < 0 && errno == ENOSYS)
		fd = walk_nolinks(dirfd, path, flags);
	return fd;
}

int path_open_nolinks(const char *abs, int flags)
{
	_cleanup_fd_ int root = -1;
	int fd;

	if (*abs != '/' || has_dotdot(abs)) {
		errno = EXDEV;
		return -1;
	}
	fd = kernel_walk(AT_FDCWD, abs, flags, RESOLVE_NO_SYMLINKS);
	if (fd >= 0 || errno != ENOSYS)
		return fd;
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root < 0 ? -1 : walk_nolinks(root, abs, flags);
}

enum walk_make { MAKE_NOTHING, MAKE_DIR, MAKE_FILE };

/* A walk inside a root: `done` is where it stands, without links; `rest` what is left to do. */
struct walk {
	int rootfd, at; /* `at` is the directory that `done` names */
	char done[PATH_CAP], rest[PATH_CAP];
	int links;
};

static int walk_up(struct walk *w)
{
	char *slash = strrchr(w->done, '/');
	int fd;

	if (slash)
		*slash = '\0';
	/* From the root again, never by "..": the directory may have been moved out of the root
	 * meanwhile. */
	fd = walk_nolinks(w->rootfd, w->done, O_DIRECTORY);
	if (fd < 0)
		return -1;
	fd_close(&w->at);
	w->at = fd;
	return 0;
}

static int walk_follow(struct walk *w, int link, const char *rest)
{
	char text[PATH_CAP];
	ssize_t n = readlinkat(link, "", text, sizeof(text));
	size_t left = strlen(rest);

	if (n < 0)
		return -1;
	if (n == 0) {
		errno = ENOENT;
		return -1;
	}
	if (++w->links > LINKS_MAX) {
		errno = ELOOP;
		return -1;
	}
	if ((size_t)n + left >= sizeof(w->rest)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	/* What is left starts with a slash, or is nothing. */
	memmove(w->rest + n, rest, left + 1);
	memcpy(w->rest, text, (size_t)n);
	if (text[0] == '/') {
		int fd = open_self(w->rootfd, 0);

		if (fd < 0)
			return -1;
		fd_close(&w->at);
		w->at = fd;
		w->done[0] = '\0';
	}
	return 0;
}

static int walk_append(struct walk *w, const char *name)
{
	size_t n = strlen(w->done), m = strlen(name);

	if (n + 1 + m >= sizeof(w->done)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	w->done[n] = '/';
	memcpy(w->done + n + 1, name, m + 1);
	return 0;
}

/* Opens `name` in the directory at hand, made when missing and asked for. */
static int walk_open(struct walk *w, const char *name, bool last, enum walk_make make)
{
	for (int i = 0; i < AGAIN_MAX; i++) {
		int fd = openat(w->at, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);

		if (fd >= 0 || errno != ENOENT || make == MAKE_NOTHING)
			return fd;
		if (last && make == MAKE_FILE) {
			fd = openat(w->at, name,
				    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
			if (fd < 0 && errno != EEXIST)
				return -1;
			fd_close(&fd);
		} else if (mkdirat(w->at, name, 0755) < 0 && errno != EEXIST) {
			return -1;
		}
	}
	errno = EAGAIN;
	return -1;
}

/* Resolves all of w->rest. Returns an O_PATH descriptor of the target, or -1; with ENOENT `done` is
 * what exists (at is it) and `rest` starts with the missing name. */
static int walk_in_root(struct walk *w, enum walk_make make)
{
	char name[NAME_MAX + 1];
	_cleanup_fd_ int fd = -1;

	for (;;) {
		const char *rest = w->rest;
		struct stat st;
		int n = next_component(&rest, name);
		bool last = rest[strspn(rest, "/")] == '\0';

		if (n < 0)
			return -1;
		if (n == 0 || !strcmp(name, ".") || !strcmp(name, "..")) {
			if (n == 2 && walk_up(w) < 0)
				return -1;
			if (last)
				return open_self(w->at, 0);
			memmove(w->rest, rest, strlen(rest) + 1);
			continue;
		}
		fd_close(&fd);
		fd = walk_open(w, name, last, make);
		if (fd < 0 || fstat(fd, &st) < 0)
			return -1;
		if (S_ISLNK(st.st_mode)) {
			if (walk_follow(w, fd, rest) < 0)
				return -1;
			continue;
		}
		if (!S_ISDIR(st.st_mode) && *rest) { /* also "file/" */
			errno = ENOTDIR;
			return -1;
		}
		if (walk_append(w, name) < 0)
			return -1;
		if (last)
			return fd_steal(&fd);
		memmove(w->rest, rest, strlen(rest) + 1);
		fd_close(&w->at);
		w->at = fd_steal(&fd);
	}
}

static int walk_start(struct walk *w, int rootfd, const char *path)
{
	if (strlen(path) >= sizeof(w->rest)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	w->rootfd = rootfd;
	w->links = 0;
	w->done[0] = '\0';
	memcpy(w->rest, path, strlen(path) + 1);
	w->at = open_self(rootfd, 0);
	return w->at < 0 ? -1 : 0;
}

static int walk_run(int rootfd, const char *path, enum walk_make make)
{
	struct walk w;
	int fd;

	if (walk_start(&w, rootfd, path) < 0)
		return -1;
	fd = walk_in_root(&w, make);
	fd_close(&w.at);
	return fd;
}

int path_open_in_root(int rootfd, const char *path, int flags)
{
	_cleanup_fd_ int fd = kernel_walk(rootfd, *path ? path : "/", flags, RESOLVE_IN_ROOT);
	struct stat st;

	if (fd >= 0 || errno != ENOSYS)
		return fd_steal(&fd);
	fd = walk_run(rootfd, path, MAKE_NOTHING);
	if (fd >= 0 && (flags & O_DIRECTORY) && (fstat(fd, &st) < 0 || !S_ISDIR(st.st_mode))) {
		errno = ENOTDIR;
		return -1;
	}
	return fd_steal(&fd);
}

int path_resolve_in_root(int rootfd, const char *path, char ret[4096])
{
	struct walk w;
	const char *rest;
	char name[NAME_MAX + 1];
	int fd, n = 0;

	if (walk_start(&w, rootfd, path) < 0)
		return -1;
	fd = walk_in_root(&w, MAKE_NOTHING);
	fd_close(&w.at);
	if (fd < 0 && errno != ENOENT)
		return -1;
	/* Below what does not exist there are no links: the rest is plain names. */
	for (rest = w.rest; fd < 0 && (n = next_component(&rest, name)) > 0;) {
		char *slash = strrchr(w.done, '/');

		if (!strcmp(name, ".."))
			*(slash ? slash : w.done) = '\0';
		else if (strcmp(name, ".") && walk_append(&w, name) < 0)
			return -1;
	}
	fd_close(&fd);
	if (n < 0)
		return -1;
	snprintf(ret, PATH_CAP, "%s", *w.done ? w.done : "/");
	return 0;
}

static int make(int rootfd, const char *path, enum walk_make what)
{
	_cleanup_fd_ int fd = path_open_in_root(rootfd, path, 0);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		fd = walk_run(rootfd, path, what);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	if (S_ISDIR(st.st_mode) != (what == MAKE_DIR)) {
		errno = what == MAKE_DIR ? ENOTDIR : EISDIR;
		return -1;
	}
	return fd_steal(&fd);
}

int path_make_dir(int rootfd, const char *path)
{
	return make(rootfd, path, MAKE_DIR);
}

int path_make_file(int rootfd, const char *path)
{
	return make(rootfd, path, MAKE_FILE);
}

int path_canonical(const char *path, char ret[4096])
{
	char out[PATH_MAX];

	static_assert(PATH_MAX == PATH_CAP, "callers' buffers are PATH_MAX");
	if (!realpath(path, out))
		return -1;
	memcpy(ret, out, strlen(out) + 1);
	return 0;
}

int path_normalise(const char *path, char ret[4096], struct err *e)
{
	char name[NAME_MAX + 1], out[PATH_CAP];
	size_t len = 0;
	int n;

	if (*path != '/')
		return err_set(e, ERR_USAGE, "must be an absolute path: it starts with /");
	if (strlen(path) >= PATH_CAP)
		return err_set(e, ERR_USAGE, "is longer than %d bytes", PATH_CAP - 1);
	for (const char *p = path; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			return err_set(e, ERR_USAGE, "has a control character");
	while ((n = next_component(&path, name)) > 0) {
		if (!strcmp(name, "."))
			continue;
		if (!strcmp(name, ".."))
			return err_set(e, ERR_USAGE, "has \"..\": write the path without it");
		out[len++] = '/';
		memcpy(out + len, name, (size_t)n);
		len += (size_t)n;
	}
	if (n < 0)
		return err_set(e, ERR_USAGE, "has a name longer than %d bytes", NAME_MAX);
	if (!len)
		out[len++] = '/';
	memcpy(ret, out, len);
	ret[len] = '\0';
	return 0;
}

bool path_within(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1 && *dir == '/')
		return *path == '/';
	return !strncmp(path, dir, n) && (path[n] == '\0' || path[n] == '/');
}

int path_join(char *dst, size_t cap, const char *dir, const char *name)
{
	size_t n = strlen(dir), m = strlen(name);
	size_t slash = n && dir[n - 1] != '/';

	if (n + slash + m >= cap) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memmove(dst, dir, n);
	if (slash)
		dst[n] = '/';
	memcpy(dst + n + slash, name, m + 1);
	return 0;
}
