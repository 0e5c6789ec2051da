/* Groups of cloche's, of either version of cgroups: their names, their locks, their values, their
 * end.
 *
 * Who owns a group: cloche holds a shared flock on its directory, and its pid is in the name,
 * "cloche-PID-N". A sweep takes only empty groups whose lock is free and whose pid is gone: the
 * lock speaks for owners in other pid namespaces, the pid for the instant between making a group
 * and locking it. A name left by a dead cloche of the same pid is passed over.
 *
 * What may go wrong: a group that is still busy for some milliseconds after its last process (rmdir
 * is tried again); what can't be removed is left to the next start's sweep. */
#include "box/limits_rungs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

void group_name(char ret[GROUP_NAME])
{
	static unsigned serial;

	snprintf(ret, GROUP_NAME, "cloche-%d-%u", (int)getpid(), serial++);
}

bool group_try_again(int num)
{
	return num == EEXIST || num == EWOULDBLOCK || num == ENOENT;
}

/* Makes the group and takes its lock. A left-over of the same name (a reused pid) gives EEXIST: the
 * caller takes the next name. */
int group_make(int parent, const char *name, int *ret)
{
	_cleanup_fd_ int fd = -1;

	if (mkdirat(parent, name, 0755) < 0)
		return -1;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0) {
		int keep = errno;

		unlinkat(parent, name, AT_REMOVEDIR);
		errno = keep;
		return -1;
	}
	*ret = fd_steal(&fd);
	return 0;
}

/* Writes a number and reads back what the kernel made of it. */
int group_set(int dir, const char *file, uint64_t value, uint64_t *ret)
{
	_cleanup_fd_ int fd = openat(dir, file, O_RDWR | O_CLOEXEC);
	char text[32];
	ssize_t n;

	if (fd < 0)
		return -1;
	n = snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	if (write(fd, text, (size_t)n) != n)
		return -1;
	n = pread(fd, text, sizeof(text) - 1, 0);
	if (n <= 0) {
		if (n == 0)
			errno = EIO;
		return -1;
	}
	text[n] = '\0';
	*ret = strncmp(text, "max", 3) == 0 ? UINT64_MAX : strtoull(text, NULL, 10);
	return 0;
}

bool group_counter(const char *text, const char *key, uint64_t *ret)
{
	size_t n = strlen(key);

	for (const char *p = text; p; p = strchr(p, '\n')) {
		if (*p == '\n')
			p++;
		if (strncmp(p, key, n) == 0 && p[n] == ' ') {
			*ret = strtoull(p + n + 1, NULL, 10);
			return true;
		}
	}
	return false;
}

size_t limits_parse_pids(const char *text, size_t n, pid_t *ret, size_t max)
{
	size_t k = 0;
	long v = -1;

	for (size_t i = 0; i <= n; i++) {
		char c = i < n ? text[i] : ' ';

		if (c >= '0' && c <= '9') {
			v = (v < 0 ? 0 : v) * 10 + (c - '0');
			if (v > 0x7fffffff)
				return k;
			continue;
		}
		if (c != ' ' && c != '\n')
			return k;
		if (v > 0 && k < max)
			ret[k++] = (pid_t)v;
		v = -1;
	}
	return k;
}

bool group_is_ours(const char *name, pid_t *ret_pid)
{
	static const char prefix[] = "cloche-";
	long pid = 0;
	size_t i, at;

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return false;
	at = sizeof(prefix) - 1;
	for (i = at; name[i] >= '0' && name[i] <= '9'; i++) {
		pid = pid * 10 + (name[i] - '0');
		if (pid > 0x7fffffff)
			return false;
	}
	if (i == at || pid == 0 || name[i] != '-')
		return false;
	at = ++i;
	while (name[i] >= '0' && name[i] <= '9')
		i++;
	if (i == at || name[i] != '\0' || i - at > 10)
		return false;
	*ret_pid = (pid_t)pid;
	return true;
}

/* The processes in a group; at most `max` of them, which is enough to go on with. */
size_t group_pids(int dir, pid_t *ret, size_t max)
{
	_cleanup_fd_ int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	char text[4096];
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text));
	/* A last number that was cut would be somebody else's pid. */
	while (n > 0 && text[n - 1] != '\n')
		n--;
	return n > 0 ? limits_parse_pids(text, (size_t)n, ret, max) : 0;
}

static bool in_list(const pid_t *list, size_t n, pid_t pid)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == pid)
			return true;
	return false;
}

/* A guard: after the end of a box's init nobody is left. Only pids read from our own group are
 * signalled, and through a descriptor that was checked against the group again, so that a reused
 * pid is never hit. */
static void kill_by_pid(int dir)
{
	pid_t before[64], after[64];
	size_t n = group_pids(dir, before, 64);
	int fds[64];

	for (size_t i = 0; i < n; i++)
		fds[i] = before[i] == getpid() ? -1 : (int)syscall(SYS_pidfd_open, before[i], 0);
	if (n > 0) {
		size_t m = group_pids(dir, after, 64);

		for (size_t i = 0; i < n; i++)
			if (fds[i] >= 0 && in_list(after, m, before[i]))
				syscall(SYS_pidfd_send_signal, fds[i], SIGKILL, NULL, 0);
	}
	for (size_t i = 0; i < n; i++)
		fd_close(&fds[i]);
}

static void kill_left(int dir)
{
	if (fd_write_file_at(dir, "cgroup.kill", "1") < 0)
		kill_by_pid(dir);
}

void group_remove(int parent, int dir, const char *name)
{
	/* 1, 2, 4 ... 64 ms: the last task of a pid namespace may be counted a little longer than
	 * its parent could wait for it. */
	for (long ms = 1; unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT && ms <= 64;
	     ms *= 2) {
		struct timespec t = { .tv_nsec = ms * 1000000 };

		kill_left(dir);
		nanosleep(&t, NULL);
	}
}

/* True when the group's owner is gone; takes the lock for the moment of removal. */
static bool abandoned(int parent, const char *name, pid_t pid)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	/* A living owner has the lock, but for the instant between making the group and locking it.
	 */
	if (kill(pid, 0) == 0 || errno != ESRCH)
		return false;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_uid != geteuid())
		return false;
	return flock(fd, LOCK_EX | LOCK_NB) == 0 && unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/* Removes what is abandoned among the groups in `parent`, at most `max`. */
unsigned group_sweep(int parent, unsigned max)
{
	_cleanup_fd_ int dir = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(8) char buf[2048];
	unsigned gone = 0;
	ssize_t n;

	while (dir >= 0 && gone < max && (n = limits_getdents(dir, buf, sizeof(buf))) > 0) {
		for (ssize_t at = 0; at < n && gone < max;) {
			const struct limits_dirent *d =
				(const struct limits_dirent *)(const void *)(buf + at);
			pid_t pid;

			at += d->reclen;
			if (group_is_ours(d->name, &pid) && abandoned(dir, d->name, pid))
				gone++;
		}
	}
	return gone;
}
