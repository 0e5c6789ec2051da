/* An outcome on its way to the client: what it becomes, and that a client who is slow gets all of it. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "session/frame.h"
#include "session/result.h"
#include "unit.h"

#define OUTCOME "{\"exit_code\":0,\"fault\":null,\"denied\":[{\"what\":\"mount\"},{\"what\":\"bpf\"}],\"notes\":[\"one\"]}"

static struct result r;
static struct err e;
static json_t *frames;
static size_t payload;

static char *map(const char *text, size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(p, MAP_FAILED);
	memcpy(p, text, n);
	return p;
}

/* Everything that is sent, by a client who reads when there is no room. */
static void send_all(void)
{
	struct frame_reader in;
	struct ses_error why;
	struct frame f;
	struct out o;
	bool done;

	frames = json_array();
	frame_reader_open(&in);
	out_open(&o, -1);
	do {
		done = result_send(&r, &o, 3);
		ck_assert(!o.failed && (done || out_waiting(&o) >= OUT_HIGH));
		while (out_waiting(&o) > 0) {
			size_t room, n;
			char *to = frame_room(&in, &room);

			n = room < out_waiting(&o) ? room : out_waiting(&o);
			memcpy(to, o.data + o.at, n);
			o.at += n;
			frame_fed(&in, n);
			while (frame_next(&in, &f, &why) == 1) {
				payload += f.n;
				json_array_append_new(frames, f.head);
			}
		}
		o.at = o.len = 0;
	} while (!done);
	ck_assert(!frame_begun(&in));
	frame_reader_close(&in);
	out_close(&o);
}

static json_t *nth(size_t i, const char *event)
{
	json_t *f = json_array_get(frames, i);

	ck_assert_int_eq(json_integer_value(json_object_get(f, "id")), 3);
	ck_assert_str_eq(json_string_value(json_object_get(f, "event")), event);
	return f;
}

START_TEST(all_of_it)
{
	static const char changes[] = "{\"files\":[{\"path\":\"a\"},{\"path\":\"\\\"}],\\\\\"}],\"cut\":12}";
	json_t *outcome;

	ck_assert_int_eq(result_read(&r, OUTCOME, strlen(OUTCOME), &e), 0);
	result_changes(&r, map(changes, strlen(changes)), strlen(changes));
	r.out = (struct box_stream){ .data = map("hello", 5), .mapped = 5, .len = 5, .head_len = 2, .cut = 9 };
	send_all();
	ck_assert_uint_eq(json_array_size(frames), 6);
	ck_assert_str_eq(json_string_value(json_object_get(nth(0, "output"), "stream")), "stdout");
	ck_assert_uint_eq(payload, 5);
	ck_assert_uint_eq(json_array_size(json_object_get(nth(1, "files"), "files")), 2);
	nth(2, "denied");
	nth(3, "denied");
	ck_assert_str_eq(json_string_value(json_object_get(nth(4, "note"), "text")), "one");
	outcome = json_object_get(nth(5, "done"), "outcome");
	ck_assert(json_is_true(json_object_get(outcome, "truncated")) && !json_object_get(outcome, "denied"));
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(outcome, "stdout_cut"), "at")), 2);
	ck_assert(json_is_null(json_object_get(outcome, "stderr_cut")));
	ck_assert_int_eq(json_integer_value(json_object_get(outcome, "files_cut")), 12);
}
END_TEST

START_TEST(more_than_there_is_room_for)
{
	size_t n = 20u << 20;
	char *large = calloc(1, n);

	ck_assert_int_eq(result_read(&r, OUTCOME, strlen(OUTCOME), &e), 0);
	r.err = (struct box_stream){ .data = map(large, n), .mapped = n, .len = n, .head_len = n };
	free(large);
	send_all();
	ck_assert_uint_eq(payload, n);
}
END_TEST

static const char *const bad[] = { "", "{}", "[]", "x", "{\"exit_code\":0,\"denied\":{}}", "{\"exit_code\":0,\"notes\":[1]}",
				   "{\"exit_code\":0,\"denied\":[\"x\"]}" };

START_TEST(none)
{
	assert_refused(result_read(&r, bad[_i], strlen(bad[_i]), &e), &e, ERR_SYS);
	ck_assert(!r.outcome && !r.denied && !r.notes);
}
END_TEST

static const char *const broken[] = { "{", "{\"files\":[", "{\"files\":[{\"path\":\"a\"", "{\"files\":[1,2],\"cut\":1}", "{\"files\":[{]}", "\"files\"" };

START_TEST(broken_changes)
{
	ck_assert_int_eq(result_read(&r, OUTCOME, strlen(OUTCOME), &e), 0);
	result_changes(&r, map(broken[_i], strlen(broken[_i])), strlen(broken[_i]));
	send_all();
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(frames, json_array_size(frames) - 1), "event")), "done");
}
END_TEST

START_TEST(faults_of_ours)
{
	json_t *outcome;

	result_fault(&r, FAULT_INIT_LOST, NULL, "why");
	send_all();
	outcome = json_object_get(nth(0, "done"), "outcome");
	ck_assert_int_eq(json_integer_value(json_object_get(outcome, "exit_code")), 125);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(outcome, "fault"), "type")), "init_lost");
	ck_assert_ptr_nonnull(json_object_get(json_object_get(outcome, "limits"), "memory"));
	result_fault(&r, FAULT_STARTUP_FAILED, "image", "why");
	ck_assert(json_is_null(json_object_get(r.outcome, "exit_code")));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, all_of_it);
	tcase_add_test(tc, more_than_there_is_room_for);
	tcase_add_loop_test(tc, none, 0, sizeof(bad) / sizeof(bad[0]));
	tcase_add_loop_test(tc, broken_changes, 0, sizeof(broken) / sizeof(broken[0]));
	tcase_add_test(tc, faults_of_ours);
}

int main(void)
{
	return unit_main("result", fill);
}
