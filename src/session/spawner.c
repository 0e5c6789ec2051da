#include "session/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/call.h"
#include "session/child.h"
#include "session/sandbox.h"

extern char **environ;

static void close_sock(struct spawner *p)
{
	if (p->sock >= 0)
		loop_remove(&p->sb->s->loop, &p->sock_src);
	fd_close(&p->sock);
}

static void spawner_free(struct spawner *p)
{
	struct sandbox *sb = p->sb;

	close_sock(p);
	progress_close(&p->progress);
	for (struct call *c = sb->calls; c; c = c->next_of_sandbox)
		if (c->spawner == p)
			c->spawner = NULL;
	for (struct spawner **at = &sb->spawners; *at; at = &(*at)->next)
		if (*at == p) {
			*at = p->next;
			break;
		}
	loop_free(&sb->s->loop, p);
}

static void on_pid(void *ctx, unsigned events)
{
	struct spawner *p = ctx;
	struct sandbox *sb = p->sb;

	loop_remove(&sb->s->loop, &p->pid_src);
	child_reap(p->pidfd);
	fd_close(&p->pidfd);
	if (p->sock >= 0) /* what it has said is still to be read */
		return;
	sandbox_spawner_gone(sb, p);
	spawner_free(p);
	sandbox_part_gone(sb);
}

static void on_sock(void *ctx, unsigned events)
{
	struct spawner *p = ctx;
	struct sandbox *sb = p->sb;
	struct spawn_hello hello;
	int fds[SPAWN_HELLO_FDS], rc = spawn_recv_hello(p->sock, &hello, fds);

	if (rc < 0 && errno == EAGAIN)
		return;
	if (rc == 1 && !p->said) {
		p->said = true;
		sandbox_hello(sb, p, &hello, fds);
	} else if (rc != 1) {
		close_sock(p);
		sandbox_spawner_gone(sb, p);
		if (p->pidfd < 0) {
			spawner_free(p);
			sandbox_part_gone(sb);
		}
	}
	for (int i = 0; i < SPAWN_HELLO_FDS; i++)
		fd_close(&fds[i]);
}

static int start(struct spawner *p, char *const *argv, struct err *e)
{
	_cleanup_fd_ int theirs = -1, progress = -1;
	struct loop *l = &p->sb->s->loop;
	struct child_how how = { .path = p->sb->s->cloche,
				 .argv = argv,
				 .env = environ,
				 .n_fds = 5 };
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "a socket");
	p->sock = pair[0];
	theirs = pair[1];
	if (fcntl(p->sock, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, "a socket");
	if (progress_open(&p->progress, p->sb, &progress, e) < 0)
		return -1;
	how.fds[0] = how.fds[1] = -1;
	how.fds[2] = STDERR_FILENO;
	how.fds[SPAWN_SOCKET] = theirs;
	how.fds[SPAWN_PROGRESS] = progress;
	if (p->sb->holder >= 0)
		how.fds[how.n_fds++] = p->sb->holder; /* SPAWN_HOLDER */
	if (loop_add(l, &p->sock_src, p->sock, EPOLLIN, on_sock, p, e) < 0 ||
	    child_start(&how, &p->pidfd, e) < 0)
		return -1;
	if (loop_add(l, &p->pid_src, p->pidfd, EPOLLIN, on_pid, p, e) == 0)
		return 0;
	child_kill(p->pidfd);
	child_reap(p->pidfd);
	fd_close(&p->pidfd);
	return -1;
}

struct spawner *spawner_start(struct sandbox *sb, char *const *words, size_t n, struct err *e)
{
	struct spawner *p = calloc(1, sizeof(*p));
	char **argv = calloc(n + 2, sizeof(*argv));
	int rc;

	if (!p || !argv) {
		free(p);
		free(argv);
		err_sys(e, "start a sandbox");
		return NULL;
	}
	p->sb = sb;
	p->sock = p->pidfd = p->progress.fd = -1;
	p->next = sb->spawners;
	sb->spawners = p;
	argv[0] = (char *)(uintptr_t) "cloche";
	memcpy(argv + 1, words, n * sizeof(*argv));
	rc = start(p, argv, e);
	free(argv);
	if (rc == 0)
		return p;
	spawner_free(p);
	return NULL;
}

void spawner_call_ended(struct spawner *p)
{
	p->calls--;
	if (p->retired && p->calls == 0 && !p->holds)
		spawner_end(p);
}

void spawner_retire(struct spawner *p)
{
	p->retired = true;
	if (p->holds)
		(void)spawn_send_retire(p->sock);
	else if (p->calls == 0)
		spawner_end(p);
}

void spawner_end(struct spawner *p)
{
	struct sandbox *sb = p->sb;

	close_sock(p);
	progress_close(&p->progress);
	if (p->pidfd >= 0)
		return;
	spawner_free(p);
	sandbox_part_gone(sb);
}
