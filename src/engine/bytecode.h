/* The bytecode of an image's Python library: compiled once, in a set-up box, into a layer of its
 * own that is laid over the image.
 *
 * Images of Python come without it, so that each box compiles again what it imports, into its
 * throwaway root. Compiled ahead, it is part of what lies below every box, where none can change it
 * for the next one. Its files do not look at their sources (PEP 552, unchecked): what they belong
 * to is the image, by whose id the layer is found. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/layers.h"
#include "image/record.h"
#include "image/store.h"

#define BYTECODE_PYTHON_CAP 64

/* Is there a CPython whose library has no bytecode? *ret is its path, absolute. */
bool bytecode_lacks(const struct layers *image, char ret[BYTECODE_PYTHON_CAP]);
/* Holds it: the descriptor, and its name; or -1 where there is none. */
int bytecode_hold(const struct img_store *s, const struct img_record *image,
		  char ret_name[IMG_LAYER_NAME]);
/* What a set-up box runs to make it: words for argv, ended by NULL. `python` has to live as long.
 */
void bytecode_command(char python[BYTECODE_PYTHON_CAP], char *ret[8]);
