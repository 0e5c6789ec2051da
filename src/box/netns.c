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
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 && errno == EAFNOSUPPORT) /* a kernel without IPv4 */
		return 0;
	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr) < 0)
		return err_sys(e, "bring the loopback interface up");
	return 0;
}

static int netns_make(int init, int *ret, struct err *e)
{
	_cleanup_fd_ int fd = -1;

	if (setns(init, CLONE_NEWUSER) < 0)
		return err_sys(e, "join the box's user namespace");
	if (unshare(CLONE_NEWNET) < 0)
		return userns_refused("network namespace", errno, e);
	if (loopback_up(e) < 0)
		return -1;
	/* Ports below 1024 are free here: nobody else is in it. Refused where an outer container made /proc/sys read-only; then they stay privileged,
	 * which is the kernel's own default and no harm. */
	(void)fd_write_file_at(AT_FDCWD, "/proc/sys/net/ipv4/ip_unprivileged_port_start", "0");
	fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "open the box's network namespace");
	*ret = fd_steal(&fd);
	return 0;
}

static _Noreturn void helper(int init, int order)
{
	struct init_order o = { .kind = ORDER_NET };
	_cleanup_fd_ int net = -1;

	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (netns_make(init, &net, &o.err) < 0) {
		err_at(&o.err, STAGE_NETWORK);
		o.kind = ORDER_FAIL;
	}
	_exit(fd_send(order, &o, sizeof(o), &net, net >= 0) < 0);
}

int netns_start(int init, int order, pid_t *ret, struct err *e)
{
	struct sys_clone_args args = { .flags = SYS_CLONE_CLEAR_SIGHAND };
	pid_t pid = sys_clone3(&args);

	if (pid == 0)
		helper(init, order);
	if (pid < 0) {
		err_sys(e, "start the network helper");
		return err_at(e, STAGE_NETWORK);
	}
	*ret = pid;
	return 0;
}
