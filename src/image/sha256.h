/* SHA-256 as images are named by it, of bytes that come a piece at a time. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "image/ref.h"

/* Finds the implementation, once a process. Whoever locks itself in does so before: the library
 * reads its configuration then. -1 with ERR_MISSING. */
int img_sha256_ready(struct err *e);

/* A sum under way; owns what it points to. One that was not begun is all zero. */
struct img_sha256 {
	void *ctx;
};

int img_sha256_begin(struct img_sha256 *s, struct err *e);
int img_sha256_add(struct img_sha256 *s, const void *data, size_t n, struct err *e);
/* "sha256:" and 64 digits of all that was added. Ends the sum. */
int img_sha256_end(struct img_sha256 *s, char ret[IMG_DIGEST_LEN + 1], struct err *e);
/* The same of what was added so far; the sum goes on. */
int img_sha256_sofar(const struct img_sha256 *s, char ret[IMG_DIGEST_LEN + 1], struct err *e);
void img_sha256_drop(struct img_sha256 *s);
#define _cleanup_sha256_ __attribute__((cleanup(img_sha256_drop)))

/* All three in one, for what is in memory. */
int img_sha256_of(const void *data, size_t n, char ret[IMG_DIGEST_LEN + 1], struct err *e);
