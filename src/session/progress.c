#include "session/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/sandbox.h"

#define READS 64 /* at the end: no writer keeps the loop for longer */

void progress_close(struct progress *p)
{
	if (p->fd >= 0)
		loop_remove(&p->sb->s->loop, &p->src);
	fd_close(&p->fd);
}

static bool progress_read(struct progress *p)
{
	ssize_t n = read(p->fd, p->line + p->n, sizeof(p->line) - p->n);
	char *from = p->line, *nl;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		progress_close(p);
		return false;
	}
	p->n += (size_t)n;
	while ((nl = memchr(from, '\n', p->n - (size_t)(from - p->line)))) {
		sandbox_progress(p->sb, from, (size_t)(nl - from));
		from = nl + 1;
	}
	p->n -= (size_t)(from - p->line);
	memmove(p->line, from, p->n);
	if (p->n == sizeof(p->line)) /* no line of ours */
		p->n = 0;
	return true;
}

static void on_progress(void *ctx, unsigned events)
{
	progress_read(ctx);
}

void progress_drain(struct progress *p)
{
	for (int i = 0; i < READS && p->fd >= 0 && progress_read(p); i++)
		;
}

int progress_open(struct progress *p, struct sandbox *sb, int *theirs, struct err *e)
{
	p->sb = sb;
	p->n = 0;
	if (fd_pipe(&p->fd, theirs) < 0)
		return err_sys(e, "a pipe");
	if (fcntl(p->fd, F_SETFL, O_NONBLOCK) < 0)
		err_sys(e, "a pipe");
	else if (loop_add(&sb->s->loop, &p->src, p->fd, EPOLLIN, on_progress, p, e) == 0)
		return 0;
	fd_close(&p->fd);
	fd_close(theirs);
	return -1;
}
