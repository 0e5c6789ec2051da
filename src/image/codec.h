/* A layer's plain bytes out of what a registry or an archive holds: gzip, zstd or as they are.
 * Which one is told by the first bytes, never by what somebody said. Both sides are summed on the
 * way.
 *
 * gzip: members one after the other are one stream. zstd: frames and skippable frames likewise; a
 * window beyond IMG_ZSTD_WINDOW and dictionaries are refused, and so are the formats from before
 * zstd 1.0. A stream that ends early, anything behind its end, and more bytes than allowed are
 * ERR_REFUSED. bzip2 and xz are refused by name. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "image/ref.h"
#include "image/tar.h"

#define IMG_ZSTD_WINDOW 27 /* as a power of two: 128 MiB, what zstd itself takes unasked */

enum img_codec { IMG_CODEC_PLAIN, IMG_CODEC_GZIP, IMG_CODEC_ZSTD, IMG_CODEC_N };
/* "plain", "gzip", "zstd" */
const char *img_codec_name(enum img_codec codec);

/* What went through, once the stream has ended. */
struct img_decoded {
	enum img_codec codec;
	uint64_t in, out;
	char in_digest[IMG_DIGEST_LEN + 1], out_digest[IMG_DIGEST_LEN + 1];
};

struct img_decoder;
/* Reads at most max_in bytes of `source`, which stays the caller's, and gives at most max_out.
 * Nothing is read yet. To be freed by img_decoder_free. */
int img_decoder_open(const struct tar_source *source, uint64_t max_in, uint64_t max_out,
		     struct img_decoder **ret, struct err *e);
void img_decoder_free(struct img_decoder **d);
#define _cleanup_decoder_ __attribute__((cleanup(img_decoder_free)))
/* A tar_source's read: `ctx` is the decoder. 0 is the end: of the stream, and of its source. */
ssize_t img_decoder_read(void *ctx, void *buf, size_t n, struct err *e);
/* Reads what is left and gives the account. After an error of img_decoder_read it fails with the
 * same. */
int img_decoder_finish(struct img_decoder *d, struct img_decoded *ret, struct err *e);

/* A tar_source over a descriptor, which stays the caller's: read(2) until its end. */
ssize_t img_fd_read(void *fd, void *buf, size_t n, struct err *e);
