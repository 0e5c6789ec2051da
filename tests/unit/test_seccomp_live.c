/* The seccomp filter on this kernel: what a process under the default program really gets. Every refusal stands beside its control,
 * the same probe without the filter, so that a refusal by something else can't pass for ours. No listener is attached: calls that
 * would go to it answer ENOSYS then, which is also what a box gets when its listener is gone. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box/seccomp.h"

#define DIED 1000 /* outcome of a probe: an errno, 0, or DIED + signal */

typedef int (*probe_fn)(void);

static char dir[] = "/tmp/seccomp-live-XXXXXX";

/* Runs a probe in a child of its own, under the program of a request or, with NULL, free. */
static int outcome(probe_fn probe, const struct sc_request *rq)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		/* One probe dies on purpose: leave no core file. */
		setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
		if (rq != NULL) {
			struct sock_fprog p;
			uint16_t len;

			p.filter = (struct sock_filter *)(uintptr_t)sc_prebuilt(sc_native(), rq, &len);
			p.len = len;
			if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p) < 0)
				_exit(255);
		}
		_exit(probe());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		return DIED + WTERMSIG(status);
	ck_assert_int_ne(WEXITSTATUS(status), 255);
	return WEXITSTATUS(status);
}

static int filtered(probe_fn probe)
{
	return outcome(probe, &(struct sc_request){ 0 });
}

static int result(long r)
{
	return r < 0 ? errno : 0;
}

static const char *path(const char *name)
{
	static char buf[256];

	snprintf(buf, sizeof(buf), "%s/%s", dir, name);
	return buf;
}

static void make_dir(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_ge(close(open(path("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0644)), 0);
}

static void remove_dir(void)
{
	unlink(path("file"));
	unlink(path("new"));
	unlink(path("device"));
	unlink(path("fifo"));
	rmdir(path("sub"));
	rmdir(dir);
}

/* Foreign ways into the kernel. */
#if defined(__x86_64__)
static int probe_i386_getpid(void)
{
	long r = 20; /* getpid, on i386 */

	__asm__ volatile("int $0x80" : "+a"(r) : : "r8", "r9", "r10", "r11", "memory");
	return r == getpid() ? 0 : EINVAL;
}

static int probe_x32_getpid(void)
{
	return result(syscall(0x40000000 | SYS_getpid));
}

static int probe_minus_one(void)
{
	return result(syscall(-1));
}

START_TEST(foreign)
{
	int free_run = outcome(probe_i386_getpid, NULL);

	ck_assert_int_eq(filtered(probe_i386_getpid), free_run == DIED + SIGSEGV ? DIED + SIGSEGV : DIED + SIGSYS);
	ck_assert_msg(free_run == 0 || free_run == DIED + SIGSEGV, "control: %d", free_run);
	ck_assert_int_lt(outcome(probe_x32_getpid, NULL), DIED);
	ck_assert_int_eq(filtered(probe_x32_getpid), DIED + SIGSYS);
	ck_assert_int_eq(filtered(probe_minus_one), ENOSYS);
}
END_TEST
#endif

/* Calls whose arguments hide what they ask for. */
static int probe_openat2(void)
{
	struct open_how how = { .flags = O_RDONLY };

	return result(syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how)));
}

static int probe_clone3(void)
{
	return result(syscall(SYS_clone3, NULL, 0));
}

static int probe_io_uring(void)
{
	return result(syscall(SYS_io_uring_setup, 0, NULL));
}

START_TEST(hidden_arguments)
{
	ck_assert_int_eq(outcome(probe_openat2, NULL), 0);
	ck_assert_int_eq(filtered(probe_openat2), ENOSYS);
	ck_assert_int_eq(outcome(probe_clone3, NULL), EINVAL);
	ck_assert_int_eq(filtered(probe_clone3), ENOSYS);
	ck_assert_int_ne(outcome(probe_io_uring, NULL), 0);
	ck_assert_int_eq(filtered(probe_io_uring), ENOSYS);
}
END_TEST

/* Terminals. Descriptor -1: the kernel says EBADF when it is asked at all. */
static int probe_tiocsti(void)
{
	return result(syscall(SYS_ioctl, -1, 0x5412ul, "x"));
}

static int probe_tiocsti_alias(void)
{
	return result(syscall(SYS_ioctl, -1, 0x100005412ul, "x"));
}

static int probe_tioclinux_alias(void)
{
	return result(syscall(SYS_ioctl, -1, 0xffffffff0000541Cul, "x"));
}

static int probe_winsize(void)
{
	return result(syscall(SYS_ioctl, -1, 0x5413ul, NULL));
}

START_TEST(terminal)
{
	ck_assert_int_eq(outcome(probe_tiocsti, NULL), EBADF);
	ck_assert_int_eq(outcome(probe_tiocsti_alias, NULL), EBADF);
	ck_assert_int_eq(filtered(probe_tiocsti), EPERM);
	ck_assert_int_eq(filtered(probe_tiocsti_alias), EPERM);
	ck_assert_int_eq(filtered(probe_tioclinux_alias), EPERM);
	ck_assert_int_eq(filtered(probe_winsize), EBADF);
}
END_TEST

/* Set-id bits. */
static int probe_chmod_setuid(void)
{
	return result(syscall(SYS_fchmodat, AT_FDCWD, path("file"), 04755));
}

static int probe_chmod_garbage(void)
{
	return result(syscall(SYS_fchmodat, AT_FDCWD, path("file"), 0x7fff00000000ul | 0x10000 | 02755));
}

static int probe_chmod_plain(void)
{
	return result(syscall(SYS_fchmodat, AT_FDCWD, path("file"), 0755));
}

static int probe_create_setuid(void)
{
	return result(openat(AT_FDCWD, path("new"), O_CREAT | O_WRONLY | O_CLOEXEC, 04755));
}

static int probe_create_plain(void)
{
	return result(openat(AT_FDCWD, path("new"), O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
}

static int probe_open_rubbish_mode(void)
{
	return result(syscall(SYS_openat, AT_FDCWD, path("file"), O_RDONLY | O_CLOEXEC, 06777));
}

static int probe_mknod_setuid(void)
{
	unlink(path("new"));
	return result(syscall(SYS_mknodat, AT_FDCWD, path("new"), S_IFREG | 04755, 0));
}

static int probe_mkdir_setid(void)
{
	struct stat st;

	if (mkdir(path("sub"), 06755) < 0 || stat(path("sub"), &st) < 0)
		return errno;
	return st.st_mode & 06000 ? EEXIST : 0;
}

START_TEST(set_id_bits)
{
	struct sc_request setup = { .setup = true };

	ck_assert_int_eq(outcome(probe_chmod_setuid, NULL), 0);
	ck_assert_int_eq(filtered(probe_chmod_setuid), EPERM);
	ck_assert_int_eq(outcome(probe_chmod_garbage, NULL), 0);
	ck_assert_int_eq(filtered(probe_chmod_garbage), EPERM);
	ck_assert_int_eq(filtered(probe_chmod_plain), 0);
	ck_assert_int_eq(outcome(probe_chmod_setuid, &setup), 0);
	ck_assert_int_eq(outcome(probe_create_setuid, NULL), 0);
	ck_assert_int_eq(filtered(probe_create_setuid), EPERM);
	ck_assert_int_eq(filtered(probe_create_plain), 0);
	ck_assert_int_eq(filtered(probe_open_rubbish_mode), 0);
	ck_assert_int_eq(outcome(probe_mknod_setuid, NULL), 0);
	ck_assert_int_eq(filtered(probe_mknod_setuid), EPERM);
	/* Why mkdir is not checked: the kernel drops the bits. */
	ck_assert_int_eq(outcome(probe_mkdir_setid, NULL), 0);
}
END_TEST

static int probe_chown(void)
{
	struct stat st;

	if (fchownat(AT_FDCWD, path("file"), 12345, 12346, 0) < 0 || stat(path("file"), &st) < 0)
		return errno;
	return st.st_uid == getuid() ? 0 : EEXIST;
}

static int probe_setuid(void)
{
	uid_t before = getuid();

	if (syscall(SYS_setresuid, 12345, 12345, 12345) < 0)
		return errno;
	return getuid() == before ? 0 : EEXIST;
}

static int probe_mknod_device(void)
{
	if (mknod(path("device"), S_IFCHR | 0600, 0x501) < 0)
		return errno;
	return access(path("device"), F_OK) < 0 ? 0 : EEXIST;
}

static int probe_mknod_fifo(void)
{
	unlink(path("fifo"));
	if (mknod(path("fifo"), S_IFIFO | 0600, 0) < 0)
		return errno;
	return access(path("fifo"), F_OK) == 0 ? 0 : ENOENT;
}

/* 0: said to be done, and not done. */
START_TEST(lies)
{
	struct sc_request setup = { .setup = true };

	ck_assert_int_eq(outcome(probe_chown, &setup), 0);
	ck_assert_int_ne(outcome(probe_chown, NULL), 0);
	ck_assert_int_ne(outcome(probe_setuid, NULL), 0);
	ck_assert_int_eq(outcome(probe_setuid, &setup), 0);
	ck_assert_int_eq(filtered(probe_mknod_device), EPERM);
	ck_assert_int_eq(outcome(probe_mknod_device, &setup), 0);
	ck_assert_int_eq(outcome(probe_mknod_fifo, &setup), 0);
}
END_TEST

/* Sockets. */
static int probe_vsock(void)
{
	return result(socket(AF_VSOCK, SOCK_STREAM, 0));
}

static int probe_vsock_garbage(void)
{
	return result(syscall(SYS_socket, 0x100000000ul | AF_VSOCK, SOCK_STREAM, 0));
}

static int probe_uevent(void)
{
	return result(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 15));
}

static int probe_route(void)
{
	return result(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
}

static int probe_tcp(void)
{
	return result(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int probe_stream_pair(void)
{
	int fd[2];

	return result(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd));
}

static int probe_datagram_pair(void)
{
	int fd[2];

	return result(socketpair(AF_UNIX, SOCK_DGRAM, 0, fd));
}

static int probe_raw_unix(void)
{
	return result(socket(AF_UNIX, SOCK_RAW, 0));
}

static int probe_connect(void)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "/no/such/socket" };

	return result(connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&un, sizeof(un)));
}

START_TEST(sockets)
{
	struct sc_request untrusted = { .untrusted = true };

	ck_assert_int_eq(filtered(probe_vsock), EAFNOSUPPORT);
	ck_assert_int_eq(filtered(probe_vsock_garbage), EAFNOSUPPORT);
	ck_assert_int_eq(outcome(probe_uevent, NULL), 0);
	ck_assert_int_eq(filtered(probe_uevent), EAFNOSUPPORT);
	ck_assert_int_eq(filtered(probe_route), 0);
	ck_assert_int_eq(filtered(probe_tcp), 0);
	ck_assert_int_eq(filtered(probe_datagram_pair), 0);
	ck_assert_int_eq(outcome(probe_datagram_pair, &untrusted), EPERM);
	ck_assert_int_eq(filtered(probe_raw_unix), 0);
	ck_assert_int_eq(outcome(probe_raw_unix, &untrusted), EPERM);
	ck_assert_int_eq(outcome(probe_stream_pair, &untrusted), 0);
	ck_assert_int_eq(outcome(probe_tcp, &untrusted), 0);
	ck_assert_int_eq(filtered(probe_connect), ENOENT);
	ck_assert_int_eq(outcome(probe_connect, &untrusted), ENOSYS);
}
END_TEST

/* Why the untrusted profile need not look at sendto and sendmsg: on the types that it allows, a name leads nowhere. The datagram
 * socket is the control: there it does. */
START_TEST(named_sends)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(un);
	static const int types[] = { SOCK_DGRAM, SOCK_STREAM, SOCK_SEQPACKET };

	for (size_t i = 0; i < 3; i++) {
		int server = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0), client = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);

		len = sizeof(sa_family_t);
		ck_assert_int_eq(bind(server, (struct sockaddr *)&un, len), 0); /* a free abstract name */
		len = sizeof(un);
		ck_assert_int_eq(getsockname(server, (struct sockaddr *)&un, &len), 0);
		if (types[i] != SOCK_DGRAM)
			ck_assert_int_eq(listen(server, 1), 0);
		ck_assert_int_eq(sendto(client, "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&un, len), types[i] == SOCK_DGRAM ? 1 : -1);
		close(server);
		close(client);
		memset(&un.sun_path, 0, sizeof(un.sun_path));
	}
}
END_TEST

/* Other processes: the parent stands for init. */
static int probe_prlimit_other(void)
{
	struct rlimit now;

	if (getrlimit(RLIMIT_NOFILE, &now) < 0)
		return 254;
	return result(prlimit(getppid(), RLIMIT_NOFILE, &now, NULL));
}

static int probe_prlimit_read(void)
{
	struct rlimit now;

	return result(prlimit(getppid(), RLIMIT_NOFILE, NULL, &now));
}

static int probe_prlimit_self(void)
{
	struct rlimit now;

	return result(prlimit(0, RLIMIT_NOFILE, NULL, &now)) || result(prlimit(0, RLIMIT_NOFILE, &now, NULL));
}

static int probe_affinity(pid_t pid)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set) < 0)
		return 254;
	return result(sched_setaffinity(pid, sizeof(set), &set));
}

static int probe_affinity_other(void)
{
	return probe_affinity(getppid());
}

static int probe_affinity_self(void)
{
	return probe_affinity(0);
}

static int probe_nice_other(void)
{
	return result(setpriority(PRIO_PROCESS, (id_t)getppid(), getpriority(PRIO_PROCESS, (id_t)getppid())));
}

static int probe_nice_self(void)
{
	return result(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0)));
}

static int probe_ptrace(void)
{
	return result(ptrace(PTRACE_TRACEME, 0, 0, 0));
}

START_TEST(other_processes)
{
	ck_assert_int_eq(outcome(probe_prlimit_other, NULL), 0);
	ck_assert_int_eq(filtered(probe_prlimit_other), EPERM);
	ck_assert_int_eq(filtered(probe_prlimit_read), 0);
	ck_assert_int_eq(filtered(probe_prlimit_self), 0);
	ck_assert_int_eq(outcome(probe_affinity_other, NULL), 0);
	ck_assert_int_eq(filtered(probe_affinity_other), EPERM);
	ck_assert_int_eq(filtered(probe_affinity_self), 0);
	ck_assert_int_eq(outcome(probe_nice_other, NULL), 0);
	ck_assert_int_eq(filtered(probe_nice_other), EPERM);
	ck_assert_int_eq(filtered(probe_nice_self), 0);
	ck_assert_int_eq(outcome(probe_ptrace, NULL), 0);
	ck_assert_int_eq(filtered(probe_ptrace), ENOSYS);
}
END_TEST

/* Namespaces and mounts, and what must go on working. */
static int probe_unshare_files(void)
{
	return result(unshare(CLONE_FILES | CLONE_FS));
}

static int probe_unshare_user(void)
{
	return result(unshare(CLONE_NEWUSER));
}

static int probe_mount(void)
{
	return result(mount("none", "/no/such/place", "tmpfs", 0, NULL));
}

static void *thread(void *arg)
{
	return arg;
}

static int probe_thread_and_fork(void)
{
	pthread_t t;
	int status, r = pthread_create(&t, NULL, thread, NULL);
	pid_t pid;

	if (r != 0 || (r = pthread_join(t, NULL)) != 0)
		return r;
	pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
		_exit(1);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return errno;
	return WEXITSTATUS(status) == 7 ? 0 : ECHILD;
}

static int probe_no_randomisation(void)
{
	return personality(ADDR_NO_RANDOMIZE) < 0 ? errno : 0;
}

static int probe_read_implies_exec(void)
{
	return personality(READ_IMPLIES_EXEC) < 0 ? errno : 0;
}

START_TEST(the_rest)
{
	int free_run = outcome(probe_mount, NULL);

	ck_assert_msg(free_run == EPERM || free_run == ENOENT, "control: %d", free_run);
	ck_assert_int_eq(filtered(probe_mount), ENOSYS);
	ck_assert_int_ne(outcome(probe_unshare_user, NULL), ENOSYS);
	ck_assert_int_eq(filtered(probe_unshare_user), ENOSYS);
	ck_assert_int_eq(filtered(probe_unshare_files), 0);
	ck_assert_int_eq(filtered(probe_thread_and_fork), 0);
	ck_assert_int_eq(filtered(probe_no_randomisation), 0);
	ck_assert_int_eq(outcome(probe_read_implies_exec, NULL), 0);
	ck_assert_int_eq(filtered(probe_read_implies_exec), EPERM);
}
END_TEST

static void fill(TCase *t)
{
	tcase_add_unchecked_fixture(t, make_dir, remove_dir);
#if defined(__x86_64__)
	tcase_add_test(t, foreign);
#endif
	tcase_add_test(t, hidden_arguments);
	tcase_add_test(t, terminal);
	tcase_add_test(t, set_id_bits);
	tcase_add_test(t, lies);
	tcase_add_test(t, sockets);
	tcase_add_test(t, named_sends);
	tcase_add_test(t, other_processes);
	tcase_add_test(t, the_rest);
}

int main(void)
{
	return unit_main("seccomp_live", fill);
}
