/* Several layers as one: what overlayfs would show of them, in a directory of its own. Files are
 * linked, not copied: layers never change. The lowest of a stack only, since what it hides is gone.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "image/unpack.h"

/* tree is an empty directory; layers are directories in the form of unpack.h, topmost first, on the
 * same file system. ret counts entries and bytes of content. */
int img_merge(int tree, const int *layers, size_t n, struct img_unpacked *ret, struct err *e);
