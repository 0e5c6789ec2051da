/* How much output calls may keep for a `wait` that nobody asks: the test stands in for the spawner, and for the command of each call. */
#include "unit.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/call.h"
#include "session/sandbox.h"

static struct session s;
static struct sandbox sb;
static struct spawner spawner;
static int spawns; /* the spawner's end */
static struct err e;

static void setup(void)
{
	int pair[2];

	ck_assert_int_eq(loop_open(&s.loop, &e), 0);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	out_open(&s.out, -1); /* never flushed: what is said can be read there */
	s.room.prev = s.room.next = &s.room;
	s.queue_end = &s.queue;
	s.boxes_max = s.queue_max = 8;
	spawner = (struct spawner){ .sb = &sb, .sock = pair[0], .pidfd = -1, .said = true };
	sb = (struct sandbox){ .s = &s, .number = 1, .state = SANDBOX_OPEN, .options.output = 1 << 20, .current = &spawner };
	s.sandboxes = &sb;
	spawns = pair[1];
}

static void teardown(void)
{
	while (sb.calls)
		call_drop(sb.calls);
	close(spawns);
	close(spawner.sock);
	out_close(&s.out);
	loop_close(&s.loop);
}

static void ask(const char *text)
{
	_cleanup_frame_ struct frame f = { .head = json_loads(text, 0, NULL) };
	struct ses_error why;
	struct request r;
	uint64_t id;

	ck_assert_ptr_nonnull(f.head);
	s.out.len = 0;
	ck_assert_int_eq(request_read(&f, &r, &id, &why), 0);
	if (r.op == OP_WAIT)
		call_operation(&s, &r);
	else
		call_begin(&s, &r);
}

static bool said(const char *text)
{
	return s.out.len > 0 && memmem(s.out.data, s.out.len, text, strlen(text));
}

/* The command that was asked for prints that, and ends. */
static void prints(const char *text)
{
	struct spawn_fds fds;
	struct spawn_call c;

	ck_assert_int_eq(spawn_recv_call(spawns, &c, &fds), 1);
	ck_assert_int_eq(fd_write_all(fds.out, text, strlen(text)), 0);
	spawn_fds_close(&fds);
	while (s.boxes > 0)
		ck_assert_int_eq(loop_round(&s.loop, -1, &e), 0);
}

/* The client takes what there is for it. */
static void takes(void)
{
	struct pump *p = s.room.next;

	ck_assert_ptr_ne(p, &s.room);
	pump_drop(p);
	p->go(p->ctx);
}

#define WORDS "\"sandbox\":1,\"argv\":[\"x\"]}"
#define CALL(id, op) "{\"id\":" #id ",\"op\":\"" op "\"," WORDS

START_TEST(nobody_waits)
{
	s.kept_bytes = SES_KEPT_BYTES - 3;
	ask(CALL(1, "start"));
	prints("one");
	ck_assert_uint_eq(s.kept_bytes, SES_KEPT_BYTES);
	/* There is no more than there may be. */
	ask(CALL(2, "start"));
	prints("2");
	ck_assert_uint_eq(s.kept_bytes, SES_KEPT_BYTES + 1);
	ask(CALL(3, "start"));
	ck_assert(said("\"busy\"") && said("nobody has waited for"));
	ask(CALL(4, "run"));
	ck_assert(said("\"busy\""));
	ck_assert_uint_eq(s.calls, 2);
	/* Who asks for it makes room. */
	ask("{\"id\":5,\"op\":\"wait\",\"call\":2}");
	takes();
	ck_assert(said("\"output\"") && !said("\"error\""));
	ck_assert_uint_eq(s.kept_bytes, SES_KEPT_BYTES);
	ask(CALL(6, "start"));
	ck_assert(!said("\"error\""));
	prints("");
	ck_assert_uint_eq(s.calls, 2);
	/* And so does the end of its sandbox. */
	while (sb.calls)
		call_drop(sb.calls);
	ck_assert_uint_eq(s.kept_bytes, SES_KEPT_BYTES - 3);
}
END_TEST

/* What is on its way to who asked is not counted. */
START_TEST(somebody_waits)
{
	s.kept_bytes = SES_KEPT_BYTES;
	ask(CALL(1, "run"));
	prints("one");
	ck_assert_uint_eq(s.kept_bytes, SES_KEPT_BYTES);
	ask(CALL(2, "start"));
	ck_assert(!said("\"error\""));
	prints("");
	takes();
	ck_assert(said("\"output\""));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, nobody_waits);
	tcase_add_test(tc, somebody_waits);
}

int main(void)
{
	return unit_main("call", fill);
}
