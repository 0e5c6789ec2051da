/* The workspace sampler: adds up what a directory tree takes on disk, a little at a time, on any
 * rung.
 *
 * How it works: a walk that can stop anywhere. One directory is open at a time; the way back is a
 * list of inode numbers and read positions, climbed by ".." and verified, so that a directory moved
 * meanwhile ends the pass instead of leading elsewhere. A tick takes about a millisecond, or ten
 * when the file system's free space shrank by enough to matter since the last pass. A file with
 * several links counts for a part at each, so that all its links together count once.
 *
 * It never follows a link, never crosses to another mount, never writes. What may go wrong:
 * the box writes faster than the walk goes (the overshoot is stated), directories it made
 * unreadable are not counted, a tree that changes all the time gives a sum from several moments. A
 * tree deeper than LIMIT_WALK_DEPTH counts as over the cap: a place to hide would be worse than a
 * refusal nobody meets. */
#include "box/limits_rungs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"

enum { BUDGET_US = 1000, BUDGET_PRESSED_US = 10000 };

ssize_t limits_getdents(int fd, void *buf, size_t n)
{
	return syscall(SYS_getdents64, fd, buf, n);
}

static uint64_t free_bytes(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 ? (uint64_t)fs.f_bfree * (uint64_t)fs.f_bsize : 0;
}

int limits_watch_workspace(struct limits *l, int dirfd, struct err *e)
{
	struct limit_state *s = &l->state[LIMIT_WORKSPACE_MAX];

	if (s->requested == BOX_LIMIT_NONE)
		return 0;
	/* Reading positions belong to an open file: open it anew instead of sharing the caller's.
	 */
	l->workspace_fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (l->workspace_fd < 0) {
		err_sys(e, "--workspace-max: opening the workspace");
		return err_at(e, STAGE_WORKSPACE);
	}
	l->workspace_cap = s->requested;
	s->effective = s->requested;
	s->rung = "sampler";
	return 0;
}

void limits_sized_workspace(struct limits *l, uint64_t size)
{
	struct limit_state *s = &l->state[LIMIT_WORKSPACE_MAX];

	s->effective = size;
	s->rung = "tmpfs";
	s->enforced = true;
}

static bool begin_pass(struct limit_walk *w, int top)
{
	struct stat st;

	w->fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (w->fd < 0 || fstat(w->fd, &st) < 0) {
		fd_close(&w->fd);
		return false;
	}
	w->dev = st.st_dev;
	w->depth = 0;
	w->sum = (uint64_t)st.st_blocks * 512;
	return true;
}

/* Back to the parent directory and the place in it; false when the tree was moved meanwhile. */
static bool climb(struct limit_walk *w)
{
	_cleanup_fd_ int up = openat(w->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	if (up < 0 || fstat(up, &st) < 0)
		return false;
	w->depth--;
	w->dev = w->up[w->depth].dev;
	if (st.st_dev != w->dev || st.st_ino != w->up[w->depth].ino ||
	    lseek(up, w->up[w->depth].pos, SEEK_SET) < 0)
		return false;
	fd_close(&w->fd);
	w->fd = fd_steal(&up);
	return true;
}

/* A directory with a device number of its own may be another file system mounted there, or a part
 * of this one: a btrfs subvolume, which any user may make. Where the kernel does not tell
 * (Linux 5.8), it counts as mounted. */
static bool is_mounted(int dir, const char *name)
{
	struct sys_statx s;

	return sys_statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, &s) < 0 ||
	       !(s.attributes_mask & SYS_STATX_ATTR_MOUNT_ROOT) ||
	       s.attributes & SYS_STATX_ATTR_MOUNT_ROOT;
}

/* Counts one entry; a directory is entered (true), so that the buffer of the one above is done
 * with. */
static bool count(struct limit_walk *w, const struct limits_dirent *d, bool *ret_deep)
{
	_cleanup_fd_ int sub = -1;
	struct stat st, here;
	dev_t dev;

	if (strcmp(d->name, ".") == 0 || strcmp(d->name, "..") == 0)
		return false;
	if (fstatat(w->fd, d->name, &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0)
		return false;
	if (st.st_dev != w->dev && (!S_ISDIR(st.st_mode) || is_mounted(w->fd, d->name)))
		return false;
	if (!S_ISDIR(st.st_mode)) {
		w->sum += (uint64_t)st.st_blocks * 512 / (st.st_nlink > 0 ? st.st_nlink : 1);
		return false;
	}
	w->sum += (uint64_t)st.st_blocks * 512;
	dev = st.st_dev;
	sub = openat(w->fd, d->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (sub < 0 || fstat(sub, &st) < 0 || st.st_dev != dev || fstat(w->fd, &here) < 0)
		return false;
	if (w->depth == LIMIT_WALK_DEPTH) {
		*ret_deep = true;
		return true;
	}
	w->up[w->depth].ino = here.st_ino;
	w->up[w->depth].pos = d->off;
	w->up[w->depth].dev = w->dev;
	w->dev = st.st_dev;
	w->depth++;
	fd_close(&w->fd);
	w->fd = fd_steal(&sub);
	return true;
}

/* One buffer of the directory being read. */
static void step(struct limits *l, bool *ret_deep)
{
	struct limit_walk *w = &l->walk;
	_Alignas(8) char buf[1024];
	ssize_t n = limits_getdents(w->fd, buf, sizeof(buf));

	for (ssize_t at = 0; at < n;) {
		const struct limits_dirent *d =
			(const struct limits_dirent *)(const void *)(buf + at);

		at += d->reclen;
		if (count(w, d, ret_deep))
			return;
	}
	if (n > 0)
		return;
	if (w->depth > 0 && climb(w))
		return;
	if (w->depth == 0 && n == 0) {
		w->last = w->sum;
		w->whole = true;
		w->free_then = free_bytes(l->workspace_fd);
	}
	fd_close(&w->fd);
}

/* Has enough of the file system's free space gone since the last pass for the cap to be near?
 * Others write too: a hint only. */
static bool pressed(const struct limits *l)
{
	const struct limit_walk *w = &l->walk;
	uint64_t now = free_bytes(l->workspace_fd);

	if (!w->whole)
		return true;
	return w->last >= l->workspace_cap ||
	       (w->free_then > now && w->free_then - now > (l->workspace_cap - w->last) / 2);
}

bool limits_workspace_tick(struct limits *l)
{
	struct limit_walk *w = &l->walk;
	uint64_t begin;
	bool deep = false;

	if (l->workspace_fd < 0)
		return false;
	begin = limits_now_us();
	if (w->fd < 0 && !begin_pass(w, l->workspace_fd))
		return false;
	for (uint64_t budget = pressed(l) ? BUDGET_PRESSED_US : BUDGET_US; w->fd >= 0;) {
		step(l, &deep);
		if (deep || w->sum > l->workspace_cap)
			return true;
		if (limits_now_us() - begin > budget)
			break;
	}
	return false;
}

void limits_workspace_close(struct limits *l)
{
	fd_close(&l->walk.fd);
	fd_close(&l->workspace_fd);
}
