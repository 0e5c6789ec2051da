/* Fuzzes the JSON emitter with a little program of calls: whatever is called in whatever order, either the buffer says it failed, or what is
 * written so far is a beginning of valid JSON on one line: brackets match outside of strings, strings hold no control character and are UTF-8.
 *
 * Input: the first byte is the buffer's maximum, then one byte a call; string calls take the length from the next byte. Build and run:
 *	clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Isrc -o fuzz_json
 *		tests/fuzz/fuzz_json.c src/base/json.c src/base/str.c src/base/err.c
 *	./fuzz_json -max_total_time=5 -max_len=1024 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct buf *b, const struct json *j)
{
	char open[JSON_DEPTH_MAX];
	unsigned depth = 0;
	bool in_string = false;

	if (b->len > b->max || (b->data && b->data[b->len] != '\0'))
		abort();
	if (b->failed)
		return;
	for (size_t i = 0; i < b->len;) {
		uint32_t cp;
		size_t n = str_utf8(b->data + i, b->len - i, &cp);

		if (cp == STR_INVALID || cp < 0x20 || cp == 0x7f)
			abort();
		i += n;
		if (in_string && cp == '\\') {
			if (i == b->len || !strchr("\"\\nrtbfu", b->data[i]))
				abort();
			i++;
		} else if (cp == '"') {
			in_string = !in_string;
		} else if (!in_string && (cp == '{' || cp == '[')) {
			if (depth == JSON_DEPTH_MAX)
				abort();
			open[depth++] = (char)cp;
		} else if (!in_string && (cp == '}' || cp == ']')) {
			if (depth == 0 || open[depth - 1] != (cp == '}' ? '{' : '['))
				abort();
			depth--;
		}
		/* A comma never stands first or last, nor next to another. */
		if (!in_string && cp == ',' && (i == 1 || strchr("{[,:", b->data[i - 2])))
			abort();
		if (!in_string && (cp == '}' || cp == ']') && strchr(",:", b->data[i - 2]))
			abort();
	}
	if (in_string || depth != j->depth)
		abort();
}

static void call(struct json *j, uint8_t op, const uint8_t *arg, size_t n)
{
	int64_t v = 0;
	double d = 0;

	memcpy(&v, arg, n < sizeof(v) ? n : sizeof(v));
	memcpy(&d, arg, n < sizeof(d) ? n : sizeof(d));
	switch (op % 12) {
	case 0:
		json_obj(j);
		break;
	case 1:
		json_obj_end(j);
		break;
	case 2:
		json_arr(j);
		break;
	case 3:
		json_arr_end(j);
		break;
	case 4:
	case 5:
		json_key(j, "key");
		break;
	case 6:
		json_bytes(j, arg, n);
		break;
	case 7:
		json_b64(j, arg, n);
		break;
	case 8:
		json_u64(j, (uint64_t)v);
		break;
	case 9:
		json_i64(j, v);
		break;
	case 10:
		json_num(j, d);
		break;
	default:
		json_kbool(j, "b", n & 1);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf b;
	struct json j;

	if (size == 0)
		return 0;
	buf_init(&b, data[0] < 128 ? data[0] : 4096);
	json_init(&j, &b);
	for (size_t i = 1; i < size; i++) {
		uint8_t op = data[i];
		size_t n = 0;

		if (op % 12 >= 6 && i + 1 < size) {
			n = data[++i];
			if (n > size - i - 1)
				n = size - i - 1;
		}
		call(&j, op, data + i + 1, n);
		i += n;
		check(&b, &j);
	}
	buf_free(&b);
	return 0;
}
