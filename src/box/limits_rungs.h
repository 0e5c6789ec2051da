/* What the files of the ladder share among themselves; nobody else includes this (the unit tests
 * do). */
#pragma once

#include <time.h>

#include "box/limits.h"

static inline uint64_t limits_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

extern const struct limits_rung limits_cgroup1;
extern const struct limits_rung limits_supervised;

/* cgroup v1: where the caller stands */

enum cg1_controller { CG1_MEMORY, CG1_PIDS, CG1_CPU, CG1_N };

enum { CG1_PATH_MAX = 1024 };

struct cg1_place {
	bool found;		  /* `group` is filled */
	bool mounted;		  /* `path` is filled */
	unsigned mount;		  /* id of the mount: equal ones are one hierarchy */
	char group[CG1_PATH_MAX]; /* as in /proc/self/cgroup */
	char path[CG1_PATH_MAX];  /* the group's directory in this mount namespace */
};

extern const char *const cg1_name[]; /* "memory", ... */

/* Both texts below, read and put together. ERR_MISSING when memory or pids has no place here; cpu
 * may have none. */
int cg1_find(struct cg1_place place[CG1_N], struct err *e);
/* Reads the text of /proc/self/cgroup (n bytes, not terminated) into the `group` of every
 * controller named there. Lines that make no sense are passed over. */
void cg1_parse_groups(const char *text, size_t n, struct cg1_place place[CG1_N]);
/* Reads one line of /proc/self/mountinfo (without its newline) and fills the `path` of the
 * controllers it mounts, if the caller's group is visible through it and no earlier line showed it.
 */
void cg1_parse_mount(const char *line, size_t n, struct cg1_place place[CG1_N]);
unsigned cg1_sweep(unsigned max);
bool cg1_probe(char *why, size_t cap);
/* "cloche-PID-N" */
bool cg1_is_ours(const char *name, pid_t *ret_pid);

/* supervised */

bool supervised_probe(char *why, size_t cap);
/* The first `max` numbers of a text such as /proc/PID/task/TID/children or cgroup.procs. */
size_t limits_parse_pids(const char *text, size_t n, pid_t *ret, size_t max);

/* How many cpus a share of them needs: the next whole number. */
static inline uint64_t limits_whole_cpus(double cpus)
{
	uint64_t n = (uint64_t)cpus;

	return (double)n < cpus ? n + 1 : n;
}

enum {
	LIMITS_OPEN_FILES_SOFT = 1024,
	LIMITS_OPEN_FILES_HARD = 4096,
	LIMITS_PIDS_DEFAULT = 256,
	LIMITS_SIGPENDING = 4096
};

/* workspace */

/* What getdents64 fills a buffer with. */
struct limits_dirent {
	uint64_t ino;
	int64_t off;
	unsigned short reclen;
	unsigned char type;
	char name[];
};
ssize_t limits_getdents(int fd, void *buf, size_t n);

/* One tick: goes on with the walk for a bounded time. True when the directory is over its cap. */
bool limits_workspace_tick(struct limits *l);
void limits_workspace_close(struct limits *l);
