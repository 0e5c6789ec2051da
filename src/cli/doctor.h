/* Inside of `cloche doctor`: rows, their results, and the ground that probes stand on. Only
 * doctor*.c include this.
 *
 * A row is tried, not guessed: its probe runs in a forked child with a deadline, does what a box
 * would do, and fills a result that the parent reads from shared memory. A probe that dies or hangs
 * is an answer too. Nothing it makes outlives it: mounts and namespaces go with the child, groups
 * and directories are removed by name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct buf;

enum doctor_status {
	DOCTOR_OK,
	DOCTOR_INFO,	 /* a fact to know, nothing is lost */
	DOCTOR_DEGRADED, /* boxes run with less */
	DOCTOR_MISSING,	 /* the thing is not there */
	DOCTOR_STATUS_N
};

struct doctor_result {
	enum doctor_status status;
	char detail[320]; /* one line; may hold bytes from outside, escaped when printed */
	char cost[320];	  /* what it costs; "" takes the row's own */
	char fix[640];	  /* commands, one a line; "" takes the row's own */
};

struct doctor_row {
	const char *id; /* stable: JSON and tests name it */
	const char *title;
	bool required; /* missing means: no box can run */
	bool online;   /* touches the network: only with --online */
	bool twice;    /* starts boxes, or asks a service manager, and may need longer */
	bool nested;   /* needs a user namespace: not tried when there is none */
	void (*probe)(const struct doctor_row *row, struct doctor_result *r);
	const char *cost; /* what a failing row costs */
	const char *fix;  /* how to mend it, where one answer fits all causes */
	const char *arg;
};

extern const struct doctor_row doctor_rows[];
extern const size_t doctor_n_rows;

/* Runs one row's probe in a child of its own. */
void doctor_try(const struct doctor_row *row, struct doctor_result *ret);

/* doctor_probe.c: for probes. Sets status and detail; the first to fill cost or fix wins over the
 * row's own text. */
void doctor_say(struct doctor_result *r, enum doctor_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void doctor_cost(struct doctor_result *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void doctor_fix(struct doctor_result *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Runs fn in a new user namespace (its only id is 1000, as in a box; root maps an unprivileged id
 * to it) with the namespaces of `flags` besides; pid namespaces hold for fn's children only. fn
 * runs in a child of its own and returns an exit code; false means that the namespace could not be
 * made, and *r says why and how to mend it. */
bool doctor_in_userns(int flags, int (*fn)(void *ctx, struct doctor_result *r), void *ctx,
		      struct doctor_result *r);
/* Says that this host refuses the step `what` (errno `num`), why, and how to mend it. */
void doctor_why(struct doctor_result *r, const char *what, int num);
/* The ids that a box has outside, and whether they are lent by root: false for an ordinary caller,
 * and for root of a user namespace that has no other id. */
bool doctor_outer_ids(unsigned *ret_uid, unsigned *ret_gid);
/* Forks a child that dies with us. */
pid_t doctor_fork(void);
/* Waits; the exit code, or 128 + signal. */
int doctor_wait(pid_t pid);
/* Mounts a private tmpfs somewhere (the caller has a mount namespace) and makes it the working
 * directory. */
int doctor_tmpfs(void);
/* A small file's text, or "". */
const char *doctor_text(const char *path, char *buf, size_t cap);

/* doctor_fix.c: `--fix`: shows, asks, installs what is scoped to this program; prints commands for
 * the rest. Returns the exit code. */
int doctor_mend(const struct doctor_result *results);

/* Probes, by file. doctor_ns.c: */
void doctor_userns(const struct doctor_row *row, struct doctor_result *r);
void doctor_namespaces(const struct doctor_row *row, struct doctor_result *r);
void doctor_netns(const struct doctor_row *row, struct doctor_result *r);
void doctor_proc(const struct doctor_row *row, struct doctor_result *r);
void doctor_mounts(const struct doctor_row *row, struct doctor_result *r);
void doctor_overlay(const struct doctor_row *row, struct doctor_result *r);
void doctor_idmap(const struct doctor_row *row, struct doctor_result *r);
void doctor_uid_range(const struct doctor_row *row, struct doctor_result *r);
/* doctor_locks.c: */
void doctor_seccomp(const struct doctor_row *row, struct doctor_result *r);
void doctor_landlock(const struct doctor_row *row, struct doctor_result *r);
void doctor_apparmor(const struct doctor_row *row, struct doctor_result *r);
void doctor_limits(const struct doctor_row *row, struct doctor_result *r);
void doctor_box(const struct doctor_row *row, struct doctor_result *r);
/* doctor_host.c: */
void doctor_kernel(const struct doctor_row *row, struct doctor_result *r);
void doctor_container(const struct doctor_row *row, struct doctor_result *r);
void doctor_wsl(const struct doctor_row *row, struct doctor_result *r);
void doctor_session(const struct doctor_row *row, struct doctor_result *r);
void doctor_dirs(const struct doctor_row *row, struct doctor_result *r);
void doctor_groups(const struct doctor_row *row, struct doctor_result *r);
void doctor_kvm(const struct doctor_row *row, struct doctor_result *r);
void doctor_core(const struct doctor_row *row, struct doctor_result *r);
void doctor_sockets(const struct doctor_row *row, struct doctor_result *r);
void doctor_registry(const struct doctor_row *row, struct doctor_result *r);
