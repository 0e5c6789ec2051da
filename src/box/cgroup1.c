/* The cgroup v1 rung: one group a controller (memory, pids, and cpu for --cpus) below the caller's
 * own group, never elsewhere.
 *
 * How it works: the groups are made, set and read back while the child builds its mounts; the child
 * then enters by writing "0" to the `tasks` descriptors it was sent. Memory is limit_in_bytes with
 * memsw.limit_in_bytes equal, so nothing is swapped. An eventfd on memory.oom_control wakes the
 * monitor; what counts is `oom_kill` in that file, never failcnt (it stays 0 when memsw is charged
 * first). v1 has no group kill: the monitor ends the box through its init, whose pid namespace
 * takes the rest.
 *
 * Who owns a group: cloche holds a shared flock on its directory, and its pid is in the name. A
 * sweep takes only empty groups whose lock is free and whose pid is gone: the lock speaks for
 * owners in other pid namespaces, the pid for the instant between making a group and locking it. A
 * name left by a dead cloche of the same pid is passed over.
 *
 * What may go wrong: no v1 hierarchy, no right to make groups, a controller without swap accounting
 * (then swappiness 0, and the note says so), a group that is still busy for some milliseconds after
 * its last process (rmdir is tried again). */
#include "box/limits_rungs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

/* What the slots of limits.dir mean here: the groups by controller, then the open
 * memory.oom_control. */
enum { SLOT_OOM = CG1_N, SLOT_N };
static_assert((int)SLOT_N <= (int)LIMIT_FDS_MAX && (int)CG1_N <= (int)LIMIT_JOIN_MAX, "slots fit");

enum { CPU_PERIOD_US = 100000, CPU_QUOTA_MIN_US = 1000, RECHECK_US = 50000 };

static int open_parent(const struct cg1_place *p, enum cg1_controller c, struct err *e)
{
	int fd = open(p->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;

	if (fd < 0)
		return err_sys(e, "%s: opening %.300s", cg1_name[c], p->path);
	/* A mount over the mount would be somebody else's directory. */
	if (fstatfs(fd, &fs) < 0 || fs.f_type != CGROUP_SUPER_MAGIC) {
		close(fd);
		return err_set(e, ERR_MISSING, "%s: %.300s is hidden by another mount", cg1_name[c],
			       p->path);
	}
	return fd;
}

/* Makes the group and takes its lock. A left-over of the same name (a reused pid) gives EEXIST: the
 * caller takes the next name. */
static int make_group(int parent, const char *name, int *ret)
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

/* The controller before `c` that is mounted together with it and so shares its group, or -1. */
static int shares(const struct cg1_place place[CG1_N], int c)
{
	for (int b = 0; b < c; b++)
		if (place[b].mount == place[c].mount)
			return b;
	return -1;
}

/* One try under one name; on failure nothing stays, *failed is the controller. */
static int try_name(struct limits *l, int n, int *failed)
{
	for (int c = 0; c < n; c++) {
		int num;

		if (l->parent[c] < 0 || make_group(l->parent[c], l->name, &l->dir[c]) == 0)
			continue;
		num = errno;
		*failed = c;
		while (c-- > 0) {
			if (l->parent[c] < 0)
				continue;
			fd_close(&l->dir[c]);
			unlinkat(l->parent[c], l->name, AT_REMOVEDIR);
		}
		errno = num;
		return -1;
	}
	return 0;
}

/* The groups of the first `n` controllers under one name. */
static int make_groups(struct limits *l, const struct cg1_place place[CG1_N], int n, struct err *e)
{
	static unsigned serial;
	int failed = 0;

	for (int c = 0; c < n; c++) {
		if (shares(place, c) >= 0)
			continue;
		l->parent[c] = open_parent(&place[c], c, e);
		if (l->parent[c] < 0)
			return -1;
	}
	for (int tries = 0;; tries++) {
		snprintf(l->name, sizeof(l->name), "cloche-%d-%u", (int)getpid(), serial++);
		if (try_name(l, n, &failed) == 0)
			break;
		if ((errno != EEXIST && errno != EWOULDBLOCK && errno != ENOENT) || tries == 64)
			return err_sys(e, "%s: making a group in %.300s", cg1_name[failed],
				       place[failed].path);
	}
	for (int c = 0; c < n; c++) {
		int b = shares(place, c);

		if (b < 0)
			continue;
		l->dir[c] = fcntl(l->dir[b], F_DUPFD_CLOEXEC, 0);
		if (l->dir[c] < 0)
			return err_sys(e, "%s: keeping the group open", cg1_name[c]);
	}
	return 0;
}

/* Writes a number and reads back what the kernel made of it. */
static int set_value(int dir, const char *file, uint64_t value, uint64_t *ret)
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

static int set_memory(struct limits *l, uint64_t want, struct err *e)
{
	struct limit_state *s = &l->state[LIMIT_MEMORY];
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), got, swap;

	if (want == BOX_LIMIT_NONE)
		return 0;
	if (set_value(l->dir[CG1_MEMORY], "memory.limit_in_bytes", want, &got) < 0)
		return err_sys(e, "memory: setting a limit of %llu bytes",
			       (unsigned long long)want);
	if (got > want || want - got >= page)
		return err_set(e, ERR_SYS, "memory: asked for %llu bytes, the kernel holds %llu",
			       (unsigned long long)want, (unsigned long long)got);
	if (set_value(l->dir[CG1_MEMORY], "memory.memsw.limit_in_bytes", want, &swap) == 0) {
		if (swap != got)
			return err_set(e, ERR_SYS, "memory: swap limit reads %llu instead of %llu",
				       (unsigned long long)swap, (unsigned long long)got);
	} else {
		/* No swap accounting: not to swap is the best left. Without swap on the machine
		 * nothing is lost. */
		if (set_value(l->dir[CG1_MEMORY], "memory.swappiness", 0, &swap) < 0 || swap != 0)
			return err_sys(e, "memory: neither a swap limit nor swappiness can be set");
		snprintf(
			l->note, sizeof(l->note),
			"this kernel does not account swap: the memory limit holds for RAM, swapping is discouraged only");
	}
	*s = (struct limit_state){ want, got, limits_cgroup1.name, true };
	return 0;
}

static int set_pids(struct limits *l, uint64_t want, struct err *e)
{
	uint64_t got;

	if (want == BOX_LIMIT_NONE)
		return 0;
	if (want > 4194304)
		return err_set(e, ERR_USAGE, "pids: at most 4194304, not %llu",
			       (unsigned long long)want);
	if (set_value(l->dir[CG1_PIDS], "pids.max", want + LIMIT_INIT_PIDS, &got) < 0)
		return err_sys(e, "pids: setting a limit of %llu", (unsigned long long)want);
	if (got != want + LIMIT_INIT_PIDS)
		return err_set(e, ERR_SYS, "pids: asked for %llu, the kernel holds %llu",
			       (unsigned long long)want, (unsigned long long)got - LIMIT_INIT_PIDS);
	l->state[LIMIT_PIDS] =
		(struct limit_state){ want, got - LIMIT_INIT_PIDS, limits_cgroup1.name, true };
	return 0;
}

/* limits.c has set the row to affinity, which stays when there is no cpu group. */
static int set_cpus(struct limits *l, double cpus, struct err *e)
{
	uint64_t quota = (uint64_t)(cpus * CPU_PERIOD_US + 0.5), period, got;
	struct limit_state *s = &l->state[LIMIT_CPUS];

	if (l->dir[CG1_CPU] < 0)
		return 0;
	if (quota < CPU_QUOTA_MIN_US)
		quota = CPU_QUOTA_MIN_US;
	if (set_value(l->dir[CG1_CPU], "cpu.cfs_period_us", CPU_PERIOD_US, &period) < 0 ||
	    set_value(l->dir[CG1_CPU], "cpu.cfs_quota_us", quota, &got) < 0)
		return err_sys(e, "cpu: setting %llu us of every %d", (unsigned long long)quota,
			       CPU_PERIOD_US);
	if (period != CPU_PERIOD_US || got != quota)
		return err_set(e, ERR_SYS,
			       "cpu: asked for %llu us of %d, the kernel holds %llu of %llu",
			       (unsigned long long)quota, CPU_PERIOD_US, (unsigned long long)got,
			       (unsigned long long)period);
	s->effective = got * 1000 / period;
	s->rung = limits_cgroup1.name;
	s->enforced = true;
	return 0;
}

static bool counter(const char *text, const char *key, uint64_t *ret)
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

static bool read_oom(const struct limits *l, uint64_t *ret)
{
	char text[128];
	ssize_t n = pread(l->dir[SLOT_OOM], text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = '\0';
	return counter(text, "oom_kill", ret);
}

static int watch_oom(struct limits *l, struct err *e)
{
	char text[64];

	l->dir[SLOT_OOM] = openat(l->dir[CG1_MEMORY], "memory.oom_control", O_RDWR | O_CLOEXEC);
	l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->dir[SLOT_OOM] < 0 || l->event_fd < 0)
		return err_sys(e, "memory: watching for out-of-memory kills");
	/* A parent group with the killer off hands that down, and the box would hang at its limit.
	 */
	if (write(l->dir[SLOT_OOM], "0", 1) != 1)
		return err_sys(e, "memory: switching the out-of-memory killer on");
	if (!read_oom(l, &l->oom_before))
		return err_set(e, ERR_MISSING,
			       "memory: this kernel does not count oom_kill (needs 4.13)");
	snprintf(text, sizeof(text), "%d %d", l->event_fd, l->dir[SLOT_OOM]);
	if (fd_write_file_at(l->dir[CG1_MEMORY], "cgroup.event_control", text) < 0)
		return err_sys(e, "memory: registering for out-of-memory events");
	return 0;
}

static int cg1_open(struct limits *l, const struct box_limits *want, struct err *e)
{
	struct cg1_place place[CG1_N] = { 0 };
	int n = want->cpus > 0 ? CG1_N : CG1_CPU;

	if (cg1_find(place, e) < 0)
		return -1;
	if (n == CG1_N && !place[CG1_CPU].mounted)
		n = CG1_CPU;
	if (make_groups(l, place, n, e) < 0) {
		/* cpu is worth less than memory and pids: without it the row says affinity. */
		if (n != CG1_N)
			return -1;
		limits_cgroup1.close(l);
		n = CG1_CPU;
		if (make_groups(l, place, n, e) < 0)
			return -1;
	}
	for (int c = 0; c < n; c++) {
		if (c > 0 && l->parent[c] < 0)
			continue;
		l->join[c] = openat(l->dir[c], "tasks", O_WRONLY | O_CLOEXEC);
		l->leave[c] = openat(l->parent[c], "tasks", O_WRONLY | O_CLOEXEC);
		if (l->join[c] < 0 || l->leave[c] < 0)
			return err_sys(e, "%s: opening tasks", cg1_name[c]);
	}
	if (set_memory(l, want->memory, e) < 0 || set_pids(l, want->pids, e) < 0 ||
	    set_cpus(l, want->cpus, e) < 0)
		return -1;
	return watch_oom(l, e);
}

/* The processes in a group; at most `max` of them, which is enough to go on with. */
static size_t group_pids(int dir, pid_t *ret, size_t max)
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

/* Shared memory and tmpfs pages are one number in v1; tmpfs is what fills it nearly always. */
static void see_what_fills(struct limits *l)
{
	char text[4096];
	uint64_t rss = 0, shmem = 0;

	if (fd_read_file_at(l->dir[CG1_MEMORY], "memory.stat", text, sizeof(text)) < 0)
		return;
	if (!counter(text, "rss", &rss) || !counter(text, "shmem", &shmem))
		return;
	if (rss + shmem < l->state[LIMIT_MEMORY].effective / 2)
		return; /* the victim is gone already: what is left tells nothing */
	snprintf(l->seen_by, sizeof(l->seen_by), "%s", shmem > rss ? "tmpfs" : "anonymous");
}

static enum limit_hit cg1_check(struct limits *l)
{
	uint64_t events, kills;

	if (l->event_fd < 0)
		return LIMIT_HIT_NONE;
	if (read(l->event_fd, &events, sizeof(events)) == (ssize_t)sizeof(events)) {
		/* The event comes before the kill: now the group is still full, and the count may
		 * come a moment later. */
		see_what_fills(l);
		l->recheck_until_us = limits_now_us() + RECHECK_US;
	}
	if (!read_oom(l, &kills) || kills <= l->oom_before)
		return LIMIT_HIT_NONE;
	l->recheck_until_us = 0;
	if (!l->seen_by[0]) {
		pid_t one;

		/* In a group that lives on, tmpfs pages would have outlived the victim; its own
		 * memory went with it. */
		see_what_fills(l);
		if (!l->seen_by[0] && group_pids(l->dir[CG1_MEMORY], &one, 1) > 0)
			memcpy(l->seen_by, "anonymous", sizeof("anonymous"));
	}
	memcpy(l->filled_by, l->seen_by, sizeof(l->filled_by));
	return LIMIT_HIT_MEMORY;
}

static void cg1_usage(struct limits *l, struct limit_usage *ret)
{
	uint64_t v;
	char text[64];

	if (read_oom(l, &v))
		ret->oom_kills = v - l->oom_before;
	if (l->kills_only)
		return;
	if (fd_read_u64_at(l->dir[CG1_MEMORY], "memory.max_usage_in_bytes", &v) == 0)
		ret->memory_peak = v;
	if (fd_read_u64_at(l->dir[CG1_PIDS], "pids.peak", &v) == 0)
		ret->pids_peak = v > LIMIT_INIT_PIDS ? v - LIMIT_INIT_PIDS : 0;
	if (fd_read_file_at(l->dir[CG1_PIDS], "pids.events", text, sizeof(text)) > 0 &&
	    counter(text, "max", &v))
		ret->pids_max_events = v;
}

/* A guard: after the end of a box's init nobody is left. Only pids read from our own group are
 * signalled, and through a descriptor that was checked against the group again, so that a reused
 * pid is never hit. */
static void kill_left(int dir)
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

static void remove_group(int parent, int dir, const char *name)
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

static void cg1_close(struct limits *l)
{
	for (int c = 0; c < CG1_N; c++) {
		fd_close(&l->join[c]);
		fd_close(&l->leave[c]);
		if (l->dir[c] >= 0 && l->parent[c] >= 0)
			remove_group(l->parent[c], l->dir[c], l->name);
		fd_close(&l->dir[c]);
		fd_close(&l->parent[c]);
	}
	fd_close(&l->dir[SLOT_OOM]);
	fd_close(&l->event_fd);
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
static unsigned sweep_in(int parent, unsigned max)
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
			if (cg1_is_ours(d->name, &pid) && abandoned(dir, d->name, pid))
				gone++;
		}
	}
	return gone;
}

/* Beside groups that are open: where they stand is known, and a directory that has no other group
 * than ours (one link each, and two of its own) needs no look. */
static unsigned cg1_sweep_beside(const struct limits *l, unsigned max)
{
	unsigned gone = 0;
	struct stat st;

	for (int c = 0; c < CG1_N; c++)
		if (l->parent[c] >= 0 && fstat(l->parent[c], &st) == 0 && st.st_nlink != 3)
			gone += sweep_in(l->parent[c], max - gone);
	return gone;
}

const struct limits_rung limits_cgroup1 = {
	.id = LIMITS_RUNG_CGROUP1,
	.name = "cgroup1",
	.kernel = true,
	.open = cg1_open,
	.check = cg1_check,
	.usage = cg1_usage,
	.close = cg1_close,
	.sweep = cg1_sweep_beside,
};

unsigned cg1_sweep(unsigned max)
{
	struct cg1_place place[CG1_N] = { 0 };
	unsigned gone = 0;
	struct err e;

	if (cg1_find(place, &e) < 0)
		return 0;
	for (int c = 0; c < CG1_N; c++) {
		_cleanup_fd_ int parent =
			place[c].mounted ? open(place[c].path, O_PATH | O_DIRECTORY | O_CLOEXEC)
					 : -1;

		if (parent >= 0)
			gone += sweep_in(parent, max - gone);
	}
	return gone;
}

bool cg1_probe(char *why, size_t cap)
{
	struct cg1_place place[CG1_N] = { 0 };
	struct limits l = { .event_fd = -1 };
	struct err e;
	int n;

	for (int i = 0; i < LIMIT_FDS_MAX; i++)
		l.dir[i] = l.parent[i] = -1;
	for (int i = 0; i < LIMIT_JOIN_MAX; i++)
		l.join[i] = l.leave[i] = -1;
	if (cg1_find(place, &e) < 0) {
		snprintf(why, cap, "%s", e.msg);
		return false;
	}
	n = place[CG1_CPU].mounted ? CG1_N : CG1_CPU;
	if (make_groups(&l, place, n, &e) < 0) {
		cg1_close(&l);
		n = CG1_CPU;
		if (make_groups(&l, place, n, &e) < 0) {
			cg1_close(&l);
			snprintf(why, cap, "%s", e.msg);
			return false;
		}
	}
	cg1_close(&l);
	snprintf(why, cap, "memory and pids%s, below %s",
		 n == CG1_N ? " and cpu" : "; no group for cpu", place[CG1_MEMORY].path);
	return true;
}
