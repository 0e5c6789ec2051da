/* Attacks by sockets and by the terminal. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "probe.h"

/* -- families -- */

static int try_socket(int family, int type, int proto) { return ERR(socket(family, type, proto)); }

#define FAM(name, family, type, proto) static int s_##name(void) { return try_socket(family, type, proto); }
FAM(inet_tcp, AF_INET, SOCK_STREAM, 0)
FAM(inet_udp, AF_INET, SOCK_DGRAM, 0)
FAM(inet6_tcp, AF_INET6, SOCK_STREAM, 0)
FAM(unix_stream, AF_UNIX, SOCK_STREAM, 0)
FAM(netlink_route, AF_NETLINK, SOCK_RAW, 0)
FAM(vsock, 40, SOCK_STREAM, 0)
FAM(vsock_dgram, 40, SOCK_DGRAM, 0)
FAM(alg, 38, SOCK_SEQPACKET, 0)
FAM(packet, 17, SOCK_DGRAM, 0x0300)
FAM(packet_raw, 17, SOCK_RAW, 0x0300)
FAM(inet_raw, AF_INET, SOCK_RAW, 255)
FAM(inet_raw_icmp, AF_INET, SOCK_RAW, 1)
FAM(inet6_raw, AF_INET6, SOCK_RAW, 58)
FAM(inet_packet, AF_INET, SOCK_PACKET, 0x0300)
FAM(netlink_usersock, AF_NETLINK, SOCK_RAW, 2)
FAM(netlink_sock_diag, AF_NETLINK, SOCK_RAW, 4)
FAM(netlink_xfrm, AF_NETLINK, SOCK_RAW, 6)
FAM(netlink_audit, AF_NETLINK, SOCK_RAW, 9)
FAM(netlink_connector, AF_NETLINK, SOCK_RAW, 11)
FAM(netlink_netfilter, AF_NETLINK, SOCK_RAW, 12)
FAM(netlink_uevent, AF_NETLINK, SOCK_RAW, 15)
FAM(netlink_generic, AF_NETLINK, SOCK_RAW, 16)
FAM(netlink_crypto, AF_NETLINK, SOCK_RAW, 21)
FAM(key, 15, SOCK_RAW, 2)
FAM(can, 29, SOCK_RAW, 1)
FAM(bluetooth, 31, SOCK_RAW, 1)
FAM(tipc, 30, SOCK_STREAM, 0)
FAM(rds, 21, SOCK_SEQPACKET, 0)
FAM(xdp, 44, SOCK_RAW, 0)
FAM(smc, 43, SOCK_STREAM, 0)
FAM(qipcrtr, 42, SOCK_DGRAM, 0)
FAM(llc, 26, SOCK_STREAM, 0)
FAM(kcm, 41, SOCK_DGRAM, 0)
FAM(mctp, 45, SOCK_DGRAM, 0)
FAM(x25, 9, SOCK_SEQPACKET, 0)
FAM(phonet, 35, SOCK_DGRAM, 0)
/* bits above 32 are ignored by the kernel */
static int s_vsock_high(void) { return ERR(syscall(SYS_socket, 40ul | 1ul << 32, SOCK_STREAM, 0)); }
static int s_packet_high(void) { return ERR(syscall(SYS_socket, 17ul | 1ul << 33, SOCK_RAW, 0x0300)); }
static int s_vsock_pair(void)
{
	int sv[2];
	return ERR(socketpair(40, SOCK_STREAM, 0, sv));
}

#define F(n) { #n, s_##n }
static const struct attack families[] = {
	F(inet_tcp), F(inet_udp), F(inet6_tcp), F(unix_stream), F(netlink_route),
	F(vsock), F(vsock_dgram), F(vsock_high), F(vsock_pair), F(alg), F(packet), F(packet_raw), F(packet_high),
	F(inet_raw), F(inet_raw_icmp), F(inet6_raw), F(inet_packet),
	F(netlink_usersock), F(netlink_sock_diag), F(netlink_xfrm), F(netlink_audit), F(netlink_connector),
	F(netlink_netfilter), F(netlink_uevent), F(netlink_generic), F(netlink_crypto),
	F(key), F(can), F(bluetooth), F(tipc), F(rds), F(xdp), F(smc), F(qipcrtr), F(llc), F(kcm), F(mctp), F(x25), F(phonet),
};

int cmd_family(int argc, char **argv) { return attempt_table(families, COUNT(families), argc, argv); }

/* -- unix sockets and FIFOs of the host -- */

static socklen_t unix_addr(struct sockaddr_un *sa, const char *name)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	if (name[0] == '@') { /* abstract */
		size_t len = strlen(name + 1);
		memcpy(sa->sun_path + 1, name + 1, len);
		return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
	}
	snprintf(sa->sun_path, sizeof(sa->sun_path), "%s", name);
	return sizeof(*sa);
}

/* connect PATH|@NAME...: by every way to reach a unix socket. A line is printed for each: connect of the three types (only one fits
 * the socket, the others give EPROTOTYPE), sendto and sendmsg without connecting. */
int cmd_connect(int argc, char **argv)
{
	static const struct { const char *name; int type; } types[] = {
		{ "stream", SOCK_STREAM }, { "dgram", SOCK_DGRAM }, { "seqpacket", SOCK_SEQPACKET },
	};

	for (int i = 1; i < argc; i++) {
		struct sockaddr_un sa;
		socklen_t len = unix_addr(&sa, argv[i]);
		struct iovec v = { (void *)"x", 1 };
		struct msghdr m = { .msg_name = &sa, .msg_namelen = len, .msg_iov = &v, .msg_iovlen = 1 };
		struct mmsghdr mm = { .msg_hdr = m };
		char line[512];
		int err, fd;

		for (size_t t = 0; t < COUNT(types); t++) {
			fd = socket(AF_UNIX, types[t].type, 0);
			err = fd < 0 ? errno : ERR(connect(fd, (void *)&sa, len));
			if (err == 0 && write(fd, "x", 1) < 0)
				err = errno;
			snprintf(line, sizeof(line), "%s:%s", argv[i], types[t].name);
			report(line, err);
			if (fd >= 0)
				close(fd);
		}
		fd = socket(AF_UNIX, SOCK_DGRAM, 0);
		snprintf(line, sizeof(line), "%s:sendto", argv[i]);
		report(line, fd < 0 ? errno : ERR(sendto(fd, "x", 1, 0, (void *)&sa, len)));
		snprintf(line, sizeof(line), "%s:sendmsg", argv[i]);
		report(line, fd < 0 ? errno : ERR(sendmsg(fd, &m, 0)));
		snprintf(line, sizeof(line), "%s:sendmmsg", argv[i]);
		report(line, fd < 0 ? errno : ERR(sendmmsg(fd, &mm, 1, 0)));
		if (fd >= 0)
			close(fd);
	}
	return 0;
}

/* fifo PATH...: is there a reader of the host's at the other end? */
int cmd_fifo(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		int fd = open(argv[i], O_WRONLY | O_NONBLOCK);
		int err = fd < 0 ? errno : ERR(write(fd, "x", 1));
		report(argv[i], err);
	}
	return 0;
}

/* inet ADDRESS PORT...: TCP connect, then a UDP send */
int cmd_inet(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i += 2) {
		struct sockaddr_in sa = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[i + 1])) };
		struct timeval tv = { 2, 0 };
		char line[128];
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		inet_pton(AF_INET, argv[i], &sa.sin_addr);
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
		snprintf(line, sizeof(line), "tcp:%s", argv[i]);
		int err = fd < 0 ? errno : ERR(connect(fd, (void *)&sa, sizeof(sa)));
		report(line, err == EINPROGRESS ? ETIMEDOUT : err);
		if (fd >= 0)
			close(fd);
		fd = socket(AF_INET, SOCK_DGRAM, 0);
		snprintf(line, sizeof(line), "udp:%s", argv[i]);
		report(line, fd < 0 ? errno : ERR(sendto(fd, "x", 1, 0, (void *)&sa, sizeof(sa))));
		if (fd >= 0)
			close(fd);
	}
	return 0;
}

/* -- what must go on working: the box's own sockets -- */

static int pair_up(int family, void *sa, socklen_t len)
{
	int l = socket(family, SOCK_STREAM, 0), one = 1;
	if (l < 0)
		return errno;
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(l, sa, len) < 0 || listen(l, 4) < 0 || getsockname(l, sa, &len) < 0)
		return errno;
	int c = socket(family, SOCK_STREAM, 0);
	if (connect(c, sa, len) < 0)
		return errno;
	int s = accept(l, NULL, NULL);
	char x = 0;
	if (s < 0 || write(c, "y", 1) != 1 || read(s, &x, 1) != 1)
		return errno;
	close(l);
	close(c);
	close(s);
	return x == 'y' ? 0 : EIO;
}

/* own DIR: loopback, a socket in DIR, an abstract one, a low port, a socket pair */
int cmd_own(int argc, char **argv)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, low = in;
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_un un;
	char name[256];
	int sv[2];

	if (argc < 2)
		return 2;
	report("tcp", pair_up(AF_INET, &in, sizeof(in)));
	report("tcp6", pair_up(AF_INET6, &in6, sizeof(in6)));
	low.sin_port = htons(80);
	report("port80", pair_up(AF_INET, &low, sizeof(low)));
	snprintf(name, sizeof(name), "%s/own.sock", argv[1]);
	unlink(name);
	socklen_t len = unix_addr(&un, name);
	report("unix", pair_up(AF_UNIX, &un, len));
	/* a name relative to the working directory: a mediator must look it up where the caller stands */
	if (chdir(argv[1]) == 0) {
		len = unix_addr(&un, "rel.sock");
		report("unix-relative", pair_up(AF_UNIX, &un, len));
	}
	len = unix_addr(&un, "@own-probe");
	report("abstract", pair_up(AF_UNIX, &un, len));
	report("socketpair", ERR(socketpair(AF_UNIX, SOCK_STREAM, 0, sv)));
	return 0;
}

/* race GOOD BAD N [LINK]: connects N times while another thread changes the address between a socket of ours and one of the host's. A mediator
 * that looks at the address and lets the call go on is beaten by this; the host counts who arrived. With LINK the address stays, and
 * what changes is the link that it names. */
static struct sockaddr_un race_addr[2], race_now;
static volatile int race_stop;
static char race_link[2][128];

static void *link_racer(void *unused)
{
	(void)unused;
	while (!race_stop)
		syscall(SYS_renameat2, AT_FDCWD, race_link[0], AT_FDCWD, race_link[1], 2 /* exchange */);
	return NULL;
}

static void *racer(void *unused)
{
	(void)unused;
	for (unsigned i = 0; !race_stop; i++)
		memcpy(race_now.sun_path, race_addr[i & 1].sun_path, 64);
	return NULL;
}

int cmd_race(int argc, char **argv)
{
	unsigned good = 0, n;
	pthread_t thread;

	if (argc < 4)
		return 2;
	n = (unsigned)atoi(argv[3]);
	unix_addr(&race_addr[0], argv[1]);
	unix_addr(&race_addr[1], argv[2]);
	race_now = race_addr[0];
	int l = socket(AF_UNIX, SOCK_STREAM, 0);
	unlink(argv[1]);
	if (bind(l, (void *)&race_addr[0], sizeof(race_now)) < 0 || listen(l, 64) < 0) {
		report("race-listen", errno);
		return 1;
	}
	fcntl(l, F_SETFL, O_NONBLOCK);
	if (argc > 4) {
		for (int i = 0; i < 2; i++) {
			snprintf(race_link[i], sizeof(race_link[i]), "%s%d", argv[4], i);
			unlink(race_link[i]);
			if (symlink(argv[1 + i], race_link[i]) < 0) {
				report("race-link", errno);
				return 1;
			}
		}
		unix_addr(&race_now, race_link[0]);
	}
	if (pthread_create(&thread, NULL, argc > 4 ? link_racer : racer, NULL) != 0)
		return 1;
	for (unsigned i = 0; i < n; i++) {
		int c = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0), s;
		if (connect(c, (void *)&race_now, sizeof(race_now)) == 0)
			good++;
		close(c);
		while ((s = accept(l, NULL, NULL)) >= 0)
			close(s);
	}
	race_stop = 1;
	pthread_join(thread, NULL);
	printf("race ok %u\n", good);
	return 0;
}

/* stall DIR ["mount" [SECONDS]]: a socket of our own that nobody accepts from, until connect blocks in a child; after so long other connects,
 * or a call that ends boxes. A mediator that waits in our place must not be blind or deaf meanwhile. */
int cmd_stall(int argc, char **argv)
{
	struct sockaddr_un full, other;
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char name[256];

	if (argc < 2)
		return 2;
	snprintf(name, sizeof(name), "%s/full.sock", argv[1]);
	unix_addr(&full, name);
	int l = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(l, (void *)&full, sizeof(full)) < 0 || listen(l, 0) < 0) {
		report("stall-listen", errno);
		return 1;
	}
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			int c = socket(AF_UNIX, SOCK_STREAM, 0);
			connect(c, (void *)&full, sizeof(full));
			sleep(60);
			_exit(0);
		}
	sleep(argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1);
	puts("stalled");
	fflush(stdout);
	if (argc > 2) {
		syscall(SYS_mount, "probe", "/tmp", "tmpfs", 0, NULL);
		puts("SURVIVED");
		return 0;
	}
	snprintf(name, sizeof(name), "%s/other.sock", argv[1]);
	socklen_t len = unix_addr(&other, name);
	report("unix", pair_up(AF_UNIX, &other, len));
	report("tcp", pair_up(AF_INET, &in, sizeof(in)));
	return 0;
}

/* -- the terminal -- */

static int tty_fd;
static const unsigned long sti = 0x5412, linux_call = 0x541c, setd = 0x5423;

static int push(unsigned long request)
{
	char c = 'X';
	return ERR(syscall(SYS_ioctl, tty_fd, request, &c));
}
static int t_sti(void) { return push(sti); }
static int t_sti_high(void) { return push(sti | 1ul << 32); }
static int t_sti_top(void) { return push(sti | 1ul << 63); }
static int t_sti_all(void) { return push(sti | 0xffffffff00000000ul); }
static int t_linux(void)
{
	char sub = 3; /* paste the selection */
	return ERR(syscall(SYS_ioctl, tty_fd, linux_call, &sub));
}
static int t_linux_high(void)
{
	char sub = 3;
	return ERR(syscall(SYS_ioctl, tty_fd, linux_call | 1ul << 32, &sub));
}
static int t_size(void)
{
	struct winsize w;
	return ERR(ioctl(tty_fd, TIOCGWINSZ, &w));
}
static int t_setd(void)
{
	int disc = 0;
	return ERR(syscall(SYS_ioctl, tty_fd, setd, &disc));
}
static int t_devtty(void)
{
	int fd = open("/dev/tty", O_RDWR);
	char c = 'X';
	return fd < 0 ? errno : ERR(syscall(SYS_ioctl, fd, sti, &c));
}
static int t_console(void) { return ERR(open("/dev/console", O_RDWR | O_NOCTTY)); }

static const struct attack tty_table[] = {
	{ "winsize", t_size }, { "sti", t_sti }, { "sti+2^32", t_sti_high }, { "sti+2^63", t_sti_top }, { "sti+high", t_sti_all },
	{ "tioclinux", t_linux }, { "tioclinux+2^32", t_linux_high }, { "sti:/dev/tty", t_devtty }, { "tiocsetd", t_setd },
	{ "console", t_console },
};

/* tty: on descriptor 0 */
int cmd_tty(int argc, char **argv)
{
	tty_fd = 0;
	return attempt_table(tty_table, COUNT(tty_table), argc, argv);
}
