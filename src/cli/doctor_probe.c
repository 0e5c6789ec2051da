/* The ground that doctor's probes stand on: a child with a deadline for each, and a user namespace
 * made the way a box makes its own.
 *
 * Every probe is a process group of its own. Its leader has an alarm; when it has ended, the rest
 * of the group is killed, before the leader is reaped, so that the group's number can't belong to
 * anybody else yet. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/userns_why.h"
#include "engine/ids.h"

#define PROBE_SECONDS 5
#define NO_ANSWER "the probe gave no answer"
#define INSIDE_ID 1000

void doctor_say(struct doctor_result *r, enum doctor_status status, const char *fmt, ...)
{
	va_list ap;

	r->status = status;
	va_start(ap, fmt);
	vsnprintf(r->detail, sizeof(r->detail), fmt, ap);
	va_end(ap);
}

void doctor_cost(struct doctor_result *r, const char *fmt, ...)
{
	va_list ap;

	if (r->cost[0])
		return;
	va_start(ap, fmt);
	vsnprintf(r->cost, sizeof(r->cost), fmt, ap);
	va_end(ap);
}

void doctor_fix(struct doctor_result *r, const char *fmt, ...)
{
	va_list ap;

	if (r->fix[0])
		return;
	va_start(ap, fmt);
	vsnprintf(r->fix, sizeof(r->fix), fmt, ap);
	va_end(ap);
}

const char *doctor_text(const char *path, char *buf, size_t cap)
{
	if (fd_read_file_at(AT_FDCWD, path, buf, cap) < 0)
		buf[0] = '\0';
	return buf;
}

pid_t doctor_fork(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* 0: the parent is outside our pid namespace, and then the group's end takes us. */
		if (getppid() != parent && getppid() != 0)
			_exit(1);
	}
	return pid;
}

int doctor_wait(pid_t pid)
{
	int status;
	pid_t got;

	do
		got = waitpid(pid, &status, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return 255;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void child(const struct doctor_row *row, struct doctor_result *shared)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	sigset_t none;

	setpgid(0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGALRM, SIG_DFL);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGPIPE, SIG_IGN);
	/* A probe says nothing on its own, and nothing it starts does. */
	if (null >= 0) {
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
	}
	alarm(row->twice ? 2 * PROBE_SECONDS : PROBE_SECONDS);
	row->probe(row, shared);
	_exit(0);
}

/* The probe's leader was ended by a signal. What it said of its own failing before a wait that took
 * too long is the better answer. */
static void ended(const struct doctor_row *row, int sig, struct doctor_result *r)
{
	bool said = (r->status == DOCTOR_DEGRADED || r->status == DOCTOR_MISSING) &&
		    strcmp(r->detail, NO_ANSWER) != 0;

	if (sig != SIGALRM)
		doctor_say(
			r, DOCTOR_MISSING,
			"the probe was ended by signal %d (an outer filter may kill instead of refusing)",
			sig);
	else if (!said)
		doctor_say(r, DOCTOR_MISSING, "the probe did not end within %d seconds",
			   row->twice ? 2 * PROBE_SECONDS : PROBE_SECONDS);
}

void doctor_try(const struct doctor_row *row, struct doctor_result *ret)
{
	struct doctor_result *shared;
	siginfo_t info = { 0 };
	pid_t pid;

	memset(ret, 0, sizeof(*ret));
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (shared == MAP_FAILED) {
		doctor_say(ret, DOCTOR_MISSING, "not tried: no memory");
		return;
	}
	doctor_say(shared, DOCTOR_MISSING, NO_ANSWER);
	pid = doctor_fork();
	if (pid == 0)
		child(row, shared);
	if (pid < 0) {
		doctor_say(shared, DOCTOR_MISSING, "not tried: can't start a process: %s",
			   strerror(errno));
		doctor_fix(shared, "%s", err_fork_fix);
	} else {
		while (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR)
			continue;
		kill(-pid, SIGKILL);
		doctor_wait(pid);
		if (info.si_code != CLD_EXITED)
			ended(row, info.si_status, shared);
	}
	memcpy(ret, shared, sizeof(*ret));
	munmap(shared, sizeof(*shared));
	ret->detail[sizeof(ret->detail) - 1] = ret->cost[sizeof(ret->cost) - 1] =
		ret->fix[sizeof(ret->fix) - 1] = '\0';
	if (ret->status == DOCTOR_DEGRADED || ret->status == DOCTOR_MISSING) {
		if (row->cost)
			doctor_cost(ret, "%s", row->cost);
		if (row->fix)
			doctor_fix(ret, "%s", row->fix);
	}
}

void doctor_why(struct doctor_result *r, const char *what, int num)
{
	struct userns_why why;

	userns_why(what, num, &why);
	doctor_say(r, DOCTOR_MISSING, "%s", why.cause);
	doctor_fix(r, "%s", why.fix);
}

bool doctor_outer_ids(unsigned *ret_uid, unsigned *ret_gid)
{
	char text[4096];

	*ret_uid = geteuid();
	*ret_gid = getegid();
	if (*ret_uid != 0)
		return false;
	*ret_uid = ids_outer(doctor_text("/proc/self/uid_map", text, sizeof(text)));
	*ret_gid = ids_outer(doctor_text("/proc/self/gid_map", text, sizeof(text)));
	if (*ret_uid == 0 || *ret_gid == 0)
		*ret_uid = *ret_gid = 0;
	return *ret_uid != 0;
}

/* What the child of doctor_in_userns tells: zeroes, or the step at which it can't go on and an
 * errno. */
struct trouble {
	char step[40];
	int num;
};

static void complain(int fd, const char *step)
{
	struct trouble t = { .num = errno };

	snprintf(t.step, sizeof(t.step), "%s", step);
	fd_write_all(fd, &t, sizeof(t));
	_exit(1);
}

static int map_id(const char *file, unsigned outside)
{
	char text[64];

	snprintf(text, sizeof(text), "%d %u 1", INSIDE_ID, outside);
	return fd_write_file_at(AT_FDCWD, file, text);
}

/* As a box starts: root first takes an unprivileged id, so that the namespace is asked for without
 * any privilege. */
static void enter(int up)
{
	unsigned uid, gid;
	bool lend = doctor_outer_ids(&uid, &gid);

	if (lend && (setgroups(0, NULL) < 0 || setresgid((gid_t)-1, gid, (gid_t)-1) < 0 ||
		     setresuid((uid_t)-1, uid, (uid_t)-1) < 0))
		complain(up, "taking an unprivileged id");
	if (unshare(CLONE_NEWUSER) < 0)
		complain(up, "user namespace");
	/* A change of ids has made the own /proc entries root's. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ||
	    fd_write_file_at(AT_FDCWD, "/proc/self/setgroups", "deny") < 0 ||
	    map_id("/proc/self/uid_map", uid) < 0 || map_id("/proc/self/gid_map", gid) < 0)
		complain(up, "writing the id maps");
	if (setresgid(INSIDE_ID, INSIDE_ID, INSIDE_ID) < 0 ||
	    setresuid(INSIDE_ID, INSIDE_ID, INSIDE_ID) < 0)
		complain(up, "taking the box's ids");
	/* Cleared by the change of ids. (The capabilities stay: nothing is mapped to uid 0, so this
	 * was no step down from root.) */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void inside(int up, int flags, int (*fn)(void *, struct doctor_result *), void *ctx,
		   struct doctor_result *r)
{
	struct trouble fine = { .num = 0 };

	enter(up);
	if (unshare(CLONE_NEWNS) < 0)
		complain(up, "mount namespace");
	/* The first use of a capability: AppArmor lets the namespace be made and then refuses this.
	 */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		complain(up, "mounts in the namespace");
	if (flags && unshare(flags) < 0)
		complain(up, "namespaces");
	if (fd_write_all(up, &fine, sizeof(fine)) < 0)
		_exit(1);
	close(up);
	_exit(fn ? fn(ctx, r) : 0);
}

bool doctor_in_userns(int flags, int (*fn)(void *, struct doctor_result *), void *ctx,
		      struct doctor_result *r)
{
	_cleanup_fd_ int up_r = -1, up_w = -1;
	struct trouble t;
	pid_t pid;

	if (fd_pipe(&up_r, &up_w) < 0) {
		doctor_say(r, DOCTOR_MISSING, "not tried: %s", strerror(errno));
		return false;
	}
	pid = doctor_fork();
	if (pid == 0)
		inside(up_w, flags & ~(CLONE_NEWUSER | CLONE_NEWNS), fn, ctx, r);
	if (pid < 0) {
		doctor_say(r, DOCTOR_MISSING, "not tried: can't start a process: %s",
			   strerror(errno));
		doctor_fix(r, "%s", err_fork_fix);
		return false;
	}
	fd_close(&up_w);
	if (fd_read_full(up_r, &t, sizeof(t)) != sizeof(t)) {
		doctor_say(
			r, DOCTOR_MISSING,
			"a process that asked for a user namespace was ended (by an outer filter?)");
		doctor_fix(
			r,
			"loosen the outer sandbox's seccomp filter: it must allow clone, unshare, mount, pivot_root");
	} else if (t.num != 0) {
		t.step[sizeof(t.step) - 1] = '\0';
		doctor_why(r, t.step, t.num);
	} else {
		doctor_wait(pid);
		return true;
	}
	doctor_wait(pid);
	return false;
}

int doctor_tmpfs(void)
{
	static const char *const places[] = { "/tmp", "/mnt", "/run", "/var", "/usr" };

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (mount("tmpfs", places[i], "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=0700") ==
		    0)
			return chdir(places[i]);
		if (errno != ENOENT && errno != ENOTDIR)
			return -1;
	}
	return -1;
}
