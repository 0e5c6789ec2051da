#include "box/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/ops.h"
#include "box/plan.h"
#include "box/user.h"
#include "box/userns_why.h"

#define TITLE "cloche: mounts"
#define SOCK 0 /* in the holder */
#define ASK_ALL 'a'
#define ASK_WORKSPACE 'w'
#define ANSWER_MS 10000 /* a hang guard: it has nothing else to do */

/* Its first word, and the one that comes with the mounts. */
struct word {
	struct err err;
};

/* ---- the holder ---- */

/* In the order of a box (init.c): ids, then what changing them has cleared. */
static int hold_user(const struct box_spec *s, pid_t owner, struct err *e)
{
	if (geteuid() != s->outer_uid &&
	    (setgroups(0, NULL) < 0 || setresgid(s->outer_gid, s->outer_gid, s->outer_gid) < 0 ||
	     setresuid(s->outer_uid, s->outer_uid, s->outer_uid) < 0))
		return err_sys(e, "become uid %u", s->outer_uid);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return err_sys(e, "user namespace");
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || user_map(s, e) < 0 || user_become(s, e) < 0)
		return -1;
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_sys(e, "bind the holder to its owner");
	if (owner != getppid())
		_exit(1);
	return 0;
}

/* What is called `first` to `n`, to one who asks. Whoever has gone meanwhile gets nothing. */
static int give(int to, size_t first, size_t n)
{
	const struct word w = { .err.kind = ERR_NONE };
	int fds[BOX_SHARED_MAX + 1], r = 0;
	size_t have = 0;
	char name[24];

	for (; have < n - first && r == 0; have += r == 0) {
		snprintf(name, sizeof(name), "%zu", first + have);
		fds[have] = sys_open_tree(AT_FDCWD, name, SYS_OPEN_TREE_CLONE | O_CLOEXEC);
		r = fds[have] < 0 ? -1 : 0;
	}
	if (r == 0)
		(void)fd_send(to, &w, sizeof(w), fds, n - first);
	for (size_t i = 0; i < have; i++)
		close(fds[i]);
	return r;
}

_Noreturn static void hold(const struct box_spec *s, struct plan *p, size_t n, int sock,
			   pid_t owner)
{
	struct word w = { .err.kind = ERR_NONE };
	size_t got;
	int to;
	char c;

	/* Whoever hangs up the other end ends it: no end may stay here. */
	if (dup2(sock, SOCK) < 0 || sys_close_range(SOCK + 1, ~0U) < 0)
		_exit(1);
	prctl(PR_SET_NAME, TITLE, 0, 0, 0);
	if (hold_user(s, owner, &w.err) < 0 || ops_run(p, &w.err) < 0 ||
	    ops_detach(p, &w.err) < 0) {
		(void)fd_send(SOCK, &w, sizeof(w), NULL, 0);
		_exit(1);
	}
	if (fd_send(SOCK, &w, sizeof(w), NULL, 0) < 0)
		_exit(1);
	while (fd_recv(SOCK, &c, 1, &to, 1, &got) == 1) {
		if (got == 1 && give(to, c == ASK_WORKSPACE ? n - 1 : 0, n) < 0)
			break; /* without the mounts there is nothing to be here for */
		if (got == 1)
			close(to);
	}
	_exit(0);
}

/* ---- its owner ---- */

static int answer(int sock, struct word *ret, int *fds, size_t max, size_t *ret_n)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	int r;

	do {
		r = poll(&p, 1, ANSWER_MS);
	} while (r < 0 && errno == EINTR);
	return r == 1 && fd_recv(sock, ret, sizeof(*ret), fds, max, ret_n) == sizeof(*ret) ? 0 : -1;
}

static int start(struct holder *h, const struct box_spec *spec, bool overlays, char *title,
		 size_t title_len, struct err *e)
{
	static struct plan plan;
	pid_t owner = getpid(), pid;
	struct word w;
	int pair[2];

	*h = HOLDER_NONE;
	if (plan_build_shared(spec, overlays, &plan, &h->n, e) < 0)
		return -1;
	if (plan.n_ops == 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "make a socket");
	h->workspace = spec->workspace_size > 0;
	pid = fork();
	if (pid == 0) {
		if (title)
			memset(title, 0, title_len);
		if (title && title_len > sizeof(TITLE))
			memcpy(title, TITLE, sizeof(TITLE));
		hold(spec, &plan, h->n + h->workspace, pair[1], owner);
	}
	close(pair[1]);
	h->sock = pair[0];
	h->pidfd = pid < 0 ? -1 : sys_pidfd_open(pid);
	if (h->pidfd < 0)
		err_fork(e, "the holder of mounts");
	else if (answer(h->sock, &w, NULL, 0, NULL) < 0)
		err_set(e, ERR_SYS, "the holder of mounts does not begin");
	else if (w.err.kind != ERR_NONE)
		*e = w.err;
	else if (fcntl(h->sock, F_SETFL, O_NONBLOCK) < 0) /* it may be stopped, with many who ask */
		err_sys(e, "the holder of mounts");
	else
		return 0;
	holder_end(h);
	return -1;
}

int holder_start(struct holder *h, const struct box_spec *spec, char *title, size_t title_len,
		 struct err *e)
{
	*h = HOLDER_NONE;
	/* Ids of a range are mapped from outside; such boxes have what they had. */
	if (spec->range.n > 0)
		return 0;
	if (start(h, spec, true, title, title_len, e) == 0)
		return 0;
	/* An overlay may have been what failed. */
	return spec->workspace_size > 0 ? start(h, spec, false, title, title_len, e) : -1;
}

static size_t ask(const struct holder *h, int fds[BOX_SHARED_MAX + 1])
{
	const char what = h->n > 0 ? ASK_ALL : ASK_WORKSPACE;
	struct word w;
	size_t n = 0;
	int pair[2];

	if (h->sock < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return 0;
	if (fd_send(h->sock, &what, 1, &pair[1], 1) < 0) {
		close(pair[1]);
	} else {
		close(pair[1]); /* so that the holder's end is its hang-up */
		(void)!answer(pair[0], &w, fds, BOX_SHARED_MAX + 1, &n);
	}
	close(pair[0]);
	return n;
}

void holder_lend(const struct holder *h, struct box_spec *spec)
{
	int fds[BOX_SHARED_MAX + 1] = { 0 };
	size_t n = ask(h, fds);

	if (n != h->n + h->workspace) {
		for (size_t i = 0; i < n; i++)
			close(fds[i]);
		return;
	}
	for (size_t i = 0; i < h->n; i++)
		spec->shared[i] = fds[i];
	if (h->n > 0)
		spec->n_shared = h->n;
	if (h->workspace)
		spec->workspace_mount = fds[h->n];
}

void holder_take_back(struct box_spec *spec)
{
	for (size_t i = 0; i < spec->n_shared; i++)
		fd_close(&spec->shared[i]);
	spec->n_shared = 0;
	fd_close(&spec->workspace_mount);
}

void holder_end(struct holder *h)
{
	if (h->pidfd >= 0)
		(void)sys_pidfd_send_signal(h->pidfd, SIGKILL);
	fd_close(&h->pidfd);
	fd_close(&h->sock);
}
