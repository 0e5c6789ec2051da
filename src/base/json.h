/* A small JSON emitter into a struct buf: one line, valid UTF-8, control characters (C0, DEL, C1)
 * and line separators escaped. It writes; it never reads. Commas are its business. Keys are trusted
 * (our own), values are not. Nesting at most 16; misuse sets buf.failed: a value without a key or a
 * key without a value in an object, a key elsewhere, an end that does not match, a second value at
 * the top. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define JSON_DEPTH_MAX 16

struct json {
	struct buf *out;
	unsigned depth;
	bool first[JSON_DEPTH_MAX];
	bool object[JSON_DEPTH_MAX];
	bool after_key;
	bool done; /* the top value is complete */
};

void json_init(struct json *j, struct buf *out);
void json_obj(struct json *j);
void json_obj_end(struct json *j);
void json_arr(struct json *j);
void json_arr_end(struct json *j);
void json_key(struct json *j, const char *key);
void json_str(struct json *j, const char *s); /* NULL gives null */
/* Bytes that may not be UTF-8: every maximal invalid part becomes U+FFFD (Unicode 15, section 3.9).
 * Returns true when the bytes were valid UTF-8, so that the caller can add a base64 copy when not.
 */
bool json_bytes(struct json *j, const void *data, size_t n);
void json_b64(struct json *j, const void *data, size_t n);
void json_u64(struct json *j, uint64_t v); /* UINT64_MAX gives null: unknown is never 0 */
void json_i64(struct json *j, int64_t v);
void json_num(struct json *j, double v); /* at most three decimals; what is not finite gives null */
void json_bool(struct json *j, bool v);
void json_nil(struct json *j);
/* Shorthands: key and value. */
void json_kstr(struct json *j, const char *key, const char *s);
void json_ku64(struct json *j, const char *key, uint64_t v);
void json_kbool(struct json *j, const char *key, bool v);
