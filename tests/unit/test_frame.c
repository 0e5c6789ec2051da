/* Frames at their bounds, and the table of requests. */
#include <stdlib.h>
#include <string.h>

#include "session/request.h"
#include "session/spawn.h"
#include "unit.h"

static struct frame_reader in;
static struct ses_error e;

static void feed(const char *data, size_t n)
{
	while (n > 0) {
		size_t room, k;
		char *to = frame_room(&in, &room);

		ck_assert_uint_gt(room, 0);
		k = n < room ? n : room;
		memcpy(to, data, k);
		frame_fed(&in, k);
		data += k;
		n -= k;
	}
}

static void begin(void)
{
	frame_reader_close(&in);
	ck_assert_int_eq(frame_reader_open(&in), 0);
}

/* What a whole input comes to: 1 frame, 0 not whole, -1 none. */
static int whole(const char *text, size_t n, struct frame *f)
{
	begin();
	feed(text, n);
	return frame_next(&in, f, &e);
}

START_TEST(piece_by_piece)
{
	static const char text[] = "{\"id\":1,\"bytes\":3}\nabc{\"id\":2}\n";
	struct frame f;

	begin();
	for (size_t i = 0; i < sizeof(text) - 1; i++) {
		int rc;

		feed(text + i, 1);
		rc = frame_next(&in, &f, &e);
		ck_assert_int_eq(rc, i == 21 || i == sizeof(text) - 2);
		if (rc == 1) {
			ck_assert_int_eq(json_integer_value(json_object_get(f.head, "id")), i == 21 ? 1 : 2);
			ck_assert_ptr_null(json_object_get(f.head, "bytes"));
			ck_assert_uint_eq(f.n, i == 21 ? 3 : 0);
			ck_assert(f.with_bytes == (i == 21) && (i != 21 || memcmp(f.bytes, "abc", 3) == 0));
			frame_free(&f);
		}
	}
	ck_assert(!frame_begun(&in));
}
END_TEST

/* The longest line, one longer; the largest payload, many times over. */
START_TEST(bounds)
{
	static char text[FRAME_LINE_MAX + 1], bytes[FRAME_BYTES_MAX];
	struct frame f;

	memset(text, ' ', sizeof(text));
	memcpy(text, "{\"id\":1", 7);
	text[FRAME_LINE_MAX - 2] = '}';
	text[FRAME_LINE_MAX - 1] = '\n';
	ck_assert_int_eq(whole(text, FRAME_LINE_MAX, &f), 1);
	frame_free(&f);
	text[FRAME_LINE_MAX - 1] = ' ';
	ck_assert_int_eq(whole(text, FRAME_LINE_MAX - 1, &f), 0);
	ck_assert_int_eq(whole(text, FRAME_LINE_MAX, &f), -1);
	ck_assert_int_eq(frame_next(&in, &f, &e), -1);
	begin();
	for (int i = 0; i < 5; i++) {
		static const char head[] = "{\"bytes\":1048576}\n";

		memset(bytes, 'a' + i, sizeof(bytes));
		feed(head, sizeof(head) - 1);
		ck_assert_int_eq(frame_next(&in, &f, &e), 0);
		feed(bytes, sizeof(bytes));
		ck_assert_int_eq(frame_next(&in, &f, &e), 1);
		ck_assert_uint_eq(f.n, sizeof(bytes));
		ck_assert(f.bytes[0] == 'a' + i && memcmp(f.bytes, bytes, f.n) == 0);
		frame_free(&f);
	}
}
END_TEST

static const char *const bad[] = {
	"\n", "1\n", "[]\n", "{}{}\n", "{\"a\":1,\"a\":2}\n",
	"{\"a\":\"\xff\"}\n", "{\"a\":\"\\ud800\"}\n", "{\"bytes\":-1}\n", "{\"bytes\":1048577}\n",
	"{\"bytes\":1.0}\n", "{\"bytes\":null}\n", "{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}\n", "{\"a\":1e999}\n", "{\"a\\u0000\":1}\n",
};

START_TEST(no_frames)
{
	struct frame f;

	ck_assert_int_eq(whole(bad[_i], strlen(bad[_i]), &f), -1);
	ck_assert_int_eq(e.type, SES_PROTOCOL);
	ck_assert_uint_gt(strlen(e.message), 0);
}
END_TEST

START_TEST(deep_enough)
{
	static const char text[] = "{\"a\":[[[[[[[[[[[[[[[\"[[[{{{\\\"[[\"]]]]]]]]]]]]]]]}\n";
	struct frame f;

	ck_assert_int_eq(whole(text, sizeof(text) - 1, &f), 1);
	frame_free(&f);
}
END_TEST

START_TEST(lines)
{
	json_t *o = json_pack("{s:i}", "id", 1);
	char *line, *large = calloc(1, FRAME_LINE_MAX);
	size_t n;

	line = frame_line(o, 5, true, &n);
	ck_assert_uint_eq(n, strlen("{\"id\":1,\"bytes\":5}\n"));
	ck_assert(memcmp(line, "{\"id\":1,\"bytes\":5}\n", n) == 0);
	free(line);
	memset(large, 'x', FRAME_LINE_MAX - 1);
	json_object_set_new(o, "x", json_string(large));
	ck_assert_ptr_null(frame_line(o, 0, false, &n));
	free(large);
	json_decref(o);
}
END_TEST

/* ---- requests ---- */

static int request(const char *text, struct request *r)
{
	static struct frame f;
	uint64_t id;

	frame_free(&f);
	ck_assert_int_eq(whole(text, strlen(text), &f), 1);
	return request_read(&f, r, &id, &e);
}

START_TEST(the_table)
{
	for (int i = 0; i < OP_ID_N; i++) {
		const struct ses_op *op = &ses_ops[i];

		ck_assert_ptr_nonnull(op->name);
		for (int k = 0; k < OP_FIELDS_MAX && op->fields[k].name; k++)
			for (int m = 0; m < k; m++)
				ck_assert_str_ne(op->fields[k].name, op->fields[m].name);
	}
}
END_TEST

START_TEST(fields)
{
	struct request r;

	ck_assert_int_eq(request("{\"id\":5,\"op\":\"run\",\"sandbox\":1,\"argv\":[\"x\"],"
				 "\"timeout_s\":0.5,\"env\":null,\"stream\":true}\n",
				 &r),
			 0);
	ck_assert(r.id == 5 && r.op == OP_RUN && !r.more && request_bool(&r, "stream", false) && !request_json(&r, "env"));
	ck_assert_uint_eq(request_us(&r, "timeout_s", 7), 500000);
	ck_assert_int_eq(request_int(&r, "sandbox", 0), 1);
	ck_assert_int_eq(request("{\"id\":5,\"op\":\"run\",\"sandbox\":null,\"argv\":[\"x\"]}\n", &r), -1);
	ck_assert_int_eq(request("{\"id\":5,\"op\":\"run\",\"sandbox\":1,\"argv\":[\"x\\u0000\"]}\n", &r), -1);
	ck_assert_int_eq(e.type, SES_PROTOCOL);
	ck_assert_int_eq(request("{\"id\":5,\"op\":\"run\",\"sandbox\":0,\"argv\":[\"x\"]}\n", &r), -1);
	ck_assert_int_eq(e.type, SES_OPTION);
	ck_assert_str_eq(e.option, "sandbox");
	ck_assert_int_eq(request("{\"id\":5,\"op\":\"signal\",\"call\":1,\"signal\":\"SIGUSR1\"}\n", &r), 0);
	ck_assert_int_eq(request_signal(&r), 10);
	ck_assert_int_eq(request("{\"id\":9007199254740991,\"op\":\"info\"}\n", &r), 0);
	ck_assert_int_eq(request("{\"id\":9007199254740992,\"op\":\"info\"}\n", &r), -1);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, piece_by_piece);
	tcase_add_test(tc, bounds);
	tcase_add_loop_test(tc, no_frames, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tc, deep_enough);
	tcase_add_test(tc, lines);
	tcase_add_test(tc, the_table);
	tcase_add_test(tc, fields);
}

int main(void)
{
	return unit_main("frame", fill);
}
