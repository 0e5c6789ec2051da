/* An image of the store: found and held for as long as a box runs on it, and what its config says
 * of how it is run. */
#pragma once

#include "base/err.h"
#include "box/spec.h"
#include "engine/bytecode.h"
#include "image/record.h"
#include "image/ref.h"
#include "state/dirs.h"

struct prepared;
struct request;

/* Zeroed: none. Large: keep it static. */
struct image_use {
	const char *asked; /* the request's word for it, once it is found; else NULL */
	struct img_ref ref;
	char name[IMG_REF_CAP]; /* the reference, normalised */
	struct img_record record;
	int layers[IMG_STACK_MAX]; /* open and held, the topmost first */
	size_t n_layers;
	char lowers[IMG_STACK_MAX * IMG_LAYER_NAME]; /* as rootfs.h has them */
	char dir[STATE_PATH_MAX];		     /* the directory of all layers */
	struct box_mount check;			     /* what is there */
	char **argv;				     /* of the command, or NULL */
	char python[BYTECODE_PYTHON_CAP]; /* its library could be compiled, and is not; else "" */
};

/* Whether the request's image is one of the store: neither `host` nor a directory. */
bool image_wanted(const struct request *r);
/* Finds the request's image in the store and holds its layers, its bytecode's on top. ERR_MISSING
 * with num ENOENT: it is not there, or for another platform than the request's: pulling it may
 * help. Makes no files. */
int image_find(const struct request *r, struct image_use *u, struct err *e);
/* Lets go. Harmless on a zeroed one. */
void image_drop(struct image_use *u);

/* The value of a variable that the image sets, or NULL. */
const char *image_env(const struct image_use *u, const char *name);
/* The root, what cloche puts into its /etc, the places for data and the signal, into the spec;
 * after image_find. */
int image_root(struct prepared *p, struct err *e);
/* The command: the entrypoint and behind it the request's words, or else the image's. */
int image_command(const struct request *r, struct prepared *p, struct err *e);
