/* Attacks on process 1, which holds the box's life: read it, write it, slow it, kill it.
 *
 * `probe init [NAME...]` tries them from inside a box. `probe as-init [NAME...]` is the control: it IS process 1 of a pid namespace
 * (started below unshare), ordinary and dumpable, and runs each attack from a child; those must get through. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

/* Opening is not enough for some of these: the check of /proc/1/mem comes at open, that of environ at read. */
static int look(const char *path)
{
	char buf[64];
	int fd = open(path, O_RDONLY);
	if (fd < 0)
		return errno;
	ssize_t n = read(fd, buf, sizeof(buf));
	int err = n < 0 ? errno : 0;
	close(fd);
	/* mem at address 0 is EIO when one may read it */
	return err == EIO || err == EISDIR ? 0 : err;
}
static int follow(const char *path)
{
	char buf[256];
	return ERR(readlink(path, buf, sizeof(buf)));
}

#define LOOK(name) static int l_##name(void) { return look("/proc/1/" #name); }
#define FOLLOW(name, path) static int f_##name(void) { return follow("/proc/1/" path); }
LOOK(mem) LOOK(environ) LOOK(maps) LOOK(smaps) LOOK(pagemap) LOOK(stack) LOOK(syscall) LOOK(auxv) LOOK(io)
LOOK(cmdline) LOOK(status) LOOK(mountinfo) LOOK(mounts) LOOK(stat) LOOK(comm) LOOK(cgroup) LOOK(fdinfo)
FOLLOW(root, "root") FOLLOW(cwd, "cwd") FOLLOW(exe, "exe")
FOLLOW(ns_mnt, "ns/mnt") FOLLOW(ns_user, "ns/user") FOLLOW(ns_pid, "ns/pid") FOLLOW(ns_net, "ns/net")

static int l_fd(void) { return ERR(open("/proc/1/fd", O_RDONLY | O_DIRECTORY)); }
static int l_task(void) { return ERR(open("/proc/1/task/1/maps", O_RDONLY)); }
static int w_mem(void) { return ERR(open("/proc/1/mem", O_WRONLY)); }
static int w_exe(void)
{
	/* A running program can't be opened for writing; ETXTBSY says that everything else was granted. */
	int err = ERR(open("/proc/1/exe", O_WRONLY));
	return err == ETXTBSY ? 0 : err;
}
static int w_oom(void)
{
	int fd = open("/proc/1/oom_score_adj", O_WRONLY);
	return fd < 0 ? errno : ERR(write(fd, "1000", 4));
}
static int a_enter(void) { return ERR(chdir("/proc/1/root/")); }
static int a_ns_open(void) { return ERR(open("/proc/1/ns/mnt", O_RDONLY)); }

static int a_ptrace(void) { return ERR(ptrace(PTRACE_SEIZE, 1, NULL, NULL)); }
static int a_readv(void)
{
	static char word[8];
	char here_word[8];
	struct iovec here = { here_word, 8 }, there = { word, 8 };
	return ERR(syscall(SYS_process_vm_readv, 1, &here, 1, &there, 1, 0));
}
static int a_getfd(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
	return pidfd < 0 ? errno : ERR(syscall(SYS_pidfd_getfd, pidfd, 0, 0));
}
static int a_kcmp(void) { return ERR(syscall(SYS_kcmp, 1, getpid(), 2 /* files */, 0, 0)); }
static int a_madvise(void)
{
	static char page[8192];
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
	struct iovec v = { (void *)(((uintptr_t)page + 4095) & ~4095ul), 4096 };
	return pidfd < 0 ? errno : ERR(syscall(SYS_process_madvise, pidfd, &v, 1, 20 /* cold */, 0));
}
static int a_move_pages(void) { return ERR(syscall(SYS_migrate_pages, 1, 0, NULL, NULL)); }

static int a_prlimit_set(void)
{
	struct rlimit none = { 0, 0 };
	return ERR(syscall(SYS_prlimit64, 1, RLIMIT_CPU, &none, NULL));
}
static int a_prlimit_get(void)
{
	struct rlimit now;
	return ERR(syscall(SYS_prlimit64, 1, RLIMIT_CPU, NULL, &now));
}
static int a_prlimit_self(void)
{
	struct rlimit now;
	return ERR(syscall(SYS_prlimit64, 0, RLIMIT_CPU, NULL, &now));
}
static int a_priority(void) { return ERR(syscall(SYS_setpriority, PRIO_PROCESS, 1, 19)); }
static int a_priority_group(void) { return ERR(syscall(SYS_setpriority, PRIO_PGRP, 1, 19)); }
static int a_priority_user(void) { return ERR(syscall(SYS_setpriority, PRIO_USER, getuid(), 19)); }
static int a_priority_user0(void) { return ERR(syscall(SYS_setpriority, PRIO_USER, 0, 19)); }
static int a_priority_self(void) { return ERR(syscall(SYS_setpriority, PRIO_PROCESS, 0, 19)); }
static int a_affinity(void)
{
	unsigned long mask[16] = { 1 };
	return ERR(syscall(SYS_sched_setaffinity, 1, sizeof(mask), mask));
}
static int a_scheduler(void)
{
	int prio = 0;
	return ERR(syscall(SYS_sched_setscheduler, 1, 5 /* idle */, &prio));
}
static int a_schedparam(void)
{
	int prio = 0;
	return ERR(syscall(SYS_sched_setparam, 1, &prio));
}
static int a_schedattr(void)
{
	uint32_t attr[12] = { 48, 3 /* batch */, 0, 0, 19 };
	return ERR(syscall(SYS_sched_setattr, 1, attr, 0));
}
static int a_ioprio(void) { return ERR(syscall(SYS_ioprio_set, 1, 1, 3 << 13)); }
static int a_ioprio_user(void) { return ERR(syscall(SYS_ioprio_set, 3, getuid(), 3 << 13)); }

#define KILL(sig) static int k_##sig(void) { return ERR(kill(1, SIG##sig)); }
KILL(TERM) KILL(STOP) KILL(KILL) KILL(INT) KILL(HUP) KILL(USR1) KILL(SEGV) KILL(CHLD) KILL(QUIT) KILL(TSTP) KILL(PIPE)
static int k_tgkill(void) { return ERR(syscall(SYS_tgkill, 1, 1, SIGKILL)); }
static int k_queue(void)
{
	siginfo_t info;
	memset(&info, 0, sizeof(info));
	info.si_signo = SIGKILL;
	info.si_code = -1;
	return ERR(syscall(SYS_rt_sigqueueinfo, 1, SIGKILL, &info));
}
static int k_pidfd(void)
{
	int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
	return pidfd < 0 ? errno : ERR(syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0));
}
static int k_realtime(void) { return ERR(kill(1, 34)); }
static int k_group(void) { return ERR(syscall(SYS_setpgid, 1, 0)); }

#define ROW(prefix, name) { #name, prefix##_##name }
#define K(sig) { "kill:" #sig, k_##sig }
static const struct attack init_table[] = {
	ROW(l, mem), ROW(l, environ), ROW(l, maps), ROW(l, smaps), ROW(l, pagemap), ROW(l, stack), ROW(l, syscall),
	ROW(l, auxv), ROW(l, io), ROW(l, cmdline), ROW(l, status), ROW(l, mountinfo), ROW(l, mounts), ROW(l, stat),
	ROW(l, comm), ROW(l, cgroup), ROW(l, fdinfo), ROW(l, fd), ROW(l, task),
	ROW(f, root), ROW(f, cwd), ROW(f, exe), ROW(f, ns_mnt), ROW(f, ns_user), ROW(f, ns_pid), ROW(f, ns_net),
	{ "mem:write", w_mem }, { "exe:write", w_exe }, { "oom:write", w_oom }, { "root:enter", a_enter },
	{ "ns:open", a_ns_open },
	{ "ptrace", a_ptrace }, { "process_vm_readv", a_readv }, { "pidfd_getfd", a_getfd }, { "kcmp", a_kcmp },
	{ "process_madvise", a_madvise }, { "migrate_pages", a_move_pages },
	{ "prlimit:self", a_prlimit_self }, { "priority:self", a_priority_self },
	{ "prlimit:get", a_prlimit_get }, { "prlimit:cpu", a_prlimit_set },
	{ "priority", a_priority }, { "priority:group", a_priority_group }, { "priority:user", a_priority_user },
	{ "priority:user0", a_priority_user0 }, { "affinity", a_affinity }, { "scheduler", a_scheduler },
	{ "schedparam", a_schedparam }, { "schedattr", a_schedattr }, { "ioprio", a_ioprio }, { "ioprio:user", a_ioprio_user },
	K(TERM), K(STOP), K(KILL), K(INT), K(HUP), K(USR1), K(SEGV), K(CHLD), K(QUIT), K(TSTP), K(PIPE),
	{ "kill:tgkill", k_tgkill }, { "kill:queue", k_queue }, { "kill:pidfd", k_pidfd }, { "kill:realtime", k_realtime },
	{ "setpgid", k_group },
};

int cmd_init(int argc, char **argv) { return attempt_table(init_table, COUNT(init_table), argc, argv); }

int cmd_as_init(int argc, char **argv)
{
	if (getpid() != 1) {
		fprintf(stderr, "probe: as-init must be process 1\n");
		return 2;
	}
	pid_t pid = fork();
	if (pid == 0)
		_exit(cmd_init(argc, argv));
	int status;
	while (wait(&status) != pid)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
