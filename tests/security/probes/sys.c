/* System calls as attacks. Two tables: those that a box refuses and survives, and those that end it.
 *
 * Arguments are chosen so that a call that gets through does no harm to the machine it runs on: a bad magic for reboot, a bad flag
 * for kexec, names that don't exist for swap and accounting, an invalid time for the clock. Where a real success is harmless in a
 * mount namespace of the control's own (mount, fsopen, open_tree), the call is a real one. */
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/mount.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#define NR_STATMOUNT 457
#define NR_LISTMOUNT 458
#define NR_OPEN_TREE_ATTR 467

/* -- refused, the box goes on -- */

static int a_getpid(void) { return ERR(syscall(SYS_getpid)); }

static int a_fork(void)
{
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	return pid < 0 ? errno : waitpid(pid, NULL, 0) == pid ? 0 : errno;
}

static int unshare_flag(unsigned long flag) { return ERR(syscall(SYS_unshare, flag)); }

/* After a clone, in both: the child ends, the parent says how it went. */
static int cloned(long pid)
{
	if (pid == 0)
		_exit(0);
	if (pid < 0)
		return errno;
	waitpid((pid_t)pid, NULL, 0);
	return 0;
}

/* The raw call: the C library's clone() would need a stack, and the kernel looks at nothing but the flags here. */
static int clone_flag(unsigned long flag)
{
	long pid = syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0);
	return cloned(pid);
}

#define FLAG(name, flag) \
	static int a_unshare_##name(void) { return unshare_flag(flag); } \
	static int a_clone_##name(void) { return clone_flag(flag); } \
	static int a_unshare_user_##name(void) { return unshare_flag(CLONE_NEWUSER | (flag)); }
FLAG(mnt, CLONE_NEWNS)
FLAG(cgroup, CLONE_NEWCGROUP)
FLAG(uts, CLONE_NEWUTS)
FLAG(ipc, CLONE_NEWIPC)
FLAG(user, CLONE_NEWUSER)
FLAG(pid, CLONE_NEWPID)
FLAG(net, CLONE_NEWNET)
#define FLAG_ROWS(name) \
	{ "unshare:" #name, a_unshare_##name }, { "clone:" #name, a_clone_##name }, \
	{ "unshare:user+" #name, a_unshare_user_##name }

static int a_unshare_time(void) { return unshare_flag(CLONE_NEWTIME); }
static int a_unshare_user_time(void) { return unshare_flag(CLONE_NEWUSER | CLONE_NEWTIME); }
/* Bits above 32 are not looked at by the kernel, so an exact 64-bit comparison in a filter would be dodged. */
static int a_clone_user_high(void) { return clone_flag(CLONE_NEWUSER | (1ul << 40)); }
static int a_unshare_user_high(void) { return unshare_flag(CLONE_NEWUSER | (1ul << 40)); }

static int clone3_flag(uint64_t flag)
{
	uint64_t args[11] = { flag, 0, 0, 0, SIGCHLD };
	long pid = syscall(SYS_clone3, args, 64);
	return cloned(pid);
}
static int a_clone3(void) { return clone3_flag(0); }
static int a_clone3_user(void) { return clone3_flag(CLONE_NEWUSER); }

static int a_io_uring(void)
{
	char params[120] = { 0 };
	return ERR(syscall(SYS_io_uring_setup, 1, params));
}
static int a_io_uring_enter(void) { return ERR(syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0)); }
static int a_io_uring_register(void) { return ERR(syscall(SYS_io_uring_register, -1, 0, NULL, 0)); }
/* KEYCTL_GET_KEYRING_ID of the session keyring, then of the user's: both would be the caller's. */
static int a_keyctl_session(void) { return ERR(syscall(SYS_keyctl, 0, -3, 1)); }
static int a_keyctl_user(void) { return ERR(syscall(SYS_keyctl, 0, -4, 1)); }
static int a_add_key(void) { return ERR(syscall(SYS_add_key, "user", "cloche-probe", "x", 1, -2)); }
static int a_request_key(void) { return ERR(syscall(SYS_request_key, "user", "cloche-probe", NULL, 0)); }
static int a_userfaultfd(void) { return ERR(syscall(SYS_userfaultfd, O_NONBLOCK | 1)); }
static int a_perf(void)
{
	uint32_t attr[32] = { 1 /* software */, sizeof(attr) };
	attr[2] = 0; /* cpu clock */
	attr[10] = 1u << 5 | 1u << 6; /* not the kernel, not the hypervisor */
	return ERR(syscall(SYS_perf_event_open, attr, 0, -1, -1, 0));
}

struct handle {
	uint32_t bytes;
	int32_t type;
	unsigned char data[128];
};
static int a_name_to_handle(void)
{
	struct handle h = { .bytes = sizeof(h.data) };
	int id;
	return ERR(syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &h, &id, 0));
}
/* The old docker breakout: a made-up handle (inode 2 is a file system's root) opened by the mount behind a descriptor. */
static int a_open_by_handle(void)
{
	struct handle h = { .bytes = 8, .type = 1, .data = { 2 } };
	int id, fd = open("/etc", O_RDONLY | O_DIRECTORY);
	struct handle real = { .bytes = sizeof(real.data) };
	if (syscall(SYS_name_to_handle_at, fd, "", &real, &id, AT_EMPTY_PATH) == 0)
		h = real;
	return ERR(syscall(SYS_open_by_handle_at, fd, &h, O_RDONLY));
}

static int a_ptrace_traceme(void) { return ERR(ptrace(PTRACE_TRACEME, 0, NULL, NULL)); }
static int on_child(int (*act)(pid_t pid))
{
	pid_t pid = fork();
	if (pid == 0) {
		pause();
		_exit(0);
	}
	int err = pid < 0 ? errno : act(pid);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return err;
}
static int seize(pid_t pid) { return ERR(ptrace(PTRACE_SEIZE, pid, NULL, NULL)); }
static int a_ptrace_child(void) { return on_child(seize); }
static char shared_word[8] = "word";
static int peek(pid_t pid)
{
	char word[8];
	struct iovec here = { word, sizeof(word) }, there = { shared_word, sizeof(shared_word) };
	return ERR(syscall(SYS_process_vm_readv, pid, &here, 1, &there, 1, 0));
}
static int poke(pid_t pid)
{
	char word[8] = "other";
	struct iovec here = { word, sizeof(word) }, there = { shared_word, sizeof(shared_word) };
	return ERR(syscall(SYS_process_vm_writev, pid, &here, 1, &there, 1, 0));
}
static int a_vm_readv(void) { return on_child(peek); }
static int a_vm_writev(void) { return on_child(poke); }
static int take(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? EIO : ERR(syscall(SYS_pidfd_getfd, fd, 0, 0));
}
static int a_pidfd_getfd(void) { return on_child(take); }

static int a_personality(void) { return ERR(syscall(SYS_personality, ADDR_NO_RANDOMIZE)); }
static int a_personality_exec(void) { return ERR(syscall(SYS_personality, READ_IMPLIES_EXEC)); }
static int a_personality_query(void) { return ERR(syscall(SYS_personality, 0xffffffffu)); }

/* i386 calls of a 64-bit process. Their numbers mean other calls than ours (21 is mount, 20 getpid), so a filter that does not look
 * at the architecture first is no filter. */
static int int80(long nr)
{
#ifdef __x86_64__
	long ret;
	__asm__ volatile("int $0x80" : "=a"(ret) : "a"(nr), "b"(0L), "c"(0L), "d"(0L), "S"(0L), "D"(0L)
			 : "memory", "r8", "r9", "r10", "r11");
	return ret < 0 && ret > -4096 ? (int)-ret : 0;
#else
	(void)nr;
	return ENOSYS;
#endif
}
static int a_i386_getpid(void) { return int80(20); }
static int a_i386_mount(void) { return int80(21); }
static int a_x32_getpid(void) { return ERR(syscall(0x40000000 | SYS_getpid)); }
static int a_x32_mount(void) { return ERR(syscall(0x40000000 | SYS_mount, 0, 0, 0, 0, 0)); }

static int a_chroot(void) { return ERR(chroot("/")); }
static int a_syslog(void) { return ERR(syscall(SYS_syslog, 10, NULL, 0)); }
static int a_sethostname(void) { return ERR(syscall(SYS_sethostname, "pwned", 5)); }
static int a_setdomainname(void) { return ERR(syscall(SYS_setdomainname, "pwned", 5)); }
static int a_clock_settime(void)
{
	struct timespec bad = { 0, -1 };
	return ERR(syscall(SYS_clock_settime, CLOCK_REALTIME, &bad));
}
static int a_settimeofday(void)
{
	long bad[2] = { 0, -1 };
	return ERR(syscall(SYS_settimeofday, bad, NULL));
}
static int a_fanotify(void) { return ERR(syscall(SYS_fanotify_init, 0, O_RDONLY)); }
static int a_vhangup(void) { return setsid() < 0 ? errno : ERR(syscall(SYS_vhangup)); }
static int a_capset(void)
{
	/* Asks for every capability; a process that holds them all gets them. */
	uint32_t head[2] = { 0x20080522, 0 }, data[6], want[6];
	if (syscall(SYS_capget, head, data) < 0)
		return errno;
	memcpy(want, data, sizeof(want));
	want[0] = want[1] = 1u << 21; /* CAP_SYS_ADMIN */
	return ERR(syscall(SYS_capset, head, want));
}
static int a_setuid0(void) { return ERR(syscall(SYS_setuid, 0)); }
static int a_setgid0(void) { return ERR(syscall(SYS_setgid, 0)); }
static int a_setgroups(void)
{
	unsigned gid = 0;
	return ERR(syscall(SYS_setgroups, 1, &gid));
}
static int a_seccomp_listener(void)
{
	/* A listener of its own above ours could answer for our listener's calls. */
	uint64_t code[1] = { 0x7fff000000000006 };
	struct { uint16_t len; void *p; } prog = { 1, code };
	return ERR(syscall(SYS_seccomp, 1, 8, &prog));
}
static int a_bad_number(void) { return ERR(syscall(511)); }
static int a_huge_number(void) { return ERR(syscall(0x7fffffff)); }

#ifdef __x86_64__
static int a_iopl(void) { return ERR(syscall(SYS_iopl, 3)); }
static int a_ioperm(void) { return ERR(syscall(SYS_ioperm, 0x80, 1, 1)); }
static int a_modify_ldt_read(void)
{
	char ldt[16];
	return ERR(syscall(SYS_modify_ldt, 0, ldt, sizeof(ldt)));
}
#endif

static const struct attack sys_table[] = {
	{ "getpid", a_getpid }, { "fork", a_fork }, { "personality-query", a_personality_query },
	FLAG_ROWS(mnt), FLAG_ROWS(cgroup), FLAG_ROWS(uts), FLAG_ROWS(ipc), FLAG_ROWS(user), FLAG_ROWS(pid),
	FLAG_ROWS(net), { "unshare:time", a_unshare_time }, { "unshare:user+time", a_unshare_user_time },
	{ "clone:user-high-bits", a_clone_user_high }, { "unshare:user-high-bits", a_unshare_user_high },
	{ "clone3", a_clone3 }, { "clone3:user", a_clone3_user },
	{ "io_uring_setup", a_io_uring }, { "io_uring_enter", a_io_uring_enter }, { "io_uring_register", a_io_uring_register },
	{ "keyctl:session", a_keyctl_session }, { "keyctl:user", a_keyctl_user },
	{ "add_key", a_add_key }, { "request_key", a_request_key }, { "userfaultfd", a_userfaultfd },
	{ "perf_event_open", a_perf }, { "name_to_handle_at", a_name_to_handle }, { "open_by_handle_at", a_open_by_handle },
	{ "ptrace:traceme", a_ptrace_traceme }, { "ptrace:child", a_ptrace_child },
	{ "process_vm_readv:child", a_vm_readv }, { "process_vm_writev:child", a_vm_writev },
	{ "pidfd_getfd:child", a_pidfd_getfd },
	{ "personality:no-randomize", a_personality }, { "personality:read-implies-exec", a_personality_exec },
	{ "i386:getpid", a_i386_getpid }, { "i386:mount", a_i386_mount },
	{ "x32:getpid", a_x32_getpid }, { "x32:mount", a_x32_mount },
	{ "chroot", a_chroot }, { "syslog", a_syslog }, { "sethostname", a_sethostname }, { "setdomainname", a_setdomainname },
	{ "clock_settime", a_clock_settime }, { "settimeofday", a_settimeofday }, { "fanotify_init", a_fanotify },
	{ "vhangup", a_vhangup }, { "capset", a_capset }, { "setuid:0", a_setuid0 }, { "setgid:0", a_setgid0 },
	{ "setgroups", a_setgroups }, { "seccomp:listener", a_seccomp_listener },
	{ "number:511", a_bad_number }, { "number:huge", a_huge_number },
#ifdef __x86_64__
	{ "iopl", a_iopl }, { "ioperm", a_ioperm }, { "modify_ldt:read", a_modify_ldt_read },
#endif
};

int cmd_sys(int argc, char **argv) { return attempt_table(sys_table, COUNT(sys_table), argc, argv); }

/* flood N: as many recorded denials as cloche will bear */
int cmd_flood(int argc, char **argv)
{
	unsigned refused = 0;

	for (int i = 0; argc > 1 && i < atoi(argv[1]); i++)
		refused += unshare_flag(CLONE_NEWUSER) == EPERM;
	printf("flood ok %u\n", refused);
	return 0;
}

/* denials THREADS N DIR: N refused calls of all kinds from each of many threads, under names and to paths that the threads make up */
static struct {
	int n;
	const char *dir;
} denials;

static void *deny_thread(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg * 2654435761u + 1, refused = 0;

	for (int i = 0; i < denials.n; i++) {
		struct sockaddr_un sa = { .sun_family = AF_UNIX };
		char name[16];
		long r;

		for (size_t k = 0; k < sizeof(name) - 1; k++)
			name[k] = (char)(rand_r(&seed) % 255 + 1);
		name[sizeof(name) - 1] = '\0';
		syscall(SYS_prctl, PR_SET_NAME, name, 0, 0, 0);
		switch (rand_r(&seed) % 6) {
		case 0:
			r = syscall(SYS_ptrace, PTRACE_SEIZE, getpid(), 0, 0);
			break;
		case 1:
			r = syscall(SYS_unshare, CLONE_NEWUSER);
			break;
		case 2:
			r = syscall(SYS_chroot, "/");
			break;
		case 3:
			r = syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0);
			break;
		case 4:
			r = syscall(SYS_sethostname, name, 3);
			break;
		default:
			/* the same socket under a new name each time */
			snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%.*s", denials.dir, rand_r(&seed) % 40,
				 "././././././././././././././././././././");
			snprintf(sa.sun_path + strlen(sa.sun_path), 10, "/stream");
			int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
			r = connect(fd, (void *)&sa, sizeof(sa));
			close(fd);
		}
		refused += r < 0 && errno == EPERM;
	}
	return (void *)(uintptr_t)refused;
}

int cmd_denials(int argc, char **argv)
{
	pthread_t threads[1024];
	unsigned long refused = 0;
	int n = argc > 3 ? atoi(argv[1]) : 0;
	void *one;

	if (n < 1 || n > 1024)
		return 2;
	denials.n = atoi(argv[2]);
	denials.dir = argv[3];
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, deny_thread, (void *)(uintptr_t)i) != 0)
			return 3;
	for (int i = 0; i < n; i++) {
		pthread_join(threads[i], &one);
		refused += (unsigned long)(uintptr_t)one;
	}
	printf("refused %lu\n", refused);
	return 0;
}

/* -- the ending set: names are the system calls' own, the outcome must repeat them -- */

static int e_mount(void) { return ERR(syscall(SYS_mount, "probe", "/tmp", "tmpfs", 0, NULL)); }
static int e_umount2(void) { return ERR(syscall(SYS_umount2, "/nonexistent", 0)); }
static int e_pivot_root(void) { return ERR(syscall(SYS_pivot_root, "/nonexistent", "/")); }
static int e_open_tree(void) { return ERR(syscall(SYS_open_tree, AT_FDCWD, "/tmp", OPEN_TREE_CLONE)); }
static int e_move_mount(void) { return ERR(syscall(SYS_move_mount, -1, "", -1, "", MOVE_MOUNT_F_EMPTY_PATH)); }
static int e_fsopen(void) { return ERR(syscall(SYS_fsopen, "tmpfs", 0)); }
static int e_fsconfig(void) { return ERR(syscall(SYS_fsconfig, -1, 6, NULL, NULL, 0)); }
static int e_fsmount(void) { return ERR(syscall(SYS_fsmount, -1, 0, 0)); }
static int e_fspick(void) { return ERR(syscall(SYS_fspick, AT_FDCWD, "/", 0)); }
static int e_mount_setattr(void)
{
	uint64_t attr[4] = { 1 /* read-only */ };
	return ERR(syscall(SYS_mount_setattr, AT_FDCWD, "/nonexistent", 0, attr, sizeof(attr)));
}
static int e_open_tree_attr(void)
{
	uint64_t attr[4] = { 1 };
	return ERR(syscall(NR_OPEN_TREE_ATTR, AT_FDCWD, "/tmp", OPEN_TREE_CLONE, attr, sizeof(attr)));
}
static int e_setns(void)
{
	int fd = open("/proc/self/ns/uts", O_RDONLY);
	return ERR(syscall(SYS_setns, fd, 0));
}
static int e_bpf(void)
{
	union bpf_attr attr;
	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = attr.value_size = 4;
	attr.max_entries = 1;
	return ERR(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr)));
}
static int e_kexec_load(void) { return ERR(syscall(SYS_kexec_load, 0, 0, NULL, 0xffff)); }
static int e_kexec_file_load(void) { return ERR(syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0xffff)); }
static int e_init_module(void) { return ERR(syscall(SYS_init_module, NULL, 0, "")); }
static int e_finit_module(void) { return ERR(syscall(SYS_finit_module, -1, "", 0)); }
static int e_delete_module(void) { return ERR(syscall(SYS_delete_module, "cloche_nonesuch", O_NONBLOCK)); }
static int e_reboot(void) { return ERR(syscall(SYS_reboot, 0, 0, 0, NULL)); }
static int e_swapon(void) { return ERR(syscall(SYS_swapon, "/nonexistent", 0)); }
static int e_swapoff(void) { return ERR(syscall(SYS_swapoff, "/nonexistent")); }
static int e_quotactl(void) { return ERR(syscall(SYS_quotactl, 0x80000400, "/nonexistent", 0, NULL)); }
static int e_quotactl_fd(void) { return ERR(syscall(SYS_quotactl_fd, -1, 0x80000400, 0, NULL)); }
static int e_acct(void) { return ERR(syscall(SYS_acct, "/nonexistent")); }
static int e_statmount(void)
{
	uint64_t req[3] = { 24, 1, 1 };
	char buf[512];
	return ERR(syscall(NR_STATMOUNT, req, buf, sizeof(buf), 0));
}
static int e_listmount(void)
{
	uint64_t req[3] = { 24, UINT64_MAX, 0 }, ids[64];
	return ERR(syscall(NR_LISTMOUNT, req, ids, 64, 0));
}

static const struct attack end_table[] = {
	{ "mount", e_mount }, { "umount2", e_umount2 }, { "pivot_root", e_pivot_root }, { "open_tree", e_open_tree },
	{ "move_mount", e_move_mount }, { "fsopen", e_fsopen }, { "fsconfig", e_fsconfig }, { "fsmount", e_fsmount },
	{ "fspick", e_fspick }, { "mount_setattr", e_mount_setattr }, { "open_tree_attr", e_open_tree_attr },
	{ "setns", e_setns }, { "bpf", e_bpf }, { "kexec_load", e_kexec_load }, { "kexec_file_load", e_kexec_file_load },
	{ "init_module", e_init_module }, { "finit_module", e_finit_module }, { "delete_module", e_delete_module },
	{ "reboot", e_reboot }, { "swapon", e_swapon }, { "swapoff", e_swapoff }, { "quotactl", e_quotactl },
	{ "quotactl_fd", e_quotactl_fd }, { "acct", e_acct },
	{ "statmount", e_statmount }, { "listmount", e_listmount },
};

int cmd_end(int argc, char **argv) { return attempt_table(end_table, COUNT(end_table), argc, argv); }
