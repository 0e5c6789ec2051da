/* A compressed layer from a hostile registry: whatever is read, it stays within the limits, and how the bytes arrive makes no difference to what
 * comes out. Whether something comes out may differ: libzstd notices a frame that lies about its size in one piece, but not always in many. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/codec.h"

#define MAX_OUT (1u << 20)

struct served {
	const uint8_t *data;
	size_t n, at, chunk;
};

static ssize_t serve(void *ctx, void *buf, size_t n, struct err *e)
{
	struct served *s = ctx;
	size_t some = s->n - s->at;

	(void)e;
	some = some < n ? some : n;
	some = s->chunk && some > s->chunk ? s->chunk : some;
	memcpy(buf, s->data + s->at, some);
	s->at += some;
	return (ssize_t)some;
}

/* The decoded bytes, or NULL; *ret is the account. */
static uint8_t *decode(const uint8_t *data, size_t size, size_t chunk, struct img_decoded *ret, struct err *e)
{
	struct served s = { data, size, 0, chunk };
	const struct tar_source source = { serve, &s };
	_cleanup_decoder_ struct img_decoder *d = NULL;
	uint8_t *out = malloc(MAX_OUT + 1);
	size_t have = 0;
	ssize_t n;

	if (!out || img_decoder_open(&source, 65536, MAX_OUT, &d, e) < 0)
		abort();
	while ((n = img_decoder_read(d, out + have, MAX_OUT + 1 - have, e)) > 0) {
		have += (size_t)n;
		if (have > MAX_OUT)
			abort();
	}
	if (n < 0 || img_decoder_finish(d, ret, e) < 0) {
		if (e->kind != ERR_REFUSED || !e->msg[0])
			abort();
		free(out);
		return NULL;
	}
	if (ret->out != have || ret->in != size || s.at != size)
		abort();
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct img_decoded a = { 0 }, b = { 0 };
	struct err e = { 0 };
	uint8_t *one, *two;

	if (size > 60000)
		return 0;
	one = decode(data, size, 0, &a, &e);
	two = decode(data, size, 7, &b, &e);
	if (one && two && (a.out != b.out || memcmp(one, two, a.out) || strcmp(a.in_digest, b.in_digest) || strcmp(a.out_digest, b.out_digest)))
		abort();
	free(one);
	free(two);
	return 0;
}
