/* An image's config: what a container of it is started with, and the digests of its layers' plain
 * tars. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "image/manifest.h"
#include "image/platform.h"
#include "image/record.h"
#include "image/words.h"

struct img_config {
	struct img_platform platform; /* normalised */
	struct img_words env;	      /* NAME=value each, no name twice: the last one counts */
	struct img_words entrypoint, cmd;
	struct img_words volumes;    /* absolute, normalised, sorted */
	char workdir[4096];	     /* absolute and normalised, or "" */
	char user[IMG_USER_MAX + 1]; /* NAME|UID[:GROUP|GID], or "" */
	int stop_signal;	     /* 0: not given */
	int64_t created;	     /* seconds since 1970; 0: it does not say, or not rightly */
	size_t n_diff_ids;
	char diff_ids[IMG_LAYERS_MAX][IMG_DIGEST_LEN + 1];
};

/* Reads a config. *ret is the caller's, to be freed by img_config_free. 0, or -1 with ERR_REFUSED.
 */
int img_config_parse(const char *data, size_t n, struct img_config *ret, struct err *e);
/* Frees the lists; harmless on a zeroed one. */
void img_config_free(struct img_config *c);
#define _cleanup_img_config_ __attribute__((cleanup(img_config_free)))
/* That config and manifest belong together (a diff id a layer), and that the image is for `want`: a
 * manifest without an index says so only here. */
int img_config_fits(const struct img_config *c, const struct img_manifest *m,
		    const struct img_platform *want, struct err *e);
/* The record of an image with that config, but for its layers, which only the store has names for.
 * id and manifest are the digests of the config document and of the manifest ("": none). *ret is to
 * be freed by img_record_free. */
int img_record_of_config(const struct img_config *c, const char *id, const char *manifest,
			 struct img_record *ret, struct err *e);
