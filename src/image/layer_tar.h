/* A layer of the store as the archive that other tools read: whiteouts are .wh. files again, files
 * of several names are hard links, names are in order. The same tree gives the same bytes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "image/tar_write.h"

/* `dir` is the layer's directory, mode that of its root (store.h: img_layer_info). What the
 * caller owns is root's in the archive. Sparse files are written whole; sockets are
 * left out. */
int img_layer_tar(int dir, uint32_t mode, const struct tar_sink *sink, struct err *e);

struct img_files_tarred {
	uint64_t files;	  /* entries: files, links, directories */
	uint64_t special; /* FIFOs, sockets, devices: left out */
};
/* The files of a workspace, which others may change meanwhile, as an archive that img_unpack takes
 * with `files`: what has gone when its turn comes is left out, a file that has become shorter ends
 * in zeros. Holes are kept. Owners are root's; what is mounted below is not gone into. Names at the
 * top for which `passes` is true are passed over. */
int img_files_tar(int dir, bool (*passes)(const char *name), const struct tar_sink *sink,
		  struct img_files_tarred *ret, struct err *e);
