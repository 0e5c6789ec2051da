/* The JSON emitter. The only state is where we are: how deep, in what, before the first member or
 * after a key. Every value goes through value_begin, which writes the comma and refuses a value
 * where none can stand, so that a mistake of ours is an error at the end (buf.failed) and never a
 * broken line for whoever reads us. */
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void json_init(struct json *j, struct buf *out)
{
	*j = (struct json){ .out = out };
}

static void value_begin(struct json *j)
{
	if (j->depth == 0) {
		if (j->done)
			j->out->failed = true;
	} else if (j->object[j->depth - 1]) {
		if (!j->after_key)
			j->out->failed = true;
		j->after_key = false;
	} else {
		if (!j->first[j->depth - 1])
			buf_add(j->out, ",", 1);
		j->first[j->depth - 1] = false;
	}
}

static void value_end(struct json *j)
{
	if (j->depth == 0)
		j->done = true;
}

static void value_text(struct json *j, const char *text)
{
	value_begin(j);
	buf_str(j->out, text);
	value_end(j);
}

static void open_level(struct json *j, bool object)
{
	value_begin(j);
	if (j->depth == JSON_DEPTH_MAX) {
		j->out->failed = true;
		return;
	}
	j->first[j->depth] = true;
	j->object[j->depth] = object;
	j->depth++;
	buf_add(j->out, object ? "{" : "[", 1);
}

static void close_level(struct json *j, bool object)
{
	if (j->depth == 0 || j->object[j->depth - 1] != object || j->after_key) {
		j->out->failed = true;
		return;
	}
	j->depth--;
	buf_add(j->out, object ? "}" : "]", 1);
	value_end(j);
}

void json_obj(struct json *j)
{
	open_level(j, true);
}

void json_obj_end(struct json *j)
{
	close_level(j, true);
}

void json_arr(struct json *j)
{
	open_level(j, false);
}

void json_arr_end(struct json *j)
{
	close_level(j, false);
}

void json_key(struct json *j, const char *key)
{
	if (j->depth == 0 || !j->object[j->depth - 1] || j->after_key) {
		j->out->failed = true;
		return;
	}
	if (!j->first[j->depth - 1])
		buf_add(j->out, ",", 1);
	j->first[j->depth - 1] = false;
	j->after_key = true;
	buf_add(j->out, "\"", 1);
	buf_str(j->out, key);
	buf_add(j->out, "\":", 2);
}

/* What stands for a character that can't stand for itself; false when it can. */
static bool escape(uint32_t cp, char ret[8])
{
	static const char short_names[] = "\"\"\\\\\nn\tt\rr\bb\ff";

	if (cp == STR_INVALID) {
		memcpy(ret, "\xef\xbf\xbd", 4);
		return true;
	}
	for (const char *p = short_names; *p; p += 2)
		if (cp == (unsigned char)p[0]) {
			ret[0] = '\\';
			ret[1] = p[1];
			ret[2] = '\0';
			return true;
		}
	/* DEL, C1 and the line separators are legal in JSON, but a line that someone looks at in a
	 * terminal is better without them. */
	if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x2028 || cp == 0x2029) {
		memcpy(ret, "\\u", 2);
		for (int i = 0; i < 4; i++)
			ret[2 + i] = "0123456789abcdef"[cp >> (12 - 4 * i) & 15];
		ret[6] = '\0';
		return true;
	}
	return false;
}

bool json_bytes(struct json *j, const void *data, size_t n)
{
	const unsigned char *p = data;
	size_t from = 0, i = 0;
	bool valid = true;

	value_begin(j);
	buf_add(j->out, "\"", 1);
	while (i < n) {
		uint32_t cp;
		char text[8];
		size_t len;

		/* Nearly all there is: plain ASCII. */
		if (p[i] >= 0x20 && p[i] < 0x7f && p[i] != '"' && p[i] != '\\') {
			i++;
			continue;
		}
		len = str_utf8(p + i, n - i, &cp);
		if (cp == STR_INVALID)
			valid = false;
		if (escape(cp, text)) {
			buf_add(j->out, p + from, i - from);
			buf_str(j->out, text);
			from = i + len;
		}
		i += len;
	}
	if (n > from)
		buf_add(j->out, p + from, n - from);
	buf_add(j->out, "\"", 1);
	value_end(j);
	return valid;
}

void json_str(struct json *j, const char *s)
{
	if (s)
		json_bytes(j, s, strlen(s));
	else
		json_nil(j);
}

void json_b64(struct json *j, const void *data, size_t n)
{
	static const char abc[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const unsigned char *p = data;
	char text[256];
	size_t used = 0;

	value_begin(j);
	buf_add(j->out, "\"", 1);
	for (size_t i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
			     (left > 2 ? p[i + 2] : 0U);

		text[used++] = abc[v >> 18 & 63];
		text[used++] = abc[v >> 12 & 63];
		text[used++] = left > 1 ? abc[v >> 6 & 63] : '=';
		text[used++] = left > 2 ? abc[v & 63] : '=';
		if (used == sizeof(text)) {
			buf_add(j->out, text, used);
			used = 0;
		}
	}
	buf_add(j->out, text, used);
	buf_add(j->out, "\"", 1);
	value_end(j);
}

void json_u64(struct json *j, uint64_t v)
{
	char text[24];

	if (v == UINT64_MAX) {
		json_nil(j);
		return;
	}
	snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
	value_text(j, text);
}

void json_i64(struct json *j, int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)v);
	value_text(j, text);
}

void json_num(struct json *j, double v)
{
	char text[352]; /* DBL_MAX has 309 digits before the point */
	size_t n;

	if (!isfinite(v)) {
		json_nil(j);
		return;
	}
	n = (size_t)snprintf(text, sizeof(text), "%.3f", v);
	while (text[n - 1] == '0')
		n--;
	if (text[n - 1] == '.')
		n--;
	text[n] = '\0';
	value_text(j, strcmp(text, "-0") == 0 ? "0" : text);
}

void json_bool(struct json *j, bool v)
{
	value_text(j, v ? "true" : "false");
}

void json_nil(struct json *j)
{
	value_text(j, "null");
}

void json_kstr(struct json *j, const char *key, const char *s)
{
	json_key(j, key);
	json_str(j, s);
}

void json_ku64(struct json *j, const char *key, uint64_t v)
{
	json_key(j, key);
	json_u64(j, v);
}

void json_kbool(struct json *j, const char *key, bool v)
{
	json_key(j, key);
	json_bool(j, v);
}
