/* `setup`: a command run once, over an image, in a box where package managers work; what it leaves
 * becomes one more layer and local/NAME an image that has it. The second time it is there.
 *
 *	image_find(...)			the base, held (image.h)
 *	setup_open(...)			is there such a layer? ret->found
 *	setup_draft(...)		else: where the box writes; then request_prepare, box_run
 *	setup_settle(...)		what the box left, as a layer
 *	setup_publish(...)		the image and its name
 *	setup_close(...)		always
 *
 * A layer is found by its key: the base image's id, the command, -e and the network. What a mirror
 * gives today is not part of it: after `cloche rm local/NAME` the next setup runs the command
 * again.
 *
 * The host image has no layers, and its /usr is this machine's own. There the layer is what pip and
 * npm put into /opt/deps, and its images have it there over whatever /usr the machine has.
 *
 * What may go wrong: the command is foreign code as the root of a namespace of one id. It writes
 * into a directory of the store that nobody else may enter, so what it makes set-id there is of no
 * use to anybody until settling takes those bits away; a setup that is killed leaves a draft, which
 * the store sweeps. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "engine/request.h"
#include "image/store.h"

struct setup {
	struct img_store store;
	struct img_ref name;
	const struct img_record *base; /* the caller's */
	struct img_record made;
	struct img_draft draft;
	char key[IMG_DIGEST_LEN + 1];
	char layer[IMG_LAYER_NAME];
	struct img_layer_info info;
	int held; /* the layer, when it was found */
	bool found;
};

/* Nothing to be closed. */
#define SETUP_NONE                                                                                 \
	{                                                                                          \
		.store = IMG_STORE_NONE, .draft = IMG_DRAFT_NONE, .held = -1                       \
	}

/* Reads NAME ("with-git" or "local/with-git") and looks for the layer in the store. Without a name
 * it is the image's bytecode (bytecode.h), which is no image of its own. ERR_USAGE: the name is
 * none.
 */
int setup_open(const struct request *r, const struct img_record *base, const char *name,
	       struct setup *ret, struct err *e);
/* Makes the place that the box writes into, and tells the request of it: the box belongs to these
 * ids outside. */
int setup_draft(struct setup *s, struct request *r, struct err *e);
/* After a box of this spec has ended well. */
int setup_settle(struct setup *s, const struct box_spec *spec, struct err *e);
/* In place of what the box left, nothing: a layer that changes nothing, and keeps the command from
 * being run again. */
int setup_settle_empty(struct setup *s, struct err *e);
int setup_publish(struct setup *s, struct err *e);
void setup_close(struct setup *s);
/* The base of what is installed on the host image, beside this machine's own programs: an image
 * without layers, whose id stands for the packages that this machine has. */
int setup_host(struct img_record *ret, struct err *e);
/* The request of a box that does so: at BOX_DEPS, by pip and npm. Nothing there is the system's, so
 * its own packages can't be installed: ERR_USAGE for a command that would. */
int setup_host_request(struct request *r, struct err *e);
#define _cleanup_setup_ __attribute__((cleanup(setup_close)))
