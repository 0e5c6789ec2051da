/* Locking in: Landlock by the ABI that the kernel has, seccomp by an allowlist.
 *
 * How: the filter is a list of the calls that are allowed, some of them with a check of one
 * argument; any other is answered with ENOSYS, as by a kernel without it, so that a C library that
 * is newer than this list goes its older way. The numbers are the compiler's own (SYS_...), the
 * programs run only on what they were compiled for.
 *
 * What may go wrong: a program of another architecture or of x32 has other numbers (the process
 * ends), flags behind a pointer can't be looked at (clone3 is not on the list), a Landlock that is
 * too old denies every link and rename (it is refused by name). */
#include "image/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no list of system calls for this architecture"
#endif

/* Which calls are allowed, and with what in which argument. */
enum check {
	ANY,
	NO_BITS, /* none of these bits */
	HAS_BITS,
	NOT,	/* not this value */
	IS,	/* this value */
	FAMILY, /* a socket of the internet, of the machine, or netlink's */
};
struct call {
	int nr;
	enum check check;
	unsigned arg;
	uint32_t value;
};

#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | \
	 CLONE_NEWCGROUP | CLONE_PTRACE | CLONE_UNTRACED)

static const struct call unpack_calls[] = {
	{ SYS_read },
	{ SYS_write },
	{ SYS_readv },
	{ SYS_writev },
	{ SYS_pread64 },
	{ SYS_pwrite64 },
	{ SYS_lseek },
	{ SYS_close },
	{ SYS_fstat },
	{ SYS_newfstatat },
	{ SYS_statx },
	{ SYS_openat },
	{ SYS_openat2 },
	{ SYS_mkdirat },
	{ SYS_mknodat },
	{ SYS_symlinkat },
	{ SYS_linkat },
	{ SYS_unlinkat },
	{ SYS_renameat2 },
	{ SYS_readlinkat },
	{ SYS_fchmod },
	{ SYS_fchmodat },
	{ SYS_fchown },
	{ SYS_fchownat },
	{ SYS_utimensat },
	{ SYS_ftruncate },
	{ SYS_fallocate },
	{ SYS_fsetxattr },
	{ SYS_fgetxattr },
	{ SYS_flistxattr },
	{ SYS_getdents64 },
	{ SYS_copy_file_range },
	{ SYS_umask },
	{ SYS_fcntl },
	{ SYS_dup },
	{ SYS_mmap, NO_BITS, 2, PROT_EXEC },
	{ SYS_mprotect, NO_BITS, 2, PROT_EXEC },
	{ SYS_munmap },
	{ SYS_mremap },
	{ SYS_madvise },
	{ SYS_brk },
	{ SYS_futex },
	{ SYS_clock_gettime },
	{ SYS_getrandom },
	{ SYS_getpid },
	{ SYS_gettid },
	{ SYS_sigaltstack },
	{ SYS_rt_sigaction },
	{ SYS_rt_sigprocmask },
	{ SYS_rt_sigreturn },
	{ SYS_sigaltstack },
	{ SYS_restart_syscall },
	{ SYS_exit },
	{ SYS_exit_group },
#ifdef SYS_open
	{ SYS_open },
	{ SYS_stat },
	{ SYS_lstat },
#endif
};

static const struct call store_calls[] = {
	/* Orders to the process that unpacks, and its answers. */
	{ SYS_sendmsg },
	{ SYS_recvmsg },
	{ SYS_pipe2 },
	{ SYS_ppoll },
	{ SYS_wait4 },
	/* How wide the terminal is. TIOCSTI would type on it. */
	{ SYS_ioctl, NOT, 1, TIOCSTI },
	{ SYS_getuid },
	{ SYS_geteuid },
	{ SYS_getgid },
	{ SYS_getegid },
	{ SYS_gettimeofday },
	{ SYS_nanosleep },
	{ SYS_clock_nanosleep },
	/* Names of its own. */
	{ SYS_flock },
	{ SYS_fsync },
	{ SYS_fdatasync },
	{ SYS_sync_file_range },
	{ SYS_syncfs },
	{ SYS_renameat },
	{ SYS_faccessat },
	{ SYS_faccessat2 },
	{ SYS_getcwd },
	{ SYS_fchdir },
	{ SYS_chdir },
	{ SYS_statfs },
	{ SYS_fstatfs },
	{ SYS_fremovexattr },
#ifdef SYS_open
	{ SYS_access },
	{ SYS_readlink },
	{ SYS_mkdir },
	{ SYS_rmdir },
	{ SYS_unlink },
	{ SYS_rename },
	{ SYS_link },
	{ SYS_symlink },
	{ SYS_pipe },
	{ SYS_poll },
	{ SYS_time },
#endif
};

static const struct call fetch_calls[] = {
	/* What the above leave out of memory: a library that is loaded late (name services). */
	{ SYS_mmap },
	{ SYS_mprotect },
	/* Sockets. */
	{ SYS_socket, FAMILY, 0, 0 },
	{ SYS_socketpair, IS, 0, AF_UNIX },
	{ SYS_connect },
	{ SYS_bind },
	{ SYS_sendto },
	{ SYS_recvfrom },
	{ SYS_sendmmsg },
	{ SYS_recvmmsg },
	{ SYS_getsockname },
	{ SYS_getpeername },
	{ SYS_setsockopt },
	{ SYS_getsockopt },
	{ SYS_shutdown },
	{ SYS_pselect6 },
	{ SYS_epoll_create1 },
	{ SYS_epoll_ctl },
	{ SYS_epoll_pwait },
	{ SYS_eventfd2 },
	/* Threads (name services are asked by one). */
	{ SYS_clone, HAS_BITS, 0, CLONE_THREAD },
	{ SYS_set_robust_list },
	{ SYS_set_tid_address },
#ifdef SYS_rseq
	{ SYS_rseq },
#endif
	{ SYS_getppid },
	{ SYS_rt_sigtimedwait },
	{ SYS_prlimit64, IS, 0, 0 },
	{ SYS_sched_yield },
	{ SYS_sched_getaffinity },
	{ SYS_membarrier },
	/* Time. */
	{ SYS_clock_getres },
	{ SYS_uname },
	{ SYS_sysinfo },
	{ SYS_dup3 },
#ifdef SYS_open
	{ SYS_dup2 },
	{ SYS_select },
	{ SYS_epoll_wait },
#endif
};

/* Children that are copies, and what they lock themselves in with. */
static const struct call serve_calls[] = {
	{ SYS_clone, NO_BITS, 0, NAMESPACES },
	{ SYS_set_robust_list },
	{ SYS_recvmsg },
	{ SYS_sendmsg }, /* once, that it is ready */
	{ SYS_wait4 },
	{ SYS_getppid },
	{ SYS_prctl },
	{ SYS_prlimit64, IS, 0, 0 },
	{ SYS_landlock_create_ruleset },
	{ SYS_landlock_add_rule },
	{ SYS_landlock_restrict_self },
	{ SYS_close_range },
	{ SYS_pipe2 },
	{ SYS_pidfd_open },
	{ SYS_pidfd_send_signal },
#ifdef SYS_rseq
	{ SYS_rseq },
#endif
};

#define CALLS_MAX 256
#define CODE_MAX (CALLS_MAX * 8)

struct code {
	struct sock_filter op[CODE_MAX];
	unsigned short n;
};

static void op(struct code *c, uint16_t code, uint32_t k, uint8_t jt, uint8_t jf)
{
	if (c->n < CODE_MAX)
		c->op[c->n++] = (struct sock_filter){ code, jt, jf, k };
}

#define LOAD(c, field) op(c, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field), 0, 0)
#define IF_EQUAL (BPF_JMP | BPF_JEQ | BPF_K)
#define IF_BITS (BPF_JMP | BPF_JSET | BPF_K)
#define RETURN(c, what) op(c, BPF_RET | BPF_K, what, 0, 0)
#define REFUSE (SECCOMP_RET_ERRNO | ENOSYS)

/* The call's number is in the register, and still is behind the block. Flags, families and requests
 * are 32 bits wide for the kernel, too. */
static void allow(struct code *c, const struct call *call)
{
	if (call->check == ANY) {
		op(c, IF_EQUAL, (uint32_t)call->nr, 0, 1);
		RETURN(c, SECCOMP_RET_ALLOW);
		return;
	}
	op(c, IF_EQUAL, (uint32_t)call->nr, 0, call->check == FAMILY ? 7 : 4);
	op(c, BPF_LD | BPF_W | BPF_ABS,
	   (uint32_t)(offsetof(struct seccomp_data, args) + 8 * call->arg), 0, 0);
	if (call->check == FAMILY) {
		op(c, IF_EQUAL, AF_UNIX, 4, 0);
		op(c, IF_EQUAL, AF_INET, 3, 0);
		op(c, IF_EQUAL, AF_INET6, 2, 0);
		op(c, IF_EQUAL, AF_NETLINK, 1, 0);
	} else if (call->check == NO_BITS) {
		op(c, IF_BITS, call->value, 0, 1);
	} else if (call->check == HAS_BITS) {
		op(c, IF_BITS, call->value, 1, 0);
	} else {
		op(c, IF_EQUAL, call->value, call->check == IS ? 1 : 0, call->check == IS ? 0 : 1);
	}
	RETURN(c, SECCOMP_RET_ERRNO | EPERM);
	RETURN(c, SECCOMP_RET_ALLOW);
}

/* What each work needs beside what unpacking does. */
struct calls {
	const struct call *calls;
	size_t n;
};
#define CALLS(v)                                                                                   \
	{                                                                                          \
		v, sizeof(v) / sizeof(v[0])                                                        \
	}
static const struct calls works[IMG_WORK_N][2] = {
	[IMG_WORK_SERVE] = { CALLS(serve_calls) },
	[IMG_WORK_STORE] = { CALLS(store_calls) },
	[IMG_WORK_FETCH] = { CALLS(fetch_calls), CALLS(store_calls) },
};

static int seccomp(enum img_work work, struct err *e)
{
	static struct code c;
	struct sock_fprog program;

	c.n = 0;
	LOAD(&c, arch);
	op(&c, IF_EQUAL, ARCH, 1, 0);
	RETURN(&c, SECCOMP_RET_KILL_PROCESS);
	LOAD(&c, nr);
	/* x32 */
	op(&c, BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
	RETURN(&c, SECCOMP_RET_KILL_PROCESS);
	for (size_t k = 0; k < 2; k++)
		for (size_t i = 0; i < works[work][k].n; i++)
			allow(&c, &works[work][k].calls[i]);
	for (size_t i = 0; i < sizeof(unpack_calls) / sizeof(unpack_calls[0]); i++)
		allow(&c, &unpack_calls[i]);
	RETURN(&c, REFUSE);
	program = (struct sock_fprog){ c.n, c.op };
	if (c.n == CODE_MAX || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
		return err_sys(e, "load the seccomp filter");
	return 0;
}

#define FS_READ (SYS_LANDLOCK_FS_READ_FILE | SYS_LANDLOCK_FS_READ_DIR)
#define FS_ABI2 ((1ULL << 14) - 1) /* to REFER */
#define FS_TRUNCATE (1ULL << 14)   /* ABI 3 */
#define FS_IOCTL_DEV (1ULL << 15)  /* ABI 5 */
#define NET_BIND (1ULL << 0)	   /* ABI 4 */
#define NET_CONNECT (1ULL << 1)

static int landlock_abi(struct err *e)
{
	int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, SYS_LANDLOCK_CREATE_VERSION);

	if (abi >= 2)
		return abi;
	return err_set(
		e, ERR_MISSING,
		"images are read behind Landlock, and this kernel %s; fix: one from 5.19 on, lsm=landlock,..., and no outer filter against it",
		abi == 1 ? "has only its first version" : "has none");
}

static int add_rule(int set, int fd, uint64_t rights, struct err *e)
{
	struct sys_landlock_path rule = { .allowed_access = rights, .parent_fd = fd };
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, "stat what may be used");
	if (!S_ISDIR(st.st_mode))
		rule.allowed_access &= SYS_LANDLOCK_FS_READ_FILE;
	if (syscall(SYS_landlock_add_rule, set, SYS_LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return err_sys(e, "add a Landlock rule");
	return 0;
}

static int landlock(const struct img_confine *how, struct err *e)
{
	int abi = landlock_abi(e);
	struct sys_landlock_ruleset rs = {
		.handled_access_fs =
			FS_ABI2 | (abi >= 3 ? FS_TRUNCATE : 0) | (abi >= 5 ? FS_IOCTL_DEV : 0),
	};
	uint64_t all = rs.handled_access_fs &
		       ~(SYS_LANDLOCK_FS_EXECUTE | FS_IOCTL_DEV | SYS_LANDLOCK_FS_MAKE_BLOCK);
	_cleanup_fd_ int set = -1;

	if (abi < 0)
		return -1;
	/* To bind is nobody's work; to connect is that of fetching. */
	if (abi >= 4)
		rs.handled_access_net = NET_BIND | (how->work == IMG_WORK_FETCH ? 0 : NET_CONNECT);
	if (abi >= 6)
		rs.scoped = SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX | SYS_LANDLOCK_SCOPE_SIGNAL;
	set = (int)syscall(SYS_landlock_create_ruleset, &rs,
			   abi >= 6   ? sizeof(rs)
			   : abi >= 4 ? 16UL
				      : 8UL,
			   0);
	if (set < 0)
		return err_sys(e, "make the Landlock ruleset");
	for (size_t i = 0; i < how->n_writes; i++)
		if (add_rule(set, how->writes[i], all, e) < 0)
			return -1;
	for (size_t i = 0; i < how->n_reads; i++)
		if (add_rule(set, how->reads[i], FS_READ, e) < 0)
			return -1;
	if (syscall(SYS_landlock_restrict_self, set, 0) < 0)
		return err_sys(e, "restrict by Landlock");
	return 0;
}

int img_confine_ready(struct err *e)
{
	int mode = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);

	if (landlock_abi(e) < 0)
		return -1;
	/* With a filter that is NULL the call fails by EFAULT where there are filters. */
	if (mode < 0 ||
	    (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) < 0 && errno != EFAULT))
		return err_set(
			e, ERR_MISSING,
			"images are read behind a seccomp filter, and this kernel takes none; fix: a kernel with CONFIG_SECCOMP_FILTER");
	return 0;
}

int img_confine(const struct img_confine *how, struct err *e)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, "set no_new_privs");
	return landlock(how, e) < 0 || seccomp(how->work, e) < 0 ? -1 : 0;
}

/* Keeps these capabilities of those that the process has, and no others. */
static int keep_caps(uint32_t keep, struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[2];

	if (syscall(SYS_capget, &head, set) < 0)
		return err_sys(e, "ask for the capabilities");
	set[0].permitted &= keep;
	set[0].effective = set[0].permitted;
	set[1].permitted = set[1].effective = set[0].inheritable = set[1].inheritable = 0;
	if (syscall(SYS_capset, &head, set) < 0)
		return err_sys(e, "drop capabilities");
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	return 0;
}

/* A user namespace in which nobody but this user and group is known; by their own numbers, so that
 * all that looks at owners sees what it saw before. */
static bool own_namespace(uid_t uid, gid_t gid)
{
	char users[64], groups[64];

	snprintf(users, sizeof(users), "%u %u 1", (unsigned)uid, (unsigned)uid);
	snprintf(groups, sizeof(groups), "%u %u 1", (unsigned)gid, (unsigned)gid);
	return unshare(CLONE_NEWUSER) == 0 &&
	       fd_write_file_at(AT_FDCWD, "/proc/self/uid_map", users) == 0 &&
	       fd_write_file_at(AT_FDCWD, "/proc/self/setgroups", "deny") == 0 &&
	       fd_write_file_at(AT_FDCWD, "/proc/self/gid_map", groups) == 0;
}

/* Some hosts let a program into a namespace and then not write its maps, and there is no way out: a
 * child tries first. */
static bool namespace_to_be_had(uid_t uid, gid_t gid)
{
	pid_t pid = fork();
	int status = 1;

	if (pid == 0)
		_exit(own_namespace(uid, gid) ? 0 : 1);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return pid > 0 && status == 0;
}

int img_confine_rights(struct err *e)
{
	const uint32_t owners =
		1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE | 1U << CAP_FOWNER | 1U << CAP_FSETID;
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (uid != 0 && namespace_to_be_had(uid, gid) && !own_namespace(uid, gid))
		return err_sys(e, "set up a user namespace, which had just been possible");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, "set no_new_privs");
	return keep_caps(uid == 0 ? owners : 1U << CAP_DAC_OVERRIDE, e);
}
