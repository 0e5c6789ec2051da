/* A layer of the store as the archive that other tools read: whiteouts are .wh. files again, files
 * of several names are hard links, names are in order. The same tree gives the same bytes. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "image/tar_write.h"

/* `dir` is the layer's directory, mode that of its root (store.h: img_layer_info). What the
 * caller owns is root's in the archive. Sparse files are written whole; sockets are
 * left out. */
int img_layer_tar(int dir, uint32_t mode, const struct tar_sink *sink, struct err *e);
