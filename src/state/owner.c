/* Owners' directories: made under a lock, removed by whoever finds the lock free.
 *
 * Two races are closed here. Between mkdir and flock a sweeper could take a new directory for a
 * dead one: it leaves alone what its name says a living process made, and a maker that can't be
 * seen (another pid namespace) finds after locking that the name no longer leads to its directory,
 * and makes another. Between the sweeper's look and its removal nobody can take the directory,
 * because it holds the lock itself.
 *
 * Removal is bounded in entries and in depth: a directory grown beyond that goes over several
 * sweeps. */
#include "state/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "state/dirs.h"

#define OWNER_TRIES 16
#define REMOVE_DEPTH 16
#define REMOVE_ENTRIES 65536

/* Start time of a process in clock ticks since boot: field 22 of proc_pid_stat(5). 0 when there is
 * no such process. */
static uint64_t start_time(pid_t pid)
{
	char path[64], buf[2048], *p;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (fd_read_file_at(AT_FDCWD, path, buf, sizeof(buf)) < 0)
		return 0;
	/* The name in field 2 may hold anything, brackets and spaces too: count from the last
	 * bracket. */
	p = strrchr(buf, ')');
	for (int field = 2; p && field < 22; field++) {
		p = strchr(p, ' ');
		if (p)
			p++;
	}
	return p ? strtoull(p, NULL, 10) : 0;
}

/* Whether `name` is an owner's directory at all, and whose. */
static bool parse_name(const char *name, pid_t *ret_pid, uint64_t *ret_start)
{
	int pid = 0, used = 0;
	unsigned long long start = 0;
	unsigned n = 0;

	if (sscanf(name, "owner-%9d-%19llu.%3u%n", &pid, &start, &n, &used) < 3 ||
	    name[used] != '\0' || pid <= 0)
		return false;
	*ret_pid = pid;
	*ret_start = start;
	return true;
}

/* Takes the lock and makes sure that the name still leads to what is locked. */
static int take(int runtime_fd, const char *name)
{
	_cleanup_fd_ int fd =
		openat(runtime_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat held, named;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -1;
	if (fstat(fd, &held) < 0 || fstatat(runtime_fd, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (held.st_dev != named.st_dev || held.st_ino != named.st_ino ||
	    held.st_uid != geteuid()) {
		errno = ESTALE;
		return -1;
	}
	return fd_steal(&fd);
}

int state_owner_open(struct state_owner *ret, struct err *e)
{
	_cleanup_fd_ int runtime_fd = state_open(STATE_RUNTIME, true, e);
	uint64_t start = start_time(getpid());

	if (runtime_fd < 0)
		return -1;
	for (unsigned i = 0; i < OWNER_TRIES; i++) {
		char name[sizeof(ret->name)];
		int fd;

		snprintf(name, sizeof(name), "owner-%d-%llu.%u", (int)getpid(),
			 (unsigned long long)start, i);
		if (mkdirat(runtime_fd, name, 0700) < 0) {
			if (errno == EEXIST)
				continue;
			return err_sys(e, "can't make a directory in the runtime directory");
		}
		fd = take(runtime_fd, name);
		if (fd < 0)
			continue;
		memcpy(ret->name, name, sizeof(name));
		ret->fd = fd;
		ret->runtime_fd = fd_steal(&runtime_fd);
		return 0;
	}
	return err_set(
		e, ERR_SYS,
		"can't make a directory of our own in the runtime directory: %d names are taken; run: cloche gc",
		OWNER_TRIES);
}

/* Empties an open directory. Takes the descriptor. */
static int empty(int fd, dev_t dev, unsigned depth, unsigned *left)
{
	DIR *d = fdopendir(fd);
	int rc = 0;

	if (!d) {
		fd_close(&fd);
		return -1;
	}
	for (struct dirent *ent; (ent = readdir(d));) {
		if (strcmp(ent->d_name, ".") == 0 || strcmp(ent->d_name, "..") == 0)
			continue;
		if (*left == 0) {
			rc = -1;
			break;
		}
		--*left;
		if (unlinkat(dirfd(d), ent->d_name, 0) == 0)
			continue;
		if (errno == EISDIR || errno == EPERM) {
			struct stat st;
			int sub = depth == 0
					  ? -1
					  : openat(dirfd(d), ent->d_name,
						   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			/* Something mounted there is not ours to empty. */
			if (sub >= 0 && fstat(sub, &st) == 0 && st.st_dev == dev) {
				if (empty(sub, dev, depth - 1, left) == 0 &&
				    unlinkat(dirfd(d), ent->d_name, AT_REMOVEDIR) == 0)
					continue;
			} else {
				fd_close(&sub);
			}
		}
		rc = -1;
	}
	closedir(d);
	return rc;
}

/* Removes a directory that is held by `fd`, which stays open. */
static int remove_held(int runtime_fd, const char *name, int fd)
{
	unsigned left = REMOVE_ENTRIES;
	struct stat st;
	int again;

	if (fstat(fd, &st) < 0)
		return -1;
	/* A description of its own: readdir moves the position, and closedir must not take the lock
	 * away. */
	again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (again < 0 || empty(again, st.st_dev, REMOVE_DEPTH, &left) < 0)
		return -1;
	return unlinkat(runtime_fd, name, AT_REMOVEDIR);
}

void state_owner_close(struct state_owner *o)
{
	if (o->fd >= 0 && o->runtime_fd >= 0)
		remove_held(o->runtime_fd, o->name, o->fd);
	fd_close(&o->fd);
	fd_close(&o->runtime_fd);
}

static bool sweep_one(int runtime_fd, const char *name)
{
	_cleanup_fd_ int fd = -1;
	uint64_t start;
	pid_t pid;

	if (!parse_name(name, &pid, &start))
		return false;
	if (start != 0 && start_time(pid) == start)
		return false;
	fd = take(runtime_fd, name);
	return fd >= 0 && remove_held(runtime_fd, name, fd) == 0;
}

unsigned state_sweep_each(unsigned max, void (*gone)(void *ctx, const char *name), void *ctx)
{
	struct err ignored;
	int fd = state_open(STATE_RUNTIME, false, &ignored);
	unsigned n = 0;
	DIR *d;

	if (fd < 0)
		return 0;
	d = fdopendir(fd);
	if (!d) {
		fd_close(&fd);
		return 0;
	}
	for (struct dirent *ent; n < max && (ent = readdir(d));) {
		if (!sweep_one(dirfd(d), ent->d_name))
			continue;
		n++;
		if (gone)
			gone(ctx, ent->d_name);
	}
	closedir(d);
	return n;
}

unsigned state_sweep(unsigned max)
{
	return state_sweep_each(max, NULL, NULL);
}
