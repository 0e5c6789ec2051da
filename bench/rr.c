/* rr: runs commands in turns and times them; bench/start builds it, drives it and does the arithmetic.
 *
 *   rr times ROUNDS WARMUP ROW [::: ROW]...     one run of every row a round
 *   rr burst ROUNDS COUNT ROW [::: ROW]...      COUNT starts at once of every row a round
 *   rr live COUNT COMM ROW                      COUNT boxes kept alive, ended on request
 *
 * A ROW is a command with its arguments. `times` and `burst` write one line a run: round, row, wall ns, gone ns, cpu us,
 * minor faults, failed starts. Wall is from before posix_spawn (a vfork in every libc of today) to the direct child reaped;
 * gone is to the last process of the run reaped. rr is a subreaper, so whatever a runtime leaves behind becomes its child:
 * `gone` is exact, the next run never shares the machine with the teardown of the one before, and orphans' rusage counts.
 *
 * The order is rotated by one each round and reversed every other round, so that no row always follows the same
 * neighbour. Everything run has /dev/null as its three descriptors; results are kept in memory and written at the end.
 *
 * `live` answers "ready MS" when each child has a descendant named COMM, then obeys one line on standard input: "each SIGNAL"
 * ends one box after the other, "all SIGNAL" signals all and waits for all. Both answer a line a box, the ns until no
 * process of that box was left, then "done NS". The end of standard input kills the lot.
 *
 * What may go wrong: a command that never ends. An alarm kills the direct children and exits 3. Exit 2 is a usage error
 * or a process that outlived its box. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROWS_MAX = 16, COUNT_MAX = 1000, ROUNDS_MAX = 100000, KIN_MAX = 16, GUARD_S = 300, END_GUARD_S = 30 };

extern char **environ;

struct sample {
	uint64_t wall, gone, cpu_us;
	long minflt;
	int round, row, failed;
};

struct box {
	pid_t pid;
	pid_t kin[KIN_MAX]; /* its descendants as seen before the end was ordered, parents first */
	int n_kin;
	bool has_comm;
	uint64_t end_ns;
};

static char **rows[ROWS_MAX];
static int n_rows;
static struct box boxes[COUNT_MAX];
static int n_boxes; /* also what the alarm kills */
static FILE *out, *in, *complaints;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static _Noreturn void fail(const char *what)
{
	fprintf(complaints, "rr: %s\n", what);
	for (int i = 0; i < n_boxes; i++)
		if (boxes[i].pid > 0)
			kill(boxes[i].pid, SIGKILL);
	exit(2);
}

static void on_alarm(int sig)
{
	static const char text[] = "rr: a command did not end in time\n";

	(void)sig;
	for (int i = 0; i < n_boxes; i++)
		if (boxes[i].pid > 0)
			kill(boxes[i].pid, SIGKILL);
	if (write(fileno(complaints), text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

static FILE *keep(int fd, const char *mode)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 10);

	return copy < 0 ? NULL : fdopen(copy, mode);
}

/* Moves our own streams away from 0-2 and puts /dev/null there, once, instead of file actions in every spawn. */
static int detach_streams(void)
{
	int null;

	in = keep(0, "r");
	out = keep(1, "w");
	complaints = keep(2, "w");
	if (!in || !out || !complaints)
		return -1;
	setvbuf(complaints, NULL, _IONBF, 0);
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
		return -1;
	if (null > 2)
		close(null);
	return 0;
}

static int number(const char *s, int max)
{
	char *end;
	long n = strtol(s, &end, 10);

	if (end == s || *end || n < 0 || n > max)
		fail("bad number");
	return (int)n;
}

static void read_rows(char **argv)
{
	rows[n_rows++] = argv;
	for (; *argv; argv++) {
		if (strcmp(*argv, ":::") != 0)
			continue;
		*argv = NULL;
		if (n_rows == ROWS_MAX)
			fail("too many rows");
		rows[n_rows++] = argv + 1;
	}
	for (int i = 0; i < n_rows; i++)
		if (!rows[i][0])
			fail("empty row");
}

static pid_t spawn(char **argv)
{
	pid_t pid;
	int r = posix_spawn(&pid, argv[0], NULL, NULL, argv, environ);

	if (r != 0) {
		errno = r;
		return -1;
	}
	return pid;
}

static void add_usage(struct sample *s, const struct rusage *ru)
{
	s->cpu_us += (uint64_t)(ru->ru_utime.tv_sec + ru->ru_stime.tv_sec) * 1000000u;
	s->cpu_us += (uint64_t)(ru->ru_utime.tv_usec + ru->ru_stime.tv_usec);
	s->minflt += ru->ru_minflt;
}

static bool reap(pid_t pid, struct sample *s, bool judge)
{
	struct rusage ru;
	int status;
	pid_t got;

	do
		got = wait4(pid, &status, 0, &ru);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return false;
	add_usage(s, &ru);
	if (judge && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
		s->failed++;
	return true;
}

/* One run, or `count` at once, of a row. */
static void measure(int row, int count, struct sample *s)
{
	uint64_t start = now_ns();

	for (n_boxes = 0; n_boxes < count; n_boxes++) {
		boxes[n_boxes].pid = spawn(rows[row]);
		if (boxes[n_boxes].pid < 0)
			s->failed++;
	}
	for (int i = 0; i < count; i++)
		if (boxes[i].pid > 0)
			reap(boxes[i].pid, s, true);
	s->wall = now_ns() - start;
	n_boxes = 0;
	while (reap(-1, s, false))
		;
	s->gone = now_ns() - start;
	s->row = row;
}

static void rounds(int n, int warmup, int count)
{
	struct sample *all = calloc((size_t)n * (size_t)n_rows + 1, sizeof(*all)), *s = all;

	if (!all)
		fail("no memory");
	/* Touch what will be written, so that no page fault of ours falls into a measured span. */
	memset(all, 1, ((size_t)n * (size_t)n_rows + 1) * sizeof(*all));
	for (int r = -warmup; r < n; r++) {
		for (int i = 0; i < n_rows; i++) {
			int turn = r & 1 ? n_rows - 1 - i : i;
			struct sample spare, *dst = r < 0 ? &spare : s++;

			memset(dst, 0, sizeof(*dst));
			measure((turn + r + warmup) % n_rows, count, dst);
			dst->round = r;
		}
	}
	for (struct sample *p = all; p < s; p++)
		fprintf(out, "%d %d %llu %llu %llu %ld %d\n", p->round, p->row, (unsigned long long)p->wall,
			(unsigned long long)p->gone, (unsigned long long)p->cpu_us, p->minflt, p->failed);
	free(all);
}

/* pid, parent and name from /proc/PID/stat; the name may hold spaces and brackets, so the last bracket counts. */
static bool read_stat(const char *pid, pid_t *ret_parent, char name[32])
{
	char path[64], line[512], *open_b, *close_b;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(line, 1, sizeof(line) - 1, f);
	fclose(f);
	line[n] = 0;
	open_b = strchr(line, '(');
	close_b = strrchr(line, ')');
	if (!open_b || !close_b || close_b - open_b > 31)
		return false;
	memcpy(name, open_b + 1, (size_t)(close_b - open_b - 1));
	name[close_b - open_b - 1] = 0;
	return sscanf(close_b + 1, " %*c %d", ret_parent) == 1;
}

static bool box_owns(const struct box *b, pid_t pid)
{
	if (pid == b->pid)
		return true;
	for (int i = 0; i < b->n_kin; i++)
		if (b->kin[i] == pid)
			return true;
	return false;
}

/* Fills the boxes' descendants; true when each has one named comm. A parent's pid is usually lower than its child's, and
 * the later walks catch the rest. */
static bool look(const char *comm)
{
	int alive = 0;

	for (int i = 0; i < n_boxes; i++) {
		boxes[i].n_kin = 0;
		boxes[i].has_comm = false;
	}
	for (int walk = 0; walk < 3; walk++) {
		DIR *d = opendir("/proc");
		struct dirent *e;

		if (!d)
			fail("/proc can't be read");
		while ((e = readdir(d))) {
			char name[32];
			pid_t parent, pid = (pid_t)strtol(e->d_name, NULL, 10);

			if (pid <= 0 || !read_stat(e->d_name, &parent, name))
				continue;
			for (int i = 0; i < n_boxes; i++) {
				struct box *b = &boxes[i];

				if (!box_owns(b, parent) || box_owns(b, pid))
					continue;
				if (b->n_kin == KIN_MAX)
					fail("a box has too many processes");
				b->kin[b->n_kin++] = pid;
			}
			for (int i = 0; i < n_boxes; i++)
				if (pid != boxes[i].pid && strcmp(name, comm) == 0 && box_owns(&boxes[i], pid))
					boxes[i].has_comm = true;
		}
		closedir(d);
	}
	for (int i = 0; i < n_boxes; i++)
		alive += boxes[i].has_comm;
	return alive == n_boxes;
}

/* Waits until nothing of a box is left. When the direct child is gone its children are ours, and a dead PID 1 means that
 * the kernel has ended everything in its namespace. */
static void wait_gone(struct box *b)
{
	while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
		;
	for (int i = 0; i < b->n_kin; i++)
		while (waitpid(b->kin[i], NULL, 0) < 0 && errno == EINTR)
			;
	for (int i = 0; i < b->n_kin; i++)
		if (kill(b->kin[i], 0) == 0)
			fail("a process outlived its box");
}

static void end_each(int sig)
{
	uint64_t first = now_ns();

	for (int i = 0; i < n_boxes; i++) {
		uint64_t start = now_ns();

		kill(boxes[i].pid, sig);
		wait_gone(&boxes[i]);
		boxes[i].end_ns = now_ns() - start;
		boxes[i].pid = 0;
	}
	for (int i = 0; i < n_boxes; i++)
		fprintf(out, "%llu\n", (unsigned long long)boxes[i].end_ns);
	fprintf(out, "done %llu\n", (unsigned long long)(now_ns() - first));
}

/* Everything left is, or becomes, a child of ours: a box ends with the last one of its kin that we reap. */
static void end_all(int sig)
{
	uint64_t start = now_ns();

	for (int i = 0; i < n_boxes; i++)
		kill(boxes[i].pid, sig);
	for (;;) {
		pid_t pid = waitpid(-1, NULL, 0);

		if (pid < 0 && errno == EINTR)
			continue;
		if (pid < 0)
			break;
		for (int i = 0; i < n_boxes; i++)
			if (box_owns(&boxes[i], pid))
				boxes[i].end_ns = now_ns() - start;
	}
	start = now_ns() - start;
	for (int i = 0; i < n_boxes; i++) {
		boxes[i].pid = 0;
		for (int k = 0; k < boxes[i].n_kin; k++)
			if (kill(boxes[i].kin[k], 0) == 0)
				fail("a process outlived its box");
		fprintf(out, "%llu\n", (unsigned long long)boxes[i].end_ns);
	}
	fprintf(out, "done %llu\n", (unsigned long long)start);
}

static void live(int count, const char *comm)
{
	static const struct timespec nap = {.tv_nsec = 20000000};
	uint64_t start = now_ns();
	char line[64];
	int sig;

	for (n_boxes = 0; n_boxes < count; n_boxes++) {
		boxes[n_boxes].pid = spawn(rows[0]);
		if (boxes[n_boxes].pid < 0)
			fail("a box could not be started");
	}
	while (!look(comm)) {
		if (now_ns() - start > 30000000000u)
			fail("not every box came to life in 30 seconds");
		nanosleep(&nap, NULL);
	}
	fprintf(out, "ready %llu\n", (unsigned long long)((now_ns() - start) / 1000000u));
	fflush(out);
	if (!fgets(line, sizeof(line), in))
		line[0] = 0;
	alarm(END_GUARD_S);
	if (!line[0])
		end_all(SIGKILL);
	else if (sscanf(line, "each %d", &sig) == 1)
		end_each(sig);
	else if (sscanf(line, "all %d", &sig) == 1)
		end_all(sig);
	else
		fail("unknown order");
}

int main(int argc, char **argv)
{
	if (detach_streams() < 0)
		return 2;
	if (argc < 5 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		fail("see the head of rr.c for usage");
	signal(SIGALRM, on_alarm);
	alarm(GUARD_S);
	read_rows(argv + 4);
	if (strcmp(argv[1], "times") == 0)
		rounds(number(argv[2], ROUNDS_MAX), number(argv[3], ROUNDS_MAX), 1);
	else if (strcmp(argv[1], "burst") == 0)
		rounds(number(argv[2], ROUNDS_MAX), 1, number(argv[3], COUNT_MAX));
	else if (strcmp(argv[1], "live") == 0)
		live(number(argv[2], COUNT_MAX), argv[3]);
	else
		fail("unknown mode");
	return fclose(out) == 0 ? 0 : 2;
}
