/* One loop of poll(2). It ends in two steps: first the box is gone (init reported the end and hung
 * up, or died), then what it printed is delivered. The deadline holds whatever the streams do;
 * after a deadline or a cancel a stalled reader gets one more second. */
#include "box/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/mount_check.h"
#include "box/userns_why.h"

#define BUILD_DEADLINE_NS (60ULL * 1000000000)
#define SWEEP_MAX 16
#define BACKGROUND_MS 250
#define FLUSH_NS (1000000000ULL)

enum { P_ORDER, P_SIGNALS, P_LIMITS, P_OWNER, P_STREAMS, P_N = P_STREAMS + 6 };

void monitor_block_signals(struct live *b)
{
	/* Whatever would end cloche by default, but for what a program gets by its own fault: a
	 * terminal must be put back. */
	static const int watched[] = { SIGINT,	SIGTERM, SIGHUP,  SIGQUIT,   SIGWINCH,
				       SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
				       SIGXCPU, SIGPOLL, SIGTSTP, SIGCONT };
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++)
		sigaddset(&set, watched[i]);
	b->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	sigaddset(&set, SIGTTOU); /* see terminal.h */
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* as the broken pipe: an error of a write, not an end */
	signal(SIGCHLD,
	       SIG_DFL); /* a caller may have it ignored, and then no child leaves a status */
}

void monitor_kill(struct live *b)
{
	if (b->pidfd >= 0)
		box_kill(b->pidfd, b->order);
	if (b->limits_open)
		limits_kill(&b->limits);
}

void monitor_order(struct live *b, const struct init_order *o)
{
	(void)fd_send(b->order, o, sizeof(*o), NULL, 0);
}

static void send_signal(struct live *b, int sig)
{
	monitor_order(b, &(struct init_order){ .kind = ORDER_SIGNAL, .sig = sig });
}

/* Waits for init's end, so that its accounts are whole and its cgroup is empty. */
static void reap(struct live *b)
{
	struct rusage ru;
	int status;

	b->reap_due = false;
	if (b->pid <= 0 || b->gone)
		return;
	b->gone = true;
	while (wait4(b->pid, &status, __WALL, &ru) < 0 && errno == EINTR)
		;
	b->out->marks[MARK_REAPED] = box_now();
	if (b->ended)
		return;
	b->cpu_user_us = (uint64_t)ru.ru_utime.tv_sec * 1000000 + (uint64_t)ru.ru_utime.tv_usec;
	b->cpu_sys_us = (uint64_t)ru.ru_stime.tv_sec * 1000000 + (uint64_t)ru.ru_stime.tv_usec;
	b->maxrss = (uint64_t)ru.ru_maxrss * 1024;
	b->in_bytes = (uint64_t)ru.ru_inblock * 512;
	b->out_bytes = (uint64_t)ru.ru_oublock * 512;
}

void monitor_failed(struct live *b, const struct err *why)
{
	struct init_msg m;

	b->failed = true;
	b->why = *why;
	monitor_kill(b);
	reap(b);
	/* When init had failed by itself, its own account is the cause and ours only followed from
	 * it. */
	for (int i = 0; i < 2 && b->order >= 0 && b->pid > 0; i++) /* a reset may come before it */
		if (recv(b->order, &m, sizeof(m), MSG_DONTWAIT) == sizeof(m) &&
		    m.kind == INIT_FAILED)
			b->why = m.err;
	userns_explain(&b->why);
}

void monitor_reap(struct live *b)
{
	if (!b->reap_due)
		return;
	fd_close(&b->order); /* init waits for that */
	reap(b);
}

void monitor_sweep(const struct live *b)
{
	limits_sweep_beside(&b->limits, SWEEP_MAX);
}

/* The machine's first process reaps whatever is left to it. A container's is often an application
 * that does not, and each box would leave a zombie there. The number is the kernel's
 * PROC_PID_INIT_INO, part of its interface since 3.8. */
static bool is_initial_pidns(void)
{
	char link[32];
	ssize_t n = readlink("/proc/self/ns/pid", link, sizeof(link) - 1);

	if (n <= 0)
		return false;
	link[n] = '\0';
	return strcmp(link, "pid:[4026531836]") == 0;
}

/* The caller's terminal changed its size, or is ours again. */
static void on_resize(struct live *b)
{
	struct winsize w = terminal_size(b->relays[0].from, b->relays[1].to);

	if (b->spec->tty && b->started && w.ws_row)
		ioctl(b->tty, TIOCSWINSZ, &w);
}

/* Ctrl-Z outside: the command stops with cloche, which stops as it would have by default (a job
 * that no shell could continue is not stopped by the kernel). The deadline goes on. A box that is
 * still being built has no command to stop; it is done when it has. */
static void on_stop(struct live *b)
{
	sigset_t stop;

	sigemptyset(&stop);
	sigaddset(&stop, SIGTSTP);
	b->stop_due = !b->started;
	if (b->stop_due)
		return;
	terminal_restore(&b->terminal);
	send_signal(b, SIGSTOP);
	limits_freeze(&b->limits, true); /* those who left the command's group, too */
	(void)raise(SIGTSTP);
	sigprocmask(SIG_UNBLOCK, &stop, NULL);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	limits_freeze(&b->limits, false);
	send_signal(b, SIGCONT);
	terminal_again(&b->terminal);
}

static void on_started(struct live *b, const struct init_msg *m, const int *fds, size_t n,
		       const struct box_io *io)
{
	struct err e;
	bool own;
	int to;

	if (n < 1 || (b->spec->tty &&
		      n < 2)) { /* the listener did not come: nobody would answer refused calls */
		err_set(&e, ERR_SYS, "the box sent no listener");
		err_at(&e, STAGE_LOCKS);
		monitor_failed(b, &e);
		return;
	}
	notify_start(&b->notify, fds[0], b->pidfd, b->order, b->pid, b->spec,
		     &b->request[limits_held(&b->limits, LIMIT_MEMORY)]);
	/* Once more: before, init may not yet have hidden itself from what hides processes. */
	if (limits_watch(&b->limits, b->pid, &e) < 0) {
		err_at(&e, STAGE_LIMITS);
		monitor_failed(b, &e);
		return;
	}
	limits_joined(&b->limits);
	b->started = true;
	b->started_ns = m->marks[MARK_STARTED];
	b->out->landlock_abi = m->landlock_abi;
	b->out->binds = m->binds;
	b->reaps = !is_initial_pidns();
	if (!b->owner) /* the command runs meanwhile; who has an owner does it after the outcome */
		monitor_sweep(b);
	if (b->spec->tty) {
		fcntl(fds[1], F_SETFL, fcntl(fds[1], F_GETFL) | O_NONBLOCK);
		b->tty = fds[1];
		/* The master stays open to the end: both relays use it, and to close it would hang
		 * up on the session. */
		to = relay_reopen(io->out, O_WRONLY, &own);
		relay_init(&b->relays[1], fds[1], to);
		b->relays[1].own_to = own;
		b->relays[1].keep_from = true;
		if (b->spec->interactive) {
			relay_init(&b->relays[0], io->in, fds[1]);
			b->relays[0].keep_from = true;
			terminal_raw(&b->terminal, io->in);
		}
		on_resize(b); /* it may have changed since the clone */
	}
	if (b->stop_due)
		on_stop(b);
	monitor_owned(b);
}

static void take_marks(struct live *b, const struct init_msg *m)
{
	for (int i = MARK_CHILD; i < MARK_REAPED; i++)
		b->out->marks[i] = m->marks[i];
}

/* A message from init, or its hang-up. True when the box is over. */
static bool on_order(struct live *b, const struct box_io *io)
{
	struct init_msg m;
	int fds[2];
	size_t n = 0;
	ssize_t r = fd_recv(b->order, &m, sizeof(m), fds, 2, &n);

	/* An init that failed before it read all orders leaves a reset, told once before its last
	 * message. */
	if (r < 0 && errno == ECONNRESET)
		r = fd_recv(b->order, &m, sizeof(m), fds, 2, &n);
	if (r < 0 && (errno == ENOMEM || errno == ENOBUFS))
		return false; /* it is still there to be read */
	if (r != sizeof(m)) {
		monitor_kill(b); /* who hung up is at its end: nothing is waited for in vain */
		reap(b);
		return true;
	}
	switch (m.kind) {
	case INIT_STARTED:
		on_started(b, &m, fds, n, io);
		return b->failed;
	case INIT_ALIVE:
		return false;
	case INIT_CONNECTED:
		monitor_connected(b, &m, fds, n);
		return false;
	case INIT_FAILED:
		b->failed = true;
		b->why = m.err;
		userns_explain(&b->why);
		if (m.no_overlay > 0)
			b->out->no_overlay = b->plan.sources[m.no_overlay - 1].path;
		reap(b);
		return true;
	case INIT_ENDED:
		b->ended = true;
		notify_stop(&b->notify);
		b->status = m.status;
		b->cpu_user_us = m.user_us;
		b->cpu_sys_us = m.sys_us;
		b->maxrss = m.maxrss_bytes;
		b->in_bytes = m.in_bytes;
		b->out_bytes = m.out_bytes;
		take_marks(b, &m);
		/* Nobody waits for the kernel to take the namespaces down, unless a cgroup could
		 * only go then, or nobody else would reap; and an owner has the outcome first. */
		b->reap_due = !m.left || b->born || b->reaps;
		if (!b->owner || !m.left)
			monitor_reap(b);
		return true;
	}
	return false;
}

/* What concerns the caller's terminal, and says nothing to the command. */
static bool on_job_signal(struct live *b, int sig)
{
	switch (sig) {
	case SIGTSTP:
		on_stop(b);
		return true;
	case SIGCONT: /* a shell had the terminal meanwhile */
		b->terminal.raw = false;
		terminal_again(&b->terminal);
		on_resize(b);
		return true;
	case SIGWINCH:
		on_resize(b);
		return true;
	default:
		return false;
	}
}

static void on_signal(struct live *b)
{
	struct signalfd_siginfo si;

	while (read(b->signals, &si, sizeof(si)) == sizeof(si)) {
		int sig = (int)si.ssi_signo;

		if (on_job_signal(b, sig))
			continue;
		if (sig == SIGUSR1 || sig == SIGUSR2) { /* the command's own business */
			if (b->started)
				send_signal(b, sig);
		} else if (!b->forwarded && b->started && !b->owner) {
			b->forwarded = sig;
			send_signal(b, sig);
		} else {
			b->cancelled = true;
			monitor_kill(b);
		}
	}
}

/* The shorter of two times to sleep, of which -1 is for ever. */
static int sooner(int wait, int other)
{
	return wait < 0 || wait > other ? other : wait;
}

/* What is due now; returns how long the loop may sleep, in milliseconds. */
static int on_time(struct live *b)
{
	uint64_t now = box_now(), due, kill_due;
	const struct box_limits *l = &b->spec->limits;
	int wait = b->started ? limits_period_ms(&b->limits) : -1;

	if (b->unclaimed)
		return -1;
	if (!b->started) {
		due = b->out->marks[MARK_BEGIN] + BUILD_DEADLINE_NS;
		b->start_deadline = now >= due;
	} else if (l->timeout_us == 0) {
		return wait;
	} else {
		due = b->started_ns + l->timeout_us * 1000;
		kill_due = due + l->kill_after_us * 1000;
		if (now >= due && !b->deadline) {
			b->deadline = true;
			if (l->kill_after_us)
				send_signal(b,
					    b->spec->stop_signal ? b->spec->stop_signal : SIGTERM);
		}
		if (b->deadline && now < kill_due)
			due = kill_due;
	}
	if (now >= due) {
		monitor_kill(b);
		return wait;
	}
	due = (due - now) / 1000000 + 1;
	return wait >= 0 && (uint64_t)wait < due ? wait : (int)(due > 60000 ? 60000 : due);
}

static void move_streams(struct live *b, const struct pollfd *p)
{
	for (int i = 0; i < 3; i++) {
		relay_move(&b->relays[i], p[2 * i].revents, p[2 * i + 1].revents);
	}
}

/* A terminal has no end of file but the character for it, which ends one reading. What reads there
 * must see that the caller's input has ended, and so must what reads after it: it is typed again.
 * Returns how long the loop may sleep. */
static int end_of_input(struct live *b, int wait)
{
	struct relay *in = &b->relays[0];
	uint64_t now;

	if (!b->spec->tty || !b->spec->interactive || !b->started || in->from >= 0 || in->to < 0 ||
	    relay_pending(in))
		return wait;
	now = box_now();
	if (now >= b->end_typed + BACKGROUND_MS * 1000000ULL) {
		terminal_type_end(in->to, b->end_typed != 0);
		b->end_typed = now;
	}
	return sooner(wait, BACKGROUND_MS);
}

static void poll_set(struct live *b, struct pollfd p[P_N])
{
	p[P_ORDER] = (struct pollfd){ .fd = b->order, .events = POLLIN };
	p[P_SIGNALS] = (struct pollfd){ .fd = b->signals, .events = POLLIN };
	p[P_LIMITS] = (struct pollfd){ .fd = b->started ? b->limits.event_fd : -1,
				       .events = b->limits.event_mask };
	p[P_OWNER] = (struct pollfd){ .fd = b->owner_fd, .events = POLLIN };
	for (int i = 0; i < 3; i++)
		relay_poll(&b->relays[i], &p[P_STREAMS + 2 * i]);
}

/* Leaves the caller's terminal alone while another job has it; nothing tells when it comes back.
 * Returns how long the loop may sleep. */
static int spare_terminal(struct live *b, struct pollfd *p, int wait)
{
	bool elsewhere = terminal_elsewhere(b->relays[0].from);

	if (elsewhere)
		p[P_STREAMS].fd = -1;
	else
		terminal_again(&b->terminal);
	for (int i = 1; i < 3; i++) {
		struct pollfd *out = &p[P_STREAMS + 2 * i + 1];

		if (out->fd >= 0 && terminal_keeps_quiet(out->fd)) {
			out->fd = -1;
			elsewhere = true;
		}
	}
	return elsewhere ? sooner(wait, BACKGROUND_MS) : wait;
}

static void check_limits(struct live *b)
{
	if (!b->started || b->hit != LIMIT_HIT_NONE)
		return;
	b->hit = limits_check(&b->limits);
	if (b->hit != LIMIT_HIT_NONE)
		monitor_kill(b);
}

/* False when there is no use in waiting. Without memory for a moment, what there is to see waits.
 */
static bool wait_ready(struct pollfd p[P_N], int ms)
{
	const struct timespec pause = { .tv_nsec = 1000000 };

	if (poll(p, P_N, ms) >= 0 || errno == EINTR)
		return true;
	return errno == ENOMEM && nanosleep(&pause, NULL) == 0;
}

static void run_box(struct live *b, const struct box_io *io)
{
	struct pollfd p[P_N];
	bool over = false;

	while (!over) {
		int wait = on_time(b);

		poll_set(b, p);
		wait = spare_terminal(b, p, end_of_input(b, wait));
		if (!wait_ready(p, wait))
			monitor_kill(b);
		if (p[P_SIGNALS].revents)
			on_signal(b);
		if (p[P_OWNER].revents)
			monitor_obey(b);
		if (p[P_LIMITS].revents || limits_period_ms(&b->limits) >= 0)
			check_limits(b);
		move_streams(b, &p[P_STREAMS]);
		over = b->failed;
		if (p[P_ORDER].revents && !over)
			over = on_order(b, io);
	}
}

/* Delivers what was printed before the end. Nothing waits for an end of file: a descriptor of the
 * pipe may have been carried out of the box. */
static void flush(struct live *b)
{
	uint64_t until = b->deadline || b->cancelled ? box_now() + FLUSH_NS : UINT64_MAX;
	struct signalfd_siginfo si;
	struct pollfd p[P_N];

	if (!b->relays[0].keep_from)
		fd_close(&b->relays[0].from);
	b->relays[0].from = -1;
	for (;;) {
		bool waiting = false;

		for (int i = 1; i < 3; i++) {
			relay_drain(&b->relays[i]);
			waiting |= relay_pending(&b->relays[i]);
		}
		if (!waiting || box_now() >= until)
			return;
		poll_set(b, p);
		p[P_ORDER].fd = p[P_LIMITS].fd = -1;
		p[P_STREAMS].fd = p[P_STREAMS + 1].fd = -1;
		if (!wait_ready(p, spare_terminal(b, p, until == UINT64_MAX ? -1 : 100)))
			return;
		while (read(b->signals, &si, sizeof(si)) == sizeof(si))
			if (!on_job_signal(b, (int)si.ssi_signo)) /* the caller has had enough */
				return;
		if (p[P_OWNER].revents && (monitor_obey(b), b->owner_fd < 0))
			return;
		move_streams(b, &p[P_STREAMS]);
	}
}

void monitor_run(struct live *b, const struct box_io *io)
{
	run_box(b, io);
	b->end_ns = box_now();
	flush(b);
}

static void judge_usage(struct live *b)
{
	struct limit_usage *u = &b->out->usage;

	memset(u, 0xff, sizeof(*u));
	u->filled_by[0] = '\0';
	if (b->limits_open) {
		limits_usage(&b->limits, u);
		memcpy(b->out->limits, b->limits.state, sizeof(b->limits.state));
		snprintf(b->out->note, sizeof(b->out->note), "%s", b->limits.note);
		if (!b->relays[1].store &&
		    !b->owner) /* streamed: nothing is kept, nothing is cut */
			b->out->limits[LIMIT_OUTPUT] =
				(struct limit_state){ BOX_LIMIT_NONE, BOX_LIMIT_NONE, "none",
						      false };
	}
	if (!b->started)
		return;
	/* Init's account is of the command's processes alone; where it could give none, the group's
	 * is whole, if there is one. */
	if (b->ended || u->cpu_user_us == UINT64_MAX) {
		u->cpu_user_us = b->cpu_user_us;
		u->cpu_sys_us = b->cpu_sys_us;
	}
	if (b->ended || u->read_bytes == UINT64_MAX) {
		u->read_bytes = b->in_bytes;
		u->written_bytes = b->out_bytes;
	}
	if (u->memory_peak == UINT64_MAX || u->memory_peak < b->maxrss)
		u->memory_peak = b->maxrss;
}

void monitor_judge(struct live *b)
{
	struct box_outcome *o = b->out;
	struct box_evidence v = { .failed = b->failed,
				  .err = &b->why,
				  .ended = b->ended,
				  .status = b->status,
				  .start_deadline = b->start_deadline,
				  .deadline = b->deadline,
				  .cancelled = b->cancelled,
				  .killed = b->killed,
				  .hit = b->hit };

	if (b->limits_open &&
	    b->hit == LIMIT_HIT_NONE) /* a kill may end the box before its event was read */
		v.hit = limits_check(&b->limits);
	judge_usage(b);
	if (b->ended && b->forwarded && WIFSIGNALED(b->status) &&
	    WTERMSIG(b->status) == b->forwarded)
		v.cancelled = true;
	v.oom_kills = o->usage.oom_kills;
	v.escape = b->notify.running ? notify_escape(&b->notify) : NULL;
	notify_tell(&b->notify, o);
	for (int i = 2; i >= 0; i--)
		if (b->relays[i].failed)
			o->stream_errno = b->relays[i].failed;
	if (b->started) {
		o->wall_us = (b->end_ns - b->started_ns) / 1000;
		o->start_us = (b->started_ns - o->marks[MARK_BEGIN]) / 1000;
	}
	outcome_judge(b->spec, &v, o);
}
