/* Bounded buffers, the parsers of sizes, durations and numbers, text for a terminal, suggestions. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* ---- buffers ---- */

START_TEST(buf_grows_and_terminates)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 100000);
	ck_assert_ptr_null(b.data);
	for (int i = 0; i < 100000; i++) {
		buf_add(&b, "x", 1);
		ck_assert(!b.failed);
		ck_assert_uint_lt(b.len, b.cap);
		ck_assert_int_eq(b.data[b.len], '\0');
	}
	ck_assert_uint_eq(b.len, 100000);
	buf_add(&b, "y", 1);
	ck_assert(b.failed);
	ck_assert_uint_eq(b.len, 100000);
	ck_assert_uint_eq(strlen(b.data), 100000);
}
END_TEST

START_TEST(buf_takes_its_maximum_and_no_more)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 4);
	buf_str(&b, "abcd");
	ck_assert(!b.failed);
	ck_assert_str_eq(b.data, "abcd");
	buf_add(&b, "", 0);
	ck_assert(!b.failed);
	buf_str(&b, "e");
	ck_assert(b.failed);
	ck_assert_str_eq(b.data, "abcd");
	buf_free(&b);
	ck_assert_ptr_null(b.data);
	buf_free(&b);
}
END_TEST

/* After a write that did not fit, one that would fit does nothing: no text with a hole in it. */
START_TEST(buf_stays_failed)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 4);
	buf_str(&b, "ab");
	buf_str(&b, "too long");
	buf_str(&b, "c");
	buf_fmt(&b, "%d", 1);
	ck_assert(b.failed);
	ck_assert_str_eq(b.data, "ab");
}
END_TEST

START_TEST(buf_edges)
{
	_cleanup_buf_ struct buf none, huge;

	buf_init(&none, 0);
	buf_str(&none, "");
	ck_assert(!none.failed);
	ck_assert_str_eq(none.data, "");
	buf_str(&none, "x");
	ck_assert(none.failed);

	buf_init(&huge, SIZE_MAX);
	buf_str(&huge, "x");
	ck_assert(!huge.failed);
	/* A length that would overflow every sum is refused before anything is read. */
	buf_add(&huge, "x", SIZE_MAX);
	ck_assert(huge.failed);
	ck_assert_str_eq(huge.data, "x");
}
END_TEST

/* No memory: the buffer keeps what it has. The sanitizer would end the program at such a request. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NO_HUGE_REQUESTS
#endif
#endif
#if !defined(NO_HUGE_REQUESTS) && !defined(__SANITIZE_ADDRESS__)
START_TEST(buf_survives_want_of_memory)
{
	_cleanup_buf_ struct buf b;
	volatile size_t huge = SIZE_MAX / 2 - 64;

	buf_init(&b, SIZE_MAX);
	buf_str(&b, "x");
	buf_add(&b, "y", huge);
	ck_assert(b.failed);
	ck_assert_str_eq(b.data, "x");
	ck_assert_uint_eq(b.len, 1);
}
END_TEST
#define HAVE_WANT_OF_MEMORY
#endif

START_TEST(buf_fmt_fits_exactly)
{
	for (size_t max = 0; max < 12; max++) {
		_cleanup_buf_ struct buf b;

		buf_init(&b, max);
		buf_fmt(&b, "%s-%d", "abcd", 123);
		ck_assert_int_eq(b.failed, max < 8);
		if (!b.failed)
			ck_assert_str_eq(b.data, "abcd-123");
	}
}
END_TEST

START_TEST(buf_holds_bytes)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 16);
	buf_add(&b, "a\0b", 3);
	buf_fmt(&b, "%s", "c");
	ck_assert_uint_eq(b.len, 4);
	ck_assert_int_eq(memcmp(b.data, "a\0bc", 5), 0);
}
END_TEST

/* ---- parsers: value, or refusal with the output untouched ---- */

#define BAD UINT64_C(0xdeadbeefdeadbeef)

struct row {
	const char *text;
	uint64_t value; /* BAD: refused */
};

static const struct row sizes[] = {
	{ "0", 0 }, { "1", 1 }, { "512", 512 }, { "00512", 512 }, { "512b", 512 }, { "512B", 512 },
	{ "1k", 1024 }, { "1K", 1024 }, { "1kb", 1024 }, { "1KiB", 1024 }, { "1kIb", 1024 },
	{ "256m", 268435456 }, { "256MiB", 268435456 }, { "256mb", 268435456 },
	{ "1g", 1073741824 }, { "1.5g", 1610612736 }, { "0.5k", 512 }, { "1.000001m", 1048577 }, { "0.0k", 0 },
	{ "1t", UINT64_C(1) << 40 }, { "8388607t", UINT64_C(8388607) << 40 },
	{ "9223372036854775807", INT64_MAX }, { "9007199254740991k", UINT64_C(9007199254740991) << 10 },
	/* beyond */
	{ "9223372036854775808", BAD }, { "18446744073709551615", BAD }, { "18446744073709551616", BAD },
	{ "99999999999999999999999999", BAD }, { "8388608t", BAD }, { "9007199254740992k", BAD }, { "16777216t", BAD },
	{ "18014398509481984k", BAD }, { "8388607.999999999t", BAD },
	/* not sizes */
	{ "", BAD }, { " ", BAD }, { "k", BAD }, { "b", BAD }, { "ib", BAD }, { "-1", BAD }, { "+1", BAD }, { " 1", BAD }, { "1 ", BAD },
	{ "1 k", BAD }, { "1x", BAD }, { "1kk", BAD }, { "1kib1", BAD }, { "1ki", BAD }, { "1ib", BAD }, { "1bb", BAD }, { "1p", BAD },
	{ ".5g", BAD }, { "1.g", BAD }, { "1..5g", BAD }, { "1.5.5g", BAD }, { "1,5g", BAD }, { "1e3", BAD }, { "0x10", BAD }, { "1.5", BAD },
	{ "1.5b", BAD }, { "inf", BAD }, { "nan", BAD }, { "max", BAD }, { "1.0000001g", BAD }, { "0.000001k", BAD }, { "1k\n", BAD },
	{ "\xd9\xa1", BAD }, { "1\xc2\xa0k", BAD },
};

static const struct row durations[] = {
	{ "0", 0 }, { "10", 10000000 }, { "0.5", 500000 }, { "10s", 10000000 }, { "200ms", 200000 }, { "1.5ms", 1500 }, { "0.001ms", 1 },
	{ "0.000001", 1 }, { "5m", 300000000 }, { "1h", UINT64_C(3600000000) }, { "1.5h", UINT64_C(5400000000) }, { "0s", 0 }, { "0.0", 0 },
	{ "8784h", UINT64_C(31622400000000) }, { "31622400", UINT64_C(31622400000000) },
	{ "8784.000001h", BAD }, { "31622400.000001", BAD }, { "8785h", BAD }, { "18446744073709551615", BAD },
	{ "18446744073709551616", BAD }, { "99999999999999999999999h", BAD }, { "5124095576030432h", BAD },
	{ "", BAD }, { "s", BAD }, { "ms", BAD }, { "-1", BAD }, { "+1", BAD }, { " 1", BAD }, { "1 s", BAD }, { "1S", BAD }, { "1M", BAD },
	{ "1d", BAD }, { "1us", BAD }, { "1sec", BAD }, { "1m30s", BAD }, { "1.", BAD }, { ".5", BAD }, { "1e3", BAD }, { "inf", BAD },
	{ "0.0000001", BAD }, { "0.0001ms", BAD }, { "1mss", BAD }, { "0x1", BAD },
};

static void check_rows(const struct row *rows, size_t n, int (*parse)(const char *, uint64_t *, struct err *))
{
	for (size_t i = 0; i < n; i++) {
		struct err e = { 0 };
		uint64_t v = BAD;
		int rc = parse(rows[i].text, &v, &e);

		ck_assert_msg(v == rows[i].value, "\"%s\" gave %llu", rows[i].text, (unsigned long long)v);
		ck_assert_msg(rc == (rows[i].value == BAD ? -1 : 0), "\"%s\" returned %d", rows[i].text, rc);
		if (rc < 0) {
			ck_assert_int_eq(e.kind, ERR_USAGE);
			ck_assert_msg(strlen(e.msg) > 0 && !strchr(e.msg, '\n'), "\"%s\": %s", rows[i].text, e.msg);
		} else {
			ck_assert_int_eq(e.kind, ERR_NONE);
		}
	}
}

START_TEST(parse_sizes)
{
	check_rows(sizes, sizeof(sizes) / sizeof(sizes[0]), parse_size);
}
END_TEST

START_TEST(parse_durations)
{
	check_rows(durations, sizeof(durations) / sizeof(durations[0]), parse_duration);
}
END_TEST

START_TEST(parse_numbers)
{
	static const struct {
		const char *text;
		uint64_t min, max, value;
	} rows[] = {
		{ "0", 0, UINT64_MAX, 0 }, { "5", 5, 5, 5 }, { "007", 0, 10, 7 },
		{ "18446744073709551615", 0, UINT64_MAX, UINT64_MAX },
		{ "18446744073709551616", 0, UINT64_MAX, BAD }, { "18446744073709551620", 0, UINT64_MAX, BAD },
		{ "184467440737095516150", 0, UINT64_MAX, BAD },
		{ "4", 5, 9, BAD }, { "10", 5, 9, BAD }, { "0", 1, UINT64_MAX, BAD },
		{ "", 0, 9, BAD }, { "-0", 0, 9, BAD }, { "-1", 0, UINT64_MAX, BAD }, { "+1", 0, 9, BAD }, { " 1", 0, 9, BAD }, { "1 ", 0, 9, BAD },
		{ "1.0", 0, 9, BAD }, { "0x1", 0, 9, BAD }, { "1k", 0, 9, BAD }, { "one", 0, 9, BAD }, { "1\n", 0, 9, BAD },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err e = { 0 };
		uint64_t v = BAD;
		int rc = parse_u64(rows[i].text, rows[i].min, rows[i].max, &v, &e);

		ck_assert_msg(v == rows[i].value, "\"%s\" gave %llu", rows[i].text, (unsigned long long)v);
		ck_assert_int_eq(rc, rows[i].value == BAD ? -1 : 0);
		ck_assert_int_eq(e.kind, rc < 0 ? ERR_USAGE : ERR_NONE);
	}
}
END_TEST

START_TEST(parse_cpu_counts)
{
	static const struct {
		const char *text;
		double value; /* negative: refused */
	} rows[] = {
		{ "1", 1 }, { "0.5", 0.5 }, { "0.01", 0.01 }, { "1.125", 1.125 }, { "1024", 1024 }, { "1024.000", 1024 }, { "02", 2 },
		{ "0", -1 }, { "0.009", -1 }, { "0.00", -1 }, { "1024.001", -1 }, { "1025", -1 }, { "18446744073709551616", -1 }, { "1.0625", -1 },
		{ "", -1 }, { "-1", -1 }, { "+1", -1 }, { "1.", -1 }, { ".5", -1 }, { "1e0", -1 }, { "nan", -1 }, { "inf", -1 }, { "0x1", -1 },
		{ "1 ", -1 }, { "1cpu", -1 }, { "1,5", -1 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct err e = { 0 };
		double v = -1;
		int rc = parse_cpus(rows[i].text, &v, &e);

		ck_assert_msg(v > rows[i].value - 1e-9 && v < rows[i].value + 1e-9, "\"%s\" gave %f", rows[i].text, v);
		ck_assert_int_eq(rc, rows[i].value < 0 ? -1 : 0);
		ck_assert_int_eq(e.kind, rc < 0 ? ERR_USAGE : ERR_NONE);
	}
}
END_TEST

/* The bounds stand in the message where there are any. */
START_TEST(messages_name_the_bounds)
{
	struct err e;
	uint64_t v;

	parse_u64("4", 5, 9, &v, &e);
	ck_assert_str_eq(e.msg, "\"4\" is not within 5 and 9");
	parse_u64("99999999999999999999999", 5, 9, &v, &e);
	ck_assert_str_eq(e.msg, "\"99999999999999999999999\" is not within 5 and 9");
	parse_u64("4", 5, UINT64_MAX, &v, &e);
	ck_assert_str_eq(e.msg, "\"4\" is too small: at least 5");
	parse_u64("99999999999999999999999", 5, UINT64_MAX, &v, &e);
	ck_assert_str_eq(e.msg, "number \"99999999999999999999999\" is too big");
	parse_size("9999999t", &v, &e);
	ck_assert_str_eq(e.msg, "size \"9999999t\" is too big");
	parse_duration("9000h", &v, &e);
	ck_assert_str_eq(e.msg, "duration \"9000h\" is too long: at most 366 days");
}
END_TEST

/* A hostile value can't paint the terminal nor grow the message. */
START_TEST(messages_show_values_safely)
{
	char value[3000];
	struct err e;
	uint64_t v;
	double d;

	memset(value, 'A', sizeof(value));
	memcpy(value, "\x1b[31m\n\r\x9b", 8);
	value[sizeof(value) - 1] = '\0';
	ck_assert_int_eq(parse_size(value, &v, &e), -1);
	ck_assert_ptr_null(strpbrk(e.msg, "\x1b\n\r\x9b"));
	ck_assert_uint_lt(strlen(e.msg), 300);
	ck_assert_int_eq(parse_duration(value, &v, &e), -1);
	ck_assert_ptr_null(strpbrk(e.msg, "\x1b\n\r\x9b"));
	ck_assert_int_eq(parse_u64(value, 0, 1, &v, &e), -1);
	ck_assert_ptr_null(strpbrk(e.msg, "\x1b\n\r\x9b"));
	ck_assert_int_eq(parse_cpus(value, &d, &e), -1);
	ck_assert_ptr_null(strpbrk(e.msg, "\x1b\n\r\x9b"));
}
END_TEST

/* ---- UTF-8 ---- */

#define V(bytes, cp) { bytes, sizeof(bytes) - 1, cp, sizeof(bytes) - 1 }
#define I(bytes, part) { bytes, sizeof(bytes) - 1, STR_INVALID, part }

/* Unicode 15, table 3-7: each row's first and last, and what lies just beyond each bound, with the length of the maximal invalid part. */
static const struct {
	const char *bytes;
	size_t n;
	uint32_t cp;
	size_t used;
} utf8[] = {
	V("a", 'a'), V("\x7f", 0x7f), V("\xc2\x80", 0x80), V("\xdf\xbf", 0x7ff), V("\xe0\xa0\x80", 0x800), V("\xe0\xbf\xbf", 0xfff),
	V("\xe1\x80\x80", 0x1000), V("\xec\xbf\xbf", 0xcfff), V("\xed\x80\x80", 0xd000), V("\xed\x9f\xbf", 0xd7ff),
	V("\xee\x80\x80", 0xe000), V("\xef\xbf\xbf", 0xffff), V("\xf0\x90\x80\x80", 0x10000), V("\xf0\xbf\xbf\xbf", 0x3ffff),
	V("\xf1\x80\x80\x80", 0x40000), V("\xf3\xbf\xbf\xbf", 0xfffff), V("\xf4\x80\x80\x80", 0x100000), V("\xf4\x8f\xbf\xbf", 0x10ffff),
	/* a byte that begins nothing: lone continuations, overlong leads, leads beyond */
	I("\x80", 1), I("\xbf", 1), I("\xc0\x80", 1), I("\xc1\xbf", 1), I("\xf5\x80\x80\x80", 1), I("\xf8\x88\x80\x80\x80", 1), I("\xfe", 1),
	I("\xff", 1),
	/* second byte out of its row's range: overlong, surrogates, beyond U+10FFFF */
	I("\xe0\x80\x80", 1), I("\xe0\x9f\xbf", 1), I("\xed\xa0\x80", 1), I("\xed\xbf\xbf", 1), I("\xf0\x80\x80\x80", 1), I("\xf0\x8f\xbf\xbf", 1),
	I("\xf4\x90\x80\x80", 1), I("\xf4\xbf\xbf\xbf", 1), I("\xc2\x7f", 1), I("\xc2\xc0", 1), I("\xe1\x7f\x80", 1), I("\xe1\xc0\x80", 1),
	I("\xf1\x7f\x80\x80", 1), I("\xf1\xc0\x80\x80", 1),
	/* later byte wrong: the part that was good so far goes as one */
	I("\xe1\x80\x7f", 2), I("\xe1\x80\xc0", 2), I("\xf1\x80\x7f", 2), I("\xf1\x80\x80\x7f", 3), I("\xf1\x80\x80\xc0", 3),
	I("\xf4\x8f\xbf" "a", 3),
	/* cut short */
	I("\xc2", 1), I("\xe1", 1), I("\xe1\x80", 2), I("\xf1", 1), I("\xf1\x80", 2), I("\xf1\x80\x80", 3),
};

START_TEST(utf8_table)
{
	for (size_t i = 0; i < sizeof(utf8) / sizeof(utf8[0]); i++) {
		/* On the heap without a NUL, so that the sanitizer sees a read beyond. */
		char *copy = malloc(utf8[i].n);
		uint32_t cp = 12345;
		size_t used;

		memcpy(copy, utf8[i].bytes, utf8[i].n);
		used = str_utf8(copy, utf8[i].n, &cp);
		ck_assert_msg(cp == utf8[i].cp && used == utf8[i].used, "row %zu: U+%X, %zu bytes", i, cp, used);
		free(copy);
	}
}
END_TEST

/* Every scalar value, encoded by the definition, comes back. */
START_TEST(utf8_round_trip)
{
	for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
		unsigned char s[4];
		size_t n;
		uint32_t got;

		if (cp >= 0xd800 && cp <= 0xdfff)
			continue;
		if (cp < 0x80) {
			n = 1;
			s[0] = (unsigned char)cp;
		} else if (cp < 0x800) {
			n = 2;
			s[0] = (unsigned char)(0xc0 | cp >> 6);
		} else if (cp < 0x10000) {
			n = 3;
			s[0] = (unsigned char)(0xe0 | cp >> 12);
		} else {
			n = 4;
			s[0] = (unsigned char)(0xf0 | cp >> 18);
		}
		for (size_t i = 1; i < n; i++)
			s[i] = (unsigned char)(0x80 | (cp >> (6 * (n - 1 - i)) & 0x3f));
		if (str_utf8(s, n, &got) != n || got != cp)
			ck_abort_msg("U+%X came back as U+%X", cp, got);
	}
}
END_TEST

/* ---- text for a terminal ---- */

START_TEST(printable_rows)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "", "" },
		{ "plain text", "plain text" },
		{ "caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x90\x9a", "caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x90\x9a" },
		{ "a\nb\tc\rd\x7f" "e\x01", "a?b?c?d?e?" },
		{ "\x1b[31mred\x1b[0m", "?[31mred?[0m" },
		{ "\x1b]0;title\x07", "?]0;title?" },
		{ "\xc2\x9b" "31m", "?31m" },                     /* C1 CSI as UTF-8 */
		{ "\x9b" "31m", "?31m" },                         /* and as a bare byte */
		{ "\xc2\xa0", "\xc2\xa0" },                       /* the first after C1 */
		{ "x\xe2\x80\xae" "gpj.exe", "x?gpj.exe" },       /* U+202E */
		{ "\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaa", "???" },
		{ "\xe2\x81\xa6\xe2\x81\xa9\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f", "?????" },
		{ "\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa", "\xe2\x80\xa7\xe2\x80\xaf\xe2\x81\xa5\xe2\x81\xaa" }, /* the neighbours */
		{ "\xff\xc0\x80\xed\xa0\x80", "??????" },
		{ "a\xf1\x80\x80z", "a?z" },
	};
	char dst[128];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ck_assert_ptr_eq(str_printable(dst, sizeof(dst), rows[i].in), dst);
		ck_assert_msg(strcmp(dst, rows[i].out) == 0, "row %zu: \"%s\"", i, dst);
	}
}
END_TEST

START_TEST(printable_cuts_at_a_character)
{
	const char *text = "ab\xc3\xa9\xe6\x97\xa5z";
	static const char *const want[] = { "", "a", "ab", "ab", "ab\xc3\xa9", "ab\xc3\xa9", "ab\xc3\xa9", "ab\xc3\xa9\xe6\x97\xa5",
					    "ab\xc3\xa9\xe6\x97\xa5z", "ab\xc3\xa9\xe6\x97\xa5z" };

	for (size_t cap = 1; cap <= sizeof(want) / sizeof(want[0]); cap++) {
		char dst[16];

		memset(dst, 0x5a, sizeof(dst));
		str_printable(dst, cap, text);
		ck_assert_str_eq(dst, want[cap - 1]);
		ck_assert_int_eq(dst[cap], 0x5a);
	}
	{
		char one = 'k';

		ck_assert_ptr_eq(str_printable(&one, 0, text), &one);
		ck_assert_int_eq(one, 'k');
	}
}
END_TEST

/* Whatever goes in: what comes out is UTF-8, without control characters, and within the buffer. */
START_TEST(printable_random)
{
	uint32_t x = 12345;

	for (int round = 0; round < 20000; round++) {
		unsigned char in[40];
		char out[24];
		size_t cap = 1 + (size_t)round % sizeof(out), n;

		for (size_t i = 0; i < sizeof(in) - 1; i++) {
			x = x * 1664525 + 1013904223;
			in[i] = (unsigned char)(x >> 24 | 1);
		}
		in[sizeof(in) - 1] = '\0';
		str_printable(out, cap, (const char *)in);
		n = strlen(out);
		ck_assert_uint_lt(n, cap);
		for (size_t i = 0; i < n;) {
			uint32_t cp;

			i += str_utf8(out + i, n - i, &cp);
			ck_assert(cp != STR_INVALID && cp >= 0x20 && (cp < 0x7f || cp > 0x9f));
		}
	}
}
END_TEST

/* ---- suggestions ---- */

START_TEST(nearest_rows)
{
	static const char *const words[] = { "memory", "workspace", "timeout", "timing", "tmpfs", "pids", "json", "run", "gc", "", NULL };
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "memory", "memory" }, { "memroy", "memory" }, { "memry", "memory" }, { "memoryy", "memory" }, { "Memory", "memory" },
		{ "nemory", "memory" }, { "mem", "memory" }, { "m", NULL }, { "wrkspace", "workspace" }, { "workspcae", "workspace" },
		{ "work", "workspace" }, { "tmieout", "timeout" }, { "rum", "run" }, { "rnu", "run" }, { "jsn", "json" }, { "pid", "pids" },
		{ "gg", "gc" }, { "g", NULL }, { "x", NULL }, { "", NULL }, { "xyzzy", NULL }, { "docker", NULL }, { "melody", "memory" },
		{ "mexxxx", NULL }, { "workspace-and-a-lot-more-text", NULL },
		{ "a-word-that-is-much-longer-than-any-that-could-be-near-to-one-of-ours", NULL },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *got = str_nearest(rows[i].in, words);

		ck_assert_msg((got == NULL) == (rows[i].out == NULL) && (!got || strcmp(got, rows[i].out) == 0), "\"%s\" gave %s",
			      rows[i].in, got ? got : "nothing");
	}
}
END_TEST

START_TEST(nearest_edges)
{
	static const char *const none[] = { NULL };
	static const char *const ties[] = { "aaab", "aaac", NULL };
	static const char *const slips[] = { "save", "serve", NULL }, *const few[] = { "rm", "run", NULL };
	static const char *const edits[] = { "abxcdgef", "abcdef", NULL };
	char longest[60];
	const char *words[] = { longest, NULL };

	memset(longest, 'w', sizeof(longest));
	longest[48] = '\0';
	ck_assert_ptr_null(str_nearest("x", none));
	ck_assert_str_eq(str_nearest("aaad", ties), "aaab");
	ck_assert_str_eq(str_nearest("aaac", ties), "aaac");
	/* A letter left out or swapped, before one that is another, before one too many; a word begun is one with letters left out. */
	ck_assert_str_eq(str_nearest("rum", few), "run");
	ck_assert_str_eq(str_nearest("srve", slips), "serve");
	ck_assert_str_eq(str_nearest("serrve", slips), "serve");
	ck_assert_str_eq(str_nearest("sevre", slips), "serve");
	ck_assert_str_eq(str_nearest("sabe", slips), "save");
	ck_assert_str_eq(str_nearest("ser", slips), "serve");
	/* Fewer edits come first, whichever they are. */
	ck_assert_str_eq(str_nearest("abxdef", edits), "abcdef");
	/* As many wrong letters as there may be. */
	ck_assert_ptr_eq(str_nearest("xxxxxxxxxxxxxxxxwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww", words), longest);
	ck_assert_ptr_null(str_nearest("xxxxxxxxxxxxxxxxxwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww", words));
	/* 48 is the longest that is looked at; 49 must be refused on either side. */
	ck_assert_ptr_eq(str_nearest(longest, words), longest);
	longest[48] = 'w';
	longest[49] = '\0';
	ck_assert_ptr_null(str_nearest(longest, words));
	ck_assert_ptr_null(str_nearest("wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww", words));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, buf_grows_and_terminates);
	tcase_add_test(tc, buf_takes_its_maximum_and_no_more);
	tcase_add_test(tc, buf_stays_failed);
	tcase_add_test(tc, buf_edges);
#ifdef HAVE_WANT_OF_MEMORY
	tcase_add_test(tc, buf_survives_want_of_memory);
#endif
	tcase_add_test(tc, buf_fmt_fits_exactly);
	tcase_add_test(tc, buf_holds_bytes);
	tcase_add_test(tc, parse_sizes);
	tcase_add_test(tc, parse_durations);
	tcase_add_test(tc, parse_numbers);
	tcase_add_test(tc, parse_cpu_counts);
	tcase_add_test(tc, messages_name_the_bounds);
	tcase_add_test(tc, messages_show_values_safely);
	tcase_add_test(tc, utf8_table);
	tcase_add_test(tc, utf8_round_trip);
	tcase_add_test(tc, printable_rows);
	tcase_add_test(tc, printable_cuts_at_a_character);
	tcase_add_test(tc, printable_random);
	tcase_add_test(tc, nearest_rows);
	tcase_add_test(tc, nearest_edges);
}

int main(void)
{
	return unit_main("str", fill);
}
