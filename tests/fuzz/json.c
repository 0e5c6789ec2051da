/* The JSON emitter with hostile values: one line, balanced quotes, no raw control byte, and base64 of the right length. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool in_string = false;
	struct buf out;
	struct json j;

	buf_init(&out, 1U << 24);
	json_init(&j, &out);
	json_obj(&j);
	json_key(&j, "text");
	json_bytes(&j, data, size);
	json_key(&j, "b64");
	json_b64(&j, data, size);
	json_obj_end(&j);
	if (out.failed)
		abort();
	for (size_t i = 0; i < out.len; i++) {
		unsigned char c = (unsigned char)out.data[i];

		if (c < 0x20 || c == 0x7f)
			abort();
		if (in_string && c == '\\')
			i++;
		else if (c == '"')
			in_string = !in_string;
	}
	if (in_string || out.data[out.len - 1] != '}')
		abort();
	buf_free(&out);
	return 0;
}
