/* Decoding: one state machine for the three forms.
 *
 * How: the input buffer is filled from the source, each piece summed as it comes; the decoder is
 * asked for output until there is some. Between two members or frames the next one's magic is
 * looked at here, so that a library is never handed what is not its format.
 *
 * What may go wrong: a bomb (both sides are counted), a stream cut between or inside members (the
 * end of the source counts only between two), garbage behind it (no magic), a library that neither
 * reads nor writes (an error, not a loop). */
#include "image/codec.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/str.h"
#include "image/sha256.h"

#define IN_CAP 65536
#define MAGIC 6

static const char *const names[] = {
	[IMG_CODEC_PLAIN] = "plain",
	[IMG_CODEC_GZIP] = "gzip",
	[IMG_CODEC_ZSTD] = "zstd",
};
static_assert(sizeof(names) / sizeof(names[0]) == IMG_CODEC_N, "a name for every codec");

enum state { NEW, BETWEEN, INSIDE, ENDED, FAILED };

struct img_decoder {
	struct tar_source source;
	uint64_t max_in, max_out;
	enum state state;
	bool source_ended;
	struct img_decoded done;
	struct img_sha256 in_sum, out_sum;
	z_stream gzip;
	bool gzip_open;
	ZSTD_DStream *zstd;
	struct err failed;
	size_t at, have; /* in buffer */
	uint8_t buffer[IN_CAP];
};

const char *img_codec_name(enum img_codec codec)
{
	return codec >= 0 && codec < IMG_CODEC_N ? names[codec] : "";
}

int img_decoder_open(const struct tar_source *source, uint64_t max_in, uint64_t max_out,
		     struct img_decoder **ret, struct err *e)
{
	_cleanup_decoder_ struct img_decoder *d = calloc(1, sizeof(*d));

	if (!d)
		return err_sys(e, "memory for a decoder");
	d->source = *source;
	d->max_in = max_in;
	d->max_out = max_out;
	if (img_sha256_begin(&d->in_sum, e) < 0 || img_sha256_begin(&d->out_sum, e) < 0)
		return -1;
	*ret = d;
	d = NULL;
	return 0;
}

void img_decoder_free(struct img_decoder **d)
{
	if (!*d)
		return;
	if ((*d)->gzip_open)
		inflateEnd(&(*d)->gzip);
	ZSTD_freeDStream((*d)->zstd);
	img_sha256_drop(&(*d)->in_sum);
	img_sha256_drop(&(*d)->out_sum);
	free(*d);
	*d = NULL;
}

/* Reads until `want` bytes are at hand or the source ends. */
static int fill(struct img_decoder *d, size_t want, struct err *e)
{
	if (d->have - d->at >= want || d->source_ended)
		return 0;
	memmove(d->buffer, d->buffer + d->at, d->have - d->at);
	d->have -= d->at;
	d->at = 0;
	while (d->have < want) {
		ssize_t n = d->source.read(d->source.ctx, d->buffer + d->have, IN_CAP - d->have, e);

		if (n < 0)
			return -1;
		if (n == 0) {
			d->source_ended = true;
			break;
		}
		d->done.in += (uint64_t)n;
		if (d->done.in > d->max_in)
			return err_set(e, ERR_REFUSED,
				       "it has more than the %llu bytes it may have",
				       (unsigned long long)d->max_in);
		if (img_sha256_add(&d->in_sum, d->buffer + d->have, (size_t)n, e) < 0)
			return -1;
		d->have += (size_t)n;
	}
	return 0;
}

static bool starts(const struct img_decoder *d, const char *magic, size_t n)
{
	return d->have - d->at >= n && !memcmp(d->buffer + d->at, magic, n);
}

static bool gzip_magic(const struct img_decoder *d)
{
	return starts(d, "\x1f\x8b", 2);
}

/* A frame, or one that is to be skipped: 0x184d2a5? in little endian. */
static bool zstd_magic(const struct img_decoder *d)
{
	return starts(d, "\x28\xb5\x2f\xfd", 4) ||
	       (d->have - d->at >= 4 && (d->buffer[d->at] & 0xf0) == 0x50 &&
		!memcmp(d->buffer + d->at + 1, "\x2a\x4d\x18", 3));
}

static int begin(struct img_decoder *d, struct err *e)
{
	static const char xz[MAGIC] = { '\xfd', '7', 'z', 'X', 'Z', '\0' };

	if (fill(d, MAGIC, e) < 0)
		return -1;
	d->state = BETWEEN;
	if (gzip_magic(d)) {
		d->done.codec = IMG_CODEC_GZIP;
		if (inflateInit2(&d->gzip, 15 + 16) != Z_OK)
			return err_set(e, ERR_SYS, "zlib could not be set up");
		d->gzip_open = true;
	} else if (zstd_magic(d)) {
		d->done.codec = IMG_CODEC_ZSTD;
		d->zstd = ZSTD_createDStream();
		if (!d->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(d->zstd, ZSTD_d_windowLogMax,
								    IMG_ZSTD_WINDOW)))
			return err_set(e, ERR_SYS, "zstd could not be set up");
	} else if (starts(d, "BZh", 3) || starts(d, xz, sizeof(xz))) {
		return err_set(e, ERR_REFUSED,
			       "it is compressed by %s: gzip, zstd and plain tar are taken",
			       starts(d, "BZh", 3) ? "bzip2" : "xz");
	}
	return 0;
}

/* Before a member or frame: is there another, and is it one? */
static int between(struct img_decoder *d, struct err *e)
{
	bool gzip = d->done.codec == IMG_CODEC_GZIP;

	if (fill(d, MAGIC, e) < 0)
		return -1;
	if (d->at == d->have) {
		d->state = ENDED;
		return 0;
	}
	if (gzip ? !gzip_magic(d) : !zstd_magic(d))
		return err_set(e, ERR_REFUSED, "there are bytes behind the end of the %s stream",
			       names[d->done.codec]);
	if (gzip && inflateReset(&d->gzip) != Z_OK)
		return err_set(e, ERR_SYS, "zlib could not be set up");
	d->state = INSIDE;
	return 0;
}

static int gunzip(struct img_decoder *d, void *buf, size_t *n, struct err *e)
{
	size_t room = *n > IN_CAP * 16 ? IN_CAP * 16 : *n;
	int r;

	d->gzip.next_in = d->buffer + d->at;
	d->gzip.avail_in = (uInt)(d->have - d->at);
	d->gzip.next_out = buf;
	d->gzip.avail_out = (uInt)room;
	r = inflate(&d->gzip, Z_NO_FLUSH);
	if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
		return err_set(e, ERR_REFUSED, "its gzip stream is damaged: %s",
			       d->gzip.msg ? d->gzip.msg : "it can't be read");
	d->at = d->have - d->gzip.avail_in;
	*n = room - d->gzip.avail_out;
	if (r == Z_STREAM_END)
		d->state = BETWEEN;
	return 0;
}

static int unzstd(struct img_decoder *d, void *buf, size_t *n, struct err *e)
{
	ZSTD_inBuffer in = { d->buffer + d->at, d->have - d->at, 0 };
	ZSTD_outBuffer out = { buf, *n, 0 };
	size_t r = ZSTD_decompressStream(d->zstd, &out, &in);

	if (ZSTD_isError(r))
		return err_set(e, ERR_REFUSED, "its zstd stream is damaged: %s",
			       ZSTD_getErrorName(r));
	d->at += in.pos;
	*n = out.pos;
	if (r == 0)
		d->state = BETWEEN;
	return 0;
}

/* Output of the member or frame at hand; none when it has just ended. */
static int inside(struct img_decoder *d, void *buf, size_t *n, struct err *e)
{
	size_t room = *n, before;

	for (;;) {
		/* A decoder may hold output for which it needs no more input. */
		before = d->have - d->at;
		*n = room;
		if ((d->done.codec == IMG_CODEC_GZIP ? gunzip : unzstd)(d, buf, n, e) < 0)
			return -1;
		if (*n > 0 || d->state != INSIDE)
			return 0;
		if (d->have - d->at == before) {
			if (fill(d, before + 1, e) < 0)
				return -1;
			if (d->have - d->at == before)
				return err_set(e, ERR_REFUSED, "its %s stream ends early",
					       names[d->done.codec]);
		}
	}
}

static int plain(struct img_decoder *d, void *buf, size_t *n, struct err *e)
{
	if (fill(d, 1, e) < 0)
		return -1;
	if (*n > d->have - d->at)
		*n = d->have - d->at;
	memcpy(buf, d->buffer + d->at, *n);
	d->at += *n;
	if (*n == 0)
		d->state = ENDED;
	return 0;
}

static int next(struct img_decoder *d, void *buf, size_t *n, struct err *e)
{
	size_t room = *n;

	if (d->state == NEW && begin(d, e) < 0)
		return -1;
	for (*n = 0; *n == 0 && d->state != ENDED;) {
		*n = room;
		if (d->done.codec == IMG_CODEC_PLAIN) {
			if (plain(d, buf, n, e) < 0)
				return -1;
		} else if (d->state == BETWEEN) {
			*n = 0;
			if (between(d, e) < 0)
				return -1;
		} else if (inside(d, buf, n, e) < 0) {
			return -1;
		}
	}
	d->done.out += *n;
	if (d->done.out > d->max_out)
		return err_set(e, ERR_REFUSED,
			       "unpacked it has more than the %llu bytes it may have",
			       (unsigned long long)d->max_out);
	return img_sha256_add(&d->out_sum, buf, *n, e);
}

ssize_t img_decoder_read(void *ctx, void *buf, size_t n, struct err *e)
{
	struct img_decoder *d = ctx;

	if (d->state == FAILED) {
		*e = d->failed;
		return -1;
	}
	if (n == 0)
		return 0;
	if (next(d, buf, &n, e) < 0) {
		d->state = FAILED;
		d->failed = *e;
		return -1;
	}
	return (ssize_t)n;
}

int img_decoder_finish(struct img_decoder *d, struct img_decoded *ret, struct err *e)
{
	struct img_decoded done;
	uint8_t rest[4096];
	ssize_t n;

	while ((n = img_decoder_read(d, rest, sizeof(rest), e)) > 0)
		;
	if (n < 0)
		return -1;
	done = d->done;
	if (img_sha256_sofar(&d->in_sum, done.in_digest, e) < 0 ||
	    img_sha256_sofar(&d->out_sum, done.out_digest, e) < 0)
		return -1;
	*ret = done;
	return 0;
}

ssize_t img_fd_read(void *fd, void *buf, size_t n, struct err *e)
{
	ssize_t r;

	do
		r = read(*(int *)fd, buf, n);
	while (r < 0 && errno == EINTR);
	return r < 0 ? err_sys(e, "read") : r;
}
