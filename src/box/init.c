#include "box/init.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sealed.h"
#include "base/sys.h"
#include "box/command.h"
#include "box/limits.h"
#include "box/locks.h"
#include "box/netns.h"
#include "box/ops.h"
#include "box/user.h"
#include "box/userns_why.h"

#define CONNECT_MS 20
#define TELL_TRIES 1000 /* a millisecond each */

struct init {
	struct init_args *a;
	struct init_msg msg; /* the one being filled; marks gather here */
	int signals;
	int listener;
	int tty_master, tty_slave;
	pid_t command;
	bool alone;		/* nobody is left to be reaped */
	int leave[FD_PASS_MAX]; /* the way back to cloche's own groups */
	size_t n_leave;
	struct netns net;
};

uint64_t box_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

void box_kill(int pidfd, int order)
{
	if (sys_pidfd_send_signal(pidfd, SIGKILL) < 0 && errno != ESRCH)
		(void)shutdown(order, SHUT_RDWR);
}

static void mark(struct init *in, enum box_mark m)
{
	in->msg.marks[m] = box_now();
}

/* A clone holds all that cloche holds: the other ends of the pipes, whatever the caller leaked. All
 * of it goes, but what is named here and the caller's 0-2, which go once the command runs (until
 * then they keep our own numbers above 2). */
static int init_close_foreign(const struct init_args *a, struct err *e)
{
	unsigned keep[4 + PLAN_SOURCES_MAX], n = 0, from = 3;

	keep[n++] = (unsigned)a->order;
	for (int i = 0; i < 3; i++)
		if (a->stdio[i] > 2)
			keep[n++] = (unsigned)a->stdio[i];
	for (unsigned i = 0; i < a->plan->n_sources; i++)
		if (a->plan->sources[i].fd > 2)
			keep[n++] = (unsigned)a->plan->sources[i].fd;
	while (n > 0) {
		unsigned least = 0;

		for (unsigned i = 1; i < n; i++)
			if (keep[i] < keep[least])
				least = i;
		if (keep[least] > from && sys_close_range(from, keep[least] - 1) < 0)
			return err_sys(e,
				       "close what the box must not hold (close_range, Linux 5.9)");
		from = keep[least] + 1;
		keep[least] = keep[--n];
	}
	if (sys_close_range(from, ~0U) < 0)
		return err_sys(e, "close what the box must not hold (close_range, Linux 5.9)");
	return 0;
}

/* Dispositions that the caller had set to ignore outlast clone and exec (signal(7)): a command must
 * not inherit them, and init would see no child end with SIGCHLD ignored. */
static int init_signals(struct err *e)
{
	static const unsigned long dfl[4]; /* the kernel's own struct: the C library's call refuses
					      the signals that it keeps for itself */

	for (int i = 1; i < NSIG; i++)
		if (syscall(SYS_rt_sigaction, i, dfl, NULL, 8) < 0 && i != SIGKILL && i != SIGSTOP)
			return err_sys(e, "reset signal %d", i);
	return 0;
}

/* A range is mapped from outside, since more than its own id nobody may map himself. */
static void init_ids_wait(const struct init_args *a)
{
	struct init_order o;

	if (fd_recv(a->order, &o, sizeof(o), NULL, 0, NULL) != sizeof(o) || o.kind != ORDER_IDS)
		_exit(1); /* the owner is gone, or has given up and says so itself */
}

/* One id inside stands for one id outside: whatever the box's user is called, it is the caller, or
 * an unprivileged id when the caller is root. Then nothing of the caller's ids is left: not the
 * real ones, not the saved ones. */
static int init_ids(const struct init_args *a, struct err *e)
{
	const struct box_spec *s = a->spec;

	if (a->root_caller &&
	    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0) /* else /proc/self/uid_map is root's */
		return err_sys(e, "open the own id maps");
	if (s->range.n > 0) {
		init_ids_wait(a);
		if (setgroups(0, NULL) < 0)
			return err_sys(e, "leave the caller's groups");
		return user_become(s, e);
	}
	return user_map(s, e) < 0 ? -1 : user_become(s, e);
}

/* Binds init's life to cloche's. The death signal is set after the ids (changing them clears it),
 * and the socket is looked at after that: between them no death of cloche goes unseen. */
static int init_life(const struct init_args *a, struct err *e)
{
	struct pollfd p = { .fd = a->order, .events = 0 };

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_sys(e, "bind the box to its owner");
	if (poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR))
		_exit(1);
	prctl(PR_SET_NAME, "cloche-init", 0, 0, 0);
	return 0;
}

static int init_cgroupns(struct err *e)
{
	return unshare(CLONE_NEWCGROUP) < 0 ? userns_step("cgroup namespace", e) : 0;
}

/* Puts itself into the groups that came with GO (limits.h says why init does so itself), and only
 * then takes its own group for the root of what it sees of them. */
static int init_limits(struct init *in, const struct init_order *o, int *fds, size_t n,
		       struct err *e)
{
	struct init_args *a = in->a;

	a->held = o->held;
	if (o->enter > n || limits_enter(fds, o->enter, e) < 0)
		return err_at(e, STAGE_LIMITS);
	in->n_leave = n - o->enter;
	memcpy(in->leave, fds + o->enter, in->n_leave * sizeof(fds[0]));
	if (!a->plan->own_group && init_cgroupns(e) < 0)
		return err_at(e, STAGE_NAMESPACE);
	return limits_inside(a->spec, a->held, e) < 0 ? err_at(e, STAGE_LIMITS) : 0;
}

/* The limits, made by cloche meanwhile. */
static int init_wait(struct init *in, struct err *e)
{
	struct init_order o;
	int fds[FD_PASS_MAX];
	size_t n = 0;
	ssize_t r = fd_recv(in->a->order, &o, sizeof(o), fds, FD_PASS_MAX, &n);

	if (r < 0 && errno != ECONNRESET) {
		err_sys(e, "wait for the limits");
		return err_at(e, STAGE_LIMITS);
	}
	if (r != sizeof(o) || o.kind != ORDER_GO)
		_exit(1); /* the owner is gone, or has given up and says so itself */
	return init_limits(in, &o, fds, n, e);
}

static int init_terminal(struct init *in, struct err *e)
{
	int unlock = 0;

	in->tty_master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (in->tty_master < 0 || ioctl(in->tty_master, TIOCSPTLCK, &unlock) < 0)
		return err_sys(e, "open a terminal");
	in->tty_slave = ioctl(in->tty_master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (in->tty_slave < 0)
		return err_sys(e, "open the terminal's other end");
	if (in->a->winsize.ws_row)
		ioctl(in->tty_master, TIOCSWINSZ, &in->a->winsize);
	return 0;
}

static int init_locks(struct init *in, struct err *e)
{
	const struct init_args *a = in->a;
	bool memory = a->held >> LIMIT_MEMORY & 1;

	if (locks_caps(a->spec->cap_keep, e) < 0 || locks_landlock(&in->msg.landlock_abi, e) < 0)
		return -1;
	return locks_seccomp(a->code[memory], a->code_len[memory], &in->listener, e);
}

/* Cloche waits for this message, whatever else it does: a moment without memory must not lose it.
 */
static int init_tell(const struct init *in, const int *fds, size_t n)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	for (int i = 0; i < TELL_TRIES; i++) {
		if (fd_send(in->a->order, &in->msg, sizeof(in->msg), fds, n) == 0)
			return 0;
		if (errno != ENOBUFS && errno != ENOMEM)
			break;
		nanosleep(&pause, NULL);
	}
	return -1;
}

/* Tells cloche that init runs. A clone begins on its parent's cpu and waits there as long as the
 * parent goes on; a parent that sleeps until now is woken on another one, and the two work side by
 * side. */
static void init_alive(struct init *in)
{
	in->msg.kind = INIT_ALIVE;
	if (init_tell(in, NULL, 0) < 0)
		_exit(1);
}

static int init_build(struct init *in, struct err *e)
{
	struct init_args *a = in->a;
	bool own_net = a->spec->network == BOX_NET_NONE;

	if (init_signals(e) < 0 || init_close_foreign(a, e) < 0)
		return err_at(e, STAGE_NAMESPACE);
	if (own_net && netns_start(&in->net, e) < 0)
		return err_at(e, STAGE_NETWORK);
	init_alive(in);
	if (init_ids(a, e) < 0 || init_life(a, e) < 0)
		return err_at(e, STAGE_NAMESPACE);
	if (a->plan->own_group && init_cgroupns(e) < 0)
		return err_at(e, STAGE_NAMESPACE);
	if (sethostname(a->spec->hostname, strlen(a->spec->hostname)) < 0) {
		userns_step("host name", e);
		return err_at(e, STAGE_NAMESPACE);
	}
	mark(in, MARK_IDS);
	if (ops_open_sources(a->plan, e) < 0)
		return err_at(e, STAGE_MOUNT);
	mark(in, MARK_SOURCES);
	if (ops_run(a->plan, e) < 0)
		return err_at(e, STAGE_MOUNT);
	mark(in, MARK_ROOT);
	/* While the network helper may still be at work. */
	if (locks_bounding(a->spec->cap_keep, e) < 0)
		return err_at(e, STAGE_LOCKS);
	if (init_wait(in, e) < 0)
		return -1;
	if (own_net && netns_enter(&in->net, e) < 0)
		return err_at(e, STAGE_NETWORK);
	if (ops_detach(a->plan, e) < 0)
		return err_at(e, STAGE_MOUNT);
	mark(in, MARK_JOINED);
	if (a->spec->tty && init_terminal(in, e) < 0)
		return err_at(e, STAGE_COMMAND);
	if (init_locks(in, e) < 0)
		return err_at(e, STAGE_LOCKS);
	mark(in, MARK_LOCKED);
	return 0;
}

static int init_code(int fd, struct err *e)
{
	_cleanup_fd_ int to = -1;
	char *code;
	size_t n;

	if (sealed_map(fd, BOX_CODE_MAX, &code, &n, e) < 0)
		return err_prefix(e, "the code");
	to = open("/" BOX_CODE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
	if (to < 0 || fd_write_all(to, code, n) < 0)
		return err_sys(e, "write the code to /" BOX_CODE);
	return n > 0 ? munmap(code, n) : 0;
}

static int init_words(struct box_spec *s, int fd, struct err *e)
{
	char **lists[3];
	size_t counts[3];

	if (sealed_words_read(fd, BOX_WORDS_MAX, 3, lists, counts, e) < 0)
		return -1;
	if (counts[0] < 1 || counts[2] != 1)
		return err_set(e, ERR_SYS, "the words of the command are not whole");
	s->argv = lists[0];
	s->env = lists[1];
	s->cwd = lists[2][0];
	return 0;
}

/* What to run, for a box that was built ahead: behind all locks, as the command itself will be.
 * Nothing foreign has run in it yet. */
static int init_take(struct init *in, struct err *e)
{
	static struct box_spec own;
	struct init_args *a = in->a;
	struct init_order o;
	int fds[FD_PASS_MAX];
	size_t n = 0, k = 0;

	if (fd_recv(a->order, &o, sizeof(o), fds, FD_PASS_MAX, &n) != sizeof(o) ||
	    o.kind != ORDER_COMMAND || n != 1U + o.has_in + (o.tty ? 0 : 2) + o.has_code)
		_exit(1); /* the owner is gone, or nobody claimed it */
	mark(in, MARK_LOCKED);
	own = *a->spec;
	own.tty = o.tty;
	a->spec = &own;
	a->winsize = o.size;
	if (init_words(&own, fds[k], e) < 0)
		return -1;
	close(fds[k++]);
	if (o.has_in)
		a->stdio[0] = fds[k++];
	for (int i = 1; i < 3 && !o.tty; i++)
		a->stdio[i] = fds[k++];
	if (o.has_code && init_code(fds[k], e) < 0)
		return -1;
	if (o.has_code)
		close(fds[k]);
	return o.tty ? init_terminal(in, e) : 0;
}

static int init_watch(struct init *in, struct err *e)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	in->signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
	if (in->signals >= 0)
		return 0;
	err_sys(e, "watch for children");
	return err_at(e, STAGE_COMMAND);
}

static int init_start(struct init *in, struct err *e)
{
	const int tty[3] = { in->tty_slave, in->tty_slave, in->tty_slave };
	struct init_args *a = in->a;
	int fds[2] = { in->listener, in->tty_master };

	if (command_spawn(a->spec, in->tty_slave >= 0 ? tty : a->stdio, in->tty_slave >= 0, a->held,
			  &in->command, e) < 0)
		return -1;
	mark(in, MARK_STARTED);
	in->msg.kind = INIT_STARTED;
	in->msg.binds = a->plan->n_binds;
	if (init_tell(in, fds, in->tty_master >= 0 ? 2 : 1) < 0)
		_exit(1);
	/* Init holds no end of what the command talks through, and nothing that tells of cloche. */
	for (int i = 0; i < 3; i++)
		fd_close(&a->stdio[i]);
	for (int i = 0; i < 3; i++)
		close(i);
	fd_close(&in->listener);
	fd_close(&in->tty_master);
	fd_close(&in->tty_slave);
	if (a->title)
		memset(a->title, 0, a->title_len);
	return 0;
}

/* Reaps all that ended. True when the command is among them. */
static bool init_reap(struct init *in, int flags)
{
	struct signalfd_siginfo si;
	bool ended = false;
	int status;
	pid_t pid;

	while (read(in->signals, &si, sizeof(si)) == sizeof(si))
		;
	while ((pid = waitpid(-1, &status, flags | __WALL)) > 0 || (pid < 0 && errno == EINTR))
		if (pid == in->command) {
			in->msg.status = status;
			ended = true;
		}
	in->alone = pid < 0 && errno == ECHILD;
	return ended;
}

/* The loopback answers at once, but for a server whose backlog is full. */
static int connect_soon(int fd, const void *to, socklen_t len)
{
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	socklen_t room = sizeof(int);
	int num = 0;

	if (connect(fd, to, len) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return -1;
	if (poll(&p, 1, CONNECT_MS) <= 0)
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &num, &room) < 0)
		return -1;
	errno = num;
	return num ? -1 : 0;
}

/* To who listens on the box's own loopback, for a caller who is in another network. Nothing is
 * waited for: a server with a full backlog answers by and by, and the caller sees it. */
static int loopback_connect(uint16_t port)
{
	const struct sockaddr_in four = { .sin_family = AF_INET,
					  .sin_port = htons(port),
					  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const struct sockaddr_in6 six = { .sin6_family = AF_INET6,
					  .sin6_port = htons(port),
					  .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	const struct {
		const void *to;
		socklen_t len;
		int family;
	} ways[] = { { &four, sizeof(four), AF_INET }, { &six, sizeof(six), AF_INET6 } };
	int num = 0;

	for (size_t i = 0; i < 2; i++) {
		int fd = socket(ways[i].family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		if (fd >= 0 && connect_soon(fd, ways[i].to, ways[i].len) == 0)
			return fd;
		if (i == 0)
			num = errno;
		if (fd >= 0)
			close(fd);
	}
	errno = num;
	return -1;
}

static void init_connect(struct init *in, const struct init_order *o)
{
	struct init_msg m = { .kind = INIT_CONNECTED, .tag = o->tag };
	int fd = loopback_connect(o->port);

	m.num = fd < 0 ? errno : 0;
	(void)fd_send(in->a->order, &m, sizeof(m), &fd, fd >= 0);
	if (fd >= 0)
		close(fd);
}

static void init_obey(struct init *in)
{
	struct init_order o;
	ssize_t n = fd_recv(in->a->order, &o, sizeof(o), NULL, 0, NULL);

	if (n <= 0) /* the owner is gone */
		_exit(1);
	if (n == sizeof(o) && o.kind == ORDER_SIGNAL && o.sig > 0 && o.sig < NSIG)
		kill(-in->command, o.sig);
	if (n == sizeof(o) && o.kind == ORDER_CONNECT)
		init_connect(in, &o);
}

static void init_loop(struct init *in)
{
	struct pollfd p[2] = { { .fd = in->a->order, .events = POLLIN },
			       { .fd = in->signals, .events = POLLIN } };

	for (;;) {
		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents)
			init_obey(in);
		if (p[1].revents && init_reap(in, WNOHANG))
			return;
	}
}

static void init_report_end(struct init *in)
{
	struct rusage ru;

	/* No waiting for what the command left behind: it is killed here, stopped or not, whatever
	 * session it moved to. What can't be killed here goes with this process. Who was left is
	 * a child of init; without any, the kernel need not look at all the machine's processes. */
	if (in->alone || kill(-1, SIGKILL) == 0 || errno == ESRCH) {
		if (!in->alone)
			init_reap(in, 0);
		in->msg.left = limits_leave(in->leave, in->n_leave) == 0;
	}
	mark(in, MARK_ENDED);
	in->msg.kind = INIT_ENDED;
	getrusage(RUSAGE_CHILDREN, &ru);
	in->msg.user_us = (uint64_t)ru.ru_utime.tv_sec * 1000000 + (uint64_t)ru.ru_utime.tv_usec;
	in->msg.sys_us = (uint64_t)ru.ru_stime.tv_sec * 1000000 + (uint64_t)ru.ru_stime.tv_usec;
	in->msg.maxrss_bytes = (uint64_t)ru.ru_maxrss * 1024;
	in->msg.in_bytes = (uint64_t)ru.ru_inblock * 512;
	in->msg.out_bytes = (uint64_t)ru.ru_oublock * 512;
	if (init_tell(in, NULL, 0) < 0)
		_exit(1);
}

/* To take the namespaces down keeps a core busy for as long as it took to build them. That waits
 * until cloche is done with the outcome: its hang-up, or its death, which the death signal tells.
 */
static void init_linger(struct init *in)
{
	struct pollfd p = { .fd = in->a->order, .events = 0 };

	while (!(p.revents & (POLLHUP | POLLERR)))
		if (poll(&p, 1, -1) < 0)
			return;
}

_Noreturn void init_main(struct init_args *a)
{
	static struct init in;

	in = (struct init){ .a = a,
			    .signals = -1,
			    .listener = -1,
			    .tty_master = -1,
			    .tty_slave = -1 };
	mark(&in, MARK_CHILD);
	umask(0);
	if (init_build(&in, &in.msg.err) < 0 || init_watch(&in, &in.msg.err) < 0 ||
	    (a->ahead && init_take(&in, &in.msg.err) < 0 &&
	     err_at(&in.msg.err, STAGE_COMMAND) < 0) ||
	    init_start(&in, &in.msg.err) < 0) {
		in.msg.kind = INIT_FAILED;
		in.msg.no_overlay = a->plan->no_overlay;
		(void)init_tell(&in, NULL, 0);
		_exit(1);
	}
	init_loop(&in);
	init_report_end(&in);
	init_linger(&in);
	_exit(0);
}
