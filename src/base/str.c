/* Bounded buffers, the parsers of sizes, durations and numbers, and text made fit for a terminal.
 *
 * The parsers share one reader of decimals: digits, then at most one fraction, kept as whole and
 * millionths, so that no value ever goes through floating point on its way to a limit. What does
 * not fit is refused and never clamped: a limit that silently became another one is worse than an
 * error. A value that is not zero but would round to zero is refused too, because zero often means
 * "no limit". */
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

#define MILLION 1000000U

void buf_init(struct buf *b, size_t max)
{
	/* Half of the address space is as good as no maximum, and keeps every sum below free of
	 * overflow. */
	*b = (struct buf){ .max = max < SIZE_MAX / 2 ? max : SIZE_MAX / 2 - 1 };
}

void buf_free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){ .max = b->max };
}

/* Makes room for n more bytes and the NUL. */
static bool buf_room(struct buf *b, size_t n)
{
	size_t cap;
	char *data;

	if (b->failed || n > b->max - b->len) {
		b->failed = true;
		return false;
	}
	if (b->data && b->len + n < b->cap)
		return true;
	cap = b->cap < 64 ? 64 : b->cap * 2;
	if (cap < b->len + n + 1)
		cap = b->len + n + 1;
	if (cap > b->max + 1)
		cap = b->max + 1;
	data = realloc(b->data, cap);
	if (!data) {
		b->failed = true;
		return false;
	}
	b->data = data;
	b->cap = cap;
	return true;
}

void buf_stream(struct buf *b, int fd)
{
	buf_init(b, SIZE_MAX);
	b->streams = true;
	b->fd = fd;
}

void buf_flush(struct buf *b)
{
	if (b->streams && !b->failed && b->len > 0 && fd_write_all(b->fd, b->data, b->len) < 0)
		b->failed = true;
	b->len = 0;
}

void buf_add(struct buf *b, const void *data, size_t n)
{
	if (b->streams && b->len + n > BUF_STREAM)
		buf_flush(b);
	if (b->streams && n > BUF_STREAM && !b->failed) { /* no need to gather it first */
		b->failed = fd_write_all(b->fd, data, n) < 0;
		return;
	}
	if (!buf_room(b, n))
		return;
	if (n > 0)
		memcpy(b->data + b->len, data, n);
	b->len += n;
	b->data[b->len] = '\0';
}

void buf_str(struct buf *b, const char *s)
{
	buf_add(b, s, strlen(s));
}

void buf_fmt(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0) {
		b->failed = true;
		return;
	}
	if (!buf_room(b, (size_t)n))
		return;
	va_start(ap, fmt);
	vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

enum dec { DEC_OK, DEC_BAD, DEC_BIG };

/* Digits with an optional fraction of at most `places` (<= 6) digits. *end is the first byte after
 * it. */
static enum dec decimal(const char *s, unsigned places, uint64_t *whole, uint64_t *millionths,
			const char **end)
{
	uint64_t w = 0, f = 0, unit = MILLION;
	bool big = false;

	if (!is_digit(*s))
		return DEC_BAD;
	for (; is_digit(*s); s++)
		if (__builtin_mul_overflow(w, 10U, &w) ||
		    __builtin_add_overflow(w, (unsigned)(*s - '0'), &w))
			big = true;
	if (*s == '.') {
		s++;
		if (!is_digit(*s))
			return DEC_BAD;
		for (; is_digit(*s); s++) {
			if (places-- == 0)
				return DEC_BAD;
			unit /= 10;
			f += unit * (unsigned)(*s - '0');
		}
	}
	*whole = w;
	*millionths = f;
	*end = s;
	return big ? DEC_BIG : DEC_OK;
}

/* (whole + millionths) * unit, rounded down, at most max. unit is at most 2^40. */
static enum dec scale(uint64_t whole, uint64_t millionths, uint64_t unit, uint64_t max,
		      uint64_t *ret)
{
	uint64_t v;

	if (__builtin_mul_overflow(whole, unit, &v) ||
	    __builtin_add_overflow(v, millionths * unit / MILLION, &v) || v > max)
		return DEC_BIG;
	if (v == 0 && millionths > 0)
		return DEC_BAD;
	*ret = v;
	return DEC_OK;
}

/* A value as it may stand in a message: safe, and short. */
struct shown {
	char text[64];
};

static const char *shown(struct shown *s, const char *text)
{
	return str_printable(s->text, sizeof(s->text), text);
}

/* The unit behind a size; 0 when it is none. A bare "b" is bytes, "k" may be followed by "b" or
 * "ib". */
static uint64_t size_unit(const char *s)
{
	static const char units[] = "kmgt";
	const char *u;
	char rest[3] = "";

	if (*s == '\0' || (lower(s[0]) == 'b' && s[1] == '\0'))
		return 1;
	u = strchr(units, lower(s[0]));
	if (!u)
		return 0;
	if (strlen(s) > 3)
		return 0;
	for (size_t i = 0; s[1 + i]; i++)
		rest[i] = lower(s[1 + i]);
	if (rest[0] != '\0' && strcmp(rest, "b") != 0 && strcmp(rest, "ib") != 0)
		return 0;
	return UINT64_C(1) << (10 * (u - units + 1));
}

int parse_size(const char *text, uint64_t *ret, struct err *e)
{
	uint64_t whole = 0, millionths = 0, unit = 0, v = 0;
	const char *end;
	struct shown s;
	enum dec d = decimal(text, 6, &whole, &millionths, &end);

	if (d != DEC_BAD) {
		unit = size_unit(end);
		if (unit == 0 || (unit == 1 && millionths > 0))
			d = DEC_BAD;
	}
	if (d == DEC_OK)
		d = scale(whole, millionths, unit, INT64_MAX, &v);
	if (d == DEC_BIG)
		return err_set(e, ERR_USAGE, "size \"%s\" is too big", shown(&s, text));
	if (d == DEC_BAD)
		return err_set(
			e, ERR_USAGE,
			"\"%s\" is not a size: write a number of bytes, or one with k, m, g or t, such as 512m",
			shown(&s, text));
	*ret = v;
	return 0;
}

int parse_duration(const char *text, uint64_t *ret_us, struct err *e)
{
	static const struct {
		const char *name;
		uint64_t us;
	} units[] = { { "", MILLION },
		      { "s", MILLION },
		      { "ms", 1000 },
		      { "m", 60ULL * MILLION },
		      { "h", 3600ULL * MILLION } };
	const uint64_t max = 366ULL * 24 * 3600 * MILLION;
	uint64_t whole = 0, millionths = 0, unit = 0, v = 0;
	const char *end;
	struct shown s;
	enum dec d = decimal(text, 6, &whole, &millionths, &end);

	if (d != DEC_BAD) {
		for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
			if (strcmp(end, units[i].name) == 0)
				unit = units[i].us;
		if (unit == 0)
			d = DEC_BAD;
	}
	if (d == DEC_OK)
		d = scale(whole, millionths, unit, max, &v);
	if (d == DEC_BIG)
		return err_set(e, ERR_USAGE, "duration \"%s\" is too long: at most 366 days",
			       shown(&s, text));
	if (d == DEC_BAD)
		return err_set(
			e, ERR_USAGE,
			"\"%s\" is not a duration: write seconds, or a number with ms, s, m or h, such as 30s",
			shown(&s, text));
	*ret_us = v;
	return 0;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct err *e)
{
	uint64_t v = 0, none = 0;
	const char *end;
	struct shown s;
	enum dec d = decimal(text, 0, &v, &none, &end);

	if (d == DEC_BAD || *end != '\0')
		return err_set(e, ERR_USAGE, "\"%s\" is not a whole number", shown(&s, text));
	if (d == DEC_BIG || v < min || v > max) {
		if (max == UINT64_MAX && d == DEC_BIG)
			return err_set(e, ERR_USAGE, "number \"%s\" is too big", shown(&s, text));
		if (max == UINT64_MAX)
			return err_set(e, ERR_USAGE, "\"%s\" is too small: at least %llu",
				       shown(&s, text), (unsigned long long)min);
		return err_set(e, ERR_USAGE, "\"%s\" is not within %llu and %llu", shown(&s, text),
			       (unsigned long long)min, (unsigned long long)max);
	}
	*ret = v;
	return 0;
}

int parse_cpus(const char *text, double *ret, struct err *e)
{
	uint64_t whole = 0, millionths = 0;
	const char *end;
	struct shown s;
	enum dec d = decimal(text, 3, &whole, &millionths, &end);

	if (d == DEC_BAD || *end != '\0')
		return err_set(
			e, ERR_USAGE,
			"\"%s\" is not a number of cpus: write one with at most three places, such as 1.5",
			shown(&s, text));
	if (d == DEC_BIG || whole > 1024 || (whole == 1024 && millionths > 0) ||
	    (whole == 0 && millionths < MILLION / 100))
		return err_set(e, ERR_USAGE, "\"%s\" cpus are not within 0.01 and 1024",
			       shown(&s, text));
	*ret = (double)whole + (double)millionths / MILLION;
	return 0;
}

/* Unicode 15, table 3-7: the lead byte decides the length and the range of the second byte; all
 * later ones are 80..BF. */
size_t str_utf8(const void *data, size_t n, uint32_t *ret_cp)
{
	const unsigned char *p = data;
	unsigned lo = 0x80, hi = 0xbf;
	size_t len;
	uint32_t cp;

	*ret_cp = STR_INVALID;
	if (p[0] < 0x80) {
		*ret_cp = p[0];
		return 1;
	}
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 1;
	if (p[0] < 0xe0) {
		len = 2;
		cp = p[0] & 0x1fU;
	} else if (p[0] < 0xf0) {
		len = 3;
		cp = p[0] & 0x0fU;
	} else {
		len = 4;
		cp = p[0] & 0x07U;
	}
	switch (p[0]) {
	case 0xe0: /* below: an overlong form */
		lo = 0xa0;
		break;
	case 0xed: /* above: a surrogate */
		hi = 0x9f;
		break;
	case 0xf0:
		lo = 0x90;
		break;
	case 0xf4: /* above: beyond U+10FFFF */
		hi = 0x8f;
		break;
	default:
		break;
	}
	for (size_t i = 1; i < len; i++) {
		if (i >= n || p[i] < lo || p[i] > hi)
			return i;
		cp = cp << 6 | (p[i] & 0x3fU);
		lo = 0x80;
		hi = 0xbf;
	}
	*ret_cp = cp;
	return len;
}

/* Characters that move the cursor, switch modes, break the line, or turn the direction of what
 * follows. */
static bool is_unprintable(uint32_t cp)
{
	return cp == STR_INVALID || cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x61c ||
	       cp == 0x200e || cp == 0x200f || (cp >= 0x2028 && cp <= 0x202e) ||
	       (cp >= 0x2066 && cp <= 0x2069);
}

const char *str_printable(char *dst, size_t cap, const char *s)
{
	size_t out = 0, left = strlen(s);

	if (cap == 0)
		return dst;
	while (left > 0) {
		uint32_t cp;
		size_t n = str_utf8(s, left, &cp);
		bool bad = is_unprintable(cp);
		size_t want = bad ? 1 : n;

		if (want > cap - 1 - out)
			break;
		memcpy(dst + out, bad ? "?" : s, want);
		out += want;
		s += n;
		left -= n;
	}
	dst[out] = '\0';
	return dst;
}

#define WORD_MAX 48

/* A letter left out or swapped is a slip more often than a wrong one is, and that more often than
 * one too many: of as many edits, those count less. */
#define EDIT 64U
#define REPLACE (EDIT + 1)
#define DELETE (EDIT + 2)

/* Edits (insert, delete, replace, swap of neighbours) from a to b, in any case of letters. Both at
 * most WORD_MAX long. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned short rows[3][WORD_MAX + 1];

	for (size_t j = 0; j <= nb; j++)
		rows[0][j] = (unsigned short)(j * EDIT);
	for (size_t i = 1; i <= na; i++) {
		unsigned short *cur = rows[i % 3], *one = rows[(i + 2) % 3],
			       *two = rows[(i + 1) % 3];

		cur[0] = (unsigned short)(i * DELETE);
		for (size_t j = 1; j <= nb; j++) {
			char x = lower(a[i - 1]), y = lower(b[j - 1]);
			unsigned best = one[j - 1] + (x != y ? REPLACE : 0);

			if (one[j] + DELETE < best)
				best = one[j] + DELETE;
			if (cur[j - 1] + EDIT < best)
				best = cur[j - 1] + EDIT;
			if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y &&
			    two[j - 2] + EDIT < best)
				best = two[j - 2] + EDIT;
			cur[j] = (unsigned short)best;
		}
	}
	return rows[na % 3][nb];
}

const char *str_nearest(const char *s, const char *const *words)
{
	size_t n = strnlen(s, WORD_MAX + 1), best = SIZE_MAX;
	const char *ret = NULL;

	if (n == 0 || n > WORD_MAX)
		return NULL;
	for (; *words; words++) {
		size_t w = strlen(*words), d;
		/* A third of the longer word may be wrong; of a word of two letters, one. */
		size_t allowed = (n > w ? n : w) / 3;

		if (w == 0 || w > WORD_MAX)
			continue;
		d = distance(s, n, *words, w);
		/* A word left unfinished is near, however much of it is missing. */
		if (n >= 2 && n < w && strncmp(s, *words, n) == 0)
			d = EDIT;
		if (allowed == 0)
			allowed = 1;
		if (d / EDIT <= allowed && d / EDIT < n && d < best) {
			best = d;
			ret = *words;
		}
	}
	return ret;
}
