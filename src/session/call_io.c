/* What a command reads and writes. Its output is read as it comes, kept up to the sandbox's cut,
 * and, live, sent on; a client that takes nothing, or has not acknowledged a window's worth, holds
 * up that command alone, by its full pipe. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/call.h"
#include "session/sandbox.h"

#define CHUNK 65536
#define READS 4 /* of one stream before the others have their turn */

json_t *call_event(const struct call *c, const char *event)
{
	return json_pack("{s:I,s:s}", c->background ? "call" : "id", (json_int_t)c->pending.id,
			 "event", event);
}

int stream_open(struct stream *t, struct call *c, const char *name, int fd, uint64_t cap,
		struct err *e)
{
	t->call = c;
	t->name = name;
	relay_init(&t->kept, -1, -1);
	if (relay_capture(&t->kept, cap, e) < 0)
		return -1;
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
		return err_sys(e, "a pipe");
	t->fd = fd;
	t->held = true;
	return 0;
}

void stream_close(struct stream *t)
{
	if (!t->call) /* never opened */
		return;
	if (t->fd >= 0)
		loop_remove(&t->call->s->loop, &t->src);
	fd_close(&t->fd);
	relay_close(&t->kept);
}

bool stream_finished(const struct stream *t)
{
	return t->fd < 0;
}

static void stream_end(struct stream *t)
{
	loop_remove(&t->call->s->loop, &t->src);
	fd_close(&t->fd);
	t->held = false;
}

static void resume(void *ctx)
{
	struct call *c = ctx;

	stream_resume(&c->out);
	stream_resume(&c->err);
	call_streams_done(c);
}

/* How much may be read now; 0: nothing, until there is room. */
static size_t allowance(struct stream *t)
{
	struct call *c = t->call;
	size_t n = CHUNK;

	if (c->state == CALL_ENDED && t->left < n)
		n = (size_t)t->left;
	if (!c->live)
		return n;
	if (!out_room(&c->s->out)) {
		pump_wait(c->s, &c->pump, resume, c);
		return 0;
	}
	if (c->s->acks && SES_WINDOW - c->unacked < n)
		n = SES_WINDOW - c->unacked;
	return n;
}

static void stream_hold(struct stream *t)
{
	t->held = true;
	loop_remove(&t->call->s->loop, &t->src);
}

static void stream_take(struct stream *t, const char *data, size_t n)
{
	struct call *c = t->call;

	relay_store(&t->kept, data, n);
	if (c->state == CALL_ENDED)
		t->left -= n;
	if (!c->live)
		return;
	c->unacked += n;
	out_frame_bytes(&c->s->out, call_event(c, t->name), data, n);
}

static void stream_read(struct stream *t)
{
	static char chunk[CHUNK];

	for (int i = 0; i < READS && t->fd >= 0; i++) {
		size_t room;
		ssize_t n;

		if (t->call->state == CALL_ENDED && t->left == 0) {
			stream_end(t);
			return;
		}
		room = allowance(t);
		if (room == 0) {
			stream_hold(t);
			return;
		}
		n = read(t->fd, chunk, room);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN && t->call->state != CALL_ENDED)
			return;
		if (n <= 0) {
			stream_end(t);
			return;
		}
		stream_take(t, chunk, (size_t)n);
	}
}

static void on_stream(void *ctx, unsigned events)
{
	struct stream *t = ctx;

	stream_read(t);
	call_streams_done(t->call);
}

void stream_resume(struct stream *t)
{
	struct err e;

	/* What it prints before it is said to run comes after that. */
	if (!t->held || t->fd < 0 || t->call->state < CALL_RUNNING)
		return;
	t->held = false;
	if (loop_add(&t->call->s->loop, &t->src, t->fd, EPOLLIN, on_stream, t, &e) < 0)
		stream_end(t);
	else
		stream_read(t);
}

void stream_finish(struct stream *t)
{
	int left = 0;

	if (t->fd < 0)
		return;
	/* No more than this: whoever holds the other end outside of the box could go on for ever.
	 */
	if (ioctl(t->fd, FIONREAD, &left) < 0)
		left = 0;
	t->left = (uint64_t)left;
	t->held = false;
	while (t->fd >= 0 && !t->held)
		stream_read(t);
}

/* ---- standard input ---- */

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
		reply_refuse(c->s, r->id, SES_PROTOCOL,
			     "call %llu was begun without \"stdin\": true",
			     (unsigned long long)c->pending.id);
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
