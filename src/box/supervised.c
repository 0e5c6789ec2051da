/* The supervised rung: best effort, not for hostile code. It holds where no cgroup can be made.
 *
 * How it works: the process count is RLIMIT_NPROC, set by the child inside its user namespace
 * (limits_inside). Memory is sampled from outside: the tree of processes below the box's init is
 * walked through /proc/PID/task/TID/children, and the resident pages of statm are added up (smaps
 * would cost longer than the period). Nearer to the cap it looks more often; a tick that took long
 * is followed by a longer pause.
 *
 * What it can't do: pages shared by several processes are counted for each of them; memory in
 * memfds, sockets and pipes is not seen at all (the filter refuses memfd_create on this rung, and
 * the box has few descriptors). For that case a machine that runs out of memory while the box runs
 * ends the box too. A burst between two looks overshoots the cap. */
#include "box/limits_rungs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { TREE_MAX = 4096, TASKS_MAX = 512, PERIOD_MS = 20, PERIOD_NEAR_MS = 5, PERIOD_MAX_MS = 250 };
#define FLOOR_BYTES (64ull << 20)

struct tree {
	pid_t pid[TREE_MAX];
	size_t n;
	uint64_t pages, shared, tasks;
};

static bool in_tree(const struct tree *t, pid_t pid)
{
	for (size_t i = 0; i < t->n; i++)
		if (t->pid[i] == pid)
			return true;
	return false;
}

/* A list of any length: read in pieces, of which a number cut by the end goes into the next. */
static void add_children(struct tree *t, int task, const char *tid)
{
	static char text[4096]; /* static, as the tree is: what is large on the stack is cleared at
				   each look */
	static pid_t child[TASKS_MAX * 4];
	char path[64];
	_cleanup_fd_ int fd = -1;
	size_t have = 0;
	ssize_t n;

	snprintf(path, sizeof(path), "%.20s/children", tid);
	fd = openat(task, path, O_RDONLY | O_CLOEXEC);
	while (fd >= 0 && (n = read(fd, text + have, sizeof(text) - have)) > 0) {
		size_t whole;

		have += (size_t)n;
		for (whole = have; whole > 0 && text[whole - 1] != ' '; whole--)
			;
		for (size_t i = 0, k = limits_parse_pids(text, whole, child, TASKS_MAX * 4); i < k;
		     i++)
			/* A process may be seen twice while the tree changes under us. */
			if (t->n < TREE_MAX && !in_tree(t, child[i]))
				t->pid[t->n++] = child[i];
		memmove(text, text + whole, have - whole);
		have -= whole;
	}
}

static bool read_statm(int dir, const char *path, uint64_t *ret_resident, uint64_t *ret_shared)
{
	char text[128], *end;

	if (fd_read_file_at(dir, path, text, sizeof(text)) <= 0)
		return false;
	strtoull(text, &end, 10);
	*ret_resident = strtoull(end, &end, 10);
	*ret_shared = strtoull(end, &end, 10);
	return true;
}

/* Adds the pages that a process or thread has; false when it has none (any more). */
static bool add_pages(struct tree *t, int dir, const char *path)
{
	uint64_t resident, shared;

	if (!read_statm(dir, path, &resident, &shared) || resident == 0)
		return false;
	t->pages += resident;
	t->shared += shared;
	return true;
}

/* The children of all threads; with one thread, the usual case, no directory is read. A process
 * whose first thread has ended tells nothing of its memory by itself (`counted` is false): any of
 * its other threads does. */
static void look_at_tasks(struct tree *t, int proc, pid_t pid, bool counted)
{
	_cleanup_fd_ int task = openat(proc, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(8) char buf[8192];
	char tid[16], statm[32];
	struct stat st;
	ssize_t n;

	if (task < 0 || fstat(task, &st) < 0)
		return;
	if (st.st_nlink == 3) {
		t->tasks++;
		snprintf(tid, sizeof(tid), "%d", (int)pid);
		add_children(t, task, tid);
		return;
	}
	while ((n = limits_getdents(task, buf, sizeof(buf))) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct limits_dirent *d =
				(const struct limits_dirent *)(const void *)(buf + at);

			at += d->reclen;
			if (d->name[0] < '0' || d->name[0] > '9')
				continue;
			t->tasks++;
			add_children(t, task, d->name);
			if (counted)
				continue;
			snprintf(statm, sizeof(statm), "%.20s/statm", d->name);
			counted = add_pages(t, task, statm);
		}
	}
}

static void walk(struct tree *t, pid_t init)
{
	t->n = 0;
	t->pages = t->shared = t->tasks = 0;
	t->pid[t->n++] = init;
	for (size_t i = 0; i < t->n; i++) {
		_cleanup_fd_ int proc = -1;
		char path[32];

		snprintf(path, sizeof(path), "/proc/%d", (int)t->pid[i]);
		proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (proc < 0)
			continue;
		look_at_tasks(t, proc, t->pid[i], add_pages(t, proc, "statm"));
	}
}

static uint64_t meminfo(const char *key)
{
	char text[512], *p;

	/* The first lines are all we need. */
	_cleanup_fd_ int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return 0;
	text[n] = '\0';
	p = strstr(text, key);
	return p ? strtoull(p + strlen(key), NULL, 10) * 1024 : 0;
}

static int sv_open(struct limits *l, const struct box_limits *want, struct err *e)
{
	/* What a cgroup holds already is not this rung's. */
	bool memory = !limits_held(l, LIMIT_MEMORY), pids = !limits_held(l, LIMIT_PIDS);
	uint64_t total = meminfo("MemTotal:");

	if (access("/proc/self/statm", R_OK) < 0)
		return err_sys(e, "no /proc to sample memory from");
	l->memory_cap = memory ? want->memory : BOX_LIMIT_NONE;
	l->period_ms = PERIOD_MS;
	l->avail_floor = total / 50 > FLOOR_BYTES ? total / 50 : FLOOR_BYTES;
	if (memory && want->memory != BOX_LIMIT_NONE)
		l->state[LIMIT_MEMORY] = (struct limit_state){ want->memory, want->memory,
							       limits_supervised.name, false };
	if (pids && want->pids != BOX_LIMIT_NONE)
		l->state[LIMIT_PIDS] = (struct limit_state){ want->pids, want->pids,
							     limits_supervised.name, false };
	if (memory && (want->open_files == 0 || want->open_files == BOX_LIMIT_NONE))
		if (l->state[LIMIT_OPEN_FILES].effective > LIMITS_OPEN_FILES_SOFT)
			l->state[LIMIT_OPEN_FILES].effective = LIMITS_OPEN_FILES_SOFT;
	snprintf(
		l->note, sizeof(l->note),
		"%s supervised (best effort, not for hostile code): `cloche doctor` says how the kernel can hold %s",
		memory && pids ? "limits are"
		: memory       ? "the memory limit is"
			       : "the pids limit is",
		memory && pids ? "them" : "it");
	return 0;
}

/* The first process of all stands for the others of strangers: init may not have hidden itself yet.
 */
static int sv_watch(struct limits *l, pid_t pid, struct err *e)
{
	const pid_t seen[] = { 1, pid };
	char path[32];

	if (limits_held(l, LIMIT_MEMORY))
		return 0;
	for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++) {
		snprintf(path, sizeof(path), "/proc/%d/statm", (int)seen[i]);
		if (access(path, R_OK) == 0)
			continue;
		if (errno == ENOENT)
			return err_set(
				e, ERR_MISSING,
				"/proc hides processes here (hidepid), so that a box's memory can't be sampled; fix: "
				"mount -o remount,hidepid=0 /proc, or run where groups can be written (cloche doctor)");
		return err_sys(e, "the box's memory can't be sampled: %s", path);
	}
	l->init = pid;
	/* Most boxes have ended before the first look is due. */
	l->due_us = limits_now_us() + PERIOD_MS * 1000ull;
	return 0;
}

/* At most a tenth of the time goes into looking. */
static void pace(struct limits *l, uint64_t spent_us, uint64_t bytes)
{
	uint64_t ms = l->memory_cap != BOX_LIMIT_NONE && bytes > l->memory_cap / 4 * 3
			      ? PERIOD_NEAR_MS
			      : PERIOD_MS;

	if (ms < spent_us / 100)
		ms = spent_us / 100;
	l->period_ms = (unsigned)(ms < PERIOD_MAX_MS ? ms : PERIOD_MAX_MS);
}

static enum limit_hit sv_check(struct limits *l)
{
	uint64_t begin = limits_now_us(), bytes, avail;
	static struct tree t;

	if (l->init <= 0 || begin < l->due_us)
		return LIMIT_HIT_NONE;
	walk(&t, l->init);
	bytes = t.pages * (uint64_t)sysconf(_SC_PAGESIZE);
	if (bytes > l->sampled_peak)
		l->sampled_peak = bytes;
	if (t.tasks > l->sampled_pids_peak)
		l->sampled_pids_peak = t.tasks;
	avail = meminfo("MemAvailable:");
	if (l->avail_start == 0)
		l->avail_start = avail;
	pace(l, limits_now_us() - begin, bytes);
	l->due_us = limits_now_us() + l->period_ms * 1000ull;
	if (l->memory_cap == BOX_LIMIT_NONE)
		return LIMIT_HIT_NONE;
	if (bytes > l->memory_cap) {
		snprintf(l->filled_by, sizeof(l->filled_by), "%s",
			 t.shared > t.pages / 2 ? "shm" : "anonymous");
		return LIMIT_HIT_MEMORY;
	}
	/* The machine is running out, and more went since the start than this box may have: what we
	 * don't see is the likely cause. */
	if (avail > 0 && avail < l->avail_floor && l->avail_start > avail &&
	    l->avail_start - avail > l->memory_cap)
		return LIMIT_HIT_MEMORY;
	return LIMIT_HIT_NONE;
}

static void sv_usage(struct limits *l, struct limit_usage *ret)
{
	if (l->sampled_peak > 0)
		ret->memory_peak = l->sampled_peak;
	if (l->sampled_pids_peak > LIMIT_INIT_PIDS)
		ret->pids_peak = l->sampled_pids_peak - LIMIT_INIT_PIDS;
}

static void sv_close(struct limits *l)
{
	l->init = 0;
}

const struct limits_rung limits_supervised = {
	.id = LIMITS_RUNG_SUPERVISED,
	.name = "supervised",
	.kernel = false,
	.open = sv_open,
	.watch = sv_watch,
	.check = sv_check,
	.usage = sv_usage,
	.close = sv_close,
};

bool supervised_probe(char *why, size_t cap)
{
	char path[64], text[64];

	/* Only to find out whether the kernel has the file. */
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
	if (fd_read_file_at(AT_FDCWD, path, text, sizeof(text)) < 0 && errno == ENOENT) {
		snprintf(
			why, cap,
			"only the box's init can be sampled: this kernel has no /proc/PID/task/TID/children");
		return false;
	}
	snprintf(
		why, cap,
		"best effort, not for hostile code: memory sampled, processes by a resource limit");
	return true;
}
