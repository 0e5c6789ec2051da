/* The JSON emitter: exact output for each kind of value, refusal of misuse, and that random bytes always make valid JSON, judged by a small
 * checker written here from RFC 8259. */
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

/* ---- a checker: is this one JSON value, valid UTF-8, on one line? ---- */

struct text {
	const unsigned char *p, *end;
	int depth;
};

static bool value(struct text *t);

static bool literal(struct text *t, const char *word)
{
	size_t n = strlen(word);

	if ((size_t)(t->end - t->p) < n || memcmp(t->p, word, n) != 0)
		return false;
	t->p += n;
	return true;
}

static bool eat(struct text *t, char c)
{
	if (t->p == t->end || *t->p != (unsigned char)c)
		return false;
	t->p++;
	return true;
}

static bool string(struct text *t)
{
	if (!eat(t, '"'))
		return false;
	while (t->p < t->end && *t->p != '"') {
		if (*t->p < 0x20)
			return false;
		if (*t->p == '\\') {
			t->p++;
			if (t->p == t->end || !strchr("\"\\/bfnrtu", *t->p) || *t->p == '\0')
				return false;
			if (*t->p == 'u') {
				for (int i = 1; i <= 4; i++)
					if (t->end - t->p <= i || !strchr("0123456789abcdefABCDEF", t->p[i]) || t->p[i] == '\0')
						return false;
				t->p += 4;
			}
			t->p++;
		} else if (*t->p < 0x80) {
			t->p++;
		} else {
			/* By the arithmetic of the encoding, not by the table that the emitter uses. */
			int more = *t->p >= 0xf0 ? 3 : *t->p >= 0xe0 ? 2 : 1;
			uint32_t cp = *t->p & (0x3fU >> more), least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;

			if (*t->p < 0xc0 || *t->p > 0xf7 || t->end - t->p <= more)
				return false;
			for (int i = 1; i <= more; i++) {
				if ((t->p[i] & 0xc0) != 0x80)
					return false;
				cp = cp << 6 | (t->p[i] & 0x3fU);
			}
			if (cp < least || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
				return false;
			t->p += more + 1;
		}
	}
	return eat(t, '"');
}

static bool digits(struct text *t)
{
	const unsigned char *from = t->p;

	while (t->p < t->end && *t->p >= '0' && *t->p <= '9')
		t->p++;
	return t->p > from;
}

static bool number(struct text *t)
{
	eat(t, '-');
	if (!eat(t, '0') && !digits(t))
		return false;
	if (eat(t, '.') && !digits(t))
		return false;
	return true;
}

static bool members(struct text *t, char close, bool keyed)
{
	if (eat(t, close))
		return true;
	do {
		if (keyed && (!string(t) || !eat(t, ':')))
			return false;
		if (!value(t))
			return false;
	} while (eat(t, ','));
	return eat(t, close);
}

static bool value(struct text *t)
{
	bool ok;

	if (t->p == t->end || t->depth > 40)
		return false;
	t->depth++;
	switch (*t->p) {
	case '{':
		t->p++;
		ok = members(t, '}', true);
		break;
	case '[':
		t->p++;
		ok = members(t, ']', false);
		break;
	case '"':
		ok = string(t);
		break;
	case 't':
		ok = literal(t, "true");
		break;
	case 'f':
		ok = literal(t, "false");
		break;
	case 'n':
		ok = literal(t, "null");
		break;
	default:
		ok = number(t);
	}
	t->depth--;
	return ok;
}

static bool is_json(const char *s, size_t n)
{
	struct text t = { (const unsigned char *)s, (const unsigned char *)s + n, 0 };

	return value(&t) && t.p == t.end;
}

START_TEST(the_checker_can_say_no)
{
	static const char *const good[] = { "0", "-1.5", "\"\"", "\"a\\u00e9\\n\"", "[]", "{}", "[1,2]", "{\"a\":[true,null]}", "\"\xc3\xa9\"" };
	static const char *const bad[] = {
		"", "01", "1.", "\"", "\"\n\"", "\"\\x\"", "\"\\u12\"", "[1,]", "[1 2]", "{\"a\"}", "{a:1}", "{\"a\":1,}", "tru", "\"\xff\"",
		"\"\xc3\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "1,2", "[]]", "NaN",
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		ck_assert_msg(is_json(good[i], strlen(good[i])), "%s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!is_json(bad[i], strlen(bad[i])), "%s", bad[i]);
}
END_TEST

/* ---- values ---- */

#define OPEN(max)                                   \
	_cleanup_buf_ struct buf b;                 \
	struct json j;                              \
	buf_init(&b, (max));                        \
	json_init(&j, &b)

START_TEST(an_object_of_everything)
{
	OPEN(4096);
	json_obj(&j);
	json_kstr(&j, "s", "x");
	json_kstr(&j, "none", NULL);
	json_ku64(&j, "u", 7);
	json_ku64(&j, "unknown", UINT64_MAX);
	json_kbool(&j, "t", true);
	json_kbool(&j, "f", false);
	json_key(&j, "a");
	json_arr(&j);
	json_i64(&j, -3);
	json_num(&j, 1.5);
	json_nil(&j);
	json_obj(&j);
	json_obj_end(&j);
	json_arr(&j);
	json_arr_end(&j);
	json_str(&j, "z");
	json_arr_end(&j);
	json_key(&j, "o");
	json_obj(&j);
	json_kstr(&j, "k", "v");
	json_obj_end(&j);
	json_obj_end(&j);
	ck_assert(!b.failed);
	ck_assert_str_eq(b.data, "{\"s\":\"x\",\"none\":null,\"u\":7,\"unknown\":null,\"t\":true,\"f\":false,"
				 "\"a\":[-3,1.5,null,{},[],\"z\"],\"o\":{\"k\":\"v\"}}");
	ck_assert(is_json(b.data, b.len));
}
END_TEST

START_TEST(integers)
{
	OPEN(4096);
	json_arr(&j);
	json_u64(&j, 0);
	json_u64(&j, UINT64_MAX - 1);
	json_i64(&j, INT64_MIN);
	json_i64(&j, INT64_MAX);
	json_arr_end(&j);
	ck_assert_str_eq(b.data, "[0,18446744073709551614,-9223372036854775808,9223372036854775807]");
}
END_TEST

START_TEST(decimals)
{
	static const struct {
		double v;
		const char *text;
	} rows[] = {
		{ 0, "0" }, { -0.0, "0" }, { 1, "1" }, { 100, "100" }, { 0.5, "0.5" }, { 1.25, "1.25" }, { 0.125, "0.125" }, { 2.0006, "2.001" },
		{ 0.0004, "0" }, { -0.0004, "0" }, { -1.5, "-1.5" }, { 1e15, "1000000000000000" }, { 10.10, "10.1" },
		{ NAN, "null" }, { INFINITY, "null" }, { -INFINITY, "null" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		OPEN(4096);
		json_num(&j, rows[i].v);
		ck_assert_str_eq(b.data, rows[i].text);
	}
	{
		OPEN(4096);
		json_num(&j, -1.7976931348623157e308);
		ck_assert(!b.failed && is_json(b.data, b.len));
		ck_assert_uint_eq(b.len, 310);
	}
}
END_TEST

/* ---- strings ---- */

START_TEST(strings)
{
	static const struct {
		const char *in;
		size_t n;
		bool valid;
		const char *out;
	} rows[] = {
#define R(in, valid, out) { in, sizeof(in) - 1, valid, out }
		R("", true, "\"\""),
		R("a\"b\\c/d", true, "\"a\\\"b\\\\c/d\""),
		R("\n\t\r\b\f", true, "\"\\n\\t\\r\\b\\f\""),
		R("\0x\x01\x1f", true, "\"\\u0000x\\u0001\\u001f\""),
		R("\x7f\xc2\x80\xc2\x9f\xc2\xa0", true, "\"\\u007f\\u0080\\u009f\xc2\xa0\""),
		R("\xe2\x80\xa8\xe2\x80\xa9", true, "\"\\u2028\\u2029\""),
		R("\x1b[31m", true, "\"\\u001b[31m\""),
		R("caf\xc3\xa9 \xf0\x9f\x90\x9a", true, "\"caf\xc3\xa9 \xf0\x9f\x90\x9a\""),
		R("\xf4\x8f\xbf\xbf", true, "\"\xf4\x8f\xbf\xbf\""),
		/* Each maximal invalid part is one U+FFFD; the example of the standard, table 3-8 and after. */
		R("\xff", false, "\"\xef\xbf\xbd\""),
		R("a\xff" "b", false, "\"a\xef\xbf\xbd" "b\""),
		R("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82" "A", false,
		  "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" "A\""),
		R("\xed\xa0\x80\xed\xbf\xbf\xed\xaf" "A", false,
		  "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" "A\""),
		R("\xf4\x91\x92\x93\xff" "A\x80\xbf" "B", false,
		  "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" "A\xef\xbf\xbd\xef\xbf\xbd" "B\""),
		R("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf" "A", false, "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" "A\""),
		R("cut \xf0\x9f\x90", false, "\"cut \xef\xbf\xbd\""),
#undef R
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		bool valid;

		OPEN(4096);
		valid = json_bytes(&j, rows[i].in, rows[i].n);
		ck_assert_msg(!b.failed && strcmp(b.data, rows[i].out) == 0, "row %zu: %s", i, b.data);
		ck_assert_msg(valid == rows[i].valid, "row %zu", i);
		ck_assert_msg(is_json(b.data, b.len), "row %zu", i);
	}
}
END_TEST

/* Reads a string that the emitter wrote back into characters; what it was, when the input was valid. */
static size_t unescape(const char *s, size_t n, unsigned char *out)
{
	size_t len = 0;

	for (size_t i = 1; i < n - 1; i++) {
		static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
		unsigned cp;

		if (s[i] != '\\') {
			out[len++] = (unsigned char)s[i];
			continue;
		}
		i++;
		if (s[i] == 'u') {
			sscanf(s + i + 1, "%4x", &cp);
			i += 4;
			if (cp < 0x80) {
				out[len++] = (unsigned char)cp;
			} else if (cp < 0x800) {
				out[len++] = (unsigned char)(0xc0 | cp >> 6);
				out[len++] = (unsigned char)(0x80 | (cp & 0x3f));
			} else {
				out[len++] = (unsigned char)(0xe0 | cp >> 12);
				out[len++] = (unsigned char)(0x80 | (cp >> 6 & 0x3f));
				out[len++] = (unsigned char)(0x80 | (cp & 0x3f));
			}
		} else {
			const char *f = strchr(from, s[i]);

			out[len++] = (unsigned char)(f ? to[f - from] : s[i]);
		}
	}
	return len;
}

static uint32_t seed = 1;

static unsigned rnd(unsigned below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

/* Bytes that are nearly text: uniform bytes hardly ever hold a long sequence. */
static size_t random_text(unsigned char *p, size_t n)
{
	static const unsigned char leads[] = { 0x80, 0xbf, 0xc0, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5,
					       0x9f, 0xa0, 0x8f, 0x90 };

	for (size_t i = 0; i < n; i++) {
		switch (rnd(4)) {
		case 0:
			p[i] = (unsigned char)rnd(256);
			break;
		case 1:
			p[i] = (unsigned char)rnd(128);
			break;
		case 2:
			p[i] = leads[rnd(sizeof(leads))];
			break;
		default:
			p[i] = (unsigned char)(0x80 + rnd(64));
		}
	}
	return n;
}

START_TEST(random_bytes_make_valid_json)
{
	int valid_seen = 0, invalid_seen = 0;

	for (int round = 0; round < 40000; round++) {
		unsigned char in[48], back[48 * 3];
		size_t n = random_text(in, rnd(round % 2 ? 6 : sizeof(in)));
		bool valid;

		OPEN(4096);
		valid = json_bytes(&j, in, n);
		ck_assert(!b.failed);
		ck_assert_msg(is_json(b.data, b.len), "round %d", round);
		ck_assert_ptr_null(memchr(b.data, '\n', b.len));
		if (valid) {
			ck_assert_uint_eq(unescape(b.data, b.len, back), n);
			ck_assert_int_eq(memcmp(back, in, n), 0);
			valid_seen++;
		} else {
			ck_assert_ptr_nonnull(strstr(b.data, "\xef\xbf\xbd"));
			invalid_seen++;
		}
	}
	ck_assert_int_gt(valid_seen, 1000);
	ck_assert_int_gt(invalid_seen, 1000);
}
END_TEST

START_TEST(base64)
{
	static const struct {
		const char *in, *out;
	} rows[] = { /* RFC 4648, section 10 */
		{ "", "\"\"" }, { "f", "\"Zg==\"" }, { "fo", "\"Zm8=\"" }, { "foo", "\"Zm9v\"" }, { "foob", "\"Zm9vYg==\"" },
		{ "fooba", "\"Zm9vYmE=\"" }, { "foobar", "\"Zm9vYmFy\"" }, { "\xff\xfe\xfd\xfb\xef\xbe", "\"//79++++\"" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		OPEN(64);
		json_b64(&j, rows[i].in, strlen(rows[i].in));
		ck_assert_str_eq(b.data, rows[i].out);
	}
	/* Around the size of the pieces in which it is written. */
	for (size_t n = 185; n < 200; n++) {
		unsigned char in[200];

		OPEN(1024);
		memset(in, 0, n);
		json_b64(&j, in, n);
		ck_assert_uint_eq(b.len, 2 + (n + 2) / 3 * 4);
		ck_assert_uint_eq(strspn(b.data + 1, "A"), n / 3 * 4 + (n % 3 ? n % 3 + 1 : 0));
		ck_assert(is_json(b.data, b.len));
	}
}
END_TEST

/* ---- misuse and maximum ---- */

START_TEST(too_small_a_buffer_fails)
{
	for (size_t max = 0; max < 14; max++) {
		OPEN(max);
		json_obj(&j);
		json_kstr(&j, "key", "value");
		json_obj_end(&j);
		/* {"key":"value"} is 15 */
		ck_assert(b.failed);
	}
	{
		OPEN(15);
		json_obj(&j);
		json_kstr(&j, "key", "value");
		json_obj_end(&j);
		ck_assert(!b.failed);
	}
}
END_TEST

START_TEST(nesting_to_the_limit)
{
	{
		OPEN(4096);
		for (int i = 0; i < JSON_DEPTH_MAX; i++)
			json_arr(&j);
		for (int i = 0; i < JSON_DEPTH_MAX; i++)
			json_arr_end(&j);
		ck_assert(!b.failed);
		ck_assert_str_eq(b.data, "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]");
	}
	{
		OPEN(4096);
		for (int i = 0; i <= JSON_DEPTH_MAX; i++)
			json_arr(&j);
		ck_assert(b.failed);
	}
}
END_TEST

static void value_without_key(struct json *j) { json_obj(j); json_u64(j, 1); }
static void obj_without_key(struct json *j) { json_obj(j); json_obj(j); }
static void key_at_top(struct json *j) { json_key(j, "a"); }
static void key_in_array(struct json *j) { json_arr(j); json_key(j, "a"); }
static void key_after_key(struct json *j) { json_obj(j); json_key(j, "a"); json_key(j, "b"); }
static void end_after_key(struct json *j) { json_obj(j); json_key(j, "a"); json_obj_end(j); }
static void end_of_nothing(struct json *j) { json_obj_end(j); }
static void wrong_end(struct json *j) { json_obj(j); json_arr_end(j); }
static void wrong_end_too(struct json *j) { json_arr(j); json_obj_end(j); }
static void two_at_top(struct json *j) { json_u64(j, 1); json_u64(j, 2); }
static void two_objects(struct json *j) { json_obj(j); json_obj_end(j); json_obj(j); }

START_TEST(misuse_fails)
{
	static void (*const acts[])(struct json *) = {
		value_without_key, obj_without_key, key_at_top, key_in_array, key_after_key, end_after_key,
		end_of_nothing, wrong_end, wrong_end_too, two_at_top, two_objects,
	};

	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		OPEN(4096);
		acts[i](&j);
		ck_assert_msg(b.failed, "misuse %zu was taken", i);
	}
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, the_checker_can_say_no);
	tcase_add_test(tc, an_object_of_everything);
	tcase_add_test(tc, integers);
	tcase_add_test(tc, decimals);
	tcase_add_test(tc, strings);
	tcase_add_test(tc, random_bytes_make_valid_json);
	tcase_add_test(tc, base64);
	tcase_add_test(tc, too_small_a_buffer_fails);
	tcase_add_test(tc, nesting_to_the_limit);
	tcase_add_test(tc, misuse_fails);
}

int main(void)
{
	return unit_main("json", fill);
}
