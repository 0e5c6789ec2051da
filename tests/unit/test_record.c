/* An image's record: what is written is read again as it was, and what is no record is refused by name. */
#include "unit.h"

#include <string.h>

#include "image/record.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
#define ID "sha256:" HEX "f"
#define LAYER "layer d0123456789abcdef0123 " ID " 7\n"
#define HEAD "format 1\nid " ID "\nos linux\narch amd64\n"

static struct err e;

static void add(struct img_words *w, const char *s)
{
	ck_assert_int_eq(img_words_add(w, s, strlen(s), &e), 0);
}

START_TEST(test_round_trip)
{
	struct img_record r = { .id = ID, .manifest = ID, .platform = { "linux", "arm", "v7" }, .created = 1700000000, .n_layers = 2,
				.workdir = "/a b%41", .user = "www:33", .stop_signal = 37 },
			  back = { 0 };
	_cleanup_buf_ struct buf text, again;

	for (size_t i = 0; i < 2; i++) {
		memcpy(r.layers[i].id, ID, sizeof(ID));
		ck_assert_int_eq(img_layer_name("ds"[i], ID, r.layers[i].name, &e), 0);
		r.layers[i].bytes = i ? UINT64_MAX : 0;
	}
	add(&r.env, "PATH=/bin");
	add(&r.env, "X= \t\x01\xc2\xa0\xff%\\ ");
	add(&r.entrypoint, "");
	ck_assert_int_eq(img_words_be(&r.cmd, &e), 0);
	buf_init(&text, IMG_RECORD_MAX);
	buf_init(&again, IMG_RECORD_MAX);
	ck_assert_msg(img_record_write(&r, &text, &e) == 0, "%s", e.msg);
	ck_assert_msg(img_record_read(text.data, text.len, &back, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(back.workdir, r.workdir);
	ck_assert_str_eq(back.env.v[1], r.env.v[1]);
	ck_assert_uint_eq(back.entrypoint.n, 1);
	ck_assert_str_eq(back.entrypoint.v[0], "");
	ck_assert_ptr_nonnull(back.cmd.v);
	ck_assert_uint_eq(back.cmd.n, 0);
	ck_assert_ptr_null(back.volumes.v);
	ck_assert_str_eq(back.layers[0].name, "d0123456789abcdef0123");
	ck_assert_str_eq(back.layers[1].name, "s0123456789abcdef0123");
	ck_assert_uint_eq(back.layers[1].bytes, UINT64_MAX);
	ck_assert_int_eq(back.created, 1700000000);
	ck_assert_int_eq(back.stop_signal, 37);
	ck_assert_int_eq(img_record_write(&back, &again, &e), 0);
	ck_assert_str_eq(again.data, text.data);
	for (const char *s = text.data; *s; s++)
		ck_assert(*s == '\n' || (*s >= ' ' && *s < 0x7f));
	img_record_free(&back);
	img_record_free(&r);
}
END_TEST

static const struct {
	const char *text;
	bool good;
} records[] = {
	{ HEAD, true },
	{ HEAD LAYER LAYER "a_key_to_come x\n", true },
	{ HEAD "cmd\ncmd\ncmd a\n", true },
	{ "", false },
	{ "format 1\n", false },
	{ "format 2\nid " ID "\nos linux\narch amd64\n", false },
	{ "id " ID "\nformat 1\nos linux\narch amd64\n", false },
	{ "format 1\nid " ID "\narch amd64\n", false },
	{ "format 1\nid sha256:abc\nos linux\narch amd64\n", false },
	{ HEAD "os linux\n", false },
	{ HEAD "user x", false },
	{ HEAD "\n", false },
	{ HEAD " user x\n", false },
	{ HEAD "User x\n", false },
	{ HEAD "user\tx\n", false },
	{ HEAD "user %\n", false },
	{ HEAD "user %4\n", false },
	{ HEAD "user %00\n", false },
	{ HEAD "user %4a\n", false },
	{ HEAD "user %4A\n", true },
	{ HEAD "user \x01\n", false },
	{ HEAD "user \xc3\xa4\n", false },
	{ HEAD "manifest md5:0\n", false },
	{ HEAD "workdir srv\n", false },
	{ HEAD "env =x\n", false },
	{ HEAD "env x\n", false },
	{ HEAD "volume a\n", false },
	{ HEAD "created -1\n", false },
	{ HEAD "created\n", false },
	{ HEAD "stop_signal 65\n", false },
	{ HEAD "layer\n", false },
	{ HEAD "layer d0123456789abcdef0123 " ID "\n", false },
	{ HEAD "layer d0123456789abcdef0124 " ID " 7\n", false },
	{ HEAD "layer x0123456789abcdef0123 " ID " 7\n", false },
	{ HEAD "layer ../../../../../../../a " ID " 7\n", false },
	{ HEAD "layer d0123456789abcdef0123 " ID " x\n", false },
};

START_TEST(test_what_the_layers_are)
{
	struct img_record r = { 0 };
	_cleanup_buf_ struct buf text;

	/* a root of their own, but where it says that they are added to the host image; and nothing else */
	ck_assert_int_eq(img_record_read(HEAD LAYER, strlen(HEAD LAYER), &r, &e), 0);
	ck_assert(!r.host);
	img_record_free(&r);
	ck_assert_int_eq(img_record_read(HEAD "root host\n" LAYER, strlen(HEAD "root host\n" LAYER), &r, &e), 0);
	ck_assert(r.host);
	buf_init(&text, IMG_RECORD_MAX);
	ck_assert_int_eq(img_record_write(&r, &text, &e), 0);
	ck_assert_ptr_nonnull(strstr(text.data, "\nroot host\n"));
	img_record_free(&r);
	assert_refused(img_record_read(HEAD "root x\n" LAYER, strlen(HEAD "root x\n" LAYER), &r, &e), &e, ERR_REFUSED);
	assert_refused(img_record_read(HEAD "root\n" LAYER, strlen(HEAD "root\n" LAYER), &r, &e), &e, ERR_REFUSED);
}
END_TEST

START_TEST(test_form)
{
	struct img_record r = { 0 };
	const char *text = records[_i].text;

	if (records[_i].good) {
		ck_assert_msg(img_record_read(text, strlen(text), &r, &e) == 0, "%s", e.msg);
		img_record_free(&r);
	} else {
		assert_refused(img_record_read(text, strlen(text), &r, &e), &e, ERR_REFUSED);
	}
}
END_TEST

START_TEST(test_bounds)
{
	struct img_record r = { 0 };
	_cleanup_buf_ struct buf text;
	static char word[(128u << 10) + 2];

	memset(word, 'a', sizeof(word) - 1);
	for (unsigned n = IMG_STACK_MAX; n <= IMG_STACK_MAX + 1; n++) {
		buf_init(&text, IMG_RECORD_MAX);
		buf_str(&text, HEAD);
		for (unsigned i = 0; i < n; i++)
			buf_str(&text, LAYER);
		if (n == IMG_STACK_MAX)
			ck_assert_int_eq(img_record_read(text.data, text.len, &r, &e), 0);
		else
			assert_refused(img_record_read(text.data, text.len, &r, &e), &e, ERR_REFUSED);
		buf_free(&text);
	}
	for (unsigned n = 0; n < 2; n++) {
		buf_init(&text, IMG_RECORD_MAX);
		buf_str(&text, HEAD "cmd ");
		buf_add(&text, word, (128u << 10) + n);
		buf_str(&text, "\n");
		if (n == 0)
			ck_assert_int_eq(img_record_read(text.data, text.len, &r, &e), 0);
		else
			assert_refused(img_record_read(text.data, text.len, &r, &e), &e, ERR_REFUSED);
		img_record_free(&r);
		buf_free(&text);
	}
	assert_refused(img_record_read(word, IMG_RECORD_MAX + 1, &r, &e), &e, ERR_REFUSED);
	buf_init(&text, 16);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, test_round_trip);
	tcase_add_test(tc, test_what_the_layers_are);
	tcase_add_loop_test(tc, test_form, 0, sizeof(records) / sizeof(*records));
	tcase_add_test(tc, test_bounds);
}

int main(void)
{
	return unit_main("record", fill);
}
