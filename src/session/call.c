#include "session/call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/port.h"
#include "session/sandbox.h"
#include "session/words.h"

#define CANCELS_MAX 256 /* of one call that are told when it is gone; more are told at once */

static void call_start(struct call *c);
static void call_ended(struct call *c);
static void call_send(void *ctx);
static void call_output_moved(void *ctx);
static void cancel_by(struct session *s, void *owner, uint64_t by);
static bool unwanted(const struct call *c);
static void ack(struct session *s, void *owner, size_t n);

/* An event of the call, under its id or as a call's. */
static json_t *call_event(void *ctx, const char *event)
{
	const struct call *c = ctx;

	return json_pack("{s:I,s:s}", c->background ? "call" : "id", (json_int_t)c->pending.id,
			 "event", event);
}

/* ---- from a request to the queue ---- */

static int take_code(struct call *c, const struct request *r, struct ses_error *e)
{
	const char *language = request_str(r, "language");
	struct err why;

	for (int i = 0; language && i < SPAWN_LANGUAGE_N; i++)
		if (strcmp(language, spawn_language_names[i]) == 0)
			c->order.language = (enum spawn_language)i;
	c->order.flags |= SPAWN_CODE;
	return spawn_memfd("code", r->bytes, r->n, &c->fds.code, &why) < 0
		       ? ses_error_set(e, SES_SYSTEM, "%s", why.msg)
		       : 0;
}

static int take_order(struct call *c, const struct request *r, struct ses_error *e)
{
	const struct ses_options *o = &c->sb->options;
	const json_t *pty = request_json(r, "pty");

	c->background = r->op == OP_START;
	c->output.live = request_bool(r, "stream", false);
	c->order.kind = SPAWN_CALL;
	c->order.timeout_us = request_us(r, "timeout_s", c->background ? 0 : o->timeout_us);
	if (request_bool(r, "stdin", false))
		c->order.flags |= SPAWN_STDIN;
	if (request_bool(r, "track_files", o->track_files))
		c->order.flags |= SPAWN_TRACK;
	if (pty) {
		c->order.flags |= SPAWN_PTY;
		c->order.rows = (unsigned short)json_integer_value(json_object_get(pty, "rows"));
		c->order.cols = (unsigned short)json_integer_value(json_object_get(pty, "cols"));
	}
	if (r->op == OP_RUN_CODE && take_code(c, r, e) < 0)
		return -1;
	return words_of(r, o, &c->fds.words, e);
}

static int admit(const struct session *s, const struct request *r, struct ses_error *e)
{
	if (s->held_bytes + r->n > SES_HELD_BYTES)
		return ses_error_set(e, SES_BUSY, "other payloads take all the room");
	if (s->kept_bytes > SES_KEPT_BYTES)
		return ses_error_set(
			e, SES_BUSY,
			"the output of calls that nobody has waited for takes all the room");
	if (s->calls >= SES_CALLS_MAX || s->queued >= s->queue_max)
		return ses_error_set(e, SES_BUSY, "%u calls run and %u wait: no more can", s->boxes,
				     s->queued);
	return 0;
}

static void enqueue(struct call *c)
{
	struct session *s = c->s;

	c->queued_at = loop_now();
	*s->queue_end = c;
	s->queue_end = &c->next_queued;
	s->queued++;
}

static void dequeue(struct call *c)
{
	struct session *s = c->s;

	for (struct call **p = &s->queue; *p; p = &(*p)->next_queued)
		if (*p == c) {
			*p = c->next_queued;
			if (!*p)
				s->queue_end = p;
			s->queued--;
			break;
		}
	c->next_queued = NULL;
}

void call_begin(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_of(s, r);
	struct ses_error e;
	struct call *c;

	if (!sb)
		return;
	if (admit(s, r, &e) < 0) {
		reply_fail(s, r->id, &e);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (!c) {
		reply_refuse(s, r->id, SES_SYSTEM, "out of memory");
		return;
	}
	c->s = s;
	c->sb = sb;
	c->fds = (struct spawn_fds){ -1, -1, -1, -1, -1, -1 };
	c->control = c->in = -1;
	output_init(&c->output, s, c, call_event, call_output_moved);
	if (take_order(c, r, &e) < 0) {
		reply_fail(s, r->id, &e);
		spawn_fds_close(&c->fds);
		free(c);
		return;
	}
	c->pending.cancel = cancel_by;
	c->pending.ack = ack;
	pending_add(s, &c->pending, r->id, c);
	c->next_of_sandbox = sb->calls;
	c->held = r->n;
	s->held_bytes += c->held;
	sb->calls = c;
	sb->n_calls++;
	s->calls++;
	enqueue(c);
	call_pump_queue(s);
}

/* Calls of a sandbox whose spawner is not there yet let others pass. */
static struct call *next_ready(const struct session *s)
{
	struct call *c = s->queue;

	while (c && !c->sb->outcome && !c->sb->current)
		c = c->next_queued;
	return c;
}

void call_pump_queue(struct session *s)
{
	struct call *c;

	if (s->pumping) /* what is started may end at once, and come here again */
		return;
	s->pumping = true;
	while (s->boxes < s->boxes_max && (c = next_ready(s))) {
		dequeue(c);
		s->boxes++;
		call_start(c);
	}
	s->pumping = false;
}

/* ---- from the queue to the box ---- */

/* This side's ends of the command's streams. */
struct ends {
	int in, out, err;
};

static int make_pipes(struct call *c, struct ends *ret, struct err *e)
{
	unsigned flags = c->order.flags;

	if (fd_pipe(&ret->out, &c->fds.out) < 0 ||
	    (!(flags & SPAWN_PTY) && fd_pipe(&ret->err, &c->fds.err) < 0) ||
	    (flags & SPAWN_STDIN && fd_pipe(&c->fds.in, &ret->in) < 0))
		return err_sys(e, "a pipe");
	return 0;
}

static int open_streams(struct call *c, struct ends *mine, struct err *e)
{
	uint64_t cap = c->sb->options.output;

	if (output_open(&c->output, &c->output.out, "stdout", mine->out, cap, e) < 0)
		return -1;
	mine->out = -1;
	if (mine->err >= 0 &&
	    output_open(&c->output, &c->output.err, "stderr", mine->err, cap, e) < 0)
		return -1;
	mine->err = -1;
	if (mine->in >= 0 && call_stdin_open(c, mine->in, e) < 0)
		return -1;
	mine->in = -1;
	return 0;
}

static void on_control(void *ctx, unsigned events);

static int make_control(struct call *c, struct err *e)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "a socket");
	c->control = pair[0];
	c->fds.control = pair[1];
	return fcntl(c->control, F_SETFL, O_NONBLOCK) < 0 ? err_sys(e, "a socket") : 0;
}

static void lost(struct call *c, const char *why)
{
	if (c->cancelled)
		result_fault(&c->result, FAULT_CANCELLED, NULL, "the call was cancelled");
	else
		result_fault(&c->result, FAULT_INIT_LOST, NULL, why);
	call_ended(c);
}

/* The spawner has them, or nobody needs them any more. */
static void give_fds_up(struct call *c)
{
	spawn_fds_close(&c->fds);
	c->s->held_bytes -= c->held;
	c->held = 0;
}

/* The box does not wait for what this side needs of its own. */
static int hand_over(struct call *c, struct ends *mine, struct err *e)
{
	if (make_control(c, e) < 0 || make_pipes(c, mine, e) < 0)
		return -1;
	c->spawner = c->sb->current;
	c->spawner->calls++;
	if (spawn_send_call(c->spawner->sock, &c->order, &c->fds) < 0)
		return 1;
	give_fds_up(c);
	return loop_add(&c->s->loop, &c->control_src, c->control, EPOLLIN, on_control, c, e) < 0
		       ? -1
		       : open_streams(c, mine, e);
}

static void call_start(struct call *c)
{
	struct ends mine = { -1, -1, -1 };
	struct sandbox *sb = c->sb;
	struct err e;
	int r;

	c->state = CALL_STARTING;
	c->order.queued_us = loop_now() - c->queued_at;
	if (sb->outcome) {
		c->result.outcome = json_deep_copy(sb->outcome);
		call_ended(c);
		return;
	}
	r = hand_over(c, &mine, &e);
	fd_close(&mine.in);
	fd_close(&mine.out);
	fd_close(&mine.err);
	if (r > 0) {
		lost(c, "the sandbox's spawner takes no calls");
	} else if (r < 0) {
		result_fault(&c->result, FAULT_STARTUP_FAILED, "spec", e.msg);
		call_ended(c);
	}
}

static void call_started(struct call *c)
{
	if (c->state != CALL_STARTING)
		return;
	c->state = CALL_RUNNING;
	if (c->background)
		reply_done(c->s, c->pending.id, NULL);
	else
		reply_event(c->s, c->pending.id, "started", NULL);
	if (c->resized)
		call_order(c, SPAWN_RESIZE, 0);
	for (int sig = 1; c->signals && sig <= 64; sig++)
		if (c->signals >> (sig - 1) & 1)
			call_order(c, SPAWN_SIGNAL, sig);
	c->signals = 0;
	output_run(&c->output);
}

/* What came with OUTCOME. */
static int read_outcome(struct call *c, const int fds[2], struct err *e)
{
	char *text = NULL, *changes;
	size_t n = 0, changes_n;
	int rc;

	if (spawn_map(fds[0], RESULT_OUTCOME_MAX, &text, &n, e) < 0)
		return -1;
	rc = result_read(&c->result, text ? text : "", n, e);
	if (text)
		munmap(text, n);
	if (rc == 0 && fds[1] >= 0 &&
	    spawn_map(fds[1], RESULT_CHANGES_MAX, &changes, &changes_n, e) == 0 && changes)
		result_changes(&c->result, changes, changes_n);
	return rc;
}

static void on_control(void *ctx, unsigned events)
{
	struct call *c = ctx;
	struct spawn_event ev;
	struct err e;
	int fds[2], rc = spawn_recv_event(c->control, &ev, fds);

	if (rc < 0 && errno == EAGAIN)
		return;
	if (rc == 1 && ev.kind == SPAWN_STARTED) {
		call_started(c);
	} else if (rc == 1 && ev.kind == SPAWN_CONNECTED) {
		port_connected(c, ev.tag, fd_steal(&fds[0]));
	} else if (rc == 1 && ev.kind == SPAWN_OUTCOME) {
		if (read_outcome(c, fds, &e) < 0)
			lost(c, e.msg);
		else
			call_ended(c);
	} else {
		lost(c, "the process that kept the box has ended without a report");
	}
	if (rc == 1) {
		fd_close(&fds[0]);
		fd_close(&fds[1]);
	}
}

/* ---- the end ---- */

static void answer_cancels(struct call *c)
{
	for (size_t i = 0; i < c->n_cancels; i++)
		reply_done(c->s, c->cancels[i], NULL);
	free(c->cancels);
	c->cancels = NULL;
	c->n_cancels = 0;
}

static void close_control(struct call *c)
{
	if (c->control >= 0)
		loop_remove(&c->s->loop, &c->control_src);
	fd_close(&c->control);
}

static void leave_spawner(struct call *c)
{
	struct spawner *p = c->spawner;

	c->spawner = NULL;
	if (p)
		spawner_call_ended(p);
}

/* The box is gone. */
static void call_ended(struct call *c)
{
	struct session *s = c->s;
	bool started = c->state == CALL_RUNNING;

	c->state = CALL_ENDED;
	s->boxes--;
	leave_spawner(c);
	give_fds_up(c);
	port_end(c);
	close_control(c);
	call_stdin_end(c);
	if (c->background && !started)
		reply_done(s, c->pending.id, NULL);
	answer_cancels(c);
	output_finish(&c->output);
	if (unwanted(c))
		call_drop(c);
	else
		call_output_moved(c);
	call_pump_queue(s);
}

/* Begun in the background, ended, and nobody can ask for it any more: live output that was not
 * taken does not hold up the end of its sandbox. */
static bool unwanted(const struct call *c)
{
	return c->state >= CALL_ENDED && c->background && !c->wait.id &&
	       c->sb->state == SANDBOX_CLOSING;
}

void call_close(struct call *c)
{
	if (unwanted(c))
		call_drop(c);
	else
		call_cancel(c);
}

static void call_output_moved(void *ctx)
{
	struct call *c = ctx;

	if (c->state != CALL_ENDED || !output_finished(&c->output))
		return;
	output_take(&c->output.out, &c->result.out);
	output_take(&c->output.err, &c->result.err);
	c->state = CALL_KEPT;
	if (c->background) {
		c->kept = c->result.out.len + c->result.err.len;
		c->s->kept_bytes += c->kept;
		out_frame(&c->s->out, call_event(c, "ended"));
	}
	pump_drop(&c->pump);
	if (!c->background || c->wait.id)
		pump_wait(c->s, &c->pump, call_send, c);
}

static void call_send(void *ctx)
{
	struct call *c = ctx;
	uint64_t id = c->background ? c->wait.id : c->pending.id;

	c->state = CALL_SENDING;
	if (result_send(&c->result, &c->s->out, id))
		call_drop(c);
	else
		pump_wait(c->s, &c->pump, call_send, c);
}

void call_drop(struct call *c)
{
	struct session *s = c->s;
	struct sandbox *sb = c->sb;

	if (c->state == CALL_QUEUED)
		dequeue(c);
	else if (c->state < CALL_ENDED)
		s->boxes--;
	leave_spawner(c);
	give_fds_up(c);
	s->kept_bytes -= c->kept;
	port_end(c);
	close_control(c);
	call_stdin_end(c);
	output_close(&c->output);
	answer_cancels(c);
	pump_drop(&c->pump);
	pending_drop(s, &c->pending);
	pending_drop(s, &c->wait);
	result_free(&c->result);
	for (struct call **p = &sb->calls; *p; p = &(*p)->next_of_sandbox)
		if (*p == c) {
			*p = c->next_of_sandbox;
			break;
		}
	sb->n_calls--;
	s->calls--;
	loop_free(&s->loop, c);
	sandbox_part_gone(sb);
}

/* ---- cancel, wait, and what a call can be told ---- */

void call_cancel(struct call *c)
{
	struct session *s = c->s;
	uint64_t id = c->pending.id;

	c->cancelled = true;
	if (c->state == CALL_QUEUED) {
		if (c->wait.id)
			reply_refuse(s, c->wait.id, SES_CANCELLED, "cancelled before it began");
		reply_refuse(s, id, SES_CANCELLED, "cancelled before it began");
		call_drop(c);
	} else if (c->state < CALL_ENDED) {
		/* A hang-up says the same, and needs no room; what the keeper says is read on. */
		if (!call_order(c, SPAWN_CANCEL, 0))
			(void)shutdown(c->control, SHUT_WR);
	}
}

static void cancel_by(struct session *s, void *owner, uint64_t by)
{
	struct call *c = owner;
	bool ends = c->state == CALL_STARTING || c->state == CALL_RUNNING;
	uint64_t *v = ends && c->n_cancels < CANCELS_MAX
			      ? reallocarray(c->cancels, c->n_cancels + 1, sizeof(*v))
			      : NULL;

	if (v) {
		c->cancels = v;
		v[c->n_cancels++] = by;
	}
	call_cancel(c);
	if (!v)
		reply_done(s, by, NULL);
}

static void cancel_wait(struct session *s, void *owner, uint64_t by)
{
	struct call *c = owner;
	uint64_t id = c->wait.id;

	if (c->state == CALL_SENDING) { /* it is on its way */
		reply_done(s, by, NULL);
		return;
	}
	pending_drop(s, &c->wait);
	pump_drop(&c->pump);
	reply_refuse(s, id, SES_CANCELLED, "nobody waits for call %llu any more",
		     (unsigned long long)c->pending.id);
	reply_done(s, by, NULL);
	if (unwanted(c))
		call_drop(c);
}

static void call_wait(struct call *c, const struct request *r)
{
	if (!c->background || c->wait.id) {
		reply_refuse(c->s, r->id, SES_NOT_FOUND, "call %llu %s",
			     (unsigned long long)c->pending.id,
			     c->background ? "is waited for already" : "was not begun by start");
		return;
	}
	c->wait.cancel = cancel_wait;
	pending_add(c->s, &c->wait, r->id, c);
	if (c->state == CALL_KEPT)
		pump_wait(c->s, &c->pump, call_send, c);
}

static void ack(struct session *s, void *owner, size_t n)
{
	struct call *c = owner;

	output_ack(&c->output, n);
}

void call_operation(struct session *s, const struct request *r)
{
	uint64_t id = (uint64_t)request_int(r, "call", 0);
	struct pending *p = pending_find(s, id);

	if (!p || p->cancel != cancel_by) {
		reply_refuse(s, r->id, SES_NOT_FOUND, "there is no call %llu",
			     (unsigned long long)id);
		return;
	}
	switch (r->op) {
	case OP_WAIT:
		call_wait(p->owner, r);
		break;
	case OP_SIGNAL:
		call_signal(p->owner, r);
		break;
	case OP_STDIN:
		call_stdin(p->owner, r);
		break;
	case OP_RESIZE:
		call_resize(p->owner, r);
		break;
	default:
		port_open(p->owner, r);
		break;
	}
}
