/* The server: takes an order and three descriptors (file, directory, way back) and makes a child,
 * one after the other. The child's end is the end of the way back. */
#include "image/unpack_server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "image/confine.h"
#include "image/sha256.h"

enum { IN, TREE, BACK, FDS };

/* In the child: opens the layers below, and is the child. */
static void __attribute__((noreturn))
obey(const struct img_store *s, const struct img_unpack_order *o, const int fds[FDS], pid_t parent)
{
	struct img_unpack_job job = { .in = fds[IN], .max_in = o->max_in, .tree = fds[TREE] };
	int lowers[IMG_STACK_MAX];

	for (size_t i = 0; i < o->n_lowers; i++) {
		lowers[i] = openat(s->layers, o->lowers[i],
				   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (lowers[i] < 0)
			_exit(1);
	}
	job.how = (struct img_unpack_how){ .limits = o->limits,
					   .keep_owners = o->keep_owners,
					   .lax_end = o->lax_end,
					   .lowers = lowers,
					   .n_lowers = o->n_lowers };
	img_unpack_child(&job, fds[BACK], parent);
}

static bool order_ok(const struct img_unpack_order *o)
{
	if (o->n_lowers > IMG_STACK_MAX)
		return false;
	for (size_t i = 0; i < o->n_lowers; i++)
		if (!memchr(o->lowers[i], '\0', sizeof(o->lowers[i])) ||
		    strchr(o->lowers[i], '/') || o->lowers[i][0] == '.')
			return false;
	return true;
}

/* The last child goes before the server: whoever waits for the server knows that nobody writes to
 * the draft any more. */
static void __attribute__((noreturn)) leave(pid_t child)
{
	_cleanup_fd_ int pidfd = child > 0 ? sys_pidfd_open(child) : -1;

	if (pidfd >= 0)
		sys_pidfd_send_signal(pidfd, SIGKILL);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	_exit(0);
}

static void __attribute__((noreturn)) serve(const struct img_store *s, int sock)
{
	pid_t self = getpid(), child = 0;

	for (;;) {
		struct img_unpack_order o;
		int fds[FDS] = { -1, -1, -1 };
		size_t got = 0;
		ssize_t n = fd_recv(sock, &o, sizeof(o), fds, FDS, &got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n != sizeof(o) || got != FDS || !order_ok(&o))
			leave(child);
		/* One at a time: the one before has given its account. */
		if (child > 0)
			waitpid(child, NULL, 0);
		child = fork();
		if (child == 0)
			obey(s, &o, fds, self);
		for (int i = 0; i < FDS; i++)
			fd_close(&fds[i]);
	}
}

/* Locks the server in and says how that went. */
static int lock_in(const struct img_store *s, pid_t parent, struct err *e)
{
	const struct img_confine how = { .work = IMG_WORK_SERVE, .writes = &s->fd, .n_writes = 1 };

	signal(SIGINT, SIG_IGN); /* a terminal's is meant for the one that ends us */
	if (img_confine_rights(e) < 0)
		return -1;
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_sys(e, "set up the process that unpacks");
	if (getppid() != parent)
		return err_set(e, ERR_SYS, "the process that fetches has ended");
	return img_confine(&how, e);
}

int img_unpack_serve(const struct img_store *s, struct img_unpack_server *ret, struct err *e)
{
	_cleanup_fd_ int ours = -1, theirs = -1;
	pid_t parent = getpid(), pid;
	int ends[2];
	struct err said = { 0 };

	if (img_sha256_ready(e) < 0)
		return -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return err_sys(e, "socketpair");
	ours = ends[0];
	theirs = ends[1];
	pid = fork();
	if (pid < 0)
		return err_fork(e, "a process that unpacks");
	if (pid == 0) {
		fd_close(&ours);
		lock_in(s, parent, &said);
		if (fd_send(theirs, &said, sizeof(said), NULL, 0) < 0 || said.kind != ERR_NONE)
			_exit(1);
		serve(s, theirs);
	}
	fd_close(&theirs);
	if (fd_recv(ours, &said, sizeof(said), NULL, 0, NULL) != sizeof(said))
		err_set(&said, ERR_SYS, "the process that unpacks ended at its start");
	if (said.kind != ERR_NONE) {
		waitpid(pid, NULL, 0);
		*e = said;
		return -1;
	}
	ret->sock = fd_steal(&ours);
	ret->pid = pid;
	return 0;
}

int img_unpack_order(const struct img_unpack_server *s, const struct img_unpack_order *order,
		     int in, int tree, struct img_unpack_child *ret, struct err *e)
{
	_cleanup_fd_ int from = -1, back = -1;
	int fds[FDS];

	if (fd_pipe(&from, &back) < 0)
		return err_sys(e, "pipe");
	fds[IN] = in;
	fds[TREE] = tree;
	fds[BACK] = back;
	if (fd_send(s->sock, order, sizeof(*order), fds, FDS) < 0)
		return err_sys(e, "the process that unpacks has ended");
	ret->pid = 0;
	ret->answer = fd_steal(&from);
	return 0;
}

void img_unpack_server_end(struct img_unpack_server *s)
{
	if (s->sock < 0)
		return;
	fd_close(&s->sock);
	waitpid(s->pid, NULL, 0);
}
