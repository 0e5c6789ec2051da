/* The orders of a box's owner, in the monitor's loop. */
#include "box/owner.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

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

void monitor_give(const struct live *b, int fd)
{
	struct stat st;

	if (b->args.root_caller && fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode))
		(void)!fchown(fd, b->spec->outer_uid, b->spec->outer_gid);
}

/* Nothing that comes after it matters, nor does the hang-up. */
static void obey_end(struct live *b)
{
	b->owner_fd = -1;
	b->cancelled = true;
	monitor_kill(b);
}

/* To init, which waits for it behind its locks. */
static void claim_send(struct live *b, struct box_claim *c)
{
	const struct box_spec *s = b->spec;
	const struct init_order o = { .kind = ORDER_COMMAND,
				      .tty = s->tty,
				      .has_in = c->in >= 0,
				      .has_code = c->code >= 0,
				      .size = b->io->size };
	const int rest[] = { c->in, c->out, c->err, c->code };
	int fds[FD_PASS_MAX] = { c->words };
	size_t n = 1;

	for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++)
		if (rest[i] >= 0)
			fds[n++] = rest[i];
	for (size_t i = 1; i < n; i++)
		monitor_give(b, fds[i]);
	/* An init that has failed meanwhile says so itself. */
	(void)fd_send(b->order, &o, sizeof(o), fds, n);
}

/* What the start of this box costs begins here. */
static void obey_claim(struct live *b)
{
	struct box_claim c = { -1, -1, -1, -1, -1 };
	struct err e;
	int r = b->owner->claim(b->owner, &c, &e);

	if (r == 0) {
		obey_end(b);
		return;
	}
	b->unclaimed = false;
	b->out->marks[MARK_BEGIN] = box_now();
	b->owner_fd = b->owner->fd;
	limits_timeout(&b->limits, b->spec->limits.timeout_us);
	if (r > 0)
		claim_send(b, &c);
	else
		monitor_failed(b, &e);
	fd_close(&c.words);
	fd_close(&c.in);
	fd_close(&c.out);
	fd_close(&c.err);
	fd_close(&c.code);
}

void monitor_obey(struct live *b)
{
	struct box_order o;

	if (b->unclaimed) {
		obey_claim(b);
		return;
	}
	o = b->owner->take(b->owner);
	switch (o.kind) {
	case BOX_ORDER_NONE:
		return;
	case BOX_ORDER_CANCEL:
		obey_end(b);
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
