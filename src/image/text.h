/* The store's small text files: a line is a key, and behind one space its value.
 *
 * Values are bytes without NUL. '%' and all that is not printable ASCII is written %XX, so that a
 * file can be read, compared and mended with any editor, and a value never ends its line. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Adds a line; value NULL: the key alone. */
void img_line(struct buf *out, const char *key, const char *value);
void img_line_u64(struct buf *out, const char *key, uint64_t value);

/* The next line of the text from *at to end, which is written to: %XX is decoded in place. 1, 0 at
 * the end, or -1 with ERR_REFUSED. *ret_value is NULL for a key alone. */
int img_line_next(char **at, char *end, const char **ret_key, char **ret_value, struct err *e);
/* A decimal number of a line, all of it. */
int img_line_number(const char *key, const char *value, uint64_t max, uint64_t *ret, struct err *e);
/* The same, copied to a field of `cap` bytes. NULL counts as "". */
int img_line_copy(const char *key, const char *value, char *ret, size_t cap, struct err *e);
/* The first line of every such file, "format 1". e->num is TEXT_NEWER when it is another. */
#define TEXT_NEWER EPROTONOSUPPORT
int img_line_format(char **at, char *end, struct err *e);

/* Reads a regular file (no link) of at most `max` bytes, NUL-terminated, to be freed. -1 with
 * ERR_MISSING when there is none, ERR_REFUSED when it is something else. */
int img_text_load(int dir, const char *name, size_t max, char **ret, size_t *ret_n, struct err *e);
