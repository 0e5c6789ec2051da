#include "session/output.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"

#define CHUNK 65536
#define READS 4 /* of one stream before the others have their turn */

void output_init(struct output *o, struct session *s, void *ctx,
		 json_t *(*event)(void *ctx, const char *name), void (*moved)(void *ctx))
{
	*o = (struct output){ .s = s, .ctx = ctx, .event = event, .moved = moved };
	o->out.fd = o->err.fd = -1;
}

int output_open(struct output *o, struct stream *t, const char *name, int fd, uint64_t cap,
		struct err *e)
{
	t->of = o;
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

static void stream_close(struct stream *t)
{
	if (!t->of) /* never opened */
		return;
	if (t->fd >= 0)
		loop_remove(&t->of->s->loop, &t->src);
	fd_close(&t->fd);
	relay_close(&t->kept);
}

void output_close(struct output *o)
{
	stream_close(&o->out);
	stream_close(&o->err);
	o->s->stored_bytes -= o->stored;
	o->stored = 0;
	pump_drop(&o->pump);
}

bool output_finished(const struct output *o)
{
	return o->out.fd < 0 && o->err.fd < 0;
}

void output_take(struct stream *t, struct box_stream *ret)
{
	if (t->kept.store)
		relay_take(&t->kept, ret);
}

static void stream_end(struct stream *t)
{
	loop_remove(&t->of->s->loop, &t->src);
	fd_close(&t->fd);
	t->held = false;
}

static void stream_resume(struct stream *t);

static void resume(void *ctx)
{
	struct output *o = ctx;

	stream_resume(&o->out);
	stream_resume(&o->err);
	o->moved(o->ctx);
}

/* How much may be read now; 0: nothing, until there is room. */
static size_t allowance(struct stream *t)
{
	struct output *o = t->of;
	size_t n = CHUNK;

	if (o->ended && t->left < n)
		n = (size_t)t->left;
	if (!o->live)
		return n;
	if (!out_room(&o->s->out)) {
		pump_wait(o->s, &o->pump, resume, o);
		return 0;
	}
	if (o->s->acks && SES_WINDOW - o->unacked < n)
		n = SES_WINDOW - o->unacked;
	return n;
}

static void stream_hold(struct stream *t)
{
	t->held = true;
	loop_remove(&t->of->s->loop, &t->src);
}

/* A box's own limit knows nothing of this memory. */
static void keep(struct stream *t, const char *data, size_t n)
{
	struct output *o = t->of;
	uint64_t before = relay_kept(&t->kept), more;

	if (o->s->stored_bytes >= SES_STORED_BYTES)
		relay_narrow(&t->kept, SES_STORED_LEAST);
	relay_store(&t->kept, data, n);
	more = relay_kept(&t->kept) - before;
	o->stored += more;
	o->s->stored_bytes += more;
}

static void stream_take(struct stream *t, const char *data, size_t n)
{
	struct output *o = t->of;

	keep(t, data, n);
	if (o->ended)
		t->left -= n;
	if (!o->live)
		return;
	o->unacked += n;
	out_frame_bytes(&o->s->out, o->event(o->ctx, t->name), data, n);
}

static void stream_read(struct stream *t)
{
	static char chunk[CHUNK];

	for (int i = 0; i < READS && t->fd >= 0; i++) {
		size_t room;
		ssize_t n;

		if (t->of->ended && t->left == 0) {
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
		if (n < 0 && errno == EAGAIN && !t->of->ended)
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
	t->of->moved(t->of->ctx);
}

static void stream_resume(struct stream *t)
{
	struct err e;

	/* What it prints before it is said to run comes after that. */
	if (!t->held || t->fd < 0 || !t->of->running)
		return;
	t->held = false;
	if (loop_add(&t->of->s->loop, &t->src, t->fd, EPOLLIN, on_stream, t, &e) < 0)
		stream_end(t);
	else
		stream_read(t);
}

void output_run(struct output *o)
{
	o->running = true;
	stream_resume(&o->out);
	stream_resume(&o->err);
}

static void stream_finish(struct stream *t)
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

void output_finish(struct output *o)
{
	o->running = o->ended = true;
	stream_finish(&o->out);
	stream_finish(&o->err);
}

void output_ack(struct output *o, size_t n)
{
	o->unacked -= n < o->unacked ? n : o->unacked;
	if (o->s->acks && o->unacked < SES_WINDOW)
		resume(o);
}
