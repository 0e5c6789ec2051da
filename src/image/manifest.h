/* Manifests and indexes of registries and image archives: OCI image and index, docker schema 2
 * manifest and manifest list. Plain values, nothing owned.
 *
 * The caller has already compared the bytes with the digest they were asked by; nothing is read
 * from them before. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/platform.h"
#include "image/ref.h"

#define IMG_DOC_MAX (4u << 20) /* bytes of a manifest, index or config */
#define IMG_LAYERS_MAX 512
#define IMG_INDEX_MAX 256
#define IMG_BLOB_MAX (UINT64_C(32) << 30) /* bytes of a compressed layer */

/* What the Accept header names. */
#define IMG_MEDIA_OCI_INDEX "application/vnd.oci.image.index.v1+json"
#define IMG_MEDIA_OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define IMG_MEDIA_DOCKER_LIST "application/vnd.docker.distribution.manifest.list.v2+json"
#define IMG_MEDIA_DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"

struct img_descriptor {
	char digest[IMG_DIGEST_LEN + 1];
	uint64_t size;
};

struct img_manifest {
	struct img_descriptor config;
	size_t n_layers;
	struct img_descriptor
		layers[IMG_LAYERS_MAX]; /* lowest first; codec is told by magic bytes */
};

struct img_index_entry {
	struct img_descriptor manifest;
	struct img_platform platform; /* normalised; os "" when the index does not say */
};

struct img_index {
	size_t n;
	struct img_index_entry entries[IMG_INDEX_MAX];
};

enum img_doc_kind { IMG_DOC_MANIFEST, IMG_DOC_INDEX };

struct img_doc {
	enum img_doc_kind kind;
	union {
		struct img_manifest manifest;
		struct img_index index;
	};
};

/* Reads either. `content_type` is what the registry said, or NULL: with the document's own
 * mediaType it has to agree, and a document that could be read as both kinds is refused. 0, or -1
 * with ERR_REFUSED. */
int img_doc_parse(const char *data, size_t n, const char *content_type, struct img_doc *ret,
		  struct err *e);
/* The entry for exactly `want` (normalised): the first one, as other tools do; never another
 * platform. *ret points into the index. -1 with ERR_REFUSED and what the index has. */
int img_index_choose(const struct img_index *index, const struct img_platform *want,
		     const struct img_index_entry **ret, struct err *e);
