/* A streaming reader of tar archives from hostile hands: v7, ustar, GNU (long names, sparse files,
 * base-256 numbers) and pax (names, sizes, times, owners, extended attributes, sparse 1.0).
 *
 * Names are bytes: nothing is converted, joined or cut. What could be read in two ways is refused:
 * two sources of one name, global headers that name or size an entry, a directory with content,
 * sparse maps that overlap, and anything but zeros behind the end marker. All such errors are
 * ERR_REFUSED; those of the source are passed through. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define TAR_PATH_CAP 4096
#define TAR_META_MAX (1u << 20) /* bytes of one extended header */
#define TAR_XATTRS_MAX 128
#define TAR_SPARSE_MAX 65536 /* pieces of a sparse file */
#define TAR_SIZE_MAX (UINT64_C(1) << 42)
#define TAR_TAIL_MAX (16u << 20) /* zeros behind the end marker */

enum tar_type {
	TAR_FILE,
	TAR_HARDLINK,
	TAR_SYMLINK,
	TAR_DIR,
	TAR_CHAR,
	TAR_BLOCK,
	TAR_FIFO,
};

struct tar_xattr {
	const char *name;
	const void *value;
	size_t n;
};

struct tar_entry {
	enum tar_type type;
	char path[TAR_PATH_CAP]; /* as in the archive, not empty */
	char link[TAR_PATH_CAP]; /* target of TAR_HARDLINK and TAR_SYMLINK, not empty there */
	uint32_t mode;		 /* 07777 */
	uint64_t uid, gid;
	int64_t mtime;
	uint32_t mtime_ns;
	uint64_t size; /* of a file, holes included; else 0 */
	size_t n_xattrs;
	struct tar_xattr xattrs[TAR_XATTRS_MAX];
};

/* Of a sparse file: what lies between two pieces is a hole. */
struct tar_piece {
	uint64_t offset, len;
};

/* Where bytes come from: fills buf with 1 to n bytes and returns the count, 0 at the end, -1 with
 * *e set. */
struct tar_source {
	ssize_t (*read)(void *ctx, void *buf, size_t n, struct err *e);
	void *ctx;
};

struct tar;

/* A reader of at most `max` bytes of the source, which stays the caller's. To be freed by tar_free.
 */
int tar_open(const struct tar_source *source, uint64_t max, struct tar **ret, struct err *e);
void tar_free(struct tar **t);
#define _cleanup_tar_ __attribute__((cleanup(tar_free)))
/* The archive may end without its end marker, behind an entry's last byte (not before
 * the first entry): for callers who know the
 * digest of all of it. Some tools write layers that way (umoci insert), and all read them. */
void tar_lax_end(struct tar *t);
/* The next entry, the reader's until the next call; what was not read of the last one is skipped.
 * NULL at the end, when the source has been read to its own end. */
int tar_next(struct tar *t, const struct tar_entry **ret, struct err *e);
/* The next piece of the file's content and where it stands in the file; *ret_n is 0 at the end.
 * What lies between pieces, and behind the last one, is a hole. */
int tar_data(struct tar *t, uint64_t *ret_offset, const void **ret, size_t *ret_n, struct err *e);
