/* Doctor's probes of locks and limits, and of a whole box. The locks are put on by the functions
 * that a box uses, in a child. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/limits.h"
#include "box/locks.h"
#include "box/userns_why.h"

extern char **environ;

#define NOTIFIED_ANSWER 4242

/* Everything is allowed but getppid, which goes to the listener. */
static const struct sock_filter notify_getppid[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

static void filtered_child(int sock, struct doctor_result *r)
{
	struct err e;
	int listener;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		_exit(1);
	if (locks_seccomp(notify_getppid, sizeof(notify_getppid) / sizeof(notify_getppid[0]),
			  &listener, &e) < 0) {
		doctor_say(r, DOCTOR_MISSING, "%s", e.msg);
		_exit(1);
	}
	if (fd_send(sock, "l", 1, &listener, 1) < 0)
		_exit(1);
	close(listener);
	_exit(syscall(SYS_getppid) == NOTIFIED_ANSWER ? 0 : 1);
}

/* Receives one notification and answers it. */
static bool answer(int listener)
{
	struct seccomp_notif n = { 0 };
	struct seccomp_notif_resp resp = { 0 };

	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &n) < 0 || n.data.nr != SYS_getppid)
		return false;
	resp.id = n.id;
	resp.val = NOTIFIED_ANSWER;
	return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &resp) == 0;
}

void doctor_seccomp(const struct doctor_row *row, struct doctor_result *r)
{
	unsigned long killable = SECCOMP_FILTER_FLAG_NEW_LISTENER | (1UL << 5);
	_cleanup_fd_ int listener = -1;
	int socks[2];
	bool answered;
	size_t got = 0;
	char c;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return;
	doctor_say(r, DOCTOR_MISSING, "a filter was loaded, and its notification was not answered");
	pid = doctor_fork();
	if (pid == 0) {
		close(socks[0]);
		filtered_child(socks[1], r);
	}
	close(socks[1]);
	if (pid < 0)
		return;
	answered =
		fd_recv(socks[0], &c, 1, &listener, 1, &got) == 1 && got == 1 && answer(listener);
	if (doctor_wait(pid) != 0 || !answered)
		return;
	/* A kernel that knows the flag goes on to look at the program, which is not there. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, killable, NULL) < 0 && errno == EFAULT)
		doctor_say(r, DOCTOR_OK,
			   "filter loaded, a call notified and answered, killable wait");
	else
		doctor_say(r, DOCTOR_OK,
			   "filter loaded, a call notified and answered; no killable wait (5.19)");
}

void doctor_landlock(const struct doctor_row *row, struct doctor_result *r)
{
	int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, SYS_LANDLOCK_CREATE_VERSION),
	    num = errno;
	struct err e;

	if (abi < 0 && num == EOPNOTSUPP) {
		doctor_say(r, DOCTOR_DEGRADED, "built into this kernel, and switched off at boot");
		doctor_fix(r, "add landlock to the kernel's command line: lsm=landlock,%s",
			   doctor_text("/sys/kernel/security/lsm", e.msg, sizeof(e.msg)));
		return;
	}
	if (abi < 2) {
		doctor_say(r, DOCTOR_DEGRADED,
			   abi == 1 ? "ABI 1 is too old to be of use" : "not there (%s)",
			   strerror(num));
		doctor_fix(
			r,
			"use a kernel from 5.19 on with CONFIG_SECURITY_LANDLOCK, and an outer filter that lets it through");
		return;
	}
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || locks_landlock(&abi, &e) < 0) {
		doctor_say(r, DOCTOR_MISSING, "ABI %d is offered and does not work: %s", abi,
			   e.msg);
		return;
	}
	if (abi >= 6)
		doctor_say(r, DOCTOR_OK, "ABI %d, with scopes for signals and abstract sockets",
			   abi);
	else
		doctor_say(
			r, DOCTOR_OK,
			"ABI %d, no scopes (6.12): namespaces alone hold signals and abstract sockets",
			abi);
}

void doctor_apparmor(const struct doctor_row *row, struct doctor_result *r)
{
	char on[16], label[256];

	if (strcmp(doctor_text("/sys/module/apparmor/parameters/enabled", on, sizeof(on)), "Y") !=
	    0) {
		doctor_say(r, DOCTOR_INFO,
			   "not in use here: nothing restricted, and no --apparmor");
		return;
	}
	if (userns_apparmor_restricts()) {
		doctor_say(r, DOCTOR_DEGRADED,
			   "restricts user namespaces, and no profile for cloche is loaded");
		doctor_cost(r, "no box can run: root's boxes too are made by an unprivileged id");
		doctor_fix(
			r,
			"sudo cloche doctor --fix    # installs an AppArmor profile for cloche only");
		return;
	}
	if (!doctor_text("/proc/self/attr/apparmor/current", label, sizeof(label))[0])
		doctor_text("/proc/self/attr/current", label, sizeof(label));
	doctor_say(r, DOCTOR_INFO, "on; cloche itself runs under \"%s\"", label);
}

/* Sets limits up as for a box that does not come, and takes them down again. */
static bool limits_hold(bool require, double cpus, struct limit_state ret[LIMIT_N], struct err *e)
{
	struct box_limits want = {
		.memory = 64 << 20,
		.pids = 64,
		.cpus = cpus,
		.output = BOX_LIMIT_NONE,
		.file_size = BOX_LIMIT_NONE,
		.open_files = 1024,
		.workspace_max = BOX_LIMIT_NONE,
		.shm = 1 << 20,
		.root = 64 << 20,
		.require = require,
	};
	static struct limits l;

	if (limits_open(&l, &want, e) < 0)
		return false;
	memcpy(ret, l.state, sizeof(l.state));
	limits_close(&l);
	return true;
}

/* What keeps the kernel from holding them, and what each kind of place has to be told. */
static void limits_fix(struct doctor_result *r, char why[200])
{
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) < 0) {
		limits_rung_probe(LIMITS_RUNG_CGROUP1, why, 200);
		doctor_fix(r, "run cloche where it may write cgroup v1 groups: as root");
		return;
	}
	limits_rung_probe(LIMITS_RUNG_CGROUP2, why, 200);
	if (access("/sys/fs/cgroup", W_OK) < 0 && errno == EROFS)
		doctor_fix(
			r,
			"docker run --cgroupns private --security-opt writable-cgroups=true ...    # Docker 28; other processes below the root group\n"
			"podman run --cgroupns private --security-opt unmask=/sys/fs/cgroup ...");
	else if (geteuid() != 0 && access("/run/systemd/system", F_OK) == 0 &&
		 !limits_rung_probe(LIMITS_RUNG_SCOPE, why, 200))
		doctor_fix(
			r,
			"sudo loginctl enable-linger %u    # a systemd manager of your own, which lends cloche groups\n"
			"in a service of systemd: Delegate=yes, and DelegateSubgroup=main where it runs more than cloche",
			(unsigned)geteuid());
	else
		doctor_fix(
			r,
			"in a service of systemd: Delegate=yes, and DelegateSubgroup=main where it runs more than cloche\n"
			"in a container: its processes in a group below the root of /sys/fs/cgroup\n"
			"or name a group that was delegated to you: CLOCHE_CGROUP=/sys/fs/cgroup/...");
}

void doctor_limits(const struct doctor_row *row, struct doctor_result *r)
{
	struct limit_state s[LIMIT_N];
	struct err e;
	char why[200];

	if (limits_hold(true, 1.0, s, &e)) {
		if (strcmp(s[LIMIT_MEMORY].rung, s[LIMIT_PIDS].rung) == 0 &&
		    strcmp(s[LIMIT_MEMORY].rung, s[LIMIT_CPUS].rung) == 0)
			doctor_say(r, DOCTOR_OK,
				   "memory, processes and cpu held by the kernel: rung %s",
				   s[LIMIT_MEMORY].rung);
		else
			doctor_say(r, DOCTOR_OK, "memory: %s, processes: %s, cpu: %s",
				   s[LIMIT_MEMORY].rung, s[LIMIT_PIDS].rung, s[LIMIT_CPUS].rung);
	} else if (limits_hold(true, 0, s, &e)) {
		doctor_say(r, DOCTOR_DEGRADED, "memory: %s, processes: %s, cpu: not held",
			   s[LIMIT_MEMORY].rung, s[LIMIT_PIDS].rung);
		doctor_cost(r, "--cpus is a wish: a box can undo it");
		doctor_fix(r, "mount the cpu controller where this user may write its groups");
	} else if (limits_hold(false, 0, s, &e)) {
		limits_fix(r, why);
		if (strcmp(s[LIMIT_MEMORY].rung, s[LIMIT_PIDS].rung) == 0)
			doctor_say(r, DOCTOR_DEGRADED,
				   "%s: memory and processes held by best effort; %s",
				   s[LIMIT_MEMORY].rung, why);
		else
			doctor_say(r, DOCTOR_DEGRADED, "memory: %s, processes: %s; %s",
				   s[LIMIT_MEMORY].rung, s[LIMIT_PIDS].rung, why);
	} else {
		doctor_say(r, DOCTOR_MISSING, "%s", e.msg);
	}
}

/* Runs `cloche run ... -- true` and keeps what it says. Returns its exit code. */
static int run_box(bool no_proc, char *said, size_t cap, double *ret_ms)
{
	char self[] = "/proc/self/exe", name[] = "cloche", run[] = "run", quiet[] = "--quiet",
	     image[] = "--image", host[] = "host", timeout[] = "--timeout", secs[] = "4",
	     proc[] = "--proc", none[] = "none", dashes[] = "--", command[] = "true";
	char *plain[] = { name, run, quiet, image, host, timeout, secs, dashes, command, NULL };
	char *bare[] = { name, run,  quiet, image,  host,    timeout,
			 secs, proc, none,  dashes, command, NULL };
	posix_spawn_file_actions_t acts;
	struct timespec from, to;
	int out_r, out_w, rc = 255;
	ssize_t n;
	pid_t pid;

	said[0] = '\0';
	if (fd_pipe(&out_r, &out_w) < 0)
		return rc;
	posix_spawn_file_actions_init(&acts);
	posix_spawn_file_actions_adddup2(&acts, out_w, 2);
	clock_gettime(CLOCK_MONOTONIC, &from);
	n = posix_spawn(&pid, self, &acts, NULL, no_proc ? bare : plain, environ);
	posix_spawn_file_actions_destroy(&acts);
	close(out_w);
	if (n != 0) {
		snprintf(said, cap, "can't start %s: %s", self, strerror((int)n));
	} else {
		n = fd_read_full(out_r, said, cap - 1);
		said[n > 0 ? n : 0] = '\0';
		said[strcspn(said, "\n")] = '\0';
		rc = doctor_wait(pid);
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	*ret_ms =
		(double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) / 1e6;
	close(out_r);
	return rc;
}

void doctor_box(const struct doctor_row *row, struct doctor_result *r)
{
	char said[512], again[512];
	double ms;
	int rc = run_box(false, said, sizeof(said), &ms);

	if (rc == 0) {
		doctor_say(r, DOCTOR_OK, "started, ran a command and ended in %.1f ms", ms);
		return;
	}
	if (run_box(true, again, sizeof(again), &ms) == 0) {
		doctor_say(r, DOCTOR_DEGRADED, "only with --proc none: %s",
			   said[0] ? said : "the usual box fails");
		doctor_cost(
			r,
			"no /proc in boxes: ps, top and some runtimes (JVM, Go's cpu count) see nothing");
		return;
	}
	doctor_say(r, DOCTOR_MISSING, "%s%s", said[0] ? said : "ended with exit code ",
		   said[0] ? "" : "other than 0");
}
