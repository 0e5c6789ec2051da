/* What a box shares with the machine whatever its namespaces are: counters that there are one of, files that others open too, the
 * memory of sockets. The attacks work in the current directory. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

#define MAP_FROM_POOL 0x40000 /* MAP_HUGETLB */
#define LEASE 1024	      /* F_SETLEASE */
#define WHITEOUT 4
#define NOREPLACE 1

static int a_file(const char *name, int flags)
{
	return open(name, O_CREAT | O_CLOEXEC | flags, 0644);
}

static int aio(void)
{
	aio_context_t c = 0;

	return ERR(syscall(SYS_io_setup, 64, &c));
}

static int lease(int open_flags, int kind)
{
	close(a_file("leased", O_RDWR));
	int fd = a_file("leased", open_flags);

	return fd < 0 ? errno : ERR(fcntl(fd, LEASE, kind));
}

static int lease_read(void)
{
	return lease(O_RDONLY, F_RDLCK);
}

static int lease_write(void)
{
	return lease(O_RDWR, F_WRLCK);
}

static int lock(void)
{
	struct flock l = { .l_type = F_WRLCK };
	int fd = a_file("locked", O_RDWR);

	return fd < 0 ? errno : ERR(fcntl(fd, F_SETLK, &l));
}

static int rename_to(const char *to, unsigned flags)
{
	close(a_file("from", O_RDWR));
	return ERR(syscall(SYS_renameat2, AT_FDCWD, "from", AT_FDCWD, to, flags));
}

static int whiteout(void)
{
	return rename_to("whiteout-to", WHITEOUT);
}

static int noreplace(void)
{
	return rename_to("noreplace-to", NOREPLACE);
}

/* The raw call: a C library may turn EPERM into ENOMEM. */
static int huge_mmap(void)
{
	return ERR(syscall(SYS_mmap, NULL, 2 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FROM_POOL, -1, 0));
}

static int small_mmap(void)
{
	return ERR(syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

static int huge_memfd(void)
{
	return ERR(syscall(SYS_memfd_create, "x", 4));
}

static int attach(int option)
{
	struct sock_filter all = { BPF_RET | BPF_K, 0, 0, 0xffffffff };
	struct sock_fprog prog = { 1, &all };
	int s = socket(AF_INET, SOCK_DGRAM, 0), on = 1;

	setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	return s < 0 ? errno : ERR(setsockopt(s, SOL_SOCKET, option, &prog, sizeof(prog)));
}

static int filter(void)
{
	return attach(SO_ATTACH_FILTER);
}

static int filter_reuseport(void)
{
	return attach(51 /* SO_ATTACH_REUSEPORT_CBPF */);
}

static int buffer(void)
{
	int s = socket(AF_INET, SOCK_DGRAM, 0), size = 65536;

	return s < 0 ? errno : ERR(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)));
}

static int pressure(void)
{
	static const char trigger[] = "some 150000 2000000";
	int fd = open("/proc/pressure/cpu", O_RDWR | O_CLOEXEC);

	return fd < 0 ? errno : ERR(write(fd, trigger, sizeof(trigger)));
}

static int projects(void)
{
	/* A quota's project is the host's; the id map that any process may write must not help. */
	struct {
		uint32_t flags, extsize, nextents, projid, cowextsize;
		unsigned char pad[8];
	} attr = { 0 };
	int map = open("/proc/self/projid_map", O_WRONLY), fd = a_file("project", O_RDWR);

	if (map >= 0 && write(map, "0 0 4294967295", 14) < 0)
		close(map);
	if (syscall(SYS_ioctl, fd, 0x801c581fUL /* FS_IOC_FSGETXATTR */, &attr) < 0)
		return errno;
	attr.projid = 7;
	return ERR(syscall(SYS_ioctl, fd, 0x401c5820UL /* FS_IOC_FSSETXATTR */, &attr));
}

static int netlink_to_another(void)
{
	struct sockaddr_nl other = { .nl_family = AF_NETLINK, .nl_pid = 12345 };
	int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	return s < 0 ? errno : ERR(connect(s, (struct sockaddr *)&other, sizeof(other)));
}

static const struct attack attacks[] = {
	{ "aio", aio },
	{ "lease-read", lease_read },
	{ "lease-write", lease_write },
	{ "whiteout", whiteout },
	{ "huge-mmap", huge_mmap },
	{ "huge-memfd", huge_memfd },
	{ "filter", filter },
	{ "filter-reuseport", filter_reuseport },
	{ "pressure", pressure },
	{ "projects", projects },
	{ "netlink-to-another", netlink_to_another },
	/* What is next to them and must go on working. */
	{ "lock", lock },
	{ "noreplace", noreplace },
	{ "small-mmap", small_mmap },
	{ "buffer", buffer },
};

int cmd_shared(int argc, char **argv)
{
	return attempt_table(attacks, COUNT(attacks), argc, argv);
}

/* Queues N MiB of datagrams on loopback sockets that nobody reads meanwhile, then reads them: "queued BYTES". */
int cmd_queue(int argc, char **argv)
{
	static char data[32768];
	long want = argc > 1 ? atol(argv[1]) << 20 : 0, sent = 0, queued = 0;
	int sender = socket(AF_INET, SOCK_DGRAM, 0), socks[1000], n = 0;

	while (sent < want && n < (int)COUNT(socks)) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t len = sizeof(to);
		int s = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);

		if (s < 0 || bind(s, (struct sockaddr *)&to, len) < 0 || getsockname(s, (struct sockaddr *)&to, &len) < 0)
			break;
		socks[n++] = s;
		for (int i = 0; i < 4; i++, sent += (long)sizeof(data))
			if (sendto(sender, data, sizeof(data), MSG_DONTWAIT, (struct sockaddr *)&to, len) < 0)
				break;
		sent += 1; /* a socket that takes nothing is no reason to go on for ever */
	}
	for (int i = 0; i < n; i++)
		for (ssize_t r; (r = recv(socks[i], data, sizeof(data), 0)) > 0;)
			queued += r;
	printf("queued %ld\n", queued);
	return 0;
}

/* Sends descriptors to a socket that nobody reads until the kernel takes no more, and stays: "passing N ERRNO". */
int cmd_passing(int argc, char **argv)
{
	enum { EACH = 250 };
	union {
		char room[CMSG_SPACE(EACH * sizeof(int))];
		struct cmsghdr head;
	} u = { 0 };
	struct iovec byte = { "x", 1 };
	struct msghdr m = { .msg_iov = &byte, .msg_iovlen = 1, .msg_control = u.room, .msg_controllen = sizeof(u.room) };
	int fds[EACH], one = eventfd(0, 0), pair[2], n = 0;
	struct rlimit r;

	(void)argc;
	(void)argv;
	getrlimit(RLIMIT_NOFILE, &r);
	r.rlim_cur = r.rlim_max < 4096 ? r.rlim_max : 4096;
	setrlimit(RLIMIT_NOFILE, &r);
	for (int i = 0; i < EACH; i++)
		fds[i] = one;
	u.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(fds)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
	memcpy(CMSG_DATA(&u.head), fds, sizeof(fds));
	errno = 0;
	while (n < 100000 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) {
		for (int i = 0; i < 4 && sendmsg(pair[0], &m, MSG_DONTWAIT) > 0; i++)
			n += EACH;
		if (errno == ETOOMANYREFS)
			break;
	}
	printf("passing %d %s\n", n, errno == ETOOMANYREFS ? "ETOOMANYREFS" : errname(errno));
	fflush(stdout);
	sleep(300);
	return 0;
}

/* Makes timers until the kernel gives no more, 20,000 at most: "timers N". */
int cmd_timers(int argc, char **argv)
{
	struct sigevent none = { .sigev_notify = SIGEV_NONE };
	int n = 0, id;

	(void)argc;
	(void)argv;
	while (n < 20000 && syscall(SYS_timer_create, CLOCK_MONOTONIC, &none, &id) == 0)
		n++;
	printf("timers %d\n", n);
	return 0;
}

/* A filter of its own that answers mount(2) before ours does: "own-filter RESULT NUMBER" of the mount. */
int cmd_own_filter(int argc, char **argv)
{
	struct sock_filter code[] = {
		{ BPF_LD | BPF_W | BPF_ABS, 0, 0, 0 },
		{ BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_mount },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EXDEV },
		{ BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW },
	};
	struct sock_fprog prog = { COUNT(code), code };

	(void)argc;
	(void)argv;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		return 1;
	report("own-filter", ERR(syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL)));
	return 0;
}
