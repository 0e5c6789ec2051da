/* The ladder: chooses a rung, fills the rows that do not depend on it, and passes the calls on.
 *
 * A new rung is a row in `ladder` with its functions in a file of its own. What may go wrong: no
 * rung but the best-effort one works; then the outcome says "supervised", or with --require-limits
 * the start is refused with what every rung said. */
#include "box/limits_rungs.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/resource.h>

#include "base/fd.h"

#define MEMORY_DEFAULT (512ull << 20)

static const struct {
	const char *name;
	const struct limits_rung *rung;
} ladder[] = {
	[LIMITS_RUNG_CGROUP2] = { "cgroup2", &limits_cgroup2 },
	[LIMITS_RUNG_SCOPE] = { "scope", &limits_scope },
	[LIMITS_RUNG_CGROUP1] = { "cgroup1", &limits_cgroup1 },
	[LIMITS_RUNG_SUPERVISED] = { "supervised", &limits_supervised },
};
static_assert(sizeof(ladder) / sizeof(ladder[0]) == LIMITS_RUNG_N, "a row for every rung");

static const char *const limit_names[] = {
	[LIMIT_MEMORY] = "memory",
	[LIMIT_PIDS] = "pids",
	[LIMIT_CPUS] = "cpus",
	[LIMIT_TIMEOUT] = "timeout",
	[LIMIT_OUTPUT] = "output",
	[LIMIT_FILE_SIZE] = "file_size",
	[LIMIT_OPEN_FILES] = "open_files",
	[LIMIT_WORKSPACE_MAX] = "workspace_max",
	[LIMIT_IO_WEIGHT] = "io_weight",
};
static_assert(sizeof(limit_names) / sizeof(limit_names[0]) == LIMIT_N, "a name for every limit");

const char *limit_name(enum limit_name n)
{
	return n >= 0 && n < LIMIT_N ? limit_names[n] : "";
}

const char *limits_rung_name(enum limits_rung_id id)
{
	return id >= 0 && id < LIMITS_RUNG_N ? ladder[id].name : "";
}

static struct limit_state row(uint64_t asked, const char *rung)
{
	bool none = asked == 0 || asked == BOX_LIMIT_NONE;

	return none ? (struct limit_state){ BOX_LIMIT_NONE, BOX_LIMIT_NONE, "none", false }
		    : (struct limit_state){ asked, asked, rung, true };
}

/* A resource limit can't be above what the caller has. */
static struct limit_state rlimit_row(uint64_t asked, uint64_t fallback, int resource)
{
	struct limit_state s = row(asked, "rlimit");
	struct rlimit have;

	if (s.requested == BOX_LIMIT_NONE && fallback != BOX_LIMIT_NONE)
		s = (struct limit_state){ BOX_LIMIT_NONE, fallback, "rlimit", true };
	if (getrlimit(resource, &have) == 0 && have.rlim_max != RLIM_INFINITY &&
	    have.rlim_max < s.effective) {
		s.effective = have.rlim_max;
		s.rung = "rlimit";
		s.enforced = true;
	}
	return s;
}

static void fill_rows(struct limits *l, const struct box_limits *want)
{
	l->state[LIMIT_MEMORY] =
		(struct limit_state){ want->memory, BOX_LIMIT_NONE, "none", false };
	l->state[LIMIT_PIDS] = (struct limit_state){ want->pids, BOX_LIMIT_NONE, "none", false };
	l->state[LIMIT_CPUS] = row(BOX_LIMIT_NONE, "none");
	if (want->cpus > 0) {
		/* What limits_inside does on every rung. The box could undo it, so it enforces
		 * nothing. */
		l->state[LIMIT_CPUS].requested = (uint64_t)(want->cpus * 1000 + 0.5);
		l->state[LIMIT_CPUS].effective = limits_whole_cpus(want->cpus) * 1000;
		l->state[LIMIT_CPUS].rung = "affinity";
	}
	l->state[LIMIT_TIMEOUT] = row(want->timeout_us, "deadline");
	l->state[LIMIT_OUTPUT] = row(want->output, "capture");
	l->state[LIMIT_FILE_SIZE] = rlimit_row(want->file_size, BOX_LIMIT_NONE, RLIMIT_FSIZE);
	l->state[LIMIT_OPEN_FILES] =
		rlimit_row(want->open_files, LIMITS_OPEN_FILES_HARD, RLIMIT_NOFILE);
	l->state[LIMIT_WORKSPACE_MAX] = row(want->workspace_max, "none");
	/* limits_watch_workspace puts the sampler's name here once there is something to sample. */
	l->state[LIMIT_WORKSPACE_MAX].effective = BOX_LIMIT_NONE;
	l->state[LIMIT_WORKSPACE_MAX].enforced = false;
	/* Only a group can hold it. */
	l->state[LIMIT_IO_WEIGHT] = row(want->io_weight, "none");
	l->state[LIMIT_IO_WEIGHT].effective = BOX_LIMIT_NONE;
	l->state[LIMIT_IO_WEIGHT].enforced = false;
}

void limits_timeout(struct limits *l, uint64_t timeout_us)
{
	l->state[LIMIT_TIMEOUT] = row(timeout_us, "deadline");
}

void limits_clear(struct limits *l)
{
	memset(l, 0, sizeof(*l));
	for (int i = 0; i < LIMIT_FDS_MAX; i++)
		l->dir[i] = l->parent[i] = -1;
	for (int i = 0; i < LIMIT_JOIN_MAX; i++)
		l->join[i] = l->leave[i] = -1;
	l->event_fd = l->workspace_fd = l->walk.fd = l->into = l->bare = l->bare_parent = -1;
	l->event_mask = POLLIN;
}

static struct box_limits with_defaults(const struct box_limits *asked)
{
	struct box_limits want = *asked;

	if (want.memory == 0)
		want.memory = MEMORY_DEFAULT;
	if (want.pids == 0)
		want.pids = LIMITS_PIDS_DEFAULT;
	return want;
}

/* --require-limits names memory and pids, and cpus and the io weight when they were asked. */
static int held_by_kernel(const struct limits *l, const struct box_limits *want, struct err *e)
{
	if (l->rest)
		return err_set(
			e, ERR_MISSING,
			"--require-limits: nothing here enforces %s: no such controller is delegated (%s); "
			"`cloche doctor` says how, or drop --require-limits for best effort",
			limits_held(l, LIMIT_MEMORY) ? "pids" : "memory", l->tried);
	if (!l->state[LIMIT_MEMORY].enforced || !l->state[LIMIT_PIDS].enforced)
		return err_set(
			e, ERR_REFUSED,
			"--require-limits needs a limit for memory and for pids; neither may be lifted");
	if (want->cpus > 0 && !l->state[LIMIT_CPUS].enforced)
		return err_set(
			e, ERR_MISSING,
			"--require-limits: --cpus can't be enforced here (no group of a cpu controller); "
			"drop one of the two");
	if (want->io_weight && !l->state[LIMIT_IO_WEIGHT].enforced)
		return err_set(
			e, ERR_MISSING,
			"--require-limits: --io-weight can't be enforced here (no group of an io controller with "
			"weights); drop one of the two");
	return 0;
}

static int refuse(const char *tried, struct err *e)
{
	return err_set(
		e, ERR_MISSING,
		"--require-limits: nothing here enforces memory and pids (%s); `cloche doctor` says how it can be, "
		"or drop --require-limits for best effort",
		tried);
}

static void keep_said(struct limits *l, const char *rung, const char *said)
{
	size_t at = strlen(l->tried);

	snprintf(l->tried + at, sizeof(l->tried) - at, "%s%s: %.150s", at ? "; " : "", rung, said);
}

/* Takes back what a rung has begun. */
static void undo(struct limits *l)
{
	l->rung->close(l);
	l->rung = NULL;
	l->held = 0;
	l->into = l->bare;
	l->note[0] = '\0';
}

static void drop_bare(struct limits *l)
{
	if (l->bare >= 0)
		group_remove(l->bare_parent, l->bare, l->bare_name);
	if (l->into == l->bare)
		l->into = -1;
	fd_close(&l->bare);
	fd_close(&l->bare_parent);
}

/* One rung's place. 1: it gives both, 0: one of them, -1: none, with what it said. */
static int place(struct limits *l, int i, const struct box_limits *want, struct err *why)
{
	l->rung = ladder[i].rung;
	if (l->rung->place(l, want, why) == 0)
		return (l->held & LIMITS_BOTH) == LIMITS_BOTH;
	undo(l);
	return -1;
}

/* A rung that needs no place beforehand, tried for both. */
static int open_whole(struct limits *l, int i, const struct box_limits *want)
{
	struct err why;

	fill_rows(l, want);
	l->rung = ladder[i].rung;
	if (l->rung->open(l, want, &why) == 0) {
		l->set = true;
		return 0;
	}
	undo(l);
	keep_said(l, ladder[i].name, why.msg);
	return -1;
}

/* The group that the caller named for boxes, or NULL. */
static const char *named_group(void)
{
	const char *path = getenv("CLOCHE_CGROUP");

	return path && path[0] ? path : NULL;
}

int limits_place(struct limits *l, const struct box_limits *asked, struct err *e)
{
	struct box_limits want = with_defaults(asked);
	struct err why;
	int half = -1, r;

	limits_clear(l);
	for (int i = 0; i < LIMITS_RUNG_N && !want.supervised; i++) {
		if (!ladder[i].rung->kernel)
			continue;
		if (!ladder[i].rung->place) {
			/* After the clone, for it takes time; but what it can decides about a half.
			 */
			if (half >= 0 && open_whole(l, i, &want) == 0)
				return 0;
			continue;
		}
		r = place(l, i, &want, &why);
		if (r > 0) {
			drop_bare(l);
			return 0;
		}
		if (r < 0 && why.kind == ERR_REFUSED) {
			drop_bare(l);
			*e = why;
			return err_at(e, STAGE_LIMITS);
		}
		keep_said(l, ladder[i].name,
			  r < 0				 ? why.msg
			  : limits_held(l, LIMIT_MEMORY) ? "memory, but no pids"
							 : "pids, but no memory");
		if (r == 0 && i == LIMITS_RUNG_CGROUP2 && named_group()) {
			l->rest = &limits_supervised;
			return 0;
		}
		if (r == 0 && half < 0)
			half = i;
		if (r == 0)
			undo(l);
	}
	if (half >= 0 && place(l, half, &want, &why) >= 0)
		l->rest = &limits_supervised;
	return 0;
}

int limits_displace(struct limits *l, int num, struct err *e)
{
	const char *named = named_group();

	if (!l->rung) {
		drop_bare(l);
		return 0;
	}
	keep_said(l, l->rung->name, "a process can't be born in its group");
	if (l->rung->id == LIMITS_RUNG_CGROUP2 && named) {
		errno = num;
		err_sys(e, "CLOCHE_CGROUP: %.200s can't be entered from the group of this process",
			named);
		limits_close(l);
		return err_at(e, STAGE_LIMITS);
	}
	l->rest = NULL;
	undo(l);
	return 0;
}

/* The rungs that need no place, until one works. */
static int choose(struct limits *l, const struct box_limits *want, struct err *e)
{
	for (int i = 0; i < LIMITS_RUNG_N; i++) {
		const struct limits_rung *rung = ladder[i].rung;

		if (rung->place)
			continue;
		if ((want->supervised || want->require) && rung->kernel == want->supervised)
			keep_said(l, rung->name, "best effort");
		else if (open_whole(l, i, want) == 0)
			return 0;
	}
	if (want->require)
		return refuse(l->tried, e);
	/* One cause of all that they have said. */
	if (access("/proc/self", F_OK) < 0)
		return err_proc(e, "/proc/self");
	return err_set(e, ERR_MISSING, "no limits can be set up: %s", l->tried);
}

static int set(struct limits *l, const struct box_limits *want, struct err *e)
{
	if (want->require && want->supervised)
		return err_set(
			e, ERR_USAGE,
			"--require-limits and --supervised exclude each other: supervised limits are best effort");
	if (!l->rung && choose(l, want, e) < 0)
		return -1;
	if (!l->set) {
		fill_rows(l, want);
		if (l->rung->open(l, want, e) < 0)
			return -1;
	}
	if (l->rest && l->rest->open(l, want, e) < 0)
		return -1;
	l->set = true;
	if (want->io_weight && !l->state[LIMIT_IO_WEIGHT].enforced && !l->note[0])
		snprintf(
			l->note, sizeof(l->note),
			"--io-weight has no effect here: no io controller with weights is delegated");
	return want->require ? held_by_kernel(l, want, e) : 0;
}

int limits_set(struct limits *l, const struct box_limits *asked, struct err *e)
{
	struct box_limits want = with_defaults(asked);

	if (set(l, &want, e) == 0)
		return 0;
	limits_close(l);
	return err_at(e, STAGE_LIMITS);
}

int limits_admit(struct limits *l, pid_t pid, const struct box_limits *want, bool *ret,
		 struct err *e)
{
	struct err why;

	*ret = false;
	if (!l->rung->admit)
		return 0;
	if (l->rung->admit(l, pid, want, &why) == 0) {
		*ret = true;
		return 0;
	}
	keep_said(l, l->rung->name, why.msg);
	l->rest = NULL;
	l->set = false;
	undo(l);
	return limits_set(l, want, e);
}

int limits_open(struct limits *l, const struct box_limits *want, struct err *e)
{
	return limits_place(l, want, e) < 0 ? -1 : limits_set(l, want, e);
}

size_t limits_join_fds(const struct limits *l, int *ret_fds, size_t *ret_enter)
{
	size_t n = 0;

	for (int i = 0; i < LIMIT_JOIN_MAX; i++)
		if (l->join[i] >= 0)
			ret_fds[n++] = l->join[i];
	*ret_enter = n;
	for (int i = 0; i < LIMIT_JOIN_MAX; i++)
		if (l->leave[i] >= 0)
			ret_fds[n++] = l->leave[i];
	return n;
}

int limits_watch(struct limits *l, pid_t pid, struct err *e)
{
	if (l->rung->watch && l->rung->watch(l, pid, e) < 0)
		return err_at(e, STAGE_LIMITS);
	if (l->rest && l->rest->watch(l, pid, e) < 0)
		return err_at(e, STAGE_LIMITS);
	return 0;
}

void limits_joined(struct limits *l)
{
	for (int i = 0; i < LIMIT_JOIN_MAX; i++) {
		fd_close(&l->join[i]);
		fd_close(&l->leave[i]);
	}
}

enum { RECHECK_MS = 2, WORKSPACE_MS = 20 };

/* Milliseconds from now to `due`, at least 1. */
static int until(uint64_t now, uint64_t due)
{
	return due <= now ? 1 : (int)((due - now) / 1000 + 1);
}

int limits_period_ms(const struct limits *l)
{
	uint64_t now = limits_now_us();
	int ms = -1, other;

	if (now < l->recheck_until_us)
		return RECHECK_MS;
	if (l->init > 0)
		ms = until(now, l->due_us);
	if (l->workspace_fd >= 0) {
		other = until(now, l->tick_us);
		ms = ms < 0 || other < ms ? other : ms;
	}
	return ms;
}

enum limit_hit limits_check(struct limits *l)
{
	if (l->hit == LIMIT_HIT_NONE)
		l->hit = l->rung->check(l);
	if (l->hit == LIMIT_HIT_NONE && l->rest)
		l->hit = l->rest->check(l);
	if (l->hit == LIMIT_HIT_NONE && l->workspace_fd >= 0 && limits_now_us() >= l->tick_us) {
		if (limits_workspace_tick(l))
			l->hit = LIMIT_HIT_WORKSPACE;
		l->tick_us = limits_now_us() + WORKSPACE_MS * 1000;
	}
	return l->hit;
}

void limits_usage(struct limits *l, struct limit_usage *ret)
{
	*ret = (struct limit_usage){
		.memory_peak = UINT64_MAX,
		.pids_peak = UINT64_MAX,
		.pids_max_events = UINT64_MAX,
		.oom_kills = UINT64_MAX,
		.cpu_user_us = UINT64_MAX,
		.cpu_sys_us = UINT64_MAX,
		.read_bytes = UINT64_MAX,
		.written_bytes = UINT64_MAX,
	};
	l->rung->usage(l, ret);
	if (l->rest)
		l->rest->usage(l, ret);
	if (l->hit == LIMIT_HIT_MEMORY)
		memcpy(ret->filled_by, l->filled_by, sizeof(ret->filled_by));
}

void limits_kill(struct limits *l)
{
	/* Where there is no such file (cgroup v1, Linux before 5.14), init's end is the box's. */
	if (l->into >= 0)
		(void)fd_write_file_at(l->into, "cgroup.kill", "1");
}

void limits_freeze(struct limits *l, bool on)
{
	if (l->into >= 0)
		(void)fd_write_file_at(l->into, "cgroup.freeze", on ? "1" : "0");
}

void limits_close(struct limits *l)
{
	if (l->rung)
		l->rung->close(l);
	drop_bare(l);
	limits_workspace_close(l);
}

unsigned limits_sweep(unsigned max)
{
	unsigned gone = cg2_sweep(max);

	gone += scope_sweep(max - gone);
	return gone + cg1_sweep(max - gone);
}

bool limits_retire(void)
{
	return scope_retire();
}

unsigned limits_sweep_beside(const struct limits *l, unsigned max)
{
	unsigned gone = l->bare_parent >= 0 ? group_sweep(l->bare_parent, max) : 0;

	return gone + (l->rung->sweep ? l->rung->sweep(l, max - gone) : 0);
}

bool limits_rung_probe(enum limits_rung_id id, char *why, size_t cap)
{
	static bool (*const probes[])(char *why, size_t cap) = {
		[LIMITS_RUNG_CGROUP2] = cg2_probe,
		[LIMITS_RUNG_SCOPE] = scope_probe,
		[LIMITS_RUNG_CGROUP1] = cg1_probe,
		[LIMITS_RUNG_SUPERVISED] = supervised_probe,
	};

	if (id < 0 || id >= LIMITS_RUNG_N) {
		snprintf(why, cap, "no such rung");
		return false;
	}
	return probes[id](why, cap);
}
