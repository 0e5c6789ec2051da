/* Limits: a ladder of rungs; the first that works is used, and the outcome says which one held each
 * limit.
 *
 * A rung is a row of functions (struct limits_rung) in limits.c. Every value is read back from the
 * kernel; nothing is assumed. Where a cgroup rung can hold memory but not pids, or the reverse,
 * `supervised` does for the other what it can.
 *
 * Order in a start:
 *	parent				child
 *	limits_place
 *	clone3, into `into`		(born in its cgroup v2 group, if that is the rung)
 *	limits_set			builds its mounts
 *	limits_admit			(is moved into its group, if a manager must do that)
 *	limits_watch			...
 *	limits_watch_workspace		...
 *	limits_join_fds, send them ->	limits_enter: puts itself in
 *					limits_inside: resource limits, affinity
 *	limits_joined		<-	(locks, command)
 *	poll event_fd / limits_period_ms -> limits_check; once more when the box has ended
 *	limits_usage, limits_close
 * On cgroup v1 the child enters by itself because the kernel moves a single task that names itself
 *("0" to `tasks`) without waiting, while a move by anybody else waits for an RCU grace period
 *first: 25 us against 7-11 ms on an idle machine. A child that wants a cgroup namespace whose root
 *is its own group unshares it after limits_enter. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/spec.h"

enum limit_name {
	LIMIT_MEMORY,
	LIMIT_PIDS,
	LIMIT_CPUS,
	LIMIT_TIMEOUT,
	LIMIT_OUTPUT,
	LIMIT_FILE_SIZE,
	LIMIT_OPEN_FILES,
	LIMIT_WORKSPACE_MAX,
	LIMIT_IO_WEIGHT,
	LIMIT_N
};
enum { LIMITS_BOTH = 1 << LIMIT_MEMORY | 1 << LIMIT_PIDS };

/* The ladder, best first. */
enum limits_rung_id {
	LIMITS_RUNG_CGROUP2,
	LIMITS_RUNG_SCOPE,
	LIMITS_RUNG_CGROUP1,
	LIMITS_RUNG_SUPERVISED,
	LIMITS_RUNG_N
};

/* What an outcome says of one limit. `rung` is a static string: "cgroup2", "scope", "cgroup1",
 * "rlimit", "supervised", "deadline", "capture", "sampler", "tmpfs", "affinity", or "none". Values
 * in the limit's own unit (cpus: thousandths of a cpu; timeout: us; io_weight: as the kernel has
 * it); BOX_LIMIT_NONE when not asked. `enforced`: the kernel, or cloche where nothing can get past
 * it, holds it. */
struct limit_state {
	uint64_t requested, effective;
	const char *rung;
	bool enforced;
};

enum limit_hit { LIMIT_HIT_NONE, LIMIT_HIT_MEMORY, LIMIT_HIT_WORKSPACE };

/* Final counters; UINT64_MAX when unknown. The cpu times come from the box's rusage when they are
 * unknown here. */
struct limit_usage {
	uint64_t memory_peak, pids_peak, pids_max_events, oom_kills, cpu_user_us, cpu_sys_us,
		read_bytes, written_bytes;
	char filled_by[12]; /* after a memory hit: "anonymous", "tmpfs", "shm", or "" when it could
			       not be told */
};

enum {
	LIMIT_FDS_MAX = 4,
	LIMIT_JOIN_MAX = 3,  /* descriptors a child needs to enter; fits one fd_send */
	LIMIT_INIT_PIDS = 1, /* the box's init is not counted against --pids */
	LIMIT_WALK_DEPTH = 128,
};

/* Where the workspace sampler stands; see workspace_quota.c. */
struct limit_walk {
	int fd; /* the directory being read, or -1 between two passes */
	unsigned depth;
	struct {
		uint64_t dev, ino;
		int64_t pos;
	} up[LIMIT_WALK_DEPTH]; /* the way back */
	uint64_t dev, sum,
		last; /* device of this directory; bytes so far; bytes of the last whole pass */
	uint64_t free_then; /* free bytes of the file system when the last pass ended */
	bool whole;	    /* one pass has ended */
};

/* One box's limits. No heap: the caller keeps it. Fields are the rung's own, except `rung`, `state`
 * and `event_fd`. */
struct limits {
	const struct limits_rung *rung;
	const struct limits_rung *rest; /* holds of memory and pids what `rung` can't, or NULL */
	unsigned held;			/* 1 << LIMIT_...: what the kernel holds on this rung */
	bool set;			/* the rung is set up */
	int into;			/* the group that a child is to be born in, or -1 */
	struct limit_state state[LIMIT_N];
	char name[48];		/* the group's own name, below the caller's groups */
	char aside[48];		/* of the group that cloche itself stepped into */
	unsigned enabled;	/* controllers that were switched on for this, as the rung has it */
	int dir[LIMIT_FDS_MAX]; /* open directories of the groups made, -1 when unused; meaning is
				   the rung's */
	int parent[LIMIT_FDS_MAX]; /* where they are removed from */
	int join[LIMIT_JOIN_MAX];  /* what a child writes to, -1 when unused */
	int leave[LIMIT_JOIN_MAX]; /* ... and to go back */
	int event_fd; /* tells by `event_mask` of poll(2) when a limit may have been hit, or -1 */
	short event_mask;
	uint64_t oom_before;
	uint64_t recheck_until_us; /* after an event whose kill was not counted yet: look often
				      until then */
	char filled_by[12], seen_by[12];
	bool kills_only; /* nobody will read more of the usage than oom_kills: set by the owner,
			    after open */
	int bare, bare_parent; /* a group without controllers, to kill by, or -1 */
	char bare_name[48];
	char tried[400]; /* what the rungs so far have said */
	char note[160];	 /* what a report should add in words, or "" */
	/* supervised */
	pid_t init;
	uint64_t memory_cap, sampled_peak, sampled_pids_peak, avail_start, avail_floor;
	unsigned period_ms;
	uint64_t due_us; /* when the next sample is due */
	/* workspace */
	uint64_t workspace_cap;
	int workspace_fd;
	uint64_t tick_us; /* when the walk goes on */
	struct limit_walk walk;
	enum limit_hit hit;
};

struct limits_rung {
	enum limits_rung_id id;
	const char *name;
	bool kernel; /* enforced by the kernel, so --require-limits accepts it */
	/* Before the clone, NULL: nothing to do then. Makes the group that the child is born in
	 * (`into`) and tells in `held` what it can hold. 0; -1 with *e as open. ERR_REFUSED: the
	 * caller asked for this rung's group and no other. */
	int (*place)(struct limits *l, const struct box_limits *want, struct err *e);
	/* 0 opened; -1 with *e: this rung can't be used (tried next; the errors of all are shown
	 * when none is left), nothing is left behind but what `close` removes. */
	int (*open)(struct limits *l, const struct box_limits *want, struct err *e);
	/* Moves the child, which is building, into its group; NULL: it was born there, or enters by
	 * itself. After open, whose errors it has. */
	int (*admit)(struct limits *l, pid_t pid, const struct box_limits *want, struct err *e);
	int (*watch)(struct limits *l, pid_t pid, struct err *e); /* NULL: nothing to do */
	enum limit_hit (*check)(struct limits *l);
	void (*usage)(struct limits *l, struct limit_usage *ret);
	void (*close)(struct limits *l);
	unsigned (*sweep)(const struct limits *l,
			  unsigned max); /* NULL: nothing can be left behind */
};

/* Before the clone: makes the group to be born in, where a rung has one. 0, also when none has; -1
 * with *e when the caller named a group that can't be used. On failure *l is closed already. */
int limits_place(struct limits *l, const struct box_limits *want, struct err *e);
/* The kernel would not have a child in `into` (errno `num`): gives the group up, and limits_set
 * looks further. -1 with *e when the caller named that group. */
int limits_displace(struct limits *l, int num, struct err *e);
/* After the clone: chooses the rung, if none has placed a group, and sets it up. The deadline,
 * output, file size, open files and workspace rows are filled here too. With want->require and no
 * kernel rung: ERR_MISSING naming what was tried and the fix. Fds are close-on-exec. On failure *l
 * is closed already. A memory or pids of 0 means the default, never "no limit". */
int limits_set(struct limits *l, const struct box_limits *want, struct err *e);
/* The deadline, when it is known only later. */
void limits_timeout(struct limits *l, uint64_t timeout_us);
/* After that: puts the child into the group where it was not born in it and can't enter by itself.
 * A rung that can't, can't be used: limits_set looks further. True in *ret when it was moved: it
 * can't leave again. On failure *l is closed already. */
int limits_admit(struct limits *l, pid_t pid, const struct box_limits *want, bool *ret,
		 struct err *e);
/* The first two in one, for who has no child. */
int limits_open(struct limits *l, const struct box_limits *want, struct err *e);
/* Does the kernel hold this limit? */
static inline bool limits_held(const struct limits *l, enum limit_name n)
{
	return l->held >> n & 1;
}
/* The descriptors the child needs (still owned by *l): first those for limits_enter, then as many
 * or none for limits_leave; at most 2 * LIMIT_JOIN_MAX. Returns how many there are, *ret_enter how
 * many of them are of the first kind; 0 under supervised. */
size_t limits_join_fds(const struct limits *l, int *ret_fds, size_t *ret_enter);
/* In the child, single-threaded, before anything foreign runs: puts the caller into the groups and
 * closes the descriptors. No allocation. May be called with none. */
int limits_enter(int *fds, size_t n, struct err *e);
/* In the child, when everything else in the groups is gone: goes back to the caller's own groups,
 * so that the parent can remove the box's without waiting for the kernel to take the child's
 * namespaces down. No allocation; 0 also with none. -1 with errno. */
int limits_leave(const int *fds, size_t n);
/* In the parent, before the child is told to go on: under supervised names the process tree to
 * watch. */
int limits_watch(struct limits *l, pid_t pid, struct err *e);
/* When the child has entered (the kernel answered its writes: that is the proof): closes the ways
 * in, which no child of ours is to inherit. */
void limits_joined(struct limits *l);
/* Starts the workspace sampler on a directory (the descriptor is duplicated) when --workspace-max
 * was asked. */
int limits_watch_workspace(struct limits *l, int dirfd, struct err *e);
/* The workspace is a file system of its own, of this size. */
void limits_sized_workspace(struct limits *l, uint64_t size);

/* In the child, inside its user namespace, before capabilities go: resource limits (NPROC under
 * supervised, FSIZE, CORE {1,1}, caller's ulimits which may only lower) and, for --cpus,
 * affinity to ceil(cpus). No allocation. `held` is l->held, told by the parent. */
int limits_inside(const struct box_spec *spec, unsigned held, struct err *e);
/* In the command itself, just before it executes: RLIMIT_NOFILE. Init keeps the caller's own,
 * because the kernel holds it against all descriptors that the user's processes have on their way
 * through sockets, other boxes' too: with the box's limit, init could not send the listener while
 * one of them keeps as many on their way as it may. */
int limits_files(const struct box_spec *spec, unsigned held, struct err *e);

/* How long the monitor may sleep before the next limits_check, in milliseconds; -1 when only
 * event_fd matters. */
int limits_period_ms(const struct limits *l);
/* Called on event_fd, on the period (calls between cost next to nothing), and once after the box
 * has ended (an out-of-memory kill may end it before the event is read): looks at counters or
 * samples; returns what was hit, and goes on saying so. */
enum limit_hit limits_check(struct limits *l);
/* Final counters; call after the box has ended and before limits_close. */
void limits_usage(struct limits *l, struct limit_usage *ret);
/* Kills all that is in the group, if there is one that can do so at once. */
void limits_kill(struct limits *l);
/* Stops all that is in the group, init too, or lets it go on, if there is one that can. What is
 * stopped so can still be killed. */
void limits_freeze(struct limits *l, bool on);
/* Kills what may still be inside, removes the groups, closes descriptors. Never fails loudly; what
 * stays is for `cloche gc`. */
void limits_close(struct limits *l);

/* Removes empty groups of dead cloches of this user below the caller's groups, at most `max`;
 * returns how many went. Not for the way to a start: call it while the command runs. */
unsigned limits_sweep(unsigned max);
/* The same where the groups of *l stand, which costs less. */
unsigned limits_sweep_beside(const struct limits *l, unsigned max);

const char *limit_name(enum limit_name n);	      /* "memory", ... as in JSON */
const char *limits_rung_name(enum limits_rung_id id); /* "cgroup2", ... */
/* Stops what the ladder keeps between boxes and no box needs now: the unit of the scope rung. True
 * when there was one. For `cloche gc`. */
bool limits_retire(void);
/* For doctor: tries the rung (makes and removes a group) and says whether it can be used; `why`
 * gets one line, also when it can ("memory, pids, cpu below /sys/fs/cgroup/..."). */
bool limits_rung_probe(enum limits_rung_id id, char *why, size_t cap);

/* "nofile=64:128", "nofile=64", "stack=unlimited". Values are numbers in the resource's own unit
 * (bytes; seconds for cpu). `core` is refused: core dumps are always off in a box. */
int limit_ulimit_parse(const char *text, struct box_ulimit *ret, struct err *e);
