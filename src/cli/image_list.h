/* What the verbs about stored images share: naming one by its reference or id, and words for sizes
 * and times. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "image/store.h"

/* An image that an operand names. */
struct image_named {
	bool by_id;	    /* by (the beginning of) its id; `ref` is not set */
	struct img_ref ref; /* set when not by id */
	char id[IMG_DIGEST_LEN + 1];
	char manifest[IMG_DIGEST_LEN + 1]; /* of the name, or "" */
};

/* Reads IMAGE: a reference, else an id or its first digits (12 or more), with "sha256:" or without.
 * ERR_MISSING when there is no such image. A store that is not open has none. */
int image_named(const struct img_store *s, const char *text, struct image_named *ret,
		struct err *e);

#define IMAGE_SIZE_TEXT 24
/* "117.4 MiB" */
const char *image_size_text(uint64_t bytes, char ret[IMAGE_SIZE_TEXT]);
#define IMAGE_TIME_TEXT 32
/* "2024-05-01T12:00:00Z", or "" when it is not known (0). */
const char *image_time_text(int64_t seconds, char ret[IMAGE_TIME_TEXT]);
/* The same as a value of JSON: null when it is not known. */
void image_time_json(struct json *j, const char *key, int64_t seconds);
/* A string, null when it is "". */
void image_str_json(struct json *j, const char *key, const char *s);

/* All that its layers have. */
uint64_t image_bytes(const struct img_record *r);
