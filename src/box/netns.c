#include "box/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/userns_why.h"

static int loopback_up(struct err *e)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;

	if (fd < 0)
		return err_sys(e, "open a socket in the box's network");
	r = ioctl(fd, SIOCSIFFLAGS, &ifr);
	if (r < 0)
		err_sys(e, "bring the loopback interface up");
	close(fd);
	return r;
}

/* Nothing here may write errno but a call that fails for good: init reads its own at the same time.
 * So no cleanup attributes, and nothing that is allowed to fail. */
static int netns_make(const struct netns *n, int *ret, struct err *e)
{
	if (unshare(CLONE_NEWNET) < 0)
		return userns_step("network namespace", e);
	if (loopback_up(e) < 0)
		return -1;
	*ret = openat(n->proc, "thread-self/ns/net", O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? err_sys(e, "open the box's network namespace") : 0;
}

static int helper(void *arg)
{
	struct netns *n = arg;

	return netns_make(n, &n->fd, &n->err) < 0;
}

int netns_start(struct netns *n, struct err *e)
{
	static char stack[65536] __attribute__((aligned(16)));

	n->fd = -1;
	n->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (n->proc < 0)
		return err_sys(e, "open /proc");
	n->pid = clone(helper, stack + sizeof(stack), CLONE_VM | CLONE_FILES, n);
	return n->pid < 0 ? err_fork(e, "start the network helper") : 0;
}

/* Ports below 1024 are free here: nobody else is in it. Refused where an outer container made
 * /proc/sys read-only; then they stay privileged, which is the kernel's own default and no harm. */
static void low_ports(int proc)
{
	(void)fd_write_file_at(proc, "sys/net/ipv4/ip_unprivileged_port_start", "0");
}

int netns_enter(struct netns *n, struct err *e)
{
	_cleanup_fd_ int net = -1, proc = n->proc;
	int status;

	while (waitpid(n->pid, &status, __WALL) < 0)
		if (errno != EINTR)
			return err_sys(e, "wait for the network helper");
	net = n->fd;
	if (!WIFEXITED(status))
		return err_set(e, ERR_SYS, "the network helper was killed");
	if (status != 0) {
		*e = n->err;
		return -1;
	}
	if (setns(net, CLONE_NEWNET) < 0)
		return err_sys(e, "enter the box's network namespace");
	low_ports(proc);
	return 0;
}
