/* An image of the store as an archive that other tools load: an OCI layout that also has docker's
 * manifest.json. Layers are made anew of what is in the store, uncompressed: their digests, and
 * with them the image's id, are those of before only when the store has lost nothing of them. The
 * same image gives the same bytes. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "image/ref.h"
#include "image/store.h"

struct img_save_how {
	const struct img_store *store;
	const struct img_record *record;
	const struct img_ref *names; /* those without a tag are left out */
	size_t n_names;
	int out;
};

struct img_saved {
	char id[IMG_DIGEST_LEN + 1]; /* what the archive's image is called */
	uint64_t bytes;
};

/* Writes it. The layers have to be held by the caller (img_store_hold). Locks the process in for
 * good, but for descriptors that are open. */
int img_save(const struct img_save_how *how, const int *held, struct img_saved *ret, struct err *e);
