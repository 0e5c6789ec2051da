/* What the files of the ladder share among themselves; nobody else includes this (the unit tests
 * do). */
#pragma once

#include <time.h>

#include "box/limits.h"

/* A struct with nothing open. */
void limits_clear(struct limits *l);

static inline uint64_t limits_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

extern const struct limits_rung limits_cgroup2;
extern const struct limits_rung limits_scope;
extern const struct limits_rung limits_cgroup1;
extern const struct limits_rung limits_supervised;

/* Where cgroups are: both versions (cgroup_where.c) */

enum { CG_PATH_MAX = 1024 };

struct cg_mount {
	int version;		/* 1 or 2 */
	unsigned id;		/* of the mount */
	char root[CG_PATH_MAX]; /* the group that stands at `point` */
	char point[CG_PATH_MAX];
	const char *opts; /* into the line: the super block's options, "rw,memory" */
	size_t opts_n;
};

/* The text of /proc/self/cgroup, kept from the last time unless `anew`: both versions look at it in
 * one start. NULL with *e. */
const char *cg_own_groups(bool anew, size_t *ret_n, struct err *e);
/* Is `word` an item of a list that has `n` bytes, separated by commas? */
bool cg_list_has(const char *list, size_t n, const char *word);
/* Reads one line of /proc/self/mountinfo (without its newline). False when it mounts no cgroups, or
 * makes no sense. */
bool cg_parse_mount(const char *line, size_t n, struct cg_mount *ret);
/* The group's directory: mount point, plus what of the group lies below the mount's root. False
 * when it is not visible there, or does not fit. */
bool cg_map_path(const char *group, const char *root, const char *point, char ret[CG_PATH_MAX]);
/* Feeds mountinfo line by line to `each` until `done` or the end. 0, or -1 with errno. */
int cg_each_mount(void (*each)(void *ctx, const char *line, size_t n),
		  bool (*done)(const void *ctx), void *ctx);

/* Groups of ours: both versions (groups.c) */

enum { GROUP_NAME = 48, GROUP_TRIES = 64 };

/* The next name. */
void group_name(char ret[GROUP_NAME]);
/* Makes the group and takes its lock. A left-over of the same name (a reused pid) gives EEXIST: the
 * caller takes the next name when group_try_again says so. 0, or -1 with errno. */
int group_make(int parent, const char *name, int *ret);
bool group_try_again(int num);
/* Writes a number and reads back what the kernel made of it. 0, or -1 with errno. */
int group_set(int dir, const char *file, uint64_t value, uint64_t *ret);
/* The number after `key` in a text of lines "key number". */
bool group_counter(const char *text, const char *key, uint64_t *ret);
/* The processes in a group; at most `max` of them, which is enough to go on with. */
size_t group_pids(int dir, pid_t *ret, size_t max);
/* Kills what is still in it (nothing, as a rule) and removes it. Never fails loudly. */
void group_remove(int parent, int dir, const char *name);
/* Removes what is abandoned among the groups in `parent`, at most `max`; returns how many went. */
unsigned group_sweep(int parent, unsigned max);
/* "cloche-PID-N" */
bool group_is_ours(const char *name, pid_t *ret_pid);
/* The first `max` numbers of a text such as /proc/PID/task/TID/children or cgroup.procs. */
size_t limits_parse_pids(const char *text, size_t n, pid_t *ret, size_t max);

/* cgroup v1: where the caller stands */

enum cg1_controller { CG1_MEMORY, CG1_PIDS, CG1_CPU, CG1_N };

struct cg1_place {
	bool found;		 /* `group` is filled */
	bool mounted;		 /* `path` is filled */
	unsigned mount;		 /* id of the mount: equal ones are one hierarchy */
	char group[CG_PATH_MAX]; /* as in /proc/self/cgroup */
	char path[CG_PATH_MAX];	 /* the group's directory in this mount namespace */
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

/* cgroup v2 */

/* Bits of the controllers, as cgroup.controllers names them. */
enum { CG2_MEMORY = 1, CG2_PIDS = 2, CG2_CPU = 4, CG2_IO = 8 };

/* Where the caller stands in the one v2 hierarchy. */
struct cg2_place {
	bool found;		 /* `group` is filled */
	bool mounted;		 /* `path` is filled */
	bool elsewhere;		 /* memory and pids are controllers of v1 hierarchies */
	char group[CG_PATH_MAX]; /* as in /proc/self/cgroup */
	char path[CG_PATH_MAX];	 /* the group's directory in this mount namespace */
	size_t top;		 /* how much of `path` is the mount point */
};

/* Both texts read and put together. ERR_MISSING when there is no v2 group to be seen. */
int cg2_find(struct cg2_place *ret, struct err *e);
void cg2_parse_groups(const char *text, size_t n, struct cg2_place *ret);
void cg2_parse_mount(const char *line, size_t n, struct cg2_place *ret);
/* "cpu memory pids" as CG2_ bits; other words are passed over. */
unsigned cg2_parse_controllers(const char *text);
/* "memory and pids" */
void cg2_words(unsigned controllers, char *ret, size_t cap);

/* A directory in which groups for boxes may be made. */
struct cg2_parent {
	int fd;
	char path[CG_PATH_MAX];
	unsigned gives;	 /* controllers that a group made here has, or will have once enabled */
	unsigned enable; /* those that are to be enabled for it */
	bool alone;	 /* to enable them this process, the only one in it, must step aside */
};
/* The best one for `want` (CG2_ bits): the directory that CLOCHE_CGROUP names, else the nearest
 * above the caller that gives memory and pids, and of these the first that gives all of `want`.
 * A parent that gives nothing is told too (a v2 tree without controllers). ERR_REFUSED: the one
 * that the caller named can't be used, so no other may be; ERR_MISSING: there is none. */
int cg2_find_parent(unsigned want, struct cg2_parent *ret, struct err *e);
/* The same for one directory that is already open, for which the caller may enable controllers. */
int cg2_look_at(int fd, const char *path, unsigned want, struct cg2_parent *ret, struct err *e);

/* What a rung on cgroup v2 is made of, once it has a directory to make groups in. `parent` stays
 * the caller's. A process that alone stands in it steps into a group of its own below, and back at
 * the end; nobody else's process is ever moved. */
int cg2_place_at(struct limits *l, const struct cg2_parent *parent, const struct box_limits *want,
		 struct err *e);
int cg2_open(struct limits *l, const struct box_limits *want, struct err *e);
enum limit_hit cg2_check(struct limits *l);
void cg2_usage(struct limits *l, struct limit_usage *ret);
void cg2_close(struct limits *l);
unsigned cg2_sweep_beside(const struct limits *l, unsigned max);
/* CG2_ bits that these limits call for. */
unsigned cg2_wanted(const struct box_limits *want);
unsigned cg2_sweep(unsigned max);
bool cg2_probe(char *why, size_t cap);

/* scope: the same in a group that the caller's systemd manager lends (scope.c) */

unsigned scope_sweep(unsigned max);
/* Stops the manager's unit when no box is in it. True when it was stopped. */
bool scope_retire(void);
bool scope_probe(char *why, size_t cap);

/* supervised */

bool supervised_probe(char *why, size_t cap);
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
