/* Writing tar archives: ustar, with pax headers where ustar has no room. The same entries give the
 * same bytes. */
#pragma once

#include "base/err.h"
#include "image/tar.h"

/* Where bytes go: takes all n, or fails with *e set. */
struct tar_sink {
	int (*write)(void *ctx, const void *data, size_t n, struct err *e);
	void *ctx;
};

/* The header of an entry, whose `size` bytes of content the caller writes next, and then
 * tar_put_padding. A directory's path gets its '/' here. */
int tar_put(const struct tar_sink *sink, const struct tar_entry *en, struct err *e);
/* The header and the map of a sparse file (GNU's format 1.0), whose pieces' bytes the caller writes
 * next, and then tar_put_padding with their sum. At most TAR_SPARSE_MAX - 1 pieces, in order. */
int tar_put_sparse(const struct tar_sink *sink, const struct tar_entry *en,
		   const struct tar_piece *pieces, size_t n, struct err *e);
int tar_put_padding(const struct tar_sink *sink, uint64_t size, struct err *e);
/* A whole file. */
int tar_put_file(const struct tar_sink *sink, const char *path, const void *data, size_t n,
		 struct err *e);
int tar_put_end(const struct tar_sink *sink, struct err *e);
