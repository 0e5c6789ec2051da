/* D-Bus messages from a hostile peer: the head, the whole, and the stream of a connection.
 *
 * Input: the first byte chooses. 0: the rest is one message, taken as it is. 1: its lengths are made right first, so that the fuzzer gets past
 * them. 2: the rest is all that a peer ever sends, to a client that waits for the answer to one call.
 *
 * Whatever it is: 0 with what the header promises (a name of 255 bytes at most, a printable text, an answer to something), or -1 with a
 * printable line and outputs untouched. */
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/dbus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void printable(const char *s, size_t cap)
{
	if (strnlen(s, cap) == cap)
		abort();
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			abort();
}

static void judge(int r, const struct dbus_in *in, const struct err *e)
{
	if (r < 0) {
		if (e->kind == ERR_NONE || !e->msg[0] || in->reply_to != 4711)
			abort();
		printable(e->msg, sizeof(e->msg));
		return;
	}
	printable(in->error, sizeof(in->error));
	printable(in->text, sizeof(in->text));
	if (in->type < DBUS_CALL || in->type > DBUS_SIGNAL || (in->type == DBUS_ERROR) != (in->error[0] != '\0'))
		abort();
	if ((in->type == DBUS_RETURN || in->type == DBUS_ERROR) && in->reply_to == 0)
		abort();
}

static void message(uint8_t *m, size_t n, int mend)
{
	struct dbus_in in = { .reply_to = 4711 };
	struct err e = { 0 };
	uint32_t fields, body;

	if (mend && n >= DBUS_HEAD) {
		m[0] = 'l';
		m[1] = (uint8_t)(m[1] % 4 + 1);
		m[3] = 1;
		fields = (uint32_t)(m[12] | m[13] << 8) % (uint32_t)(n - DBUS_HEAD + 1) / 8 * 8;
		body = (uint32_t)(n - DBUS_HEAD) - fields;
		memcpy(m + 4, &body, 4);
		memcpy(m + 12, &fields, 4);
		m[8] |= 1;
	}
	judge(dbus_parse(m, n, &in, &e), &in, &e);
}

static void stream(const uint8_t *data, size_t n)
{
	static const struct dbus_method ping = { "a.b", "/c", "d.e", "Ping", NULL };
	static struct dbus d;
	struct dbus_in in = { .reply_to = 4711 };
	struct err e = { 0 };
	int sv[2], size = 1 << 20;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sv) < 0)
		return;
	setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (send(sv[1], data, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n) {
		shutdown(sv[1], SHUT_WR);
		fcntl(sv[0], F_SETFL, O_NONBLOCK);
		memset(&d, 0, sizeof(d));
		d.fd = sv[0];
		d.timeout_ms = 0; /* never waits: all there will be is there */
		judge(dbus_call(&d, &ping, NULL, &in, &e), &in, &e);
		if (d.have > sizeof(d.in) || d.skipped > DBUS_SKIP_MAX)
			abort();
	}
	close(sv[0]);
	close(sv[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;

	if (size == 0 || size > 65536 || !(copy = malloc(size)))
		return 0;
	memcpy(copy, data + 1, size - 1); /* of the very size, so that a read behind it is seen */
	copy = realloc(copy, size > 1 ? size - 1 : 1);
	if (!copy)
		return 0;
	if (data[0] % 3 == 2)
		stream(copy, size - 1);
	else
		message(copy, size - 1, data[0] % 3);
	free(copy);
	return 0;
}
