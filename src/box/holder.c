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
#define SOCK 0		/* in the holder */
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

static int give(size_t n)
{
	const struct word w = { .err.kind = ERR_NONE };
	int fds[BOX_SHARED_MAX], r = 0;
	size_t have = 0;
	char name[24];

	for (; have < n && r == 0; have += r == 0) {
		snprintf(name, sizeof(name), "%zu", have);
		fds[have] = sys_open_tree(AT_FDCWD, name, SYS_OPEN_TREE_CLONE | O_CLOEXEC);
		r = fds[have] < 0 ? -1 : 0;
	}
	if (r == 0)
		r = fd_send(SOCK, &w, sizeof(w), fds, n);
	for (size_t i = 0; i < have; i++)
		close(fds[i]);
	return r;
}

_Noreturn static void hold(const struct box_spec *s, struct plan *p, size_t n, int sock,
			   pid_t owner)
{
	struct word w = { .err.kind = ERR_NONE };
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
	while (fd_recv(SOCK, &c, 1, NULL, 0, NULL) == 1)
		if (give(n) < 0)
			break; /* without the mounts there is nothing to be here for */
	_exit(0);
}

/* ---- its owner ---- */

static int answer(struct holder *h, struct word *ret, int *fds, size_t max, size_t *ret_n)
{
	struct pollfd p = { .fd = h->sock, .events = POLLIN };
	int r;

	do {
		r = poll(&p, 1, ANSWER_MS);
	} while (r < 0 && errno == EINTR);
	return r == 1 && fd_recv(h->sock, ret, sizeof(*ret), fds, max, ret_n) == sizeof(*ret) ? 0
											      : -1;
}

int holder_start(struct holder *h, const struct box_spec *spec, char *title, size_t title_len,
		 struct err *e)
{
	static struct plan plan;
	pid_t owner = getpid(), pid;
	struct word w;
	int pair[2];

	*h = HOLDER_NONE;
	/* Ids of a range are mapped from outside; such boxes have what they had. */
	if (spec->range.n > 0 || plan_build_shared(spec, &plan, &h->n, e) < 0 || h->n == 0)
		return 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "make a socket");
	pid = fork();
	if (pid == 0) {
		if (title)
			memset(title, 0, title_len);
		if (title && title_len > sizeof(TITLE))
			memcpy(title, TITLE, sizeof(TITLE));
		hold(spec, &plan, h->n, pair[1], owner);
	}
	close(pair[1]);
	h->sock = pair[0];
	h->pidfd = pid < 0 ? -1 : sys_pidfd_open(pid);
	if (h->pidfd < 0)
		err_fork(e, "the holder of mounts");
	else if (answer(h, &w, NULL, 0, NULL) < 0)
		err_set(e, ERR_SYS, "the holder of mounts does not begin");
	else if (w.err.kind != ERR_NONE)
		*e = w.err;
	else
		return 0;
	holder_end(h);
	return -1;
}

void holder_lend(struct holder *h, struct box_spec *spec)
{
	struct word w;

	spec->n_shared = 0;
	if (h->sock < 0)
		return;
	if (fd_send(h->sock, "", 1, NULL, 0) == 0 &&
	    answer(h, &w, spec->shared, BOX_SHARED_MAX, &spec->n_shared) == 0 &&
	    spec->n_shared == h->n)
		return;
	holder_take_back(spec);
	holder_end(h);
}

void holder_take_back(struct box_spec *spec)
{
	for (size_t i = 0; i < spec->n_shared; i++)
		fd_close(&spec->shared[i]);
	spec->n_shared = 0;
}

void holder_end(struct holder *h)
{
	if (h->pidfd >= 0)
		(void)sys_pidfd_send_signal(h->pidfd, SIGKILL);
	holder_forget(h);
}

void holder_forget(struct holder *h)
{
	fd_close(&h->pidfd);
	fd_close(&h->sock);
}
