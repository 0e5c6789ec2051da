/* What a call is told while it is there: signals, and sizes of its terminal. Before the command
 * runs, signals and the size wait here. The keeper takes its orders at once but while it walks the
 * workspace or starts the box: those that find no room are refused. */
#include <errno.h>

#include "session/call.h"

bool call_order(struct call *c, enum spawn_kind kind, int sig)
{
	struct spawn_order o = { .kind = kind,
				 .sig = sig,
				 .rows = c->order.rows,
				 .cols = c->order.cols };

	/* A keeper that has ended needs none any more. */
	return spawn_send_order(c->control, &o) == 0 || errno == EPIPE || errno == ECONNRESET;
}

static void busy_with_orders(struct call *c, uint64_t id)
{
	reply_refuse(c->s, id, SES_BUSY, "call %llu has more orders than it has taken",
		     (unsigned long long)c->pending.id);
}

void call_lacks(struct call *c, uint64_t id, const char *option)
{
	struct ses_error e;

	ses_error_set(&e, SES_OPTION, "%s: call %llu was started without it", option,
		      (unsigned long long)c->pending.id);
	ses_error_about(&e, option, "a call started with %s", option);
	reply_fail(c->s, id, &e);
}

void call_signal(struct call *c, const struct request *r)
{
	int sig = request_signal(r);

	if (c->state < CALL_RUNNING)
		c->signals |= UINT64_C(1) << (sig - 1);
	else if (c->state == CALL_RUNNING && !call_order(c, SPAWN_SIGNAL, sig)) {
		busy_with_orders(c, r->id);
		return;
	}
	reply_done(c->s, r->id, NULL);
}

void call_resize(struct call *c, const struct request *r)
{
	int rows = (int)request_int(r, "rows", 24), cols = (int)request_int(r, "cols", 80);

	if (!(c->order.flags & SPAWN_PTY)) {
		call_lacks(c, r->id, "pty");
		return;
	}
	c->order.rows = (unsigned short)rows;
	c->order.cols = (unsigned short)cols;
	if (c->state == CALL_RUNNING && !call_order(c, SPAWN_RESIZE, 0)) {
		busy_with_orders(c, r->id);
		return;
	}
	c->resized = true;
	reply_done(c->s, r->id, NULL);
}
