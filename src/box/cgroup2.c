/* The cgroup v2 rung: one group a box, in a subtree that was delegated to the caller.
 *
 * How it works: the group is made before the clone, and init is born in it (CLONE_INTO_CGROUP). On
 * v2 there is no cheap way in later: writing to cgroup.procs waits for an RCU grace period, which
 * was 11 ms on an idle machine. The limits are set and read back while init builds. memory.max
 * with swap.max 0 and oom.group 1: the kernel kills the whole box at once, init with it, and
 * memory.events says so (`oom_kill`). What counts is that number. A change of memory.events also
 * wakes the monitor, to see what fills the group while it is still full.
 *
 * Which directory: cgroup2_where.c. The rung of scopes asks for one over D-Bus and uses the rest of
 * this file as it is.
 *
 * What may go wrong: a controller that is not delegated (the limit then falls to the supervised
 * means, and its row says so); no swap accounting (a note says so); a service manager that takes a
 * controller away while the box runs: the limits are read once more at the end, and a note tells.
 */
#include "box/limits_rungs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* What the slots of limits.dir mean here: the box's group, its open memory.events, and the group
 * that this process stepped into. */
enum { SLOT_GROUP, SLOT_EVENTS, SLOT_ASIDE };

enum { CPU_PERIOD_US = 100000, CPU_QUOTA_MIN_US = 1000 };

/* The controllers, and the limit that each holds. */
static const struct {
	unsigned bit;
	enum limit_name limit;
	const char *name, *on, *off, *file;
} holds[] = {
	{ CG2_MEMORY, LIMIT_MEMORY, "memory", "+memory", "-memory", "memory.max" },
	{ CG2_PIDS, LIMIT_PIDS, "pids", "+pids", "-pids", "pids.max" },
	{ CG2_CPU, LIMIT_CPUS, "cpu", "+cpu", "-cpu", "cpu.max" },
	{ CG2_IO, LIMIT_IO_WEIGHT, "io", "+io", "-io", "io.weight" },
};
#define N_HOLDS (sizeof(holds) / sizeof(holds[0]))

unsigned cg2_wanted(const struct box_limits *want)
{
	return CG2_MEMORY | CG2_PIDS | (want->cpus > 0 ? CG2_CPU : 0) |
	       (want->io_weight ? CG2_IO : 0);
}

/* Into a group of our own below the parent, so that the parent holds no process any more. */
static int step_aside(struct limits *l, struct err *e)
{
	char name[GROUP_NAME];
	int tries = 0;

	do
		group_name(name);
	while (group_make(l->parent[SLOT_GROUP], name, &l->dir[SLOT_ASIDE]) < 0 &&
	       group_try_again(errno) && ++tries < GROUP_TRIES);
	if (l->dir[SLOT_ASIDE] < 0)
		return err_sys(e, "making a group for cloche itself");
	memcpy(l->aside, name, sizeof(name));
	if (fd_write_file_at(l->dir[SLOT_ASIDE], "cgroup.procs", "0") < 0)
		return err_sys(e, "stepping into a group of our own");
	return 0;
}

/* Each by itself: one that can't be had must not keep the others away. */
static void enable(struct limits *l, unsigned bits)
{
	for (size_t i = 0; i < N_HOLDS; i++)
		if (bits & holds[i].bit &&
		    fd_write_file_at(l->parent[SLOT_GROUP], "cgroup.subtree_control",
				     holds[i].on) == 0)
			l->enabled |= holds[i].bit;
}

static int make(struct limits *l, const char *path, struct err *e)
{
	for (int tries = 0;; tries++) {
		group_name(l->name);
		if (group_make(l->parent[SLOT_GROUP], l->name, &l->dir[SLOT_GROUP]) == 0)
			return 0;
		if (!group_try_again(errno) || tries == GROUP_TRIES)
			return err_sys(e, "making a group in %.300s", path);
	}
}

int cg2_place_at(struct limits *l, const struct cg2_parent *parent, const struct box_limits *want,
		 struct err *e)
{
	l->parent[SLOT_GROUP] = fcntl(parent->fd, F_DUPFD_CLOEXEC, 0);
	if (l->parent[SLOT_GROUP] < 0)
		return err_sys(e, "keeping %.300s open", parent->path);
	if (parent->alone && step_aside(l, e) < 0)
		return -1;
	enable(l, parent->enable);
	if (make(l, parent->path, e) < 0)
		return -1;
	/* What is there and may be written is what counts. */
	for (size_t i = 0; i < N_HOLDS; i++)
		if (cg2_wanted(want) & holds[i].bit &&
		    faccessat(l->dir[SLOT_GROUP], holds[i].file, W_OK, 0) == 0)
			l->held |= 1u << holds[i].limit;
	if (!(l->held & LIMITS_BOTH))
		return err_set(e, ERR_MISSING, "%.300s gives neither memory nor pids",
			       parent->path);
	l->into = l->dir[SLOT_GROUP];
	return 0;
}

/* Without controllers a group still kills all at once, which a sampler is glad of. Root has
 * limits from the kernel, as a rule, and init's end is the box's there; a tenth of a millisecond
 * for a second way to the same end would be a waste. */
static void make_bare(struct limits *l, const struct cg2_parent *parent)
{
	if (geteuid() == 0)
		return;
	l->bare_parent = fcntl(parent->fd, F_DUPFD_CLOEXEC, 0);
	group_name(l->bare_name);
	if (l->bare_parent < 0 || group_make(l->bare_parent, l->bare_name, &l->bare) < 0)
		fd_close(&l->bare_parent);
	l->into = l->bare;
}

static int cg2_place(struct limits *l, const struct box_limits *want, struct err *e)
{
	static struct cg2_parent parent;
	int r;

	if (cg2_find_parent(cg2_wanted(want), &parent, e) < 0)
		return -1;
	if (parent.gives & (CG2_MEMORY | CG2_PIDS)) {
		r = cg2_place_at(l, &parent, want, e);
	} else {
		r = err_set(e, ERR_MISSING, "neither memory nor pids is delegated as far as %.200s",
			    parent.path);
		make_bare(l, &parent);
	}
	fd_close(&parent.fd);
	return r;
}

static int set_memory(struct limits *l, uint64_t want, struct err *e)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), got, v;
	int dir = l->dir[SLOT_GROUP];

	if (group_set(dir, "memory.max", want, &got) < 0)
		return err_sys(e, "memory: setting a limit of %llu bytes",
			       (unsigned long long)want);
	if (got > want || want - got >= page)
		return err_set(e, ERR_SYS, "memory: asked for %llu bytes, the kernel holds %llu",
			       (unsigned long long)want, (unsigned long long)got);
	if (group_set(dir, "memory.swap.max", 0, &v) < 0) {
		if (errno != ENOENT)
			return err_sys(e, "memory: forbidding swap");
		snprintf(
			l->note, sizeof(l->note),
			"this kernel does not account swap: the memory limit holds for RAM, not for what is swapped out");
	} else if (v != 0) {
		return err_set(e, ERR_SYS, "memory: swap.max reads %llu instead of 0",
			       (unsigned long long)v);
	}
	/* Older than 4.19: then the monitor ends the rest. */
	if (group_set(dir, "memory.oom.group", 1, &v) < 0 && errno != ENOENT)
		return err_sys(e, "memory: asking for a kill of the whole group");
	l->state[LIMIT_MEMORY] = (struct limit_state){ want, got, l->rung->name, true };
	return 0;
}

static int set_pids(struct limits *l, uint64_t want, struct err *e)
{
	uint64_t got;

	if (want > 4194304)
		return err_set(e, ERR_USAGE, "pids: at most 4194304, not %llu",
			       (unsigned long long)want);
	if (group_set(l->dir[SLOT_GROUP], "pids.max", want + LIMIT_INIT_PIDS, &got) < 0)
		return err_sys(e, "pids: setting a limit of %llu", (unsigned long long)want);
	if (got != want + LIMIT_INIT_PIDS)
		return err_set(e, ERR_SYS, "pids: asked for %llu, the kernel holds %llu",
			       (unsigned long long)want, (unsigned long long)got - LIMIT_INIT_PIDS);
	l->state[LIMIT_PIDS] = (struct limit_state){ want, want, l->rung->name, true };
	return 0;
}

static int set_cpus(struct limits *l, double cpus, struct err *e)
{
	uint64_t quota = (uint64_t)(cpus * CPU_PERIOD_US + 0.5);
	struct limit_state *s = &l->state[LIMIT_CPUS];
	char asked[48], got[48];

	if (quota < CPU_QUOTA_MIN_US)
		quota = CPU_QUOTA_MIN_US;
	snprintf(asked, sizeof(asked), "%llu %d", (unsigned long long)quota, CPU_PERIOD_US);
	if (fd_write_file_at(l->dir[SLOT_GROUP], "cpu.max", asked) < 0 ||
	    fd_read_file_at(l->dir[SLOT_GROUP], "cpu.max", got, sizeof(got)) < 0)
		return err_sys(e, "cpu: setting %s us", asked);
	if (strcmp(asked, got) != 0)
		return err_set(e, ERR_SYS, "cpu: asked for %s us, the kernel holds %s", asked, got);
	s->effective = quota * 1000 / CPU_PERIOD_US;
	s->rung = l->rung->name;
	s->enforced = true;
	return 0;
}

static int set_io_weight(struct limits *l, unsigned weight, struct err *e)
{
	uint64_t got;
	char text[256];

	snprintf(text, sizeof(text), "default %u", weight);
	if (fd_write_file_at(l->dir[SLOT_GROUP], "io.weight", text) < 0 ||
	    fd_read_file_at(l->dir[SLOT_GROUP], "io.weight", text, sizeof(text)) < 0)
		return err_sys(e, "io: setting a weight of %u", weight);
	if (!group_counter(text, "default", &got) || got != weight)
		return err_set(e, ERR_SYS, "io: asked for a weight of %u, the kernel says %.40s",
			       weight, text);
	l->state[LIMIT_IO_WEIGHT] = (struct limit_state){ weight, weight, l->rung->name, true };
	return 0;
}

/* The read also arms the next event. */
static bool read_kills(const struct limits *l, uint64_t *ret)
{
	char text[256];
	ssize_t n = -1;

	if (l->dir[SLOT_EVENTS] >= 0)
		n = pread(l->dir[SLOT_EVENTS], text, sizeof(text) - 1, 0);
	if (n <= 0)
		return false;
	text[n] = '\0';
	return group_counter(text, "oom_kill", ret);
}

static int watch_memory(struct limits *l, struct err *e)
{
	l->dir[SLOT_EVENTS] = openat(l->dir[SLOT_GROUP], "memory.events", O_RDONLY | O_CLOEXEC);
	if (l->dir[SLOT_EVENTS] < 0)
		return err_sys(e, "memory: watching for out-of-memory kills");
	if (!read_kills(l, &l->oom_before))
		return err_set(e, ERR_MISSING,
			       "memory: this kernel does not count oom_kill (needs 4.13)");
	l->event_fd = l->dir[SLOT_EVENTS];
	l->event_mask = POLLPRI;
	return 0;
}

int cg2_open(struct limits *l, const struct box_limits *want, struct err *e)
{
	if (limits_held(l, LIMIT_MEMORY) && want->memory != BOX_LIMIT_NONE &&
	    set_memory(l, want->memory, e) < 0)
		return -1;
	if (limits_held(l, LIMIT_PIDS) && want->pids != BOX_LIMIT_NONE &&
	    set_pids(l, want->pids, e) < 0)
		return -1;
	if (limits_held(l, LIMIT_CPUS) && set_cpus(l, want->cpus, e) < 0)
		return -1;
	if (limits_held(l, LIMIT_IO_WEIGHT) && set_io_weight(l, want->io_weight, e) < 0)
		return -1;
	return limits_held(l, LIMIT_MEMORY) ? watch_memory(l, e) : 0;
}

/* Shared memory and tmpfs pages are one number; tmpfs is what fills it nearly always. */
static void see_what_fills(struct limits *l)
{
	uint64_t anon = 0, shmem = 0;
	char text[8192];

	if (fd_read_file_at(l->dir[SLOT_GROUP], "memory.stat", text, sizeof(text)) < 0 ||
	    !group_counter(text, "anon", &anon) || !group_counter(text, "shmem", &shmem))
		return;
	if (anon + shmem < l->state[LIMIT_MEMORY].effective / 2)
		return; /* not yet, or gone already: what is left tells nothing */
	snprintf(l->seen_by, sizeof(l->seen_by), "%s", shmem > anon ? "tmpfs" : "anonymous");
}

enum limit_hit cg2_check(struct limits *l)
{
	uint64_t kills;

	if (l->event_fd < 0 || !read_kills(l, &kills))
		return LIMIT_HIT_NONE;
	see_what_fills(l);
	if (kills <= l->oom_before)
		return LIMIT_HIT_NONE;
	memcpy(l->filled_by, l->seen_by, sizeof(l->filled_by));
	return LIMIT_HIT_MEMORY;
}

static void read_io(const struct limits *l, struct limit_usage *ret)
{
	static const char read_key[] = " rbytes=", write_key[] = " wbytes=";
	char text[4096];

	if (fd_read_file_at(l->dir[SLOT_GROUP], "io.stat", text, sizeof(text)) < 0)
		return;
	ret->read_bytes = ret->written_bytes = 0;
	for (const char *p = text; (p = strstr(p, read_key)); p++)
		ret->read_bytes += strtoull(p + sizeof(read_key) - 1, NULL, 10);
	for (const char *p = text; (p = strstr(p, write_key)); p++)
		ret->written_bytes += strtoull(p + sizeof(write_key) - 1, NULL, 10);
}

/* A manager that reconsiders a slice takes limits away without a word. */
static void look_again(struct limits *l)
{
	for (size_t i = 0; i < N_HOLDS; i++) {
		struct limit_state *s = &l->state[holds[i].limit];

		if (!limits_held(l, holds[i].limit) || !s->enforced ||
		    faccessat(l->dir[SLOT_GROUP], holds[i].file, F_OK, 0) == 0)
			continue;
		s->enforced = false;
		s->effective = BOX_LIMIT_NONE;
		snprintf(
			l->note, sizeof(l->note),
			"the %s controller was taken away from the box's group while it ran: its limit did not hold",
			holds[i].name);
	}
}

void cg2_usage(struct limits *l, struct limit_usage *ret)
{
	int dir = l->dir[SLOT_GROUP];
	char text[1024];
	uint64_t v;

	look_again(l);
	if (read_kills(l, &v))
		ret->oom_kills = v - l->oom_before;
	if (l->kills_only)
		return;
	if (fd_read_u64_at(dir, "memory.peak", &v) == 0)
		ret->memory_peak = v;
	if (fd_read_u64_at(dir, "pids.peak", &v) == 0)
		ret->pids_peak = v > LIMIT_INIT_PIDS ? v - LIMIT_INIT_PIDS : 0;
	if (fd_read_file_at(dir, "pids.events", text, sizeof(text)) > 0 &&
	    group_counter(text, "max", &v))
		ret->pids_max_events = v;
	if (fd_read_file_at(dir, "cpu.stat", text, sizeof(text)) > 0) {
		group_counter(text, "user_usec", &ret->cpu_user_us);
		group_counter(text, "system_usec", &ret->cpu_sys_us);
	}
	read_io(l, ret);
}

/* As it was: controllers off again, this process back, the group of its own gone. */
static void step_back(struct limits *l)
{
	for (size_t i = 0; i < N_HOLDS; i++)
		if (l->enabled & holds[i].bit)
			(void)fd_write_file_at(l->parent[SLOT_GROUP], "cgroup.subtree_control",
					       holds[i].off);
	if (fd_write_file_at(l->parent[SLOT_GROUP], "cgroup.procs", "0") == 0)
		unlinkat(l->parent[SLOT_GROUP], l->aside, AT_REMOVEDIR);
}

/* memory.events first: see cg1_close. */
void cg2_close(struct limits *l)
{
	fd_close(&l->dir[SLOT_EVENTS]);
	l->event_fd = -1; /* was the slot's */
	if (l->dir[SLOT_GROUP] >= 0)
		group_remove(l->parent[SLOT_GROUP], l->dir[SLOT_GROUP], l->name);
	if (l->dir[SLOT_ASIDE] >= 0)
		step_back(l);
	l->into = -1;
	l->enabled = l->held = 0;
	for (int i = SLOT_GROUP; i <= SLOT_ASIDE; i++)
		fd_close(&l->dir[i]);
	fd_close(&l->parent[SLOT_GROUP]);
}

unsigned cg2_sweep_beside(const struct limits *l, unsigned max)
{
	return l->parent[SLOT_GROUP] >= 0 ? group_sweep(l->parent[SLOT_GROUP], max) : 0;
}

const struct limits_rung limits_cgroup2 = {
	.id = LIMITS_RUNG_CGROUP2,
	.name = "cgroup2",
	.kernel = true,
	.place = cg2_place,
	.open = cg2_open,
	.check = cg2_check,
	.usage = cg2_usage,
	.close = cg2_close,
	.sweep = cg2_sweep_beside,
};

/* Wherever a start of this caller may have made one: named, and from the own group upwards. */
unsigned cg2_sweep(unsigned max)
{
	static struct cg2_place own;
	const char *named = getenv("CLOCHE_CGROUP");
	unsigned gone = 0;
	struct err e;

	if (named && named[0]) {
		_cleanup_fd_ int fd = open(named, O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0)
			gone += group_sweep(fd, max);
	}
	if (cg2_find(&own, &e) < 0)
		return gone;
	for (;;) {
		_cleanup_fd_ int fd = open(own.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		char *slash = strrchr(own.path, '/');

		if (fd < 0 || faccessat(fd, ".", W_OK, 0) < 0)
			return gone;
		gone += group_sweep(fd, max - gone);
		if (!slash || slash == own.path || (size_t)(slash - own.path) < own.top)
			return gone;
		*slash = '\0';
	}
}

bool cg2_probe(char *why, size_t cap)
{
	static struct cg2_parent parent;
	const unsigned both = CG2_MEMORY | CG2_PIDS;
	struct err e;
	char words[64];

	if (cg2_find_parent(both | CG2_CPU | CG2_IO, &parent, &e) < 0) {
		snprintf(why, cap, "%s", e.msg);
		return false;
	}
	fd_close(&parent.fd);
	cg2_words(parent.gives, words, sizeof(words));
	snprintf(why, cap, "%s, below %s", parent.gives ? words : "no controller", parent.path);
	return (parent.gives & both) == both;
}
