/* The helper shares cloche's memory, but no more: copying the memory would take as long as a quarter of its work. It runs beside cloche on a
 * stack of its own and touches nothing else; errno, which it would share, is written by calls that fail, and then the box fails with it. */
#include "box/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/userns_why.h"

static int loopback_up(struct err *e)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 && errno == EAFNOSUPPORT) /* a kernel without IPv4 */
		return 0;
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
		return err_sys(e, "bring the loopback interface up");
	return 0;
}

/* Ports below 1024 are free here: nobody else is in it. Refused where an outer container made /proc/sys read-only; then they stay privileged, which
 * is the kernel's own default and no harm. */
static void low_ports(void)
{
	int fd = open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC);

	if (fd >= 0)
		(void)!write(fd, "0", 1);
}

/* Nothing is closed: the helper is about to end. */
static int netns_make(int init, int *ret, struct err *e)
{
	if (setns(init, CLONE_NEWUSER) < 0)
		return err_sys(e, "join the box's user namespace");
	if (unshare(CLONE_NEWNET) < 0)
		return userns_refused("network namespace", errno, e);
	if (loopback_up(e) < 0)
		return -1;
	low_ports();
	*ret = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? err_sys(e, "open the box's network namespace") : 0;
}

struct helper {
	int init, order;
};

static int helper(void *arg)
{
	const struct helper *h = arg;
	struct init_order o = { .kind = ORDER_NET };
	int net = -1;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (netns_make(h->init, &net, &o.err) < 0) {
		err_at(&o.err, STAGE_NETWORK);
		o.kind = ORDER_FAIL;
	}
	_exit(fd_send(h->order, &o, sizeof(o), &net, net >= 0) < 0);
}

int netns_start(int init, int order, pid_t *ret, struct err *e)
{
	static char stack[32768] __attribute__((aligned(16)));
	static struct helper h;
	pid_t pid;

	h = (struct helper){ .init = init, .order = order };
	pid = clone(helper, stack + sizeof(stack), CLONE_VM, &h);
	if (pid < 0) {
		err_sys(e, "start the network helper");
		return err_at(e, STAGE_NETWORK);
	}
	*ret = pid;
	return 0;
}
