/* inject [-r ROLE -n N -f FAULT] [-t SECONDS] -o REPORT -- PROGRAM [ARG...]
 *
 * Runs cloche under ptrace, with everything it starts until the box's command executes, and makes the N-th system call of one of them
 * fail. FAULT is an errno, "zero" (the call is not made and answers 0, an end of file), "short" (it is made with a count of one byte),
 * or "late-ERRNO" (it is made and answers the error all the same, as close(2) does). Without -r it only lists.
 *
 * A process is known by its role, not its pid, and counts its own calls, so that N means the same in every run whatever the threads do:
 *   cloche     the program                   listener   its thread for refused calls      mediate    a thread that one started
 *   init       the box's first process       net        init's helper for the network     command    the command, until it executes
 *   idmap      the maker of an id map        other      anything else
 *
 * REPORT gets one line a fact: "call ROLE N NR ARGS" (when only listing), "hit ROLE N NR ARGS", "exec HOST-PID" and the command's groups as
 * the host sees them, "end exit CODE" or "end signal NUMBER" of cloche, "crash ROLE SIGNAL", "hang ..." and "left ..." for what did not end.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* The C library's header and the kernel's can't be had together. */
static long ptrace(long request, pid_t pid, long addr, long data)
{
	return syscall(SYS_ptrace, request, (long)pid, addr, data);
}

enum role { CLOCHE, LISTENER, MEDIATE, INIT, NET, COMMAND, IDMAP, OTHER, ROLES };
static const char *const names[] = { "cloche", "listener", "mediate", "init", "net", "command", "idmap", "other" };
enum kind { LIST, ERRNO, ZERO, SHORT, LATE };

struct task {
	pid_t pid;
	int role; /* -1: its parent has not told yet */
	int held; /* stopped at birth, waiting for that */
	int failing; /* between the entry and the exit of the call that fails */
};

static struct task tasks[4096];
static int n_tasks, calls[ROLES], want_role = -1, want_n, hit;
static enum kind kind = LIST;
static long fault;
static FILE *report;
static volatile sig_atomic_t late;

static void on_alarm(int sig)
{
	(void)sig;
	late++;
}

static struct task *task_of(pid_t pid)
{
	for (int i = 0; i < n_tasks; i++)
		if (tasks[i].pid == pid)
			return &tasks[i];
	if (n_tasks == (int)(sizeof(tasks) / sizeof(tasks[0])))
		exit(99);
	tasks[n_tasks] = (struct task){ .pid = pid, .role = -1 };
	return &tasks[n_tasks++];
}

static void forget(pid_t pid)
{
	for (int i = 0; i < n_tasks; i++)
		if (tasks[i].pid == pid) {
			tasks[i] = tasks[--n_tasks];
			return;
		}
}

static int child_role(int parent, uint64_t flags)
{
	if (flags & CLONE_THREAD)
		return parent == CLOCHE ? LISTENER : parent == LISTENER ? MEDIATE : OTHER;
	if (parent == CLOCHE)
		return flags & CLONE_NEWPID ? INIT : flags & CLONE_NEWUSER ? IDMAP : OTHER;
	if (parent == INIT)
		return flags & CLONE_VFORK ? COMMAND : flags & CLONE_VM ? NET : OTHER;
	return OTHER;
}

static void memory(pid_t pid, uint64_t at, char *to, size_t n)
{
	struct iovec l = { to, n }, r = { (void *)(uintptr_t)at, n };
	ssize_t got = at ? process_vm_readv(pid, &l, 1, &r, 1, 0) : -1;

	/* A string near the end of its mapping. */
	while (got < 0 && errno == EFAULT && n > 16) {
		n /= 2;
		l.iov_len = r.iov_len = n;
		got = process_vm_readv(pid, &l, 1, &r, 1, 0);
	}
	memset(to + (got > 0 ? got : 0), 0, n - (size_t)(got > 0 ? got : 0));
}

/* Which arguments are strings, as bits; a buffer of known length counts as one. */
static unsigned strings(uint64_t nr)
{
	switch (nr) {
#ifdef SYS_open
	case SYS_open: case SYS_stat: case SYS_lstat: case SYS_access: case SYS_readlink: case SYS_mkdir: case SYS_unlink: case SYS_rmdir:
#endif
	case SYS_chdir: case SYS_umount2: case SYS_statfs: case SYS_pivot_root: case SYS_execve: case SYS_sethostname: case SYS_memfd_create:
		return 1;
	case SYS_mount:
		return 2 | 4;
	case SYS_openat: case SYS_mkdirat: case SYS_faccessat: case SYS_faccessat2: case SYS_unlinkat: case SYS_newfstatat: case SYS_readlinkat:
	case SYS_fchmodat: case SYS_fchownat: case SYS_open_tree: case SYS_mount_setattr: case SYS_write: case SYS_statx:
		return 2;
	case SYS_symlinkat:
		return 1 | 4;
	case SYS_renameat: case SYS_move_mount:
		return 2 | 8;
	}
	return 0;
}

static void tell(const char *word, const struct task *t, const struct ptrace_syscall_info *si)
{
	fprintf(report, "%s %s %d %llu", word, names[t->role], calls[t->role], (unsigned long long)si->entry.nr);
	for (int i = 0; i < 4; i++)
		if (strings(si->entry.nr) >> i & 1) {
			char text[65];

			memory(t->pid, si->entry.args[i], text, sizeof(text) - 1);
			text[sizeof(text) - 1] = '\0';
			if (si->entry.nr == SYS_write && si->entry.args[2] < sizeof(text))
				text[si->entry.args[2]] = '\0';
			for (char *p = text; *p; p++)
				if (*p <= ' ' || *p > '~')
					*p = '_';
			fprintf(report, " %s", *text ? text : "-");
		} else {
			fprintf(report, " %llx", (unsigned long long)si->entry.args[i]);
		}
	fputc('\n', report);
}

static void poke(pid_t pid, int what, uint64_t value)
{
#ifdef __x86_64__
	static const size_t at[] = { offsetof(struct user_regs_struct, orig_rax), offsetof(struct user_regs_struct, rax),
				     offsetof(struct user_regs_struct, rdx), offsetof(struct user_regs_struct, rdi) };

	ptrace(PTRACE_POKEUSR, pid, (long)at[what], (long)value);
#else
	struct user_regs_struct r;
	int nr = (int)value;
	struct iovec io = { what ? (void *)&r : (void *)&nr, what ? sizeof(r) : sizeof(nr) };

	if (what) {
		ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, (long)&io);
		r.regs[what == 2 ? 2 : 0] = value;
	}
	ptrace(PTRACE_SETREGSET, pid, what ? NT_PRSTATUS : 0x404 /* NT_ARM_SYSTEM_CALL */, (long)&io);
#endif
}
enum { CALL, RESULT, COUNT, FIRST };

static void entry(struct task *t, const struct ptrace_syscall_info *si)
{
	uint64_t nr = si->entry.nr;

	calls[t->role]++;
	if (kind == LIST)
		tell("call", t, si);
	if (hit || kind == LIST || t->role != want_role || calls[t->role] != want_n)
		return;
	hit = 1;
	tell("hit", t, si);
	t->failing = 1;
	if (nr == SYS_brk) /* it has no errno: what fails leaves the end of the heap where it was */
		poke(t->pid, FIRST, 0), t->failing = 0;
	else if (kind == ERRNO || kind == ZERO)
		poke(t->pid, CALL, (uint64_t)-1);
	else if (kind == SHORT)
		poke(t->pid, COUNT, 1), t->failing = 0;
}

/* What the host sees of a command that is about to run. */
static void tell_exec(pid_t pid)
{
	char path[64], line[4096];
	FILE *f;

	fprintf(report, "exec %d\n", pid);
	snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		fprintf(report, "group %s", line);
	if (f)
		fclose(f);
}

static void go_on(pid_t pid, int sig)
{
	ptrace(hit ? PTRACE_CONT : PTRACE_SYSCALL, pid, 0, sig);
}

/* Of the clone that it is in the middle of. */
static uint64_t clone_flags(pid_t pid)
{
	struct user_regs_struct r = { 0 };
	struct iovec io = { &r, sizeof(r) };
	uint64_t nr, flags;

	ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, (long)&io);
#ifdef __x86_64__
	nr = r.orig_rax, flags = r.rdi;
#else
	nr = r.regs[8], flags = r.regs[0];
#endif
	if (nr == SYS_clone3)
		memory(pid, flags, (char *)&flags, sizeof(flags));
	return nr == SYS_clone || nr == SYS_clone3 ? flags : 0;
}

static void born(struct task *t, struct task *parent)
{
	t->role = child_role(parent->role, clone_flags(parent->pid));
	if (t->held)
		go_on(t->pid, 0);
	t->held = 0;
}

static void stopped(struct task *t, int status)
{
	int event = status >> 16, sig = WSTOPSIG(status);
	struct ptrace_syscall_info si;
	unsigned long msg;
	pid_t pid = t->pid;

	if (event == PTRACE_EVENT_STOP) {
		if (sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU) {
			ptrace(PTRACE_LISTEN, pid, 0, 0);
		} else if (t->role < 0) {
			t->held = 1;
		} else {
			go_on(pid, 0);
		}
	} else if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK) {
		ptrace(PTRACE_GETEVENTMSG, pid, 0, (long)&msg);
		born(task_of((pid_t)msg), task_of(pid));
		go_on(pid, 0);
	} else if (event == PTRACE_EVENT_EXEC && t->role == COMMAND) {
		tell_exec(pid);
		ptrace(PTRACE_DETACH, pid, 0, 0);
		forget(pid);
	} else if (event) {
		if (event == PTRACE_EVENT_EXEC && t->role < 0)
			t->role = CLOCHE;
		go_on(pid, 0);
	} else if (sig == (SIGTRAP | 0x80)) {
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(si), (long)&si) > 0 && t->role >= 0) {
			if (si.op == PTRACE_SYSCALL_INFO_ENTRY)
				entry(t, &si);
			else if (si.op == PTRACE_SYSCALL_INFO_EXIT && t->failing)
				poke(pid, RESULT, kind == ZERO ? 0 : (uint64_t)-fault), t->failing = 0;
		}
		/* The exit of the failing call must still be seen. */
		if (t->failing)
			ptrace(PTRACE_SYSCALL, pid, 0, 0);
		else
			go_on(pid, 0);
	} else {
		go_on(pid, sig);
	}
}

static void tell_rest(const char *word)
{
	for (int i = 0; i < n_tasks; i++) {
		char path[64], text[64] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/%d/syscall", tasks[i].pid);
		f = fopen(path, "r");
		if (f && !fgets(text, sizeof(text), f))
			text[0] = '\0';
		if (f)
			fclose(f);
		text[strcspn(text, "\n")] = '\0';
		fprintf(report, "%s %s %s\n", word, tasks[i].role < 0 ? "?" : names[tasks[i].role], text);
		kill(tasks[i].pid, SIGKILL);
	}
}

static void follow(pid_t cloche, unsigned seconds)
{
	int status, over = 0;

	alarm(seconds);
	for (;;) {
		pid_t pid = waitpid(-1, &status, __WALL);

		if (late) {
			/* Once for what hangs, once more for what not even a SIGKILL ends. */
			tell_rest(over ? "left" : "hang");
			if (late++ > 1)
				return;
			late = 0, alarm(seconds);
		}
		if (pid < 0 && errno == ECHILD)
			return;
		if (pid <= 0)
			continue;
		if (WIFSTOPPED(status)) {
			stopped(task_of(pid), status);
			continue;
		}
		if (pid == cloche) {
			over = 1;
			if (WIFSIGNALED(status))
				fprintf(report, "end signal %d\n", WTERMSIG(status));
			else
				fprintf(report, "end exit %d\n", WEXITSTATUS(status));
		} else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
			int role = task_of(pid)->role;

			fprintf(report, "crash %s %d\n", role < 0 ? "?" : names[role], WTERMSIG(status));
		}
		forget(pid);
	}
}

static int parse_fault(const char *s)
{
	if (!strcmp(s, "zero"))
		kind = ZERO;
	else if (!strcmp(s, "short"))
		kind = SHORT;
	else if (!strncmp(s, "late-", 5))
		kind = LATE, fault = strtol(s + 5, NULL, 10);
	else
		kind = ERRNO, fault = strtol(s, NULL, 10);
	return kind == ZERO || kind == SHORT || fault > 0;
}

int main(int argc, char **argv)
{
	unsigned seconds = 20;
	int opt, go[2];
	char c = 0;
	pid_t pid;

	while ((opt = getopt(argc, argv, "+r:n:f:t:o:")) != -1) {
		if (opt == 'r')
			for (int i = 0; i < ROLES; i++)
				want_role = strcmp(optarg, names[i]) ? want_role : i;
		else if (opt == 'n')
			want_n = (int)strtol(optarg, NULL, 10);
		else if (opt == 'f' && !parse_fault(optarg))
			return 99;
		else if (opt == 't')
			seconds = (unsigned)strtol(optarg, NULL, 10);
		else if (opt == 'o')
			report = fopen(optarg, "we");
	}
	if (!report || optind >= argc || pipe2(go, O_CLOEXEC) < 0)
		return 99;
	sigaction(SIGALRM, &(struct sigaction){ .sa_handler = on_alarm }, NULL);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	pid = fork();
	if (pid == 0) {
		if (read(go[0], &c, 1) != 1)
			_exit(99);
		execv(argv[optind], argv + optind);
		_exit(99);
	}
	if (ptrace(PTRACE_SEIZE, pid, 0,
		   PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |
			   PTRACE_O_EXITKILL) < 0 ||
	    write(go[1], &c, 1) != 1)
		return 99;
	fprintf(report, "pid %d\n", pid);
	task_of(pid);
	follow(pid, seconds);
	return fclose(report) == 0 ? 0 : 99;
}
