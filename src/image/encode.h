/* Plain bytes as gzip or zstd: codec.h's other direction. The same bytes give the same bytes. */
#pragma once

#include "image/codec.h"
#include "image/tar_write.h"

struct img_encoder;
/* What is encoded goes to `to`, which stays the caller's. To be freed by img_encoder_free. */
int img_encoder_open(enum img_codec codec, const struct tar_sink *to, struct img_encoder **ret,
		     struct err *e);
void img_encoder_free(struct img_encoder **c);
#define _cleanup_encoder_ __attribute__((cleanup(img_encoder_free)))
/* A tar_sink's write: `ctx` is the encoder. */
int img_encoder_write(void *ctx, const void *data, size_t n, struct err *e);
/* What is left, and the end. *ret_bytes is how many came out in all. */
int img_encoder_finish(struct img_encoder *c, uint64_t *ret_bytes, struct err *e);
