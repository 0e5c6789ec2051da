/* Image archives, once their tar has been unpacked into a directory (by the child that unpacks
 * layers, image/unpack_child.h): an OCI layout (oci-layout, index.json, blobs) or what `docker
 * save` writes (manifest.json, with layers in any of its layouts). An archive that is both is read
 * as the latter, which names its images in full.
 *
 * Every path and digest is the archive's: paths are walked inside the directory alone, documents
 * are bounded, and those that have a digest are compared with it before they are read. */
#pragma once

#include "base/err.h"
#include "image/config.h"
#include "image/manifest.h"
#include "image/platform.h"
#include "image/ref.h"

#define IMG_ARCHIVE_NAMES_MAX 64
#define IMG_ARCHIVE_PATH_CAP 512

struct img_archive_layer {
	char path[IMG_ARCHIVE_PATH_CAP];
	struct img_descriptor blob; /* digest "": known by its diff id alone */
};

struct img_archive_image {
	size_t n_names;
	struct img_ref names[IMG_ARCHIVE_NAMES_MAX];
	char top[IMG_DIGEST_LEN + 1];	   /* what its names lead to: its manifest or an index of
					      several, or "" */
	char manifest[IMG_DIGEST_LEN + 1]; /* or "" */
	char id[IMG_DIGEST_LEN + 1];
	char *json; /* its config document */
	size_t json_n;
	struct img_config config;
	struct img_archive_layer layers[IMG_LAYERS_MAX]; /* as many as the config has diff ids */
};

/* Shows each image of the archive that is for `want`; what is shown is the reader's. An image for
 * another platform alone is an error, as is an archive without images. -1 with ERR_REFUSED, or what
 * `each` left. */
int img_archive_each(int dir, const struct img_platform *want,
		     int (*each)(void *ctx, const struct img_archive_image *image, struct err *e),
		     void *ctx, struct err *e);
/* Whether the layer's file is there at all: 0, or -1 with *e. */
int img_archive_has(int dir, const struct img_archive_layer *layer, struct err *e);
/* Opens a layer's file for reading, and compares it with its digest when it has one. The
 * descriptor, at its start; *ret_size is its size. */
int img_archive_layer(int dir, const struct img_archive_layer *layer, uint64_t *ret_size,
		      struct err *e);
