/* Encoding: what a library gives is passed on a buffer at a time. */
#include "image/encode.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "base/str.h"

#define OUT_CAP 65536
#define GZIP_WINDOW (15 + 16) /* 16: with gzip's header */
#define ZSTD_LEVEL 3

struct img_encoder {
	enum img_codec codec;
	struct tar_sink to;
	uint64_t out;
	z_stream gzip;
	bool gzip_open;
	ZSTD_CStream *zstd;
	uint8_t buffer[OUT_CAP];
};

static int begin(struct img_encoder *c, struct err *e)
{
	if (c->codec == IMG_CODEC_GZIP) {
		c->gzip_open = deflateInit2(&c->gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED,
					    GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) == Z_OK;
		if (!c->gzip_open)
			return err_set(e, ERR_SYS, "gzip can't begin");
	}
	if (c->codec == IMG_CODEC_ZSTD) {
		c->zstd = ZSTD_createCStream();
		if (!c->zstd || ZSTD_isError(ZSTD_initCStream(c->zstd, ZSTD_LEVEL)) ||
		    ZSTD_isError(ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_checksumFlag, 1)))
			return err_set(e, ERR_SYS, "zstd can't begin");
	}
	return 0;
}

int img_encoder_open(enum img_codec codec, const struct tar_sink *to, struct img_encoder **ret,
		     struct err *e)
{
	struct img_encoder *c = calloc(1, sizeof(*c));

	if (!c)
		return err_sys(e, "memory for an encoder");
	c->codec = codec;
	c->to = *to;
	if (begin(c, e) < 0) {
		img_encoder_free(&c);
		return -1;
	}
	*ret = c;
	return 0;
}

void img_encoder_free(struct img_encoder **c)
{
	if (!*c)
		return;
	if ((*c)->gzip_open)
		deflateEnd(&(*c)->gzip);
	ZSTD_freeCStream((*c)->zstd);
	free(*c);
	*c = NULL;
}

static int pass(struct img_encoder *c, const void *data, size_t n, struct err *e)
{
	c->out += n;
	return n > 0 ? c->to.write(c->to.ctx, data, n, e) : 0;
}

static int gzip(struct img_encoder *c, const void *data, size_t n, bool end, struct err *e)
{
	int r;

	/* zlib does not write through it. */
	c->gzip.next_in = (uint8_t *)(uintptr_t)data;
	c->gzip.avail_in = (unsigned)n;
	do {
		c->gzip.next_out = c->buffer;
		c->gzip.avail_out = OUT_CAP;
		r = deflate(&c->gzip, end ? Z_FINISH : Z_NO_FLUSH);
		if (r == Z_STREAM_ERROR)
			return err_set(e, ERR_SYS, "gzip failed");
		if (pass(c, c->buffer, OUT_CAP - c->gzip.avail_out, e) < 0)
			return -1;
	} while (c->gzip.avail_out == 0);
	return 0;
}

static int zstd(struct img_encoder *c, const void *data, size_t n, bool end, struct err *e)
{
	ZSTD_inBuffer in = { data, n, 0 };
	size_t left;

	do {
		ZSTD_outBuffer out = { c->buffer, OUT_CAP, 0 };

		left = ZSTD_compressStream2(c->zstd, &out, &in, end ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			return err_set(e, ERR_SYS, "zstd: %s", ZSTD_getErrorName(left));
		if (pass(c, c->buffer, out.pos, e) < 0)
			return -1;
	} while (end ? left > 0 : in.pos < in.size);
	return 0;
}

static int encode(struct img_encoder *c, const void *data, size_t n, bool end, struct err *e)
{
	switch (c->codec) {
	case IMG_CODEC_GZIP:
		return gzip(c, data, n, end, e);
	case IMG_CODEC_ZSTD:
		return zstd(c, data, n, end, e);
	default:
		return pass(c, data, n, e);
	}
}

int img_encoder_write(void *ctx, const void *data, size_t n, struct err *e)
{
	const char *p = data;

	/* zlib counts in 32 bits. */
	for (size_t piece; n > 0; p += piece, n -= piece) {
		piece = n < (1u << 30) ? n : 1u << 30;
		if (encode(ctx, p, piece, false, e) < 0)
			return -1;
	}
	return 0;
}

int img_encoder_finish(struct img_encoder *c, uint64_t *ret_bytes, struct err *e)
{
	if (encode(c, "", 0, true, e) < 0)
		return -1;
	*ret_bytes = c->out;
	return 0;
}
