#include "box/skeleton.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define PREFIX "host-"
#define DRAFT "draft-"
#define COPY_MAX (4 << 20) /* bytes of one copied file */
#define LINKS_MAX 4096	   /* entries of one copied directory */

/* FNV-1a, 64 bits: a name, not a proof; whoever could forge it owns the store already. */
static void mix(uint64_t *h, const void *data, size_t n)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < n; i++)
		*h = (*h ^ p[i]) * 0x100000001b3ULL;
}

static void mix_file(uint64_t *h, const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return;
	mix(h, &st.st_ino, sizeof(st.st_ino));
	mix(h, &st.st_size, sizeof(st.st_size));
	mix(h, &st.st_mtim, sizeof(st.st_mtim));
}

static void name_of(const struct plan *p, uid_t owner, gid_t group, char ret[32])
{
	uint64_t h = 0xcbf29ce484222325ULL;

	mix(&h, CLOCHE_VERSION, sizeof(CLOCHE_VERSION));
	mix(&h, &owner, sizeof(owner));
	mix(&h, &group, sizeof(group));
	for (unsigned i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];

		if (!op->ready)
			continue;
		mix(&h, &op->kind, sizeof(op->kind));
		mix(&h, &op->mode, sizeof(op->mode));
		mix(&h, op->path, strlen(op->path) + 1);
		if (op->text)
			mix(&h, op->text, op->len ? op->len : strlen(op->text));
		if (op->source >= 0)
			mix_file(&h, p->sources[op->source].path);
	}
	snprintf(ret, 32, PREFIX "%016llx", (unsigned long long)h);
}

/* Opens one that stands; the lock keeps a sweep away, and a directory that a sweep got hold of
 * first is none. */
static int open_ready(int store, const char *name)
{
	_cleanup_fd_ int fd = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0 || fstat(fd, &st) < 0 || st.st_nlink == 0)
		return -1;
	return fd_steal(&fd);
}

static int own(int dir, const char *path, uid_t owner, gid_t group)
{
	return geteuid() == owner ? 0 : fchownat(dir, path, owner, group, AT_SYMLINK_NOFOLLOW);
}

static int copy_file(int dir, const char *path, const char *from, uid_t owner, gid_t group)
{
	_cleanup_fd_ int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	_cleanup_fd_ int out = openat(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	struct stat st;
	off_t left;

	if (in < 0 || out < 0 || fstat(in, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size > COPY_MAX)
		return -1;
	for (left = st.st_size; left > 0;) {
		ssize_t n = sendfile(out, in, NULL, (size_t)left);

		if (n <= 0)
			return -1;
		left -= n;
	}
	return fchmod(out, 0644) < 0 ? -1 : own(dir, path, owner, group);
}

/* A directory of links, such as /etc/alternatives; what is no link in it is left out. */
static int copy_links(int dir, const char *path, const char *from, uid_t owner, gid_t group)
{
	_cleanup_fd_ int to = openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *d = opendir(from);
	struct dirent *en;
	unsigned n = 0;
	int r = to >= 0 && d ? 0 : -1;

	while (r == 0 && (en = readdir(d))) {
		char target[1024];
		ssize_t len;

		if (en->d_type != DT_LNK && en->d_type != DT_UNKNOWN)
			continue;
		len = readlinkat(dirfd(d), en->d_name, target, sizeof(target) - 1);
		if (len < 0 && errno == EINVAL) /* its type was unknown, and it is no link */
			continue;
		if (len <= 0 || n++ >= LINKS_MAX) {
			r = -1;
			break;
		}
		target[len] = '\0';
		if (symlinkat(target, to, en->d_name) < 0 || own(to, en->d_name, owner, group) < 0)
			r = -1;
	}
	if (d)
		closedir(d);
	return r;
}

static int make_file(int dir, const struct op *op)
{
	_cleanup_fd_ int fd = openat(dir, op->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || (op->len > 0 && fd_write_all(fd, op->text, op->len) < 0))
		return -1;
	return fchmod(fd, op->mode);
}

static int make_op(const struct plan *p, const struct op *op, int dir, uid_t owner, gid_t group)
{
	int r = -1;

	switch (op->kind) {
	case OP_DIR:
		r = mkdirat(dir, op->path, 0700);
		if (r == 0 || errno == EEXIST)
			r = fchmodat(dir, op->path, op->mode, 0);
		break;
	case OP_FILE:
		r = make_file(dir, op);
		break;
	case OP_LINK:
		r = symlinkat(op->text, dir, op->path);
		break;
	case OP_LOWER:
		return copy_links(dir, op->path, p->sources[op->source].path, owner, group);
	case OP_BIND: /* its empty mount point was made by the op before */
		if (unlinkat(dir, op->path, 0) < 0)
			return -1;
		return copy_file(dir, op->path, p->sources[op->source].path, owner, group);
	default:
		break;
	}
	return r < 0 ? -1 : own(dir, op->path, owner, group);
}

/* Takes *fd over when it succeeds. */
static DIR *list_open(int *fd)
{
	DIR *d = *fd < 0 ? NULL : fdopendir(*fd);

	if (d)
		fd_steal(fd);
	return d;
}

static int remove_tree(int parent, const char *name, unsigned depth)
{
	_cleanup_fd_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct dirent *en;
	DIR *d;

	if (fd < 0 || depth > 8)
		return -1;
	fchmod(fd, 0700);
	d = list_open(&fd);
	if (!d)
		return -1;
	while ((en = readdir(d)))
		if (strcmp(en->d_name, ".") != 0 && strcmp(en->d_name, "..") != 0 &&
		    unlinkat(dirfd(d), en->d_name, 0) < 0)
			remove_tree(dirfd(d), en->d_name, depth + 1);
	closedir(d);
	return unlinkat(parent, name, AT_REMOVEDIR);
}

/* A name that make() gives, to the letter: the caller may have chosen a directory that holds other
 * things too. */
static bool is_made(const char *name)
{
	size_t n;

	if (strncmp(name, PREFIX, sizeof(PREFIX) - 1) == 0) {
		name += sizeof(PREFIX) - 1;
		return strspn(name, "0123456789abcdef") == 16 && name[16] == '\0';
	}
	if (strncmp(name, DRAFT, sizeof(DRAFT) - 1) != 0)
		return false;
	name += sizeof(DRAFT) - 1;
	n = strspn(name, "0123456789");
	return n > 0 && name[n] == '-' && strlen(name + n + 1) >= 10 &&
	       name[n + 1 + strspn(name + n + 1, "0123456789")] == '\0';
}

static unsigned count(int store)
{
	_cleanup_fd_ int fd = openat(store, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = list_open(&fd);
	struct dirent *en;
	unsigned n = 0;

	if (!d)
		return SKELETONS_MAX;
	while ((en = readdir(d)))
		n += is_made(en->d_name);
	closedir(d);
	return n;
}

/* Removes those that nobody holds. */
static unsigned sweep(int store)
{
	_cleanup_fd_ int list = openat(store, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = list_open(&list);
	struct dirent *en;
	struct stat st;
	unsigned n = 0;

	if (!d)
		return 0;
	while ((en = readdir(d))) {
		_cleanup_fd_ int fd = -1;

		if (!is_made(en->d_name))
			continue;
		fd = openat(store, en->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		/* What another sweep has removed already may have a successor of the same name,
		 * which this lock does not hold. */
		if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
		    st.st_nlink > 0 && remove_tree(store, en->d_name, 0) == 0)
			n++;
	}
	closedir(d);
	return n;
}

/* Makes it under a name of its own and gives it the right one at the end: whoever sees the right
 * name sees all of it. */
static int make(const struct plan *p, int store, const char *name, uid_t owner, gid_t group)
{
	_cleanup_fd_ int dir = -1;
	struct timespec t;
	char draft[64];
	int r = 0;

	if (count(store) >= SKELETONS_MAX && sweep(store) == 0)
		return -1;
	/* A pid is no name: containers that share a store all have a process 1. */
	clock_gettime(CLOCK_MONOTONIC, &t);
	snprintf(draft, sizeof(draft), DRAFT "%d-%lld%09ld", (int)getpid(), (long long)t.tv_sec,
		 t.tv_nsec);
	if (mkdirat(store, draft, 0755) < 0)
		return -1;
	dir = openat(store, draft, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	/* Locked, or a sweep would empty it meanwhile and what gets the right name would not be all
	 * of it. */
	if (dir < 0 || flock(dir, LOCK_SH | LOCK_NB) < 0 || fchmod(dir, 0755) < 0 ||
	    own(store, draft, owner, group) < 0)
		r = -1;
	for (unsigned i = 0; i < p->n_ops && r == 0; i++)
		if (p->ops[i].ready)
			r = make_op(p, &p->ops[i], dir, owner, group);
	if (r == 0)
		r = renameat(store, draft, store, name);
	if (r < 0) /* somebody was faster, or it can't be made here */
		remove_tree(store, draft, 0);
	return r;
}

/* Makes what is missing, but nothing in what is somebody else's: root with a user's HOME (sudo -E)
 * would leave directories there that the user could not use any more. */
static void make_missing(char *path)
{
	struct stat st;
	bool ours = true;

	for (char *s = strchr(path + 1, '/');; s = strchr(s + 1, '/')) {
		if (s)
			*s = '\0';
		if (stat(path, &st) == 0)
			ours = st.st_uid == 0 || st.st_uid == geteuid();
		else if (!ours || mkdir(path, 0700) < 0)
			return;
		if (!s)
			return;
		*s = '/';
	}
}

/* The store itself is no link: one in a directory of somebody else's could lead to any directory of
 * the caller's. */
static int store_open(const char *store, bool make_it)
{
	char path[4096];
	int fd = open(store, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0 || errno != ENOENT || !make_it || strlen(store) >= sizeof(path))
		return fd;
	memcpy(path, store, strlen(store) + 1);
	make_missing(path);
	return open(store, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Not ours alone: what stands there may be anybody's. */
static bool trusted(int store)
{
	struct stat st;

	return store >= 0 && fstat(store, &st) == 0 && st.st_uid == geteuid() &&
	       !(st.st_mode & 022);
}

int skeleton_open(const struct plan *p, const char *store, uid_t owner, gid_t group)
{
	_cleanup_fd_ int at = -1;
	char name[32];
	int fd;

	at = store_open(store, true);
	if (!trusted(at))
		return -1;
	name_of(p, owner, group, name);
	fd = open_ready(at, name);
	if (fd < 0 && errno == ENOENT && make(p, at, name, owner, group) == 0)
		fd = open_ready(at, name);
	return fd;
}

unsigned skeleton_sweep(const char *store)
{
	_cleanup_fd_ int at = store_open(store, false);

	return trusted(at) ? sweep(at) : 0;
}
