/* From spec to a live init, and from its end to an outcome. What happens in between is monitor.c.
 *
 *   parent                                   child (init.c)
 *   plan, pipes, socket
 *   clone3 (all namespaces but one) -------> ALIVE; a helper for the network namespace (netns.h)
 *                                            ids, file system
 *   cgroup made, set, read back, GO -------> enters both; locks, command
 *   watch <--------------------------------- STARTED (listener), ENDED
 *   judge
 *
 * A root caller lends its effective ids to the clone only: the new user namespace then belongs to
 * the unprivileged id, which may write its own single-id map just as an ordinary caller may. So
 * there is one way in for both. */
#include "box/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/idmap.h"
#include "box/idrange.h"
#include "box/monitor.h"
#include "box/mount_check.h"
#include "box/skeleton.h"
#include "box/userns_why.h"

#define ALIVE_MS 1000

static const uint64_t ns_flags =
	CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

/* Filters for memory held by a cgroup and not; which one is right is known only when the cgroup is
 * made, and goes with GO. */
static void choose_filter(struct live *b, int memory, struct err *e)
{
	static struct sc_program built[2];
	struct sc_request *rq = &b->request[memory];
	const struct box_spec *s = b->spec;

	*rq = (struct sc_request){ .untrusted = s->profile == BOX_PROFILE_UNTRUSTED,
				   .setup = s->setup,
				   .hide_memfd = !memory,
				   .rules = s->rules,
				   .n_rules = s->n_rules };
	b->args.code[memory] = sc_prebuilt(sc_native(), rq, &b->args.code_len[memory]);
	if (b->args.code[memory])
		return;
	if (sc_build(sc_native(), rq, &built[memory], e) <
	    0) { /* told by go() when this is the one that is needed */
		err_at(e, STAGE_LOCKS);
		return;
	}
	b->args.code[memory] = built[memory].code;
	b->args.code_len[memory] = built[memory].len;
}

static int open_pipes(struct live *b, const struct box_io *io, struct err *e)
{
	const struct box_spec *s = b->spec;
	int pair[2], from, to;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "make the box's socket");
	b->order = pair[0];
	b->args.order = pair[1];
	if (s->tty || io->owner)
		return 0;
	for (int i = 1; i < 3; i++) {
		if (fd_pipe(&from, &b->args.stdio[i]) < 0)
			return err_sys(e, "make a pipe");
		relay_init(&b->relays[i], from, io->capture ? -1 : i == 1 ? io->out : io->err);
		if (io->capture && relay_capture(&b->relays[i], s->limits.output, e) < 0)
			return -1;
	}
	if (s->interactive) {
		if (fd_pipe(&b->args.stdio[0], &to) < 0)
			return err_sys(e, "make a pipe");
		fcntl(to, F_SETFL, O_NONBLOCK);
		relay_init(&b->relays[0], io->in, to);
		b->relays[0].keep_from = b->relays[0].own_to = true;
	}
	return 0;
}

/* While init builds: descriptors of our own for what the caller lent us. */
static void own_streams(struct live *b)
{
	bool own;

	for (int i = 1; i < 3; i++) {
		b->relays[i].to = relay_reopen(b->relays[i].to, O_WRONLY, &own);
		b->relays[i].own_to = own;
	}
	b->relays[0].from = relay_reopen(b->relays[0].from, O_RDONLY, &own);
	b->relays[0].keep_from = !own;
}

/* The child takes the skeleton over as its working directory: it lies where the child's own ids may
 * not even look (a root caller's home), and a copy of the mount it lies on is in the child's
 * namespace, as an overlay wants it. */
static void stand_in_skeleton(struct live *b)
{
	const struct box_spec *s = b->spec;
	_cleanup_fd_ int dir = -1;

	if (s->root.kind != ROOTFS_HOST || !s->store || s->setup) /* it stands in its draft */
		return;
	dir = skeleton_open(&b->plan, s->store, s->outer_uid, s->outer_gid);
	b->cwd = dir < 0 ? -1 : open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (b->cwd < 0 || fchdir(dir) < 0)
		return;
	b->plan.skeleton = true;
	b->skeleton = fd_steal(&dir); /* its lock keeps sweeps away while the box lives */
}

/* The same for what a set-up box keeps. */
static int stand_in_draft(struct live *b, struct err *e)
{
	if (!b->spec->setup)
		return 0;
	b->cwd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fchdir(b->spec->draft) < 0 ? err_sys(e, "enter the draft of the new layer") : 0;
}

static void stand_back(struct live *b)
{
	if ((b->plan.skeleton || b->plan.draft) && fchdir(b->cwd) < 0)
		(void)!chdir("/"); /* the caller's own is gone: nothing here looks at it again */
	fd_close(&b->cwd);
}

/* The raw calls: the C library's would signal every thread, and this must not outlast the clone. */
static int lend_ids(uid_t uid, gid_t gid)
{
	if (syscall(SYS_setresgid, -1, gid, -1) < 0 || syscall(SYS_setresuid, -1, uid, -1) < 0)
		return -1;
	return 0;
}

/* With the ids went the capabilities, and with them the right to put a child into root's group.
 * This one is taken up again until the ids come back; the child's are those of its own user
 * namespace anyway. Without it the clone is refused, and the limits look for another rung. */
static void keep_group_right(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[2];

	if (syscall(SYS_capget, &head, set) < 0)
		return;
	set[0].effective |= set[0].permitted & 1U << CAP_DAC_OVERRIDE;
	(void)syscall(SYS_capset, &head, set);
}

/* Into its group, where the limits have one ready; where the kernel would not, into cloche's own,
 * and *ret_num says why. */
static pid_t clone_into(struct live *b, struct sys_clone_args *args, int *ret_num)
{
	int group = b->limits.into;
	pid_t pid;

	*ret_num = 0;
	if (group < 0)
		return sys_clone3(args);
	/* The child must know which of the two it is; without controllers there is nothing to see.
	 */
	b->plan.own_group = group != b->limits.bare;
	args->flags |= SYS_CLONE_INTO_CGROUP;
	args->cgroup = (uint64_t)group;
	pid = sys_clone3(args);
	if (pid >= 0)
		return pid;
	*ret_num = errno;
	args->flags &= ~SYS_CLONE_INTO_CGROUP;
	args->cgroup = 0;
	b->plan.own_group = false;
	return sys_clone3(args);
}

static int clone_init(struct live *b, struct err *e)
{
	const struct box_spec *s = b->spec;
	int pidfd = -1;
	struct sys_clone_args args = { .flags = ns_flags | CLONE_PIDFD | SYS_CLONE_CLEAR_SIGHAND,
				       .pidfd = (uint64_t)(uintptr_t)&pidfd,
				       .exit_signal = SIGCHLD };
	bool lend = b->args.root_caller;
	int num = 0, death = 0, displaced;
	pid_t parent = getppid();

	prctl(PR_GET_PDEATHSIG,
	      &death); /* changing ids clears what cloche's own parent may have asked for */
	if (lend && (setgroups(0, NULL) < 0 || lend_ids(s->outer_uid, s->outer_gid) < 0))
		return err_sys(e, "lend uid %u to the box", s->outer_uid);
	if (lend && b->limits.into >= 0)
		keep_group_right();
	b->pid = clone_into(b, &args, &displaced);
	if (b->pid == 0)
		init_main(&b->args);
	num = errno;
	if (lend &&
	    (syscall(SYS_setresuid, -1, 0, -1) < 0 || syscall(SYS_setresgid, -1, 0, -1) < 0)) {
		if (b->pid > 0)
			kill(b->pid, SIGKILL);
		return err_sys(e, "take root's ids back");
	}
	if (lend && death) {
		prctl(PR_SET_PDEATHSIG, death);
		if (getppid() != parent) /* it died meanwhile, and nobody has told */
			kill(getpid(), death);
	}
	errno = num;
	if (b->pid < 0)
		return userns_refused("user namespace", errno, e);
	b->pidfd = pidfd;
	if (displaced && limits_displace(&b->limits, displaced, e) < 0)
		return -1;
	b->born = b->limits.into >= 0;
	return 0;
}

/* Init waits for it. */
static int map_range(struct live *b, struct err *e)
{
	const struct init_order o = { .kind = ORDER_IDS };

	if (b->spec->range.n == 0)
		return 0;
	if (idrange_map(b->spec, b->pid, e) < 0)
		return -1;
	if (fd_send(b->order, &o, sizeof(o), NULL, 0) < 0 && errno != EPIPE && errno != ECONNRESET)
		return err_sys(e, "start the box");
	return 0;
}

/* Init ended before it began: by its own account, or without a word. */
static int init_gone(struct live *b, const struct init_msg *m, struct err *e)
{
	if (m->kind == INIT_FAILED) {
		*e = m->err;
		userns_explain(e);
	} else {
		err_set(e, ERR_SYS, "the box's first process ended at once");
	}
	return err_at(e, STAGE_NAMESPACE);
}

static int watch_workspace(struct live *b, struct err *e)
{
	if (b->spec->setup) {
		_cleanup_fd_ int tree =
			openat(b->spec->draft, BOX_DRAFT_UPPER, O_PATH | O_DIRECTORY | O_CLOEXEC);

		return tree < 0 ? err_sys(e, "watch the size of the new layer")
				: limits_watch_workspace(&b->limits, tree, e);
	}
	if (b->spec->workspace_size) {
		limits_sized_workspace(&b->limits, b->spec->workspace_size);
		return 0;
	}
	for (size_t i = 0; i < b->spec->n_mounts; i++) {
		const struct box_mount *m = &b->spec->mounts[i];
		_cleanup_fd_ int dir = -1;

		if (!m->workspace || b->spec->limits.workspace_max == BOX_LIMIT_NONE)
			continue;
		dir = mount_open_checked(m);
		if (dir < 0)
			return err_sys(e, "watch the size of %s", m->src);
		return limits_watch_workspace(&b->limits, dir, e);
	}
	return 0;
}

/* While init builds: limits, then GO with the groups to enter. A box that died meanwhile says why
 * itself. */
static int go(struct live *b, struct err *e)
{
	struct init_order o = { .kind = ORDER_GO };
	struct init_msg m = { .kind = INIT_ALIVE };
	struct pollfd p[2] = { { .fd = b->order, .events = POLLIN },
			       { .fd = b->signals, .events = POLLIN } };
	int fds[2 * LIMIT_JOIN_MAX];
	bool memory, moved;
	size_t n;

	/* An init that is held up (stopped, or without a cpu), and a caller who has had enough, are
	 * the loop's business: it reads the word too. */
	(void)poll(p, 2, ALIVE_MS);
	if (p[0].revents &&
	    (fd_recv(b->order, &m, sizeof(m), NULL, 0, NULL) != sizeof(m) || m.kind != INIT_ALIVE))
		return init_gone(b, &m, e);
	if (limits_set(&b->limits, &b->spec->limits, e) < 0 ||
	    limits_admit(&b->limits, b->pid, &b->spec->limits, &moved, e) < 0)
		return err_at(e, STAGE_LIMITS);
	b->born |= moved;
	b->limits_open = true;
	o.held = b->limits.held;
	memory = limits_held(&b->limits, LIMIT_MEMORY);
	if (!b->args.code[memory]) {
		*e = b->filter_err[memory];
		return -1;
	}
	/* What can fail comes before the command runs: what is told to have failed has never run.
	 */
	if (limits_watch(&b->limits, b->pid, e) < 0 || watch_workspace(b, e) < 0)
		return err_at(e, STAGE_LIMITS);
	if (notify_open(&b->notify, e) < 0)
		return err_at(e, STAGE_LOCKS);
	n = limits_join_fds(&b->limits, fds, &o.enter);
	if (fd_send(b->order, &o, sizeof(o), fds, n) < 0 && errno != EPIPE && errno != ECONNRESET) {
		err_sys(e, "start the box");
		return err_at(e, STAGE_COMMAND);
	}
	return 0;
}

/* The kernel takes RLIMIT_NOFILE for a bound on the descriptors that all processes of a user have
 * on their way through sockets. A box may keep 4096 there for as long as it lives: with the usual
 * limit of 1024, no other box could be sent its groups or send its listener. */
static void allow_passing(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur == r.rlim_max)
		return;
	r.rlim_cur = r.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &r);
}

static int start(struct live *b, const struct box_io *io, struct err *e)
{
	int r;

	allow_passing();
	b->out->marks[MARK_BEGIN] = box_now();
	if (b->signals <
	    0) { /* they are blocked: without it nobody could end cloche but by force */
		err_sys(e, "watch for signals");
		return err_at(e, STAGE_COMMAND);
	}
	if (plan_build(b->spec, &b->plan, e) < 0)
		return -1;
	choose_filter(b, 0, &b->filter_err[0]);
	choose_filter(b, 1, &b->filter_err[1]);
	if (b->args.root_caller && idmap_sources(&b->plan, b->spec, e) < 0)
		return -1;
	if (open_pipes(b, io, e) < 0)
		return err_at(e, STAGE_COMMAND);
	for (int i = 0; i < 3; i++)
		monitor_give(b, b->args.stdio[i]);
	b->args.plan = &b->plan;
	b->args.spec = b->spec;
	b->args.ahead = io->owner != NULL;
	b->args.title = io->title;
	b->args.title_len = io->title_len;
	if (b->spec->tty)
		b->args.winsize = terminal_size(io->in, io->out);
	b->out->marks[MARK_PLANNED] = box_now();
	if (limits_place(&b->limits, &b->spec->limits, e) < 0)
		return -1;
	b->placed = true;
	stand_in_skeleton(b);
	if (stand_in_draft(b, e) < 0)
		return err_at(e, STAGE_IMAGE);
	r = clone_init(b, e);
	stand_back(b);
	if (r < 0)
		return err_at(e, STAGE_NAMESPACE);
	if (map_range(b, e) < 0)
		return -1;
	b->out->marks[MARK_CLONED] = box_now();
	fd_close(&b->args.order);
	for (int i = 0; i < 3; i++)
		fd_close(&b->args.stdio[i]);
	for (unsigned i = 0; i < b->plan.n_sources; i++)
		fd_close(&b->plan.sources[i].fd);
	r = go(b, e);
	b->limits.kills_only =
		!io->capture && !io->owner; /* what is streamed is told without its usage */
	own_streams(b);
	return r;
}

/* Everything that could hold the box or speak of it goes here, whatever came before. */
static void finish(struct live *b)
{
	for (int i = 0; i < 3; i++)
		relay_close(&b->relays[i]);
	terminal_restore(&b->terminal);
	idmap_reap();
	fd_close(&b->signals);
	if (b->placed)
		limits_close(&b->limits);
	/* The hang-up lets init take the namespaces down, on the core that this process needs to
	 * end. */
	fd_close(&b->order);
	fd_close(&b->skeleton);
	/* The listener's thread may still signal through pidfd; it is closed by the exit of a
	 * one-shot program, and by the loop of a long-lived one once the thread is gone. */
	if (!b->notify.running)
		fd_close(&b->pidfd);
}

int box_run(const struct box_spec *spec, const struct box_io *io, struct box_outcome *ret,
	    struct err *e)
{
	static struct live lives[BOX_RUNS_MAX];
	static unsigned runs;
	struct live *b = &lives[runs]; /* zero already; to zero it would touch every page of it */
	struct err why = { 0 };

	if (runs == BOX_RUNS_MAX)
		return err_set(e, ERR_SYS, "this process has run its boxes");
	runs++;
	memset(ret, 0, sizeof(*ret));
	b->spec = spec;
	b->io = io;
	b->out = ret;
	b->order = b->pidfd = b->signals = b->cwd = b->skeleton = -1;
	b->args.stdio[0] = b->args.stdio[1] = b->args.stdio[2] = -1;
	b->owner = io->owner;
	b->owner_fd = io->owner ? io->owner->fd : -1;
	b->unclaimed = io->owner != NULL;
	for (int i = 0; i < 3; i++)
		relay_init(&b->relays[i], -1, -1);
	b->args.root_caller = geteuid() != spec->outer_uid;
	monitor_block_signals(b);
	if (start(b, io, &why) < 0)
		monitor_failed(b, &why);
	else
		monitor_run(b, io);
	monitor_judge(b);
	for (int i = 1; i < 3; i++)
		if (b->relays[i].store)
			relay_take(&b->relays[i], i == 1 ? &ret->out : &ret->err_out);
	if (b->owner && !b->unclaimed) {
		b->owner->over(b->owner, ret);
		monitor_reap(b);
		if (b->limits_open)
			monitor_sweep(b);
	}
	finish(b);
	return 0;
}
