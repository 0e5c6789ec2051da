/* From the table of classes to a classic BPF program.
 *
 * The program: architecture, x32, a binary search over ranges of call numbers with the same answer,
 * then a few shared tails, each a short check of arguments or a return. It is written from its end
 * to its start, so every jump target is already there and its distance known; conditional jumps
 * reach 255 instructions, and where one would have to go further a plain JA is put in between. A
 * tail is written when its first user asks for it, so nothing unreachable gets in.
 *
 * Why size and shape matter: when a filter is loaded, the kernel walks it once for every call
 * number to find those that are always allowed (seccomp_cache_prepare), so loading costs the sum of
 * the path lengths, and a linear list costs milliseconds.
 *
 * What may go wrong: arguments are 64 bits, loads 32. A check reads the low word where the kernel
 * takes an int (so no garbage in the high word may change the answer) and both words where it takes
 * a pointer. */
#include "box/seccomp_table.h"

#include <assert.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <string.h>

#define ARG_LOW(n)                                                                                 \
	((uint32_t)offsetof(struct seccomp_data, args) +                                           \
	 8u * (n)) /* both architectures are little-endian */
#define ARG_HIGH(n) (ARG_LOW(n) + 4u)
#define JUMP_MAX 255

#ifndef AUDIT_ARCH_AARCH64
#error "linux/audit.h lacks the architecture numbers"
#endif
static const uint32_t audit_arch[] = {
	[SC_X86_64] = AUDIT_ARCH_X86_64, [SC_AARCH64] = AUDIT_ARCH_AARCH64
};
static_assert(sizeof(audit_arch) / sizeof(audit_arch[0]) == SC_ARCH_N,
	      "a number for every architecture");

static const uint32_t ret_value[] = {
	[SC_ENOSYS] = SECCOMP_RET_ERRNO | ENOSYS,
	[SC_ALLOW] = SECCOMP_RET_ALLOW,
	[SC_EPERM] = SECCOMP_RET_ERRNO | EPERM,
	[SC_EAFNOSUPPORT] = SECCOMP_RET_ERRNO | EAFNOSUPPORT,
	[SC_ZERO] = SECCOMP_RET_ERRNO | 0,
	[SC_DENY] = SECCOMP_RET_USER_NOTIF,
	[SC_END] = SECCOMP_RET_USER_NOTIF,
	[SC_MEDIATE] = SECCOMP_RET_USER_NOTIF,
	[SC_KILL] = SECCOMP_RET_KILL_PROCESS,
};
static_assert(sizeof(ret_value) / sizeof(ret_value[0]) == SC_ARGS,
	      "a return value for every verdict");

/* A program in the making. Positions count from the end of the program: rev[0] is its last
 * instruction. */
struct builder {
	struct sock_filter rev[SC_PROG_MAX];
	int n;
	int at[SC_CLASS_N]; /* where the tail of a class starts, or -1 */
	bool full;
};

/* A run of call numbers with the same tail. */
struct range {
	int first;
	int to;
};

/* Puts one instruction in front of what is there; returns its position. */
static int put(struct builder *b, uint16_t code, uint8_t jt, uint8_t jf, uint32_t k)
{
	if (b->n == SC_PROG_MAX) {
		b->full = true;
		return 0;
	}
	b->rev[b->n] = (struct sock_filter){ code, jt, jf, k };
	return b->n++;
}

static int put_load(struct builder *b, uint32_t offset)
{
	return put(b, BPF_LD | BPF_W | BPF_ABS, 0, 0, offset);
}

/* A position from which `target` is a plain jump away, near the front. */
static int bring_near(struct builder *b, int target)
{
	return put(b, BPF_JMP | BPF_JA, 0, 0, (uint32_t)(b->n - target - 1));
}

/* Compares the loaded word with k: to `yes` or `no`, both positions. */
static int put_if(struct builder *b, uint16_t op, uint32_t k, int yes, int no)
{
	/* One less than the reach: bringing the second target near pushes the first one further
	 * away. */
	if (b->n - yes - 1 >= JUMP_MAX)
		yes = bring_near(b, yes);
	if (b->n - no - 1 >= JUMP_MAX)
		no = bring_near(b, no);
	return put(b, BPF_JMP | op | BPF_K, (uint8_t)(b->n - yes - 1), (uint8_t)(b->n - no - 1), k);
}

/* Is the loaded word one of k[]? */
static int put_if_any(struct builder *b, const uint32_t *k, size_t n, int yes, int no)
{
	int at = no;

	for (size_t i = n; i-- > 0;)
		at = put_if(b, BPF_JEQ, k[i], yes, at);
	return at;
}
#define PUT_IF_ANY(b, yes, no, ...)                                                                \
	put_if_any(b, (const uint32_t[]){ __VA_ARGS__ },                                           \
		   sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t), yes, no)

static int put_tail(struct builder *b, unsigned class);

/* Where the tail of a class starts; writes it when nobody has asked before. */
static int tail(struct builder *b, unsigned class)
{
	/* Calls that go to the listener share one tail whatever it then does with them. */
	if (class == SC_END || class == SC_MEDIATE)
		class = SC_DENY;
	if (b->at[class] < 0)
		b->at[class] = put_tail(b, class);
	return b->at[class];
}

/* Argument n is a mode without any of these bits. */
static int put_mode(struct builder *b, unsigned n, uint32_t bits)
{
	put_if(b, BPF_JSET, bits, tail(b, SC_EPERM), tail(b, SC_ALLOW));
	return put_load(b, ARG_LOW(n));
}

/* Argument n is the mode of a device node: a lie. */
static int put_mknod_lie(struct builder *b, unsigned n)
{
	PUT_IF_ANY(b, tail(b, SC_ZERO), tail(b, SC_ALLOW), 0020000 /* S_IFCHR */,
		   0060000 /* S_IFBLK */);
	put(b, BPF_ALU | BPF_AND | BPF_K, 0, 0, 0170000 /* S_IFMT */);
	return put_load(b, ARG_LOW(n));
}

/* The mode counts only when a file may be created: otherwise the register holds anything, and is
 * not looked at. */
static int put_open(struct builder *b, unsigned flags, unsigned mode)
{
	int check = put_mode(b, mode, SC_SETID_BITS);

	put_if(b, BPF_JSET, SC_OPEN_CREATES, check, tail(b, SC_ALLOW));
	return put_load(b, ARG_LOW(flags));
}

static int put_zero(struct builder *b, uint32_t offset, int yes, int no)
{
	put_if(b, BPF_JEQ, 0, yes, no);
	return put_load(b, offset);
}

/* Argument 0 is `which`, argument 1 is 0. */
static int put_which(struct builder *b, uint32_t which)
{
	int who = put_zero(b, ARG_LOW(1), tail(b, SC_ALLOW), tail(b, SC_EPERM));

	put_if(b, BPF_JEQ, which, who, tail(b, SC_EPERM));
	return put_load(b, ARG_LOW(0));
}

static int put_type(struct builder *b)
{
	put(b, BPF_ALU | BPF_AND | BPF_K, 0, 0,
	    0xf); /* SOCK_TYPE_MASK: without CLOEXEC and NONBLOCK */
	return put_load(b, ARG_LOW(1));
}

/* A unix socket whose sends can't name a target: a stream socket refuses a name (EISCONN,
 * EOPNOTSUPP) and a seqpacket one ignores it, so only connect reaches a socket, and connect is
 * mediated. A raw unix socket is a datagram one in disguise. */
static int put_unix_connected(struct builder *b)
{
	PUT_IF_ANY(b, tail(b, SC_ALLOW), tail(b, SC_EPERM), 1 /* SOCK_STREAM */,
		   5 /* SOCK_SEQPACKET */);
	return put_type(b);
}

/* Internet sockets: TCP, UDP, ICMP echo, multipath TCP; raw ones are a matter of capabilities. The
 * rest (SCTP, DCCP, L2TP, SMC...) would load kernel modules that few programs use and many exploits
 * did. */
static int put_inet(struct builder *b)
{
	int allow = tail(b, SC_ALLOW), refuse = tail(b, SC_EAFNOSUPPORT);
	int protocol;

	PUT_IF_ANY(b, allow, refuse, 0, 6 /* TCP */, 17 /* UDP */, 1 /* ICMP */, 58 /* ICMPv6 */,
		   262 /* MPTCP */);
	protocol = put_load(b, ARG_LOW(2));
	put_if_any(b, (const uint32_t[]){ 1 /* SOCK_STREAM */, 2 /* SOCK_DGRAM */ }, 2, protocol,
		   put_if(b, BPF_JEQ, 3 /* SOCK_RAW */, allow, refuse));
	return put_type(b);
}

/* Families: unix, internet, and of netlink the routing protocol (getifaddrs). Not vsock (reaches
 * past the network namespace to the machine's host), alg, packet, bluetooth, xdp, rds, tipc, kcm...
 * The kernel takes the family as an int. */
static int put_socket(struct builder *b, bool connected)
{
	int refuse = tail(b, SC_EAFNOSUPPORT);
	int inet = put_inet(b);
	int netlink = put_zero(b, ARG_LOW(2), tail(b, SC_ALLOW), refuse);
	int local = connected ? put_unix_connected(b) : tail(b, SC_ALLOW);
	int at;

	at = put_if(b, BPF_JEQ, 16 /* AF_NETLINK */, netlink, refuse);
	at = put_if_any(b, (const uint32_t[]){ 2 /* AF_INET */, 10 /* AF_INET6 */ }, 2, inet, at);
	put_if(b, BPF_JEQ, 1 /* AF_UNIX */, local, at);
	return put_load(b, ARG_LOW(0));
}

static int put_socketpair(struct builder *b, bool connected)
{
	int local = connected ? put_unix_connected(b) : tail(b, SC_ALLOW);

	put_if(b, BPF_JEQ, 1 /* AF_UNIX */, local, tail(b, SC_EAFNOSUPPORT));
	return put_load(b, ARG_LOW(0));
}

/* The kernel takes the request as an unsigned int: all 2^32 arguments with the same low word are
 * the same request. */
static int put_ioctl(struct builder *b)
{
	PUT_IF_ANY(b, tail(b, SC_EPERM), tail(b, SC_ALLOW), 0x5412 /* TIOCSTI: types for another */,
		   0x541C /* TIOCLINUX: pastes a selection */,
		   0x5423 /* TIOCSETD: loads a line discipline */);
	return put_load(b, ARG_LOW(1));
}

/* 32-bit uname (8), version-2.6 uname (0x20000), both; no address randomisation (0x40000: gdb,
 * ThreadSanitizer, setarch -R), which weakens nobody but the caller; and the query. Not what makes
 * memory executable or maps page zero. */
static int put_personality(struct builder *b)
{
	PUT_IF_ANY(b, tail(b, SC_ALLOW), tail(b, SC_EPERM), 0, 8, 0x20000, 0x20008, 0x40000,
		   0xffffffff);
	return put_load(b, ARG_LOW(0));
}

/* The new limit's pointer is NULL when limits are only read. */
static int put_prlimit(struct builder *b)
{
	int allow = tail(b, SC_ALLOW), refuse = tail(b, SC_EPERM);
	int null = put_zero(b, ARG_LOW(2), put_zero(b, ARG_HIGH(2), allow, refuse), refuse);

	return put_zero(b, ARG_LOW(0), allow, null);
}

/* Any of the bits in argument n is refused. */
static int put_no_bits(struct builder *b, unsigned n, uint32_t bits)
{
	put_if(b, BPF_JSET, bits, tail(b, SC_EPERM), tail(b, SC_ALLOW));
	return put_load(b, ARG_LOW(n));
}

/* A lease holds up whoever opens the file on the host, for 45 seconds each time; a delegation
 * (Linux 6.19) whoever changes the directory, too. */
static int put_fcntl(struct builder *b)
{
	PUT_IF_ANY(b, tail(b, SC_EPERM), tail(b, SC_ALLOW), 1024 /* F_SETLEASE */,
		   1040 /* F_SETDELEG */);
	return put_load(b, ARG_LOW(1));
}

/* Classic programs are compiled into memory that no group is charged for and that is bounded for
 * the whole machine: past the bound no seccomp filter can be loaded, in no box. */
static int put_setsockopt(struct builder *b)
{
	int option;

	PUT_IF_ANY(b, tail(b, SC_EPERM), tail(b, SC_ALLOW), 26 /* SO_ATTACH_FILTER */,
		   51 /* SO_ATTACH_REUSEPORT_CBPF */);
	option = put_load(b, ARG_LOW(2));
	put_if(b, BPF_JEQ, 1 /* SOL_SOCKET */, option, tail(b, SC_ALLOW));
	return put_load(b, ARG_LOW(1));
}

static int put_tail(struct builder *b, unsigned class)
{
	switch (class) {
	case SC_ARG_CLONE:
		put_if(b, BPF_JSET, SC_NS_FLAGS, tail(b, SC_DENY), tail(b, SC_ALLOW));
		return put_load(b, ARG_LOW(0));
	case SC_ARG_UNSHARE:
		put_if(b, BPF_JSET, ~SC_UNSHARE_OK, tail(b, SC_DENY), tail(b, SC_ALLOW));
		return put_load(b, ARG_LOW(0));
	case SC_ARG_IOCTL:
		return put_ioctl(b);
	case SC_ARG_SOCKET:
		return put_socket(b, false);
	case SC_ARG_SOCKET_CONNECTED:
		return put_socket(b, true);
	case SC_ARG_SOCKETPAIR:
		return put_socketpair(b, false);
	case SC_ARG_SOCKETPAIR_CONNECTED:
		return put_socketpair(b, true);
	case SC_ARG_PERSONALITY:
		return put_personality(b);
	case SC_ARG_MODE1:
		return put_mode(b, 1, SC_SETID_BITS);
	case SC_ARG_MODE2:
		return put_mode(b, 2, SC_SETID_BITS);
	case SC_ARG_MKNOD1:
		return put_mode(b, 1, SC_SETID_BITS | SC_DEVICE_BIT);
	case SC_ARG_MKNOD2:
		return put_mode(b, 2, SC_SETID_BITS | SC_DEVICE_BIT);
	case SC_ARG_MKNOD_LIE1:
		return put_mknod_lie(b, 1);
	case SC_ARG_MKNOD_LIE2:
		return put_mknod_lie(b, 2);
	case SC_ARG_OPEN1:
		return put_open(b, 1, 2);
	case SC_ARG_OPEN2:
		return put_open(b, 2, 3);
	case SC_ARG_SELF:
		return put_zero(b, ARG_LOW(0), tail(b, SC_ALLOW), tail(b, SC_EPERM));
	case SC_ARG_PRLIMIT:
		return put_prlimit(b);
	case SC_ARG_SETPRIORITY:
		return put_which(b, 0 /* PRIO_PROCESS */);
	case SC_ARG_IOPRIO:
		return put_which(b, 1 /* IOPRIO_WHO_PROCESS */);
	case SC_ARG_FCNTL:
		return put_fcntl(b);
	case SC_ARG_RENAME:
		return put_no_bits(b, 4, 4 /* RENAME_WHITEOUT */);
	case SC_ARG_MMAP:
		return put_no_bits(b, 3, 0x40000 /* MAP_HUGETLB */);
	case SC_ARG_MEMFD:
		return put_no_bits(b, 1, 4 /* MFD_HUGETLB */);
	case SC_ARG_SETSOCKOPT:
		return put_setsockopt(b);
	default: /* A verdict; anything else would be a hole in this switch, and is refused. */
		return put(b, BPF_RET | BPF_K, 0, 0,
			   class < SC_ARGS ? ret_value[class] : ret_value[SC_ENOSYS]);
	}
}

/* Are the odd ranges single calls among one and the same answer? Then a JEQ each is all it takes.
 */
static bool is_exceptions(const struct range *r, size_t n)
{
	if (n % 2 == 0)
		return false;
	for (size_t i = 1; i < n; i += 2)
		if (r[i + 1].first - r[i].first != 1 || r[i + 1].to != r[0].to)
			return false;
	return true;
}

/* The search over n ranges. Numbers below r[0].first and from r[n].first on never get here. */
static int put_tree(struct builder *b, const struct range *r, size_t n)
{
	size_t mid = n / 2;
	int low, high;

	if (n == 1)
		return r[0].to;
	if (n <= 5 && is_exceptions(r, n)) {
		low = r[0].to;
		for (size_t i = 1; i < n; i += 2)
			low = put_if(b, BPF_JEQ, (uint32_t)r[i].first, r[i].to, low);
		return low;
	}
	high = put_tree(b, r + mid, n - mid);
	low = put_tree(b, r, mid);
	return put_if(b, BPF_JGE, (uint32_t)r[mid].first, high, low);
}

uint8_t sc_class_of(const uint8_t table[SC_NR_MAX], const struct sc_request *rq, int64_t nr)
{
	uint8_t class = nr >= 0 && nr < SC_NR_MAX ? table[nr] : SC_ENOSYS;

	if (class == SC_IF_MEMFD)
		class = rq->hide_memfd ? SC_ENOSYS : SC_ALLOW;
	else if (class == SC_IF_MEMFD_FLAGS)
		class = rq->hide_memfd ? SC_ENOSYS : SC_ARG_MEMFD;
	else if (class == SC_IF_CONNECT)
		class = rq->untrusted ? SC_MEDIATE : SC_ALLOW;
	else if (class == SC_ARG_SOCKET && rq->untrusted)
		class = SC_ARG_SOCKET_CONNECTED;
	else if (class == SC_ARG_SOCKETPAIR && rq->untrusted)
		class = SC_ARG_SOCKETPAIR_CONNECTED;
	else if (class == SC_IF_SETUP)
		class = rq->setup ? SC_ZERO : SC_ALLOW;
	else if (rq->setup && class >= SC_ARG_MODE1 && class <= SC_ARG_OPEN2)
		class = SC_ALLOW;
	else if (rq->setup && class == SC_ARG_MKNOD1)
		class = SC_ARG_MKNOD_LIE1;
	else if (rq->setup && class == SC_ARG_MKNOD2)
		class = SC_ARG_MKNOD_LIE2;

	/* The last rule for a call counts. No rule lifts an argument check, a mediation or the
	 * ending set; what a rule denies is recorded, as the caller asked for it. */
	for (size_t i = rq->n_rules; i-- > 0;) {
		if (rq->rules[i].nr != nr)
			continue;
		if (rq->rules[i].action == BOX_RULE_DENY)
			return class == SC_END ? SC_END : SC_DENY;
		return class == SC_ENOSYS || class == SC_EPERM || class == SC_DENY ? SC_ALLOW
										   : class;
	}
	return class;
}

/* Runs of calls with the same tail, over all call numbers; returns their count. */
static size_t find_ranges(struct builder *b, const uint8_t table[SC_NR_MAX],
			  const struct sc_request *rq, struct range ret[SC_NR_MAX + 2])
{
	size_t n = 0;

	for (int nr = 0; nr <= SC_NR_MAX; nr++) {
		int to = tail(b, sc_class_of(table, rq, nr));

		if (n == 0 || ret[n - 1].to != to)
			ret[n++] = (struct range){ nr, to };
	}
	ret[n].first = SC_NR_MAX + 1;
	return n;
}

int sc_build_table(enum sc_arch arch, const uint8_t table[SC_NR_MAX], const struct sc_request *rq,
		   struct sc_program *ret, struct err *e)
{
	struct range ranges[SC_NR_MAX + 2];
	struct builder b;
	int start, kill;

	b.n = 0;
	b.full = false;
	for (size_t i = 0; i < SC_CLASS_N; i++)
		b.at[i] = -1;

	kill = tail(&b, SC_KILL);
	start = put_tree(&b, ranges, find_ranges(&b, table, rq, ranges));
	if (arch == SC_X86_64) {
		/* -1 is no x32 call, but what programs pass for a call their headers don't know. */
		int x32 = put_if(&b, BPF_JEQ, 0xffffffff, tail(&b, SC_ENOSYS), kill);

		start = put_if(&b, BPF_JGE, SC_X32_BIT, x32, start);
	}
	if (start != b.n - 1) /* a tree of one range has no instruction of its own */
		bring_near(&b, start);
	put_load(&b, (uint32_t)offsetof(struct seccomp_data, nr));
	put_if(&b, BPF_JEQ, audit_arch[arch], b.n - 1, kill);
	put_load(&b, (uint32_t)offsetof(struct seccomp_data, arch));
	if (b.full)
		return err_set(
			e, ERR_REFUSED,
			"seccomp: the program for these rules is longer than %d instructions",
			SC_PROG_MAX);

	for (int i = 0; i < b.n; i++)
		ret->code[i] = b.rev[b.n - 1 - i];
	ret->len = (uint16_t)b.n;
	return 0;
}
