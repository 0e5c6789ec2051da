/* What a keeper and a spawner send, who stand next to hostile boxes: outcomes, changes, packets. Whatever comes, what goes to the client are whole
 * frames of the right call, and the last one, and only that, is `done`.
 *
 * Input: the outcome, a zero byte, the changes; or, begun by a 1, a packet. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "session/frame.h"
#include "session/result.h"
#include "session/spawn.h"

#define ID 7

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static char *map(const void *data, size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	memcpy(p, data, n);
	return p;
}

/* Reads what was sent, as a client does. True when `done` came. */
static bool read_frames(struct frame_reader *in, struct out *o)
{
	struct ses_error e;
	bool done = false;

	must(!o->failed);
	while (out_waiting(o) > 0) {
		size_t room;
		char *to = frame_room(in, &room);
		size_t n = out_waiting(o) < room ? out_waiting(o) : room;
		struct frame f = { 0 };

		memcpy(to, o->data + o->at, n);
		o->at += n;
		frame_fed(in, n);
		while (frame_next(in, &f, &e) == 1) {
			const char *event = json_string_value(json_object_get(f.head, "event"));

			must(!done && event && json_integer_value(json_object_get(f.head, "id")) == ID);
			done = strcmp(event, "done") == 0;
			if (done)
				must(json_is_object(json_object_get(f.head, "outcome")));
			frame_free(&f);
		}
		must(!in->broken);
	}
	o->at = o->len = 0;
	must(!frame_begun(in));
	return done;
}

static void outcome(const uint8_t *data, size_t size)
{
	const uint8_t *zero = memchr(data, 0, size);
	size_t n = zero ? (size_t)(zero - data) : size, m = zero ? size - n - 1 : 0;
	struct result r = { 0 };
	struct frame_reader in;
	struct out o;
	struct err e;
	bool sent, done = false;

	if (frame_reader_open(&in) < 0)
		return;
	if (result_read(&r, (const char *)data, n, &e) < 0) {
		must(e.msg[0]);
		result_fault(&r, FAULT_INIT_LOST, NULL, e.msg);
	}
	if (m > 0)
		result_changes(&r, map(zero + 1, m), m);
	r.out = (struct box_stream){ .data = map(data, size), .mapped = size, .len = size, .head_len = size, .cut = size % 3 };
	out_open(&o, -1);
	do {
		sent = result_send(&r, &o, ID);
		must(!done);
		done = read_frames(&in, &o);
	} while (!sent);
	must(done);
	out_close(&o);
	frame_reader_close(&in);
	result_free(&r);
}

static void packet(const uint8_t *data, size_t size)
{
	struct spawn_hello hello;
	struct spawn_event event;
	int pair[2], fds[SPAWN_HELLO_FDS];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) < 0)
		return;
	for (int i = 0; i < 2; i++)
		must(send(pair[0], data, size, 0) >= 0);
	if (spawn_recv_hello(pair[1], &hello, fds) == 1)
		must(strlen(hello.err.msg) < sizeof(hello.err.msg) && strlen(hello.rule) < sizeof(hello.rule));
	spawn_recv_event(pair[1], &event, fds);
	close(pair[0]);
	close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	if (data[0] == 1)
		packet(data + 1, size - 1);
	else
		outcome(data, size);
	return 0;
}
