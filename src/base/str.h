/* Strings with a maximum, and the parsers of the small languages of options: sizes, durations,
 * numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A growing byte buffer that was born with a maximum. Owns `data` (free by buf_free). After a write
 * that did not fit or could not be allocated, `failed` is set and later writes do nothing: check
 * once at the end. data is always NUL-terminated when not NULL. */
struct buf {
	char *data;
	size_t len, cap, max;
	bool failed;
	bool streams; /* what was written goes to `fd` whenever BUF_STREAM bytes have gathered */
	int fd;
};
#define BUF_STREAM 65536

void buf_init(struct buf *b, size_t max);
/* A buffer that does not grow beyond BUF_STREAM (but for one larger piece): it is written to fd on
 * the way. buf_flush at the end. A write that fails sets `failed`, and errno stays as it was left.
 */
void buf_stream(struct buf *b, int fd);
void buf_flush(struct buf *b);
void buf_free(struct buf *b);
#define _cleanup_buf_ __attribute__((cleanup(buf_free)))
void buf_add(struct buf *b, const void *data, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_fmt(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "256m", "1g", "64k", "512" (bytes), "1.5g"; suffixes b k m g t, either case, optional trailing
 * "b" or "ib" ("256MiB"), powers of 1024. Refuses signs, junk, zero-length, what exceeds INT64_MAX,
 * and what is not zero but less than a byte. */
int parse_size(const char *text, uint64_t *ret, struct err *e);
/* Seconds as a decimal ("10", "0.5"), or with suffix ms, s, m, h. Result in microseconds; at most
 * 366 days; "0" is 0, but what rounds to 0 is refused. */
int parse_duration(const char *text, uint64_t *ret_us, struct err *e);
/* Plain unsigned decimal within [min, max]. */
int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct err *e);
/* Number of cpus: decimal with up to three places, 0.01 .. 1024. Result as double. */
int parse_cpus(const char *text, double *ret, struct err *e);

/* Reads one character of UTF-8 from data (n > 0 bytes) into *ret_cp and returns its length; when
 * the bytes are not UTF-8, *ret_cp is STR_INVALID and the length is that of the maximal invalid
 * part (Unicode 15, section 3.9). */
#define STR_INVALID UINT32_MAX
size_t str_utf8(const void *data, size_t n, uint32_t *ret_cp);

/* Copies `s` for a terminal, as one line: control characters (the ESC of a sequence among them),
 * line separators, invalid UTF-8 and bidirectional control characters become '?' each; cut at a
 * character when it does not fit; always terminated; returns dst. */
const char *str_printable(char *dst, size_t cap, const char *s);

/* The entry of `words` (NULL-terminated) nearest to `s` by edit distance, or begun by it, when it
 * is near enough to suggest, else NULL. Of two as near, the one that has all letters of `s`. */
const char *str_nearest(const char *s, const char *const *words);
