/* What the filter means, in plain C: the answer to one call, worked out without BPF. The tests hold
 * every program against it, over all call numbers and many arguments; at run time only records of
 * denials ask it, to tell whose refusal it was: it decides nothing.
 * It shares the table with the builder, but none of the builder's checks: those are written a
 * second time here, in the kernel's own types. */
#include <sys/stat.h>

#include "box/seccomp_table.h"

static bool sets_id(uint64_t mode)
{
	return ((mode_t)mode & (S_ISUID | S_ISGID)) != 0;
}

static enum sc_verdict expect_mknod(uint64_t mode)
{
	return sets_id(mode) || (mode_t)mode & S_IFCHR ? SC_EPERM : SC_ALLOW;
}

static enum sc_verdict expect_mknod_lie(uint64_t mode)
{
	return S_ISCHR((mode_t)mode) || S_ISBLK((mode_t)mode) ? SC_ZERO : SC_ALLOW;
}

static enum sc_verdict expect_open(uint64_t flags, uint64_t mode)
{
	bool creates = ((int)flags & (int)SC_OPEN_CREATES) != 0;

	return creates && sets_id(mode) ? SC_EPERM : SC_ALLOW;
}

static enum sc_verdict expect_unix_connected(uint64_t type)
{
	int kind = (int)type & 0xf;

	return kind == 1 || kind == 5 ? SC_ALLOW : SC_EPERM;
}

static enum sc_verdict expect_inet(int type, int protocol)
{
	switch (type & 0xf) {
	case 3:
		return SC_ALLOW;
	case 1:
	case 2:
		switch (protocol) {
		case 0:
		case 1:
		case 6:
		case 17:
		case 58:
		case 262:
			return SC_ALLOW;
		}
	}
	return SC_EAFNOSUPPORT;
}

static enum sc_verdict expect_socket(const uint64_t args[6], bool connected)
{
	switch ((int)args[0]) {
	case 1:
		return connected ? expect_unix_connected(args[1]) : SC_ALLOW;
	case 2:
	case 10:
		return expect_inet((int)args[1], (int)args[2]);
	case 16:
		return (int)args[2] == 0 ? SC_ALLOW : SC_EAFNOSUPPORT;
	}
	return SC_EAFNOSUPPORT;
}

static enum sc_verdict expect_socketpair(const uint64_t args[6], bool connected)
{
	if ((int)args[0] != 1)
		return SC_EAFNOSUPPORT;
	return connected ? expect_unix_connected(args[1]) : SC_ALLOW;
}

static enum sc_verdict expect_ioctl(unsigned request)
{
	return request == 0x5412 || request == 0x541C || request == 0x5423 ? SC_EPERM : SC_ALLOW;
}

static enum sc_verdict expect_personality(unsigned persona)
{
	switch (persona) {
	case 0:
	case 8:
	case 0x20000:
	case 0x20008:
	case 0x40000:
	case 0xffffffff:
		return SC_ALLOW;
	}
	return SC_EPERM;
}

static enum sc_verdict allow_if(bool condition, enum sc_verdict otherwise)
{
	return condition ? SC_ALLOW : otherwise;
}

enum sc_verdict sc_expect(enum sc_arch arch, const struct sc_request *rq, int nr,
			  const uint64_t args[6])
{
	uint8_t class = sc_class_of(sc_table[arch], rq, nr);

	if (arch == SC_X86_64 && nr != -1 && ((unsigned)nr & ~(SC_X32_BIT - 1)) != 0)
		return SC_KILL;
	switch (class) {
	case SC_ARG_CLONE:
		return allow_if(((unsigned)args[0] & SC_NS_FLAGS) == 0, SC_DENY);
	case SC_ARG_UNSHARE:
		return allow_if(((unsigned)args[0] | SC_UNSHARE_OK) == SC_UNSHARE_OK, SC_DENY);
	case SC_ARG_IOCTL:
		return expect_ioctl((unsigned)args[1]);
	case SC_ARG_SOCKET:
	case SC_ARG_SOCKET_CONNECTED:
		return expect_socket(args, rq->untrusted);
	case SC_ARG_SOCKETPAIR:
	case SC_ARG_SOCKETPAIR_CONNECTED:
		return expect_socketpair(args, rq->untrusted);
	case SC_ARG_PERSONALITY:
		return expect_personality((unsigned)args[0]);
	case SC_ARG_MODE1:
		return allow_if(!sets_id(args[1]), SC_EPERM);
	case SC_ARG_MODE2:
		return allow_if(!sets_id(args[2]), SC_EPERM);
	case SC_ARG_MKNOD1:
		return expect_mknod(args[1]);
	case SC_ARG_MKNOD2:
		return expect_mknod(args[2]);
	case SC_ARG_MKNOD_LIE1:
		return expect_mknod_lie(args[1]);
	case SC_ARG_MKNOD_LIE2:
		return expect_mknod_lie(args[2]);
	case SC_ARG_OPEN1:
		return expect_open(args[1], args[2]);
	case SC_ARG_OPEN2:
		return expect_open(args[2], args[3]);
	case SC_ARG_SELF:
		return allow_if((int)args[0] == 0, SC_EPERM);
	case SC_ARG_PRLIMIT:
		return allow_if((int)args[0] == 0 || args[2] == 0, SC_EPERM);
	case SC_ARG_SETPRIORITY:
		return allow_if((int)args[0] == 0 && (int)args[1] == 0, SC_EPERM);
	case SC_ARG_IOPRIO:
		return allow_if((int)args[0] == 1 && (int)args[1] == 0, SC_EPERM);
	case SC_ARG_FCNTL:
		return allow_if((int)args[1] != 1024 && (int)args[1] != 1040, SC_EPERM);
	case SC_ARG_RENAME:
		return allow_if(((unsigned)args[4] & 4) == 0, SC_EPERM);
	case SC_ARG_MMAP:
		return allow_if((args[3] & 0x40000) == 0, SC_EPERM);
	case SC_ARG_MEMFD:
		return allow_if(((unsigned)args[1] & 4) == 0, SC_EPERM);
	case SC_ARG_SETSOCKOPT:
		return allow_if((int)args[1] != 1 || ((int)args[2] != 26 && (int)args[2] != 51),
				SC_EPERM);
	default:
		return class < SC_ARGS ? (enum sc_verdict) class : SC_ENOSYS;
	}
}
