/* What the parts of pulling share: pull.c (documents, names, order of events), pull_layers.c
 * (downloads and unpacking). */
#pragma once

#include "image/config.h"
#include "image/manifest.h"
#include "image/pull.h"
#include "image/record.h"
#include "image/registry.h"
#include "image/sha256.h"
#include "image/stack.h"
#include "image/store.h"
#include "image/unpack_server.h"

enum layer_state {
	LAYER_WANTED,	   /* not here; another cloche may be at it: asked again after `again` */
	LAYER_DOWNLOADING, /* an exchange is under way, or is to be repeated */
	LAYER_FETCHED,	   /* its blob is here, and is what it should be */
	LAYER_UNPACKING,
	LAYER_DONE, /* in the store */
};

struct pull;

struct layer {
	struct pull *pull;
	const struct img_descriptor *blob;
	enum layer_state state;
	uint64_t again;

	/* Its download. */
	int part;	/* the file, locked, or -1 */
	uint64_t have;	/* bytes of it that are summed */
	uint64_t asked; /* what there was when it was last asked for */
	uint64_t shown; /* when its progress was last told */
	bool left_over; /* it began with what an earlier pull left */
	bool running;	/* in the multi handle */
	struct img_sha256 sum;
	struct img_sink sink;
	struct img_fetch fetch;
};

struct pull {
	const struct img_pull_how *how;
	struct img_store store;
	struct img_unpack_server server;
	struct img_http http;
	struct img_registry reg;
	char text[IMG_REF_CAP];

	char top[IMG_DIGEST_LEN + 1]; /* of what the reference leads to: an index or a manifest */
	char manifest_digest[IMG_DIGEST_LEN + 1];
	struct img_manifest manifest;
	struct img_config config;
	struct buf config_json;

	struct layer *layers;
	size_t n_layers;
	size_t next; /* the lowest that is not on the stack */
	struct img_stack stack;
	CURLM *multi;
	struct img_unpack_child child;
	struct img_pulled result;
};

/* All layers of p->manifest into the store, held, and on the stack. */
int pull_layers(struct pull *p, struct err *e);
void pull_layers_free(struct pull *p);
