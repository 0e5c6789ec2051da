/* D-Bus: the connection (dbus.h).
 *
 *	\0AUTH EXTERNAL 31303030\r\n	the uid, as hexadecimal of its digits
 *	BEGIN\r\n			at once, without waiting for what comes back:
 *	OK 1234deadbeef\r\n		from there on messages, both ways
 *
 * The socket does not block; every wait is a poll until the call's deadline. Signals and
 * answers to nobody are passed over, within a bound: a manager sends signals to whoever is
 *connected to it directly, asked or not.
 *
 * What may go wrong: nobody listens, another user does, it never answers, it sends without end, it
 * hangs up. Each has its message. */
#include "base/dbus.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

enum { LINE_MAX_BYTES = 512, BUSY_MS = 2 };

static uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void set_deadline(struct dbus *d)
{
	d->deadline_us = now_us() + d->timeout_ms * 1000ull;
	if (d->deadline_us > d->end_us)
		d->deadline_us = d->end_us;
}

/* Until the socket is ready for `events`; with none, for at most BUSY_MS. */
static int wait_for(const struct dbus *d, short events, struct err *e)
{
	uint64_t now = now_us();
	struct pollfd p = { .fd = events ? d->fd : -1, .events = events };
	int ms;

	if (now >= d->deadline_us)
		return err_set(e, ERR_SYS, "D-Bus: no answer in time");
	ms = events ? (int)((d->deadline_us - now) / 1000) + 1 : BUSY_MS;
	if (poll(&p, 1, ms) < 0 && errno != EINTR)
		return err_sys(e, "D-Bus: poll");
	return 0;
}

static int hung_up(struct err *e)
{
	return err_set(e, ERR_SYS, "D-Bus: hung up before the answer");
}

static int send_all(struct dbus *d, const void *data, size_t n, struct err *e)
{
	const uint8_t *p = data;

	while (n > 0) {
		ssize_t w = send(d->fd, p, n, MSG_NOSIGNAL);

		if (w < 0 && errno != EINTR && errno != EAGAIN)
			return errno == EPIPE || errno == ECONNRESET ? hung_up(e)
								     : err_sys(e, "D-Bus: send");
		if (w < 0) {
			if (wait_for(d, POLLOUT, e) < 0)
				return -1;
			continue;
		}
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

/* Waits for more bytes behind those that are there. */
static int receive(struct dbus *d, struct err *e)
{
	for (;;) {
		ssize_t r = recv(d->fd, d->in + d->have, sizeof(d->in) - d->have, 0);

		if (r > 0) {
			d->have += (size_t)r;
			return 0;
		}
		if (r == 0 || errno == ECONNRESET)
			return hung_up(e);
		if (errno != EINTR && errno != EAGAIN)
			return err_sys(e, "D-Bus: receive");
		if (wait_for(d, POLLIN, e) < 0)
			return -1;
	}
}

static void drop(struct dbus *d, size_t n)
{
	memmove(d->in, d->in + n, d->have - n);
	d->have -= n;
}

static int skip(struct dbus *d, size_t n, struct err *e)
{
	if (n > DBUS_SKIP_MAX - d->skipped)
		return err_set(e, ERR_SYS, "D-Bus: too much that was not asked for");
	d->skipped += n;
	while (n > d->have) {
		n -= d->have;
		d->have = 0;
		if (receive(d, e) < 0)
			return -1;
	}
	drop(d, n);
	return 0;
}

int dbus_prove(struct dbus *d, struct err *e)
{
	const uint8_t *end;

	if (d->proved)
		return 0;
	while (!(end = memmem(d->in, d->have, "\r\n", 2))) {
		if (d->have > LINE_MAX_BYTES)
			return err_set(e, ERR_SYS, "D-Bus: an endless first line");
		if (receive(d, e) < 0)
			return -1;
	}
	if (d->have < 3 || memcmp(d->in, "OK ", 3) != 0)
		return err_set(e, ERR_SYS, "D-Bus: refused to talk to uid %u", (unsigned)geteuid());
	drop(d, (size_t)(end + 2 - d->in));
	d->proved = true;
	return 0;
}

/* The next message that could be an answer; its bytes stay in front until `drop`. */
static int next(struct dbus *d, struct dbus_in *ret, size_t *ret_len, struct err *e)
{
	for (;;) {
		enum dbus_type type;
		uint32_t len;

		while (d->have < DBUS_HEAD)
			if (receive(d, e) < 0)
				return -1;
		if (dbus_head(d->in, &type, &len, e) < 0)
			return -1;
		if (type == DBUS_SIGNAL || type == DBUS_CALL) {
			if (skip(d, len, e) < 0)
				return -1;
			continue;
		}
		if (len > sizeof(d->in))
			return err_set(e, ERR_SYS, "D-Bus: an answer of %u bytes", len);
		while (d->have < len)
			if (receive(d, e) < 0)
				return -1;
		if (dbus_parse(d->in, len, ret, e) < 0)
			return -1;
		*ret_len = len;
		return 0;
	}
}

/* Who listens there must be able to act for us, and count processes as we do: a pid that we tell
 * would be somebody else's where its peer is not visible from here. */
static int check_peer(struct dbus *d, const char *path, struct err *e)
{
	struct ucred c;
	socklen_t n = sizeof(c);

	if (getsockopt(d->fd, SOL_SOCKET, SO_PEERCRED, &c, &n) < 0)
		return err_sys(e, "%s: who listens", path);
	if (c.uid != geteuid() && c.uid != 0)
		return err_set(e, ERR_REFUSED, "%s belongs to uid %u", path, (unsigned)c.uid);
	if (c.pid == 0)
		return err_set(e, ERR_REFUSED, "%s leads out of this pid namespace", path);
	d->peer = c.pid;
	return 0;
}

static int connect_to(struct dbus *d, const char *path, struct err *e)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	size_t n = strlen(path);

	if (n >= sizeof(sa.sun_path))
		return err_set(e, ERR_MISSING, "%.100s...: too long for a socket's path", path);
	memcpy(sa.sun_path, path, n);
	d->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->fd < 0)
		return err_sys(e, "D-Bus: socket");
	while (connect(d->fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		if (errno == EAGAIN) { /* its queue is full */
			if (wait_for(d, 0, e) < 0)
				return -1;
			continue;
		}
		if (errno == EINTR)
			continue;
		err_sys(e, "%s", path);
		e->kind = ERR_MISSING;
		return -1;
	}
	return 0;
}

/* A new connection has room for this. */
static int introduce(struct dbus *d, struct err *e)
{
	char uid[16], text[80];
	size_t n;

	snprintf(uid, sizeof(uid), "%u", (unsigned)geteuid());
	n = (size_t)snprintf(text, sizeof(text), "%cAUTH EXTERNAL ", '\0');
	for (const char *p = uid; *p; p++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", (unsigned)*p);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "\r\nBEGIN\r\n");
	return send_all(d, text, n, e);
}

int dbus_open(struct dbus *d, const char *path, unsigned timeout_ms, struct err *e)
{
	d->fd = -1;
	d->proved = false;
	d->serial = 0;
	d->have = d->skipped = 0;
	d->timeout_ms = timeout_ms;
	d->end_us = now_us() + timeout_ms * 1000ull * DBUS_TIMEOUTS;
	set_deadline(d);
	if (connect_to(d, path, e) < 0 || check_peer(d, path, e) < 0 || introduce(d, e) < 0) {
		dbus_close(d);
		return -1;
	}
	return 0;
}

int dbus_call(struct dbus *d, const struct dbus_method *m, const struct dbus_out *body,
	      struct dbus_in *ret, struct err *e)
{
	struct dbus_out out;
	struct dbus_in in = { .reply_to = 0 };
	size_t len = 0;

	set_deadline(d);
	/* A call that comes along with the introduction may lie there until something else comes: a
	 * manager reads both at once, and then waits for more (systemd 252). */
	if (dbus_prove(d, e) < 0 || dbus_message(&out, m, ++d->serial, body, e) < 0 ||
	    send_all(d, out.data, out.len, e) < 0)
		return -1;
	for (;;) {
		if (next(d, &in, &len, e) < 0)
			return -1;
		if (in.reply_to == d->serial)
			break;
		if (skip(d, len, e) < 0)
			return -1;
	}
	drop(d, len);
	*ret = in;
	return 0;
}

void dbus_close(struct dbus *d)
{
	fd_close(&d->fd);
}
