/* The layers of one image on their way into the store, lowest first: which are there already, which
 * have to be unpacked, and what the image's record says of them in the end.
 *
 * A layer that took nothing from those below is stored by its diff id, and is every image's that
 *has it; one that did is stored by its chain id, and counts above the same layers only. Of an image
 *of more layers than one mount takes, the lowest are merged into one on the way, and a merged one
 *that is there stands for all of its layers.
 *
 *	img_stack_begin(&stack, store, &config, &e);
 *	while (img_stack_next(&stack, &i)) {	// layer i is wanted next
 *		img_stack_start(&stack, &server, fd of its blob, size, &child, &e);
 *		img_stack_end(&stack, &child, &result, &e);
 *	}
 *	img_stack_finish(&stack, &record, &e);	// then img_image_publish, img_name_set
 *	img_stack_drop(&stack);			// lets the layers go */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "image/config.h"
#include "image/store.h"
#include "image/unpack_server.h"

/* A layer by its number in the config. */
struct img_stack_item {
	char chain[IMG_DIGEST_LEN + 1];
	char kind; /* of the layer that is held, or 0: it is not in the store */
	int fd;	   /* holds it, or -1 */
	struct img_layer_info info;
};

struct img_stack {
	const struct img_store *store;
	const struct img_config *config;
	struct img_stack_item *items; /* as many as the config has diff ids */
	size_t at;		      /* the next layer: those before are on the stack */
	size_t n;
	struct img_record_layer layers[IMG_STACK_MAX]; /* the stack, lowest first */
	int held[IMG_STACK_MAX];		       /* and what holds each */
	struct img_draft draft;			       /* of the layer that is being unpacked */
};
#define IMG_STACK_NONE ((struct img_stack){ .draft = { .fd = -1, .tree = -1 } })

/* Looks up what is there, and holds it. The store and the config have to live as long. */
int img_stack_begin(struct img_stack *ret, const struct img_store *s, const struct img_config *c,
		    struct err *e);
/* Harmless on IMG_STACK_NONE. */
void img_stack_drop(struct img_stack *st);
#define _cleanup_img_stack_ __attribute__((cleanup(img_stack_drop)))

/* Whether layer i has to be fetched. Looks again when it was not there before: another process may
 * have made it meanwhile. */
bool img_stack_missing(struct img_stack *st, size_t i);
/* Takes all layers that are there, up to the first that is not: true, and its number. False: all
 * are on the stack, or *e says what failed (e->kind is ERR_NONE else). */
bool img_stack_next(struct img_stack *st, size_t *ret, struct err *e);
/* Unpacks that layer from `in`, which has at most max_in bytes from where it stands: compressed or
 * not. `in` stays the caller's. */
int img_stack_start(struct img_stack *st, const struct img_unpack_server *server, int in,
		    uint64_t max_in, struct img_unpack_child *ret, struct err *e);
/* Waits for its end (the child's `answer` can be polled), compares with the diff id, and puts it
 * into the store and onto the stack. *ret may be NULL. */
int img_stack_end(struct img_stack *st, struct img_unpack_child *c, struct img_unpack_result *ret,
		  struct err *e);
/* All layers are on the stack: fills the record's. */
int img_stack_finish(const struct img_stack *st, struct img_record *r, struct err *e);
