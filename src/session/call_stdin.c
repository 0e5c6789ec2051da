/* What a client gives a command to read. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/call.h"

static void stdin_answer(struct call *c)
{
	uint64_t id = c->in_pending.id;

	if (!id)
		return;
	pending_drop(c->s, &c->in_pending);
	reply_done(c->s, id, json_pack("{s:I}", "size", (json_int_t)c->in_at));
	c->s->held_bytes -= c->in_n;
	free(c->in_data);
	c->in_data = NULL;
	c->in_at = c->in_n = 0;
}

void call_stdin_end(struct call *c)
{
	if (c->in >= 0)
		loop_remove(&c->s->loop, &c->in_src);
	fd_close(&c->in);
	c->in_eof = true;
	stdin_answer(c);
}

static void on_stdin(void *ctx, unsigned events)
{
	struct call *c = ctx;

	while (c->in_at < c->in_n) {
		ssize_t n = write(c->in, c->in_data + c->in_at, c->in_n - c->in_at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			loop_want(&c->s->loop, &c->in_src, EPOLLOUT);
			return;
		}
		if (n <= 0) {
			call_stdin_end(c);
			return;
		}
		c->in_at += (size_t)n;
	}
	if (c->in_eof || events & EPOLLERR) {
		call_stdin_end(c);
		return;
	}
	loop_want(&c->s->loop, &c->in_src, 0);
	stdin_answer(c);
}

int call_stdin_open(struct call *c, int fd, struct err *e)
{
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, "a pipe");
	if (loop_add(&c->s->loop, &c->in_src, fd, 0, on_stdin, c, e) < 0)
		return -1;
	c->in = fd;
	if (c->in_pending.id || c->in_eof)
		on_stdin(c, 0);
	return 0;
}

void call_stdin(struct call *c, const struct request *r)
{
	if (!(c->order.flags & SPAWN_STDIN)) {
		call_lacks(c, r->id, "stdin");
		return;
	}
	if (c->in_pending.id) {
		reply_refuse(c->s, r->id, SES_PROTOCOL,
			     "the stdin request before it has no answer yet");
		return;
	}
	if (c->in_eof) { /* the command has closed it, or has ended: nobody takes it */
		reply_done(c->s, r->id, json_pack("{s:i}", "size", 0));
		return;
	}
	if (c->s->held_bytes + r->n > SES_HELD_BYTES ||
	    (r->n > 0 && !(c->in_data = malloc(r->n)))) {
		reply_refuse(c->s, r->id, SES_BUSY, "other payloads take all the room");
		return;
	}
	if (r->n > 0)
		memcpy(c->in_data, r->bytes, r->n);
	c->in_at = 0;
	c->in_n = r->n;
	c->s->held_bytes += r->n;
	c->in_eof = request_bool(r, "eof", false);
	pending_add(c->s, &c->in_pending, r->id, c);
	if (c->in >= 0)
		on_stdin(c, 0);
}
