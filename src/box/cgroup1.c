/* The cgroup v1 rung: one group a controller (memory, pids, and cpu for --cpus) below the caller's
 * own group, never elsewhere.
 *
 * How it works: the groups are made, set and read back while the child builds its mounts; the child
 * then enters by writing "0" to the `tasks` descriptors it was sent. Memory is limit_in_bytes with
 * memsw.limit_in_bytes equal, so nothing is swapped; socket buffers, which it leaves out, have
 * kmem.tcp.limit_in_bytes. An eventfd on memory.oom_control wakes the
 * monitor; what counts is `oom_kill` in that file, never failcnt (it stays 0 when memsw is charged
 * first). v1 has no group kill: the monitor ends the box through its init, whose pid namespace
 * takes the rest.
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

enum { CPU_PERIOD_US = 100000, CPU_QUOTA_MIN_US = 1000, RECHECK_US = 50000, SOCKETS_PART = 4 };

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

		if (l->parent[c] < 0 || group_make(l->parent[c], l->name, &l->dir[c]) == 0)
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
	int failed = 0;

	for (int c = 0; c < n; c++) {
		if (shares(place, c) >= 0)
			continue;
		l->parent[c] = open_parent(&place[c], c, e);
		if (l->parent[c] < 0)
			return -1;
		/* To try would leave the kernel a name that is not there, one a box. */
		if (faccessat(l->parent[c], ".", W_OK, 0) < 0)
			return err_sys(e, "%s: making a group in %.300s", cg1_name[c],
				       place[c].path);
	}
	for (int tries = 0;; tries++) {
		group_name(l->name);
		if (try_name(l, n, &failed) == 0)
			break;
		if (!group_try_again(errno) || tries == GROUP_TRIES)
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

/* Socket buffers are outside of memory.limit_in_bytes here: a box fills them over its own loopback,
 * and on the way uses up what tcp_mem and udp_mem give the whole machine. They have a counter of
 * their own, which the kernel keeps only for a group that limits it. */
static void set_sockets(struct limits *l, uint64_t memory)
{
	uint64_t got;

	if (group_set(l->dir[CG1_MEMORY], "memory.kmem.tcp.limit_in_bytes", memory / SOCKETS_PART,
		      &got) < 0 ||
	    got > memory / SOCKETS_PART)
		snprintf(
			l->note, sizeof(l->note),
			"this kernel does not count socket buffers: the memory limit holds for everything else");
}

static int set_memory(struct limits *l, uint64_t want, struct err *e)
{
	struct limit_state *s = &l->state[LIMIT_MEMORY];
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), got, swap;

	if (want == BOX_LIMIT_NONE)
		return 0;
	if (group_set(l->dir[CG1_MEMORY], "memory.limit_in_bytes", want, &got) < 0)
		return err_sys(e, "memory: setting a limit of %llu bytes",
			       (unsigned long long)want);
	if (got > want || want - got >= page)
		return err_set(e, ERR_SYS, "memory: asked for %llu bytes, the kernel holds %llu",
			       (unsigned long long)want, (unsigned long long)got);
	if (group_set(l->dir[CG1_MEMORY], "memory.memsw.limit_in_bytes", want, &swap) == 0) {
		if (swap != got)
			return err_set(e, ERR_SYS, "memory: swap limit reads %llu instead of %llu",
				       (unsigned long long)swap, (unsigned long long)got);
	} else {
		/* No swap accounting: not to swap is the best left. Without swap on the machine
		 * nothing is lost. */
		if (group_set(l->dir[CG1_MEMORY], "memory.swappiness", 0, &swap) < 0 || swap != 0)
			return err_sys(e, "memory: neither a swap limit nor swappiness can be set");
		snprintf(
			l->note, sizeof(l->note),
			"this kernel does not account swap: the memory limit holds for RAM, swapping is discouraged only");
	}
	set_sockets(l, got);
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
	if (group_set(l->dir[CG1_PIDS], "pids.max", want + LIMIT_INIT_PIDS, &got) < 0)
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
	if (group_set(l->dir[CG1_CPU], "cpu.cfs_period_us", CPU_PERIOD_US, &period) < 0 ||
	    group_set(l->dir[CG1_CPU], "cpu.cfs_quota_us", quota, &got) < 0)
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

static bool read_oom(const struct limits *l, uint64_t *ret)
{
	char text[128];
	ssize_t n = pread(l->dir[SLOT_OOM], text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = '\0';
	return group_counter(text, "oom_kill", ret);
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

/* Where other cloches have groups for --cpus, though this one may have none: "" when there is no
 * such place. */
static char cpu_groups[CG_PATH_MAX];

static int cg1_open(struct limits *l, const struct box_limits *want, struct err *e)
{
	struct cg1_place place[CG1_N] = { 0 };
	int n = want->cpus > 0 ? CG1_N : CG1_CPU;

	if (cg1_find(place, e) < 0)
		return -1;
	if (n == CG1_N && !place[CG1_CPU].mounted)
		n = CG1_CPU;
	memcpy(cpu_groups, place[CG1_CPU].path, sizeof(cpu_groups));
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
	l->held = LIMITS_BOTH | (l->dir[CG1_CPU] >= 0 ? 1u << LIMIT_CPUS : 0);
	return watch_oom(l, e);
}

/* Shared memory and tmpfs pages are one number in v1; tmpfs is what fills it nearly always. */
static void see_what_fills(struct limits *l)
{
	char text[4096];
	uint64_t rss = 0, shmem = 0;

	if (fd_read_file_at(l->dir[CG1_MEMORY], "memory.stat", text, sizeof(text)) < 0)
		return;
	if (!group_counter(text, "rss", &rss) || !group_counter(text, "shmem", &shmem))
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
	    group_counter(text, "max", &v))
		ret->pids_max_events = v;
}

/* No file of a group may be open when the group goes: its name and the directory's would outlive
 * the rmdir in the kernel's cache, two entries a box, until memory is short. */
static void cg1_close(struct limits *l)
{
	fd_close(&l->dir[SLOT_OOM]);
	fd_close(&l->event_fd);
	for (int c = 0; c < CG1_N; c++) {
		fd_close(&l->join[c]);
		fd_close(&l->leave[c]);
		if (l->dir[c] >= 0 && l->parent[c] >= 0)
			group_remove(l->parent[c], l->dir[c], l->name);
		fd_close(&l->dir[c]);
		fd_close(&l->parent[c]);
	}
}

/* Beside groups that are open: where they stand is known, and a directory that has no other group
 * than ours (one link each, and two of its own) needs no look. */
static unsigned cg1_sweep_beside(const struct limits *l, unsigned max)
{
	_cleanup_fd_ int cpu = -1;
	unsigned gone = 0;
	struct stat st;

	if (l->parent[CG1_CPU] < 0 && cpu_groups[0])
		cpu = open(cpu_groups, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (cpu >= 0 && fstat(cpu, &st) == 0 && st.st_nlink != 2)
		gone += group_sweep(cpu, max);
	for (int c = 0; c < CG1_N; c++)
		if (l->parent[c] >= 0 && fstat(l->parent[c], &st) == 0 && st.st_nlink != 3)
			gone += group_sweep(l->parent[c], max - gone);
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
			gone += group_sweep(parent, max - gone);
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
