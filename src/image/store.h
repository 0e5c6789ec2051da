/* The store of images: what was pulled, loaded or derived, unpacked and ready to run.
 *
 *	layers/NAME	  an unpacked layer (unpack.h); NAME is told in record.h
 *	layers/NAME.info  its whole id, its size, what was left out
 *	configs/HEX	  an image's record (record.h); HEX is the image's id
 *	configs/HEX.json  its config document as it came, when it came
 *	names/ESCAPED	  a reference, and the image that it leads to
 *	draft/		  what is being made, and what is being removed
 *	blobs/HEX.part	  a download that is not finished
 *	lock		  held by whoever changes a name, while he does
 *
 * Everything is made in draft/, brought to the disk, and then given its name in one step, an
 *image's own name last: whoever sees a name sees all of what it stands for, and what a crash leaves
 *behind has no name. An image is there when its name leads to a record all of whose layers are
 *there. Else it is incomplete (somebody removed a part by hand): this is said, and adding it again
 *mends it.
 *
 * Locks, all flock(2), so that they end with their holder: who unpacks into a draft holds it; who
 * uses a layer (a box, or whoever unpacks on top of it) holds that layer, shared; who removes takes
 * it alone, and passes over what is held.
 *
 * The store belongs to one user. Its content is checked as if it did not: names, records and infos
 * are bounded and parsed strictly, and no link in it is followed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/record.h"
#include "image/ref.h"
#include "image/unpack.h"

struct img_store {
	int fd, layers, configs, names, draft, blobs; /* -1: not open */
};
#define IMG_STORE_NONE ((struct img_store){ -1, -1, -1, -1, -1, -1 })

/* Opens the store at `path`, which is made (0700) when `make`; its parent has to be there. What is
 * missing in a store that is there is made. ERR_MISSING when there is none and `make` is false;
 * ERR_REFUSED when it is somebody else's or open to others. */
int img_store_open(const char *path, bool make, struct img_store *ret, struct err *e);
void img_store_close(struct img_store *s);
#define _cleanup_img_store_ __attribute__((cleanup(img_store_close)))

/* Finding */

/* The record of the image that the reference names. ERR_MISSING when there is no such name or the
 * image is incomplete; the message says which. */
int img_store_find(const struct img_store *s, const struct img_ref *ref, struct img_record *ret,
		   struct err *e);
/* The same by the image's id ("sha256:..."). */
int img_store_find_id(const struct img_store *s, const char *id, struct img_record *ret,
		      struct err *e);
/* Opens the image's layers for use: ret_fds gets n_layers descriptors (close-on-exec), the topmost
 * layer first, each of which keeps its layer from being removed until it and all its copies are
 * closed. ERR_MISSING when a layer is gone. */
int img_store_hold(const struct img_store *s, const struct img_record *r,
		   int ret_fds[IMG_STACK_MAX], size_t *ret_n, struct err *e);
/* Closes them. */
void img_store_let_go(int fds[IMG_STACK_MAX], size_t n);

/* A name and where it leads. */
struct img_name {
	char ref[IMG_REF_CAP]; /* normalised; with a digest it has no tag */
	char id[IMG_DIGEST_LEN + 1];
	char manifest[IMG_DIGEST_LEN + 1]; /* what a registry calls it, or "" */
	int64_t when;			   /* seconds since 1970: when it was set */
	bool newer;			   /* of a later version of the store */
};
/* -1 with ERR_MISSING: there is no such name. */
int img_name_get(const struct img_store *s, const struct img_ref *ref, struct img_name *ret,
		 struct err *e);
/* Shows every name, sorted, until `each` returns not 0; returns that, 0, or -1 with *e (each sets
 * it when it returns -1). What can't be read as a name has id "" and its file's name as ref. */
int img_store_each_name(const struct img_store *s,
			int (*each)(void *ctx, const struct img_name *name, struct err *e),
			void *ctx, struct err *e);
/* Shows the id of every image, with a name or without, in any order; as img_store_each_name. */
int img_store_each_id(const struct img_store *s,
		      int (*each)(void *ctx, const char *id, struct err *e), void *ctx,
		      struct err *e);
/* The config document as it came. To be freed. ERR_MISSING: there is none. */
int img_store_json(const struct img_store *s, const char *id, char **ret, size_t *ret_n,
		   struct err *e);

/* Layers */

struct img_layer_info {
	char id[IMG_DIGEST_LEN + 1];
	struct img_unpacked done; /* content, and what was left out */
	uint32_t mode;		  /* of the layer's root directory: the store's own is always open
				     to its owner */
};

/* Whether the layer is there, whole; its name as well when ret_name is not NULL. The moment after,
 * it may be gone, unless it is held. */
bool img_store_has_layer(const struct img_store *s, char kind, const char *id,
			 char ret_name[IMG_LAYER_NAME]);
/* Holds a layer (see img_store_hold): the descriptor, or -1 with ERR_MISSING when it is not there.
 */
int img_layer_hold(const struct img_store *s, char kind, const char *id, struct img_layer_info *ret,
		   struct err *e);
/* What is known of the layer of that name. -1 with ERR_MISSING or ERR_REFUSED. */
int img_layer_info(const struct img_store *s, const char *name, struct img_layer_info *ret,
		   struct err *e);

/* A directory of one's own in draft/, and in it `tree`, which may become a layer. Beside the tree
 * the maker may keep what he needs (an overlay's work directory). */
struct img_draft {
	int fd;	  /* the directory, locked; -1: none */
	int tree; /* its `tree`; after publishing: the layer, held */
	char name[48];
	const struct img_store *store; /* has to live as long */
};
#define IMG_DRAFT_NONE ((struct img_draft){ .fd = -1, .tree = -1 })
#define IMG_DRAFT_TREE "tree"

int img_draft_new(const struct img_store *s, struct img_draft *ret, struct err *e);
/* Removes the directory and all in it, and lets go. Harmless on IMG_DRAFT_NONE. */
void img_draft_drop(struct img_draft *d);
#define _cleanup_img_draft_ __attribute__((cleanup(img_draft_drop)))

/* Brings the draft's tree to the disk and makes it the layer of that kind and id. When the layer is
 * there by now (another maker was faster), that one is taken. Either way d->tree then is the layer
 * in the store, held until the draft is dropped: drop it after the image is published.
 *
 * The tree's owner gets all rights on its root directory (info has what it was). ERR_REFUSED when
 * another layer with another id has the same name. */
int img_layer_publish(const struct img_store *s, struct img_draft *d, char kind, const char *id,
		      const struct img_unpacked *done, char ret_name[IMG_LAYER_NAME],
		      struct err *e);

/* Images */

/* Makes the record, and the config document when there is one (json may be NULL), of an image whose
 * layers are there and held by the caller. An image of that id that is there is replaced. Without a
 * name it stays as long as something holds a layer of it: set one meanwhile. */
int img_image_publish(const struct img_store *s, const struct img_record *r, const void *json,
		      size_t n, struct err *e);
/* Makes the reference lead to the image of that id, which is there; a name that led elsewhere leads
 * here now. manifest: its digest, or "". */
int img_name_set(const struct img_store *s, const struct img_ref *ref, const char *id,
		 const char *manifest, struct err *e);
/* ERR_MISSING: there is no such name. What it led to stays for img_store_gc. */
int img_name_remove(const struct img_store *s, const struct img_ref *ref, struct err *e);

/* Downloads */

/* Opens (makes) the unfinished download of that digest, to be read and written, locked; another
 * writer of it is waited for when `wait`, else it is ERR_REFUSED. The descriptor keeps the lock. */
int img_part_open(const struct img_store *s, const char *digest, bool wait, struct err *e);
/* Removes it, for its holder: it was unpacked, or is wrong. */
int img_part_remove(const struct img_store *s, const char *digest, struct err *e);

/* Removing */

enum img_gc {
	IMG_GC_LEFT,   /* what dead makers left: drafts, and downloads that nobody has written to
			  for a week */
	IMG_GC_UNUSED, /* that, and images without a name, and layers without an image */
	IMG_GC_ALL,    /* that, and every download that is not being written */
};
struct img_gc_done {
	unsigned images, layers, drafts, parts; /* removed */
	unsigned held;				/* unused layers that something still holds */
	uint64_t bytes;				/* of content, of the layers and parts removed */
};
/* Removes what nobody needs. Safe beside everything else. A store that is not open is empty. */
int img_store_gc(const struct img_store *s, enum img_gc what, struct img_gc_done *ret,
		 struct err *e);
