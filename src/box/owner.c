/* The orders of a box's owner, in the monitor's loop. */
#include "box/owner.h"

#include <errno.h>
#include <signal.h>

#include "base/fd.h"
#include "box/monitor.h"

static void obey_connect(struct live *b, const struct box_order *o)
{
	const struct init_order to_init = { .kind = ORDER_CONNECT, .port = o->port, .tag = o->tag };

	if (b->started && !b->ended)
		monitor_order(b, &to_init);
	else
		b->owner->connected(b->owner, o->tag, -1, ENOTCONN);
}

static void obey_signal(struct live *b, int sig)
{
	if (sig < 1 || sig > 64)
		return;
	if (!b->started) {
		b->early |= 1ULL << (sig - 1);
		return;
	}
	b->killed |= sig == SIGKILL;
	monitor_order(b, &(struct init_order){ .kind = ORDER_SIGNAL, .sig = sig });
}

static void obey_resize(struct live *b, const struct winsize *size)
{
	if (!b->started)
		b->early_size = *size;
	else if (b->spec->tty && size->ws_row)
		ioctl(b->tty, TIOCSWINSZ, size);
}

void monitor_owned(struct live *b)
{
	if (!b->owner)
		return;
	b->owner->started(b->owner);
	obey_resize(b, &b->early_size);
	for (int sig = 1; b->early && sig <= 64; sig++)
		if (b->early >> (sig - 1) & 1)
			obey_signal(b, sig);
}

void monitor_obey(struct live *b)
{
	struct box_order o = b->owner->take(b->owner);

	switch (o.kind) {
	case BOX_ORDER_NONE:
		return;
	case BOX_ORDER_CANCEL: /* nothing that comes after it matters, nor does the hang-up */
		b->owner_fd = -1;
		b->cancelled = true;
		monitor_kill(b);
		return;
	case BOX_ORDER_SIGNAL:
		obey_signal(b, o.sig);
		return;
	case BOX_ORDER_RESIZE:
		obey_resize(b, &o.size);
		return;
	case BOX_ORDER_CONNECT:
		obey_connect(b, &o);
		return;
	}
}

void monitor_connected(struct live *b, const struct init_msg *m, const int *fds, size_t n)
{
	int fd = n > 0 ? fds[0] : -1;

	if (b->owner)
		b->owner->connected(b->owner, m->tag, fd, m->num);
	fd_close(&fd);
}
