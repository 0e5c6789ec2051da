/* Images out of files, into the store: of archives that somebody saved, or made of a root file
 * system. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "image/platform.h"
#include "image/progress.h"
#include "image/ref.h"
#include "image/store.h"

struct img_load_how {
	int in;			      /* the archive, read from where it stands to its end */
	struct img_platform platform; /* normalised */
	const struct img_ref *name;   /* for its one image, instead of the archive's; or NULL */
	const struct img_store *store;
	struct img_progress *progress;
};

struct img_loaded {
	char id[IMG_DIGEST_LEN + 1];
	size_t n_names;
	const struct img_ref *names;
	size_t layers, shared; /* of which so many were there */
};

/* Loads every image of an archive: an OCI layout or what `docker save` writes, plain, gzip or zstd.
 * `loaded` is told each one, when it is in the store. Both functions lock the process in for good,
 * but for descriptors that are open. */
int img_load(const struct img_load_how *how,
	     int (*loaded)(void *ctx, const struct img_loaded *image, struct err *e), void *ctx,
	     struct err *e);
/* Makes an image called how->name of one layer: the tar of a root file system, plain, gzip or zstd.
 */
int img_import(const struct img_load_how *how,
	       int (*loaded)(void *ctx, const struct img_loaded *image, struct err *e), void *ctx,
	       struct err *e);
