/* An image's config: what a container of it is started with, and the digests of its layers' plain
 * tars. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "image/manifest.h"
#include "image/platform.h"

#define IMG_WORDS_MAX 1024	  /* elements of a list */
#define IMG_WORD_MAX (128u << 10) /* bytes of one: the kernel's limit for a word of argv or env */
#define IMG_USER_MAX 255

/* A NULL-terminated list whose words it owns; v is NULL when the config has no such list, which for
 * a command is not the same as an empty one. */
struct img_words {
	char **v;
	size_t n;
};

struct img_config {
	struct img_platform platform; /* normalised */
	struct img_words env;	      /* NAME=value each, no name twice: the last one counts */
	struct img_words entrypoint, cmd;
	struct img_words volumes;    /* absolute, normalised, sorted */
	char workdir[4096];	     /* absolute and normalised, or "" */
	char user[IMG_USER_MAX + 1]; /* NAME|UID[:GROUP|GID], or "" */
	int stop_signal;	     /* 0: not given */
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
