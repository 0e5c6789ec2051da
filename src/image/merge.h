/* Several layers of the store as one: for images of more layers than one mount takes. */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* Fills the empty directory `tree` with what the n layers show together, lowest first in `layers`:
 * files are hard links to theirs, directories are made anew. Nothing is below them: whiteouts and
 * opaque markers are gone afterwards. Layers of the store never change, so that sharing their files
 * is safe. All of a tree's owner's rights are on its root. */
int img_merge(int tree, const int *layers, size_t n, struct err *e);
