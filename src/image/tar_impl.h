/* What the parts of the tar reader share: tar.c (stream, headers) and tar_meta.c (extended headers,
 * sparse maps). */
#pragma once

#include "image/tar.h"

#define TAR_BLOCK_LEN 512
#define TAR_BUFFER 65536

struct tar {
	struct tar_source source;
	uint64_t left;	 /* bytes that may still be read from the source */
	size_t at, have; /* in buffer */

	/* The entry at hand. */
	uint64_t stored;  /* bytes of its content still in the stream */
	unsigned padding; /* behind them */
	uint64_t done;	  /* of the piece at hand */
	size_t piece, n_pieces;
	struct tar_piece *pieces; /* grown; NULL until a sparse file comes */
	size_t cap_pieces;

	/* What extended headers said about it. */
	struct {
		bool path, link, size, uid, gid, mtime; /* said */
		bool gnu_path, gnu_link;		/* by an L or K header */
		bool pax;				/* there was an x header */
		uint64_t size_value, uid_value, gid_value;
		uint64_t sparse_major, sparse_minor, sparse_real;
		bool sparse, sparse_name;
		int64_t mtime_value;
		uint32_t mtime_ns;
	} ext;
	char *meta; /* the bytes of the last x header: attributes point into them */

	bool ended;
	bool lax, lax_end; /* asked for; and so from the first entry on */
	struct tar_entry entry;
	uint8_t buffer[TAR_BUFFER];
};

/* Exactly n bytes of the stream. */
int tar_take(struct tar *t, void *dst, size_t n, struct err *e);
/* The n bytes of an extended header and their padding. */
int tar_take_meta(struct tar *t, void *dst, uint64_t n, struct err *e);
/* A number of a header's field: octal, or base-256 when the first bit is set. */
int tar_number(const uint8_t *field, size_t n, uint64_t *ret, struct err *e);

/* Reads a pax header of n bytes: into t->ext and t->entry, or (`global`) only for what must not be
 * there. */
int tar_pax(struct tar *t, uint64_t n, bool global, struct err *e);
/* The sparse map of an old GNU header (type S) and its extension blocks. */
int tar_sparse_gnu(struct tar *t, const uint8_t *header, struct err *e);
/* The sparse map at the start of the content (pax 1.0). */
int tar_sparse_pax(struct tar *t, struct err *e);
