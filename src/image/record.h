/* An image's record: all that running it needs, in plain text, so that the program that runs boxes
 * reads no JSON. Written by whoever adds an image to the store.
 *
 *	format 1
 *	id sha256:HEX			the digest of its config document
 *	os linux
 *	arch amd64
 *	root host			only where the layers are what is added to the host image
 *	layer NAME sha256:HEX BYTES	one each, lowest first
 *	cmd				the list is there
 *	cmd python3			and an element of it
 *
 * A line is a key, and behind a space the value; what can't stand in a line is %XX (text.h).
 * Unknown keys of the same format are passed over. Everything that is read is checked. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "image/platform.h"
#include "image/ref.h"
#include "image/words.h"

#define IMG_USER_MAX 255
#define IMG_RECORD_MAX (4u << 20) /* bytes */
/* Layers of one stack: as many names as fit into the page of a mount's options on every kernel.
 * An image that has more gets its lowest ones merged into one. */
#define IMG_STACK_MAX 128
/* A layer's name in the store: its kind and 20 digits of its id.
 *	d	the id is its diff id: it means the same in every image
 *	c	its chain id: it took something from the layers below, and is right above these only
 *	s	made here, by a command: the id is the key
 *	m	merged of several: the chain id of the topmost */
#define IMG_LAYER_NAME 22
#define IMG_LAYER_KINDS "dcsm"

struct img_record_layer {
	char name[IMG_LAYER_NAME];
	char id[IMG_DIGEST_LEN + 1];
	uint64_t bytes;
};

struct img_record {
	char id[IMG_DIGEST_LEN + 1];
	char manifest[IMG_DIGEST_LEN + 1]; /* its manifest's digest, or "": made here */
	struct img_platform platform;	   /* normalised */
	int64_t created; /* seconds since 1970, by its own word; 0: it does not say */
	size_t n_layers;
	struct img_record_layer layers[IMG_STACK_MAX]; /* lowest first */
	struct img_words env, entrypoint, cmd, volumes;
	char workdir[4096]; /* absolute and normalised, or "" */
	char user[IMG_USER_MAX + 1];
	int stop_signal; /* 0: not given */
	bool host;	 /* its layers are no root, but what setup has added to the host image */
};

/* Frees the lists and clears all; harmless on a zeroed one. */
void img_record_free(struct img_record *r);
#define _cleanup_img_record_ __attribute__((cleanup(img_record_free)))
/* Hands over what *r owns; nothing is left to be freed. */
static inline struct img_record img_record_steal(struct img_record *r)
{
	struct img_record v = *r;

	*r = (struct img_record){ 0 };
	return v;
}

/* Writes the record as text; `out` was born with IMG_RECORD_MAX or more. -1 with ERR_REFUSED when
 * it is no record that could be read again. */
int img_record_write(const struct img_record *r, struct buf *out, struct err *e);
/* Reads n bytes. *ret is the caller's, to be freed by img_record_free. -1 with ERR_REFUSED. */
int img_record_read(const char *text, size_t n, struct img_record *ret, struct err *e);

/* The key of the layer (kind s) that holds the bytecode of the image's Python library, if there is
 * one: it is no part of the image, and stays as long as the image does. */
void img_bytecode_key(const struct img_record *r, char ret[IMG_DIGEST_LEN + 1]);
/* "d0123456789abcdef0123" of a kind and an id ("sha256:..."). */
int img_layer_name(char kind, const char *id, char ret[IMG_LAYER_NAME], struct err *e);
