/* Reading JSON from a registry or an archive: jansson, strict, with a bound on each thing that is
 * taken out. Duplicate names, NULs in strings, numbers beyond 64 bits, bytes that are not UTF-8,
 * nesting beyond jansson's own limit (2048) and anything behind the value are refused.
 *
 * Messages name the field ("layers[3].size"); its content is not repeated unless made printable.
 * All errors are ERR_REFUSED: what was read is wrong, not the caller. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

static inline void img_json_drop(json_t **j)
{
	json_decref(*j);
	*j = NULL;
}
#define _cleanup_json_ __attribute__((cleanup(img_json_drop)))

/* Parses `n` bytes, at most `max`, whose value must be an object. The caller owns *ret. */
int img_json_load(const char *data, size_t n, size_t max, json_t **ret, struct err *e);
/* The same for a value that must be an array. */
int img_json_load_array(const char *data, size_t n, size_t max, json_t **ret, struct err *e);
/* The member `key` of `o` as an object or array, borrowed; NULL in *ret when missing or null. -1
 * when it is of another type, or an array of more than `max` elements. `where` names `o` ("" at
 * top). */
int img_json_object(const json_t *o, const char *where, const char *key, json_t **ret,
		    struct err *e);
int img_json_array(const json_t *o, const char *where, const char *key, size_t max, json_t **ret,
		   struct err *e);
/* A string of less than `cap` bytes without control characters into dst; "" when missing or null.
 */
int img_json_str(const json_t *o, const char *where, const char *key, char *dst, size_t cap,
		 struct err *e);
/* An integer of 0 to max; missing is an error. */
int img_json_size(const json_t *o, const char *where, const char *key, uint64_t max, uint64_t *ret,
		  struct err *e);
