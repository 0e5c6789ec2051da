/* Live tests of both rungs of the ladder and of the workspace sampler: real groups, real processes. Those of the cgroup rung need
 * writable v1 groups, and say so when they skip. */
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/limits_rungs.h"
#include "unit.h"

static const struct box_limits asked = {
	.memory = (64 << 20) + 100, .pids = 20, .output = 1 << 20, .file_size = BOX_LIMIT_NONE, .workspace_max = BOX_LIMIT_NONE,
};

static bool cgroup1_here(const char *test)
{
	char why[300];

	if (limits_rung_probe(LIMITS_RUNG_CGROUP1, why, sizeof(why)))
		return true;
	printf("skip %s: %s\n", test, why);
	return false;
}

static void use_memory(size_t bytes)
{
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		_exit(9);
	for (size_t i = 0; i < bytes; i += 4096)
		p[i] = 1;
}

/* A child in the groups that waits for one byte, runs `what`, and stays until its pipe closes. */
static pid_t start(struct limits *l, void (*what)(void), int *ret_hold)
{
	int fds[2 * LIMIT_JOIN_MAX], hold[2], in[2];
	struct err e;
	size_t n;
	pid_t pid;
	char c;

	limits_join_fds(l, fds, &n);
	ck_assert_int_eq(pipe2(hold, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(hold[1]);
		if (limits_enter(fds, n, &e) < 0 || write(in[1], "x", 1) != 1 || read(hold[0], &c, 1) != 1)
			_exit(7);
		what();
		(void)!read(hold[0], &c, 1);
		_exit(0);
	}
	close(hold[0]);
	close(in[1]);
	ck_assert_int_eq(read(in[0], &c, 1), 1);
	close(in[0]);
	ck_assert_msg(limits_watch(l, pid, &e) == 0, "%s", e.msg);
	*ret_hold = hold[1];
	return pid;
}

static enum limit_hit watch(struct limits *l, int ms)
{
	enum limit_hit hit = LIMIT_HIT_NONE;
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	do {
		struct pollfd p = { .fd = l->event_fd, .events = POLLIN };

		poll(&p, 1, limits_period_ms(l) < 0 ? 100 : limits_period_ms(l));
		hit = limits_check(l);
		clock_gettime(CLOCK_MONOTONIC, &b);
	} while (hit == LIMIT_HIT_NONE && (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
	return hit;
}

static bool group_left(const char *name)
{
	struct cg1_place p[CG1_N] = { 0 };
	char text[8192], path[2200];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool left = false;

	ck_assert_int_gt(fd_read_file_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)), 0);
	cg1_parse_groups(text, strlen(text), p);
	ck_assert_ptr_nonnull(f);
	while (fgets(text, sizeof(text), f))
		cg1_parse_mount(text, strcspn(text, "\n"), p);
	fclose(f);
	for (int c = 0; c < CG1_N; c++) {
		snprintf(path, sizeof(path), "%s/%s", p[c].path, name);
		left |= p[c].mounted && access(path, F_OK) == 0;
	}
	return left;
}

static void grow_beyond(void)
{
	use_memory(200 << 20);
}

START_TEST(cg1_memory)
{
	struct limit_usage u;
	struct limits l;
	struct err e;
	int hold, st;
	pid_t pid;

	if (!cgroup1_here("cg1_memory"))
		return;
	ck_assert_msg(limits_open(&l, &asked, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(l.state[LIMIT_MEMORY].rung, "cgroup1");
	ck_assert(l.state[LIMIT_MEMORY].enforced && l.state[LIMIT_PIDS].enforced);
	ck_assert_uint_eq(l.state[LIMIT_MEMORY].requested, (64 << 20) + 100);
	ck_assert_uint_eq(l.state[LIMIT_MEMORY].effective, 64 << 20); /* the kernel's page */
	pid = start(&l, grow_beyond, &hold);
	ck_assert_int_eq(limits_check(&l), LIMIT_HIT_NONE);
	ck_assert_int_eq(write(hold, "x", 1), 1);
	ck_assert_int_eq(watch(&l, 10000), LIMIT_HIT_MEMORY);
	ck_assert_int_eq(waitpid(pid, &st, 0), pid);
	ck_assert(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
	limits_usage(&l, &u);
	ck_assert_uint_ge(u.oom_kills, 1);
	ck_assert_uint_gt(u.memory_peak, 60 << 20);
	ck_assert_uint_le(u.memory_peak, 64 << 20);
	if (*u.filled_by) /* unknown where a busy machine looks too late */
		ck_assert_str_eq(u.filled_by, "anonymous");
	limits_close(&l);
	ck_assert(!group_left(l.name));
	close(hold);
}
END_TEST

static int filled; /* held by the test as well: the pages outlive who is killed, however late anybody looks */

static void fill_tmpfs(void)
{
	static char page[65536];

	for (int i = 0; i < 3200 && write(filled, page, sizeof(page)) > 0; i++)
		;
}

START_TEST(cg1_filled_by_tmpfs)
{
	struct limit_usage u;
	struct limits l;
	struct err e;
	int hold;
	pid_t pid;

	if (!cgroup1_here("cg1_filled_by_tmpfs"))
		return;
	ck_assert_msg(limits_open(&l, &asked, &e) == 0, "%s", e.msg);
	ck_assert_int_ge(filled = memfd_create("x", MFD_CLOEXEC), 0);
	pid = start(&l, fill_tmpfs, &hold);
	ck_assert_int_eq(write(hold, "x", 1), 1);
	ck_assert_int_eq(watch(&l, 10000), LIMIT_HIT_MEMORY);
	waitpid(pid, NULL, 0);
	limits_usage(&l, &u);
	ck_assert_str_eq(u.filled_by, "tmpfs");
	limits_close(&l);
	ck_assert(!group_left(l.name));
	close(hold);
}
END_TEST

/* Children of children that never end: what close must cope with, and what pids.max must count. */
static void fork_many(void)
{
	for (int i = 0; i < 100; i++)
		if (fork() == 0)
			for (;;)
				pause();
}

START_TEST(cg1_pids)
{
	struct limit_usage u;
	struct limits l;
	struct err e;
	int hold;
	pid_t pid;

	if (!cgroup1_here("cg1_pids"))
		return;
	ck_assert_msg(limits_open(&l, &asked, &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(l.state[LIMIT_PIDS].effective, 20);
	pid = start(&l, fork_many, &hold);
	ck_assert_int_eq(write(hold, "x", 1), 1);
	ck_assert_int_eq(watch(&l, 300), LIMIT_HIT_NONE); /* an event, not a fault */
	close(hold);
	waitpid(pid, NULL, 0);
	limits_usage(&l, &u);
	ck_assert_uint_ge(u.pids_max_events, 1);
	if (u.pids_peak != UINT64_MAX) /* kernels before 6.1 don't say */
		ck_assert_uint_eq(u.pids_peak, 20);
	ck_assert_uint_eq(u.oom_kills, 0);
	limits_close(&l); /* twenty forkers' children are still inside */
	ck_assert(!group_left(l.name));
}
END_TEST

START_TEST(cg1_cpus)
{
	struct box_limits want = asked;
	struct limits l;
	struct err e;

	if (!cgroup1_here("cg1_cpus"))
		return;
	want.cpus = 0.25;
	ck_assert_msg(limits_open(&l, &want, &e) == 0, "%s", e.msg);
	if (l.state[LIMIT_CPUS].enforced) {
		ck_assert_str_eq(l.state[LIMIT_CPUS].rung, "cgroup1");
		ck_assert_uint_eq(l.state[LIMIT_CPUS].effective, 250);
	}
	limits_close(&l);
	ck_assert(!group_left(l.name));
}
END_TEST

START_TEST(cg1_sweeps_the_dead)
{
	struct limits alive, l;
	char dead[sizeof(l.name)] = "";
	int p[2];
	struct err e;
	pid_t pid;

	if (!cgroup1_here("cg1_sweeps_the_dead"))
		return;
	ck_assert_int_eq(limits_open(&alive, &asked, &e), 0);
	ck_assert_int_eq(pipe(p), 0);
	pid = fork();
	if (pid == 0) {
		if (limits_open(&l, &asked, &e) < 0 || write(p[1], l.name, sizeof(l.name)) < 0)
			_exit(1);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(read(p[0], dead, sizeof(dead)), (ssize_t)sizeof(dead));
	waitpid(pid, NULL, 0);
	ck_assert(group_left(dead));
	ck_assert_uint_ge(limits_sweep(16), 2);
	ck_assert(!group_left(dead));
	ck_assert(group_left(alive.name));
	limits_close(&alive);
	ck_assert(!group_left(alive.name));
	close(p[0]);
	close(p[1]);
}
END_TEST

static void drop(void)
{
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(12345, 12345, 12345) < 0 || setresuid(12345,
		12345, 12345) < 0))
		_exit(8);
}

static void drop_and_grow(void)
{
	drop();
	/* As the init of a box is: in a user namespace of its own where there may be one, and closed to its equals. */
	(void)!unshare(CLONE_NEWUSER);
	prctl(PR_SET_DUMPABLE, 0);
	if (fork() == 0) { /* a grandchild: the tree is walked */
		use_memory(100 << 20);
		for (;;)
			pause();
	}
}

START_TEST(supervised_sees)
{
	struct box_limits want = asked;
	struct limit_usage u;
	struct limits l;
	struct err e;
	size_t n;
	int hold;
	pid_t pid;

	want.supervised = true;
	ck_assert_int_eq(limits_open(&l, &want, &e), 0);
	ck_assert_uint_eq(limits_join_fds(&l, &hold, &n), 0);
	pid = start(&l, drop_and_grow, &hold);
	setpgid(pid, pid);
	ck_assert_int_eq(limits_check(&l), LIMIT_HIT_NONE);
	ck_assert_int_eq(write(hold, "x", 1), 1);
	ck_assert_int_eq(watch(&l, 10000), LIMIT_HIT_MEMORY);
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
	limits_usage(&l, &u);
	ck_assert_uint_gt(u.memory_peak, 64 << 20);
	ck_assert_uint_eq(u.pids_peak, 1);
	ck_assert_str_eq(u.filled_by, "anonymous");
	ck_assert_uint_eq(u.oom_kills, UINT64_MAX);
	limits_close(&l);
	close(hold);
}
END_TEST

/* What the child does to itself, in a user namespace of its own. Exit code 0, or the step that was wrong. */
static int inside(bool kernel)
{
	struct box_spec spec = { .limits = { .pids = 5, .file_size = 4096, .open_files = 100, .cpus = 0.5 } };
	struct rlimit r;
	struct err e;
	pid_t child[11];
	cpu_set_t set;
	int born = 0;

	spec.ulimits[0] = (struct box_ulimit){ RLIMIT_STACK, 1 << 20, 2 << 20 };
	spec.ulimits[1] = (struct box_ulimit){ RLIMIT_FSIZE, 1 << 20, 1 << 20 }; /* may not loosen --file-size */
	spec.ulimits[2] = (struct box_ulimit){ RLIMIT_MSGQUEUE, BOX_LIMIT_NONE,
		BOX_LIMIT_NONE }; /* nor what was inherited */
	spec.n_ulimits = 3;
	drop();
	if (unshare(CLONE_NEWUSER) < 0)
		return 77;
	if (limits_inside(&spec, kernel ? LIMITS_BOTH : 0, &e) < 0 || limits_files(&spec, kernel ? LIMITS_BOTH : 0, &e) < 0)
		return 1;
	if (getrlimit(RLIMIT_CORE, &r) < 0 || r.rlim_cur > 1 || r.rlim_max > 1)
		return 2;
	if (getrlimit(RLIMIT_FSIZE, &r) < 0 || r.rlim_max != 4096)
		return 3;
	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_max > 100)
		return 4;
	if (getrlimit(RLIMIT_STACK, &r) < 0 || r.rlim_cur > 1 << 20 || r.rlim_max > 2 << 20)
		return 5;
	if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) != 1)
		return 6;
	while (born < 11 && (child[born] = fork()) >= 0) {
		if (child[born] == 0)
			for (;;)
				pause();
		born++;
	}
	for (int i = 0; i < born; i++)
		kill(child[i], SIGKILL);
	if (kernel)
		return born == 11 ? 0 : 10; /* left to the cgroup */
	return born == 5 ? 0 : 11;
}

START_TEST(inside_lowers)
{
	for (int kernel = 0; kernel < 2; kernel++) {
		pid_t pid = fork();
		int st;

		if (pid == 0)
			_exit(inside(kernel));
		ck_assert_int_eq(waitpid(pid, &st, 0), pid);
		ck_assert(WIFEXITED(st));
		if (WEXITSTATUS(st) == 77)
			printf("skip inside_lowers: no user namespaces here\n");
		else
			ck_assert_int_eq(WEXITSTATUS(st), 0);
	}
}
END_TEST

static void put(int dir, const char *name, size_t n)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	static char block[65536];

	ck_assert_int_ge(fd, 0);
	memset(block, 1, sizeof(block));
	for (size_t k; n > 0; n -= k) {
		k = n < sizeof(block) ? n : sizeof(block);
		ck_assert_int_eq(write(fd, block, k), (ssize_t)k);
	}
	close(fd);
}

/* Ticks until one whole pass more has ended, or a hit. */
static bool whole_pass(struct limits *l)
{
	l->walk.whole = false;
	for (int i = 0; i < 1000; i++) {
		if (limits_workspace_tick(l))
			return true;
		if (l->walk.whole && l->walk.fd < 0)
			return false;
	}
	ck_abort_msg("a pass never ends");
}

START_TEST(workspace_sampled)
{
	char path[] = "/tmp/limits-XXXXXX", cmd[64];
	struct box_limits want = asked;
	struct limits l;
	struct err e;
	int dir, at;

	ck_assert_ptr_nonnull(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	want.supervised = true;
	want.workspace_max = 5 << 20;
	ck_assert_int_eq(limits_open(&l, &want, &e), 0);
	ck_assert_int_eq(limits_watch_workspace(&l, dir, &e), 0);
	ck_assert_str_eq(l.state[LIMIT_WORKSPACE_MAX].rung, "sampler");
	ck_assert(!l.state[LIMIT_WORKSPACE_MAX].enforced);
	ck_assert_int_le(limits_period_ms(&l), 20);
	for (int i = 0; i < 300; i++) { /* more than one buffer of names, and directories between them */
		char name[32];

		snprintf(name, sizeof(name), i % 3 ? "file-%d" : "dir-%d", i);
		if (i % 3)
			put(dir, name, 1);
		else
			ck_assert_int_eq(mkdirat(dir, name, 0700), 0);
	}
	at = openat(dir, "dir-0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put(at, "big", 3 << 20);
	ck_assert_int_eq(linkat(at, "big", dir, "same", 0), 0);
	ck_assert_int_eq(symlinkat("/usr", dir, "elsewhere"), 0);
	ck_assert_int_eq(symlinkat(".", dir, "loop"), 0);
	ck_assert(!whole_pass(&l)); /* hard link once, links not followed */
	ck_assert_uint_gt(l.walk.last, 3 << 20);
	ck_assert_uint_lt(l.walk.last, 5 << 20);
	put(at, "more", 2 << 20);
	ck_assert(whole_pass(&l));
	ck_assert_int_eq(limits_check(&l), LIMIT_HIT_WORKSPACE);
	limits_close(&l);
	close(at);
	close(dir);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", path);
	ck_assert_int_eq(system(cmd), 0);
}
END_TEST

START_TEST(workspace_moved)
{
	char path[] = "/tmp/limits-XXXXXX", cmd[64];
	struct box_limits want = asked;
	struct limits l;
	struct err e;
	int dir;

	ck_assert_ptr_nonnull(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	want.supervised = true;
	want.workspace_max = 64 << 20;
	ck_assert_int_eq(mkdirat(dir, "a", 0700), 0);
	ck_assert_int_eq(mkdirat(dir, "a/b", 0700), 0);
	ck_assert_int_eq(mkdirat(dir, "c", 0700), 0);
	ck_assert_int_eq(limits_open(&l, &want, &e), 0);
	ck_assert_int_eq(limits_watch_workspace(&l, dir, &e), 0);
	/* in the middle of a walk: as if it had just gone down into b, which is then moved */
	ck_assert(!whole_pass(&l));
	l.walk.fd = openat(dir, "a/b", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	l.walk.depth = 1;
	l.walk.up[0].ino = 1;
	ck_assert(!limits_workspace_tick(&l));
	ck_assert_int_eq(l.walk.fd, -1); /* the pass was given up */
	ck_assert(!whole_pass(&l));
	limits_close(&l);
	close(dir);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", path);
	ck_assert_int_eq(system(cmd), 0);
}
END_TEST

static void where_v2(struct cg2_place *own)
{
	char text[8192];
	FILE *f = fopen("/proc/self/mountinfo", "re");

	memset(own, 0, sizeof(*own));
	ck_assert_int_gt(fd_read_file_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)), 0);
	cg2_parse_groups(text, strlen(text), own);
	ck_assert_ptr_nonnull(f);
	while (fgets(text, sizeof(text), f))
		cg2_parse_mount(text, strcspn(text, "\n"), own);
	fclose(f);
}

/* The v2 tree of this machine, whatever its controllers are. */
START_TEST(cg2_looks)
{
	struct cg2_place own;
	struct cg2_parent p;
	struct err e;
	char path[CG_PATH_MAX + 32];
	int fd;

	fd = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(cg2_look_at(fd, "/tmp", CG2_MEMORY, &p, &e), -1);
	ck_assert_ptr_nonnull(strstr(e.msg, "no group of cgroup v2"));
	close(fd);
	ck_assert_int_eq(setenv("CLOCHE_CGROUP", "/tmp", 1), 0);
	ck_assert_int_eq(cg2_find_parent(CG2_MEMORY, &p, &e), -1);
	ck_assert_int_eq(e.kind, ERR_REFUSED); /* what was named, or nothing */
	ck_assert_int_eq(strncmp(e.msg, "CLOCHE_CGROUP: ", 15), 0);
	ck_assert_int_eq(unsetenv("CLOCHE_CGROUP"), 0);
	where_v2(&own);
	if (!own.mounted) {
		printf("skip cg2_looks: no v2 tree here\n");
		return;
	}
	snprintf(path, sizeof(path), "%s/ct-unit-%d", own.path, (int)getpid());
	if (mkdir(path, 0755) < 0) {
		printf("skip cg2_looks: no right to make groups in %s\n", own.path);
		return;
	}
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_msg(cg2_look_at(fd, path, CG2_MEMORY | CG2_PIDS, &p, &e) == 0, "%s", e.msg);
	ck_assert(!p.alone && p.gives == p.enable); /* empty: whatever it has may be handed down */
	close(fd);
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

/* Plain files in the place of a group's: what was in one before stays behind what is written, as if the kernel held another number. */
START_TEST(cg2_reads_back)
{
	static const char *const files[] = { "memory.oom.group", "memory.max", "memory.swap.max", "pids.max", "cpu.max", "io.weight" };
	const size_t n = sizeof(files) / sizeof(files[0]);
	const struct box_limits want = { .memory = 64 << 20, .pids = 20, .cpus = 0.25, .io_weight = 77 };
	char dir[] = "/tmp/ct-unit-XXXXXX";
	struct limits l;
	struct err e;

	ck_assert_ptr_nonnull(mkdtemp(dir));
	for (size_t odd = 0; odd < n; odd++) {
		int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;

		for (size_t i = 0; i < n; i++) {
			int f = openat(fd, files[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

			/* The first is nobody's to compare: the control. */
			ck_assert_int_eq(i == odd && i > 0 ? write(f, "77777777777777777", 17) : 17, 17);
			close(f);
		}
		r = openat(fd, "memory.events", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		ck_assert_int_eq(write(r, "oom_kill 0\n", 11), 11);
		close(r);
		limits_clear(&l);
		l.rung = &limits_cgroup2;
		l.dir[0] = fd;
		l.held = 1u << LIMIT_MEMORY | 1u << LIMIT_PIDS | 1u << LIMIT_CPUS | 1u << LIMIT_IO_WEIGHT;
		r = cg2_open(&l, &want, &e);
		if (odd == 0)
			ck_assert_msg(r == 0 && l.state[LIMIT_IO_WEIGHT].enforced, "%s", r < 0 ? e.msg : "not enforced");
		else
			ck_assert_msg(r == -1 && e.kind == ERR_SYS, "%s: an odd number is taken", files[odd]);
		for (size_t i = 0; i < n; i++)
			unlinkat(fd, files[i], 0);
		unlinkat(fd, "memory.events", 0);
		l.dir[0] = -1; /* no group to be removed */
		cg2_close(&l);
		close(fd);
	}
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, cg1_memory);
	tcase_add_test(tc, cg1_filled_by_tmpfs);
	tcase_add_test(tc, cg1_pids);
	tcase_add_test(tc, cg1_cpus);
	tcase_add_test(tc, cg1_sweeps_the_dead);
	tcase_add_test(tc, cg2_looks);
	tcase_add_test(tc, cg2_reads_back);
	tcase_add_test(tc, supervised_sees);
	tcase_add_test(tc, inside_lowers);
	tcase_add_test(tc, workspace_sampled);
	tcase_add_test(tc, workspace_moved);
}

int main(void)
{
	return unit_main("limits_live", fill);
}
