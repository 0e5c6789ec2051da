/* What the parts of saving share: save.c (layers and the archive), save_docs.c (documents that are
 * written), save_config.c (the config document, which is read). */
#pragma once

#include <stdbool.h>

#include "base/str.h"
#include "image/save.h"
#include "image/sha256.h"

#define SAVE_BLOBS "blobs/sha256"

struct save_blob {
	char digest[IMG_DIGEST_LEN + 1];
	uint64_t size;
};

struct saving {
	const struct img_save_how *how;
	const int *held; /* topmost first */
	struct save_blob layers[IMG_STACK_MAX], config, manifest;
	struct buf config_json, manifest_json;

	struct img_sha256 sum; /* of what goes through */
	uint64_t n;
	bool only_sum;
	char *out; /* a buffer, of which `used` wait to be written */
	size_t used;
	uint64_t written;
};

/* "blobs/sha256/HEX" */
void save_blob_path(const struct save_blob *b, char ret[128]);
/* s->config_json: of the record, or of the document that came with it, with the layers as they are
 * now. */
int save_config_new(struct saving *s, struct err *e);
int save_config_of_json(struct saving *s, const char *text, size_t n, struct err *e);
/* s->manifest_json */
void save_manifest(struct saving *s);
/* index.json and docker's manifest.json */
void save_index_json(const struct saving *s, struct buf *out);
void save_docker_json(const struct saving *s, struct buf *out);
