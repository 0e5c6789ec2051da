/* The spawner of a sandbox: parses and prepares once, as `cloche run` does before each box, and
 * then forks a keeper for each call. From the first call on it forks them ahead, so that the next
 * one finds its box built; from the second within a second on, two. It is single-threaded and reads
 * nothing that a box has written.
 *
 * What may go wrong: it is killed, and its keepers with it (their death signal), and their boxes
 * with those; or the loop goes, which its socket tells: then every keeper is asked to end its box,
 * which it does in order, before the spawner goes itself. */
#include "cli/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/holder.h"
#include "box/init.h"
#include "box/locks.h"
#include "box/self.h"
#include "cli/outcome_json.h"
#include "cli/run_image.h"
#include "cli/title.h"
#include "cli/verbs.h"
#include "session/workspace.h"

#define KEEPERS_MAX 4096
#define HELLO_MAX (4u << 20)
#define END_MS 10000 /* for keepers to end their boxes in order */
#define AHEAD_MAX 2
#define AHEAD_MS 25 /* a call that has just begun needs the processors itself */
#define OFTEN_NS 1000000000ULL

static struct prepared prepared; /* large; one a process */
static struct run_options options;
static bool own_workspace, has_holder; /* as SPAWN_HOLDER */

static struct spawner {
	int sock, signals;
	sigset_t before;
	struct holder holders[2]; /* its own; and an earlier spawner's, for the workspace */
	pid_t keepers[KEEPERS_MAX];
	size_t n;
	struct {
		pid_t pid;
		int claims;
	} ahead[AHEAD_MAX]; /* the oldest first */
	size_t n_ahead, want;
	uint64_t called; /* when the last call came, or 0 */
	bool refill;	 /* some are wanted, once it is quiet */
} spawner;

/* The option that a message begins with ("--memory: ..."), without its dashes. */
static void name_option(const char *msg, char *ret, size_t cap)
{
	size_t n = 0;

	*ret = '\0';
	if (strncmp(msg, "--", 2) != 0)
		return;
	n = strspn(msg + 2, "abcdefghijklmnopqrstuvwxyz-");
	if (n < cap)
		snprintf(ret, cap, "%.*s", (int)n, msg + 2);
}

/* With these beside its text, where there are any. */
static int hello(const struct spawn_hello *h, const struct buf *text, int mount, int holder)
{
	int fds[SPAWN_HELLO_FDS] = { -1, mount, holder }, r = -1;
	struct err e;

	if (!text->failed && spawn_memfd("facts", text->data, text->len, &fds[0], &e) == 0)
		r = fd_send(SPAWN_SOCKET, h, sizeof(*h), fds, mount < 0 ? 1 : SPAWN_HELLO_FDS);
	fd_close(&fds[0]);
	return r < 0;
}

static int refuse(const struct err *e)
{
	static struct box_outcome out;
	struct spawn_hello h = { .kind = SPAWN_FAILED, .err = *e };
	const struct mount_check *m = &prepared.mounts;
	_cleanup_buf_ struct buf text = { 0 };

	if (e->kind == ERR_USAGE)
		name_option(e->msg, h.option, sizeof(h.option));
	if (e->kind == ERR_REFUSED && m->n_denied > 0 && m->denied[0].policy)
		snprintf(h.rule, sizeof(h.rule), "%s", m->denied[0].policy);
	outcome_refused(&out, e);
	buf_init(&text, HELLO_MAX);
	outcome_json(&prepared, &out, &(struct outcome_show){ 0 }, &text);
	return hello(&h, &text, -1, -1);
}

/* Which directory the workspace is. */
static void tell_place(struct json *j)
{
	const struct box_spec *s = &prepared.spec;
	char place[SES_PLACE_TEXT];

	for (size_t i = 0; i < s->n_mounts; i++)
		if (s->mounts[i].workspace) {
			ses_place_text(s->mounts[i].dev, s->mounts[i].ino, place);
			json_kstr(j, "place", place);
		}
}

static int ready(void)
{
	const struct spawn_hello h = { .kind = SPAWN_READY };
	struct box_spec *s = &prepared.spec;
	int r;
	_cleanup_buf_ struct buf text = { 0 };
	struct json j;

	buf_init(&text, HELLO_MAX);
	json_init(&j, &text);
	json_obj(&j);
	json_key(&j, "image");
	outcome_image(&j, &prepared.image);
	json_kstr(&j, "workspace", options.request.workspace);
	tell_place(&j);
	json_key(&j, "notes");
	json_arr(&j);
	for (size_t i = 0; i < prepared.n_notes; i++)
		json_str(&j, prepared.notes[i]);
	json_arr_end(&j);
	json_obj_end(&j);
	s->workspace_mount = -1;
	if (spawner.holders[0].workspace)
		holder_lend(&spawner.holders[0], s);
	if (s->workspace_mount < 0 && !spawner.holders[1].workspace)
		s->workspace_size = 0;
	r = hello(&h, &text, s->workspace_mount, spawner.holders[0].sock);
	holder_take_back(s);
	return r;
}

/* Those of `cloche run`, but for what is each call's own or for people; and one for the loop. */
static const struct opt_row own_row = { .name = "own-workspace", .type = OPT_FLAG, .id = -1 };

static int option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	if (row->id == own_row.id) {
		own_workspace = true;
		return 0;
	}
	if (opt_in_list("interactive|tty|json|plan", '|', row->name))
		return err_set(e, ERR_USAGE, "is no option of a sandbox");
	return run_option(ctx, row, value, e);
}

static int parse(int argc, char **argv, struct err *e)
{
	static struct opt_row rows[OPT_ROWS_MAX];
	struct opt_verb verb = cli_run_verb;
	int rest;

	memcpy(rows, verb.rows, verb.n_rows * sizeof(rows[0]));
	rows[verb.n_rows++] = own_row;
	verb.rows = rows;
	verb.name = "spawn";
	request_defaults(&options.request);
	options.progress = fcntl(SPAWN_PROGRESS, F_GETFD) < 0 ? 0 : SPAWN_PROGRESS;
	options.json = true;
	if (opt_parse(&verb, argc, argv, option, &options, &rest, e) < 0)
		return -1;
	return rest < argc ? err_set(e, ERR_USAGE, "a sandbox takes no command") : 0;
}

/* The workspace in memory is as large as was asked for, or as the box's own root. */
static uint64_t workspace_size(const struct box_spec *s)
{
	const uint64_t page = 4096, max = s->limits.workspace_max;
	uint64_t size = max == BOX_LIMIT_NONE ? s->limits.root : max;

	return size / page * page + (size % page ? page : 0);
}

/* Without a holder, boxes are only slower, and the workspace is the directory. It is that with ids
 * of a range, too: they are more than the holder's one. */
static void hold(void)
{
	struct holder *own = &spawner.holders[0], *earlier = &spawner.holders[1];
	struct box_spec *s = &prepared.spec;
	bool held = own_workspace && s->range.n == 0;
	struct err none;

	*earlier = HOLDER_NONE;
	if (held && has_holder && fcntl(SPAWN_HOLDER, F_SETFD, FD_CLOEXEC) == 0) {
		earlier->sock = SPAWN_HOLDER;
		earlier->workspace = true;
	} else if (held) {
		s->workspace_size = workspace_size(s);
	}
	if (holder_start(own, s, cli_title.start, cli_title.len, &none) < 0)
		s->workspace_size = 0;
	if (earlier->workspace)
		s->workspace_size = workspace_size(s);
}

/* What a restore has left that was killed. By a process of its own, since who becomes the
 * workspace's owner for it is changed by that. */
static void tidy(const struct box_mount *m)
{
	_cleanup_fd_ int fd = mount_open_checked(m);
	struct ses_workspace w;
	struct err ignored;
	pid_t pid;

	if (fd < 0 || !ses_replace_left(fd))
		return;
	pid = fork();
	if (pid == 0) {
		if (ses_workspace(fd, &w, &ignored) == 0)
			ses_replace_recover(&w);
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* No box would start without it: that is said when the sandbox is opened. */
static int prepare_apparmor(struct err *e)
{
	_cleanup_fd_ int fd = options.request.apparmor ? locks_apparmor_open(e) : -1;

	return options.request.apparmor && fd < 0 ? err_at(e, STAGE_LOCKS) : 0;
}

static int prepare(struct err *e)
{
	/* Each call has its own; an image need not have any. */
	static char any[] = "-", *const later[] = { any, NULL };

	options.request.argv = later;
	if (self_limits(e) < 0)
		return err_at(e, STAGE_LIMITS);
	if (run_image(&options, &prepared, e) < 0 ||
	    run_bytecode(&options, &prepared.image, e) < 0 ||
	    request_prepare(&options.request, &prepared, e) < 0 || prepare_apparmor(e) < 0)
		return -1;
	fcntl(SPAWN_SOCKET, F_SETFD, 0); /* a copy of this program would need it */
	if (self_protect(cli_title.argv, e) < 0)
		return err_at(e, STAGE_LOCKS);
	fcntl(SPAWN_SOCKET, F_SETFD, FD_CLOEXEC);
	hold();
	for (size_t i = 0; i < prepared.spec.n_mounts; i++)
		if (prepared.spec.mounts[i].workspace)
			tidy(&prepared.spec.mounts[i]);
	return 0;
}

/* While it prepares, it may wait for a download: who is gone must not be worked for. */
static int die_with_owner(struct err *e)
{
	struct pollfd p = { .fd = SPAWN_SOCKET };

	if (fcntl(SPAWN_SOCKET, F_SETFD, FD_CLOEXEC) < 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
		return err_sys(e, "descriptor %d", SPAWN_SOCKET);
	if (poll(&p, 1, 0) > 0 && p.revents & POLLNVAL)
		return err_set(e, ERR_USAGE, "is for cloche serve alone");
	if (p.revents & POLLHUP) /* a client that went as soon as it came has asked for nothing */
		_exit(1);
	fcntl(SPAWN_PROGRESS, F_SETFD, FD_CLOEXEC);
	/* What is opened here is close-on-exec, what was given is not. */
	has_holder = fcntl(SPAWN_HOLDER, F_GETFD) == 0;
	return 0;
}

/* Where it takes its call from, or -1. `f` is what it must not hold. */
static int start_keeper(pid_t *ret, struct spawn_fds *f)
{
	int pair[2] = { -1, -1 };
	pid_t owner = getpid(), pid;

	if (spawner.n == KEEPERS_MAX ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		fd_close(&spawner.sock);
		fd_close(&spawner.signals);
		fd_close(&pair[0]);
		spawn_fds_close(f);
		for (size_t i = 0; i < spawner.n_ahead; i++)
			fd_close(&spawner.ahead[i].claims);
		sigprocmask(SIG_SETMASK, &spawner.before, NULL);
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != owner)
			_exit(1);
		keeper_main(&prepared, &options, spawner.holders, pair[1]);
	}
	fd_close(&pair[1]);
	if (pid < 0) {
		fd_close(&pair[0]);
		return -1;
	}
	spawner.keepers[spawner.n++] = *ret = pid;
	return pair[0];
}

/* The i-th of those ahead is taken, or gone. */
static void drop_ahead(size_t i)
{
	fd_close(&spawner.ahead[i].claims);
	spawner.n_ahead--;
	for (; i < spawner.n_ahead; i++)
		spawner.ahead[i] = spawner.ahead[i + 1];
	spawner.ahead[spawner.n_ahead].claims = -1;
}

static void fill_ahead(void)
{
	spawner.refill = false;
	while (spawner.n_ahead < spawner.want) {
		struct spawn_fds none = { -1, -1, -1, -1, -1, -1 };
		pid_t pid;
		int claims = start_keeper(&pid, &none);

		if (claims < 0) /* without: each call has a box built for it */
			return;
		spawner.ahead[spawner.n_ahead].pid = pid;
		spawner.ahead[spawner.n_ahead++].claims = claims;
	}
}

static void start_call(const struct spawn_call *c, struct spawn_fds *f)
{
	uint64_t now = box_now();
	bool given = false;
	int claims;
	pid_t pid;

	while (spawner.n_ahead > 0 && !given) { /* one that was killed takes nothing */
		given = spawn_send_call(spawner.ahead[0].claims, c, f) == 0;
		drop_ahead(0);
	}
	if (!given) {
		claims = start_keeper(&pid, f);
		if (claims >= 0)
			(void)!spawn_send_call(claims, c, f);
		fd_close(&claims);
	}
	spawn_fds_close(f); /* without a keeper that is the end of the call */
	spawner.want = spawner.called && now - spawner.called < OFTEN_NS ? AHEAD_MAX : 1;
	spawner.called = now;
	spawner.refill = true;
}

/* Others have its place; what it holds is theirs, too. */
static void retire(void)
{
	spawner.refill = false;
	while (spawner.n_ahead > 0)
		drop_ahead(0);
}

static void reap(void)
{
	struct signalfd_siginfo si;
	pid_t pid;

	while (read(spawner.signals, &si, sizeof(si)) == sizeof(si))
		;
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		for (size_t i = 0; i < spawner.n; i++)
			if (spawner.keepers[i] == pid) {
				spawner.keepers[i] = spawner.keepers[--spawner.n];
				break;
			}
		for (size_t i = 0; i < spawner.n_ahead; i++)
			if (spawner.ahead[i].pid == pid) {
				drop_ahead(i);
				break;
			}
	}
}

/* Every box first, then this. */
static void end_all(void)
{
	struct pollfd p = { .fd = spawner.signals, .events = POLLIN };

	while (spawner.n_ahead > 0)
		drop_ahead(0);
	for (size_t i = 0; i < spawner.n; i++)
		kill(spawner.keepers[i], SIGTERM);
	while (spawner.n > 0 && poll(&p, 1, END_MS) > 0)
		reap();
	holder_end(&spawner.holders[0]);
	/* And what their boxes' first processes still take down. */
	while (waitpid(-1, NULL, WNOHANG) >= 0 && poll(&p, 1, END_MS) > 0)
		reap();
}

static int serve(void)
{
	struct pollfd p[2] = { { .fd = spawner.sock, .events = POLLIN },
			       { .fd = spawner.signals, .events = POLLIN } };
	struct spawn_call c;
	struct spawn_fds f;

	for (;;) {
		int n = poll(p, 2, spawner.refill ? AHEAD_MS : -1);

		if (n == 0)
			fill_ahead();
		if (n <= 0)
			continue;
		if (p[1].revents) {
			struct signalfd_siginfo si;
			bool end = false;

			while (read(spawner.signals, &si, sizeof(si)) == sizeof(si))
				end |= si.ssi_signo == SIGTERM;
			reap();
			if (end)
				break;
			if (spawner.refill && !p[0].revents)
				fill_ahead();
		}
		if (p[0].revents) {
			int r = spawn_recv_call(spawner.sock, &c, &f);

			if (r > 0 && c.kind == SPAWN_RETIRE)
				retire();
			else if (r > 0)
				start_call(&c, &f);
			else if (r == 0 || (errno != ENOMEM && errno != ENOBUFS))
				break;
		}
	}
	end_all();
	return 0;
}

static int spawn_run(int argc, char **argv)
{
	sigset_t mine;
	struct err e = { 0 };

	if (die_with_owner(&e) < 0)
		return cli_fail("spawn", &e);
	signal(SIGPIPE, SIG_IGN);
	/* A keeper tells the outcome and goes while its box is taken down. What is left of that is
	 * reaped here: whoever is above may not reap (a container's first process), and would keep
	 * a zombie of each call. */
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	(void)setsid(); /* a terminal's keys are the client's business */
	if (parse(argc, argv, &e) < 0 || prepare(&e) < 0)
		return refuse(&e);
	spawner.sock = SPAWN_SOCKET;
	sigemptyset(&mine);
	sigaddset(&mine, SIGCHLD);
	sigaddset(&mine, SIGTERM);
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_BLOCK, &mine, &spawner.before);
	spawner.signals = signalfd(-1, &mine, SFD_CLOEXEC | SFD_NONBLOCK);
	if (spawner.signals < 0) {
		err_sys(&e, "watch for signals");
		return refuse(&e);
	}
	prctl(PR_SET_PDEATHSIG, 0);
	close(SPAWN_PROGRESS);
	if (ready() != 0)
		return 1;
	return serve();
}

const struct opt_verb cli_spawn_verb = {
	.name = "spawn",
	.summary = "Run the boxes of one sandbox, for cloche serve",
	.operands = "",
	.run = spawn_run,
};
