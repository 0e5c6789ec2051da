/* The caller's store of images: $STORE/images (state/dirs.h). */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "image/store.h"

/* Opens it; makes it, and the store above it, when `make`. -1 with ERR_MISSING when there is none.
 */
int images_open(bool make, struct img_store *ret, struct err *e);
