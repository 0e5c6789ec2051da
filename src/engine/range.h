/* --uid-range: which ids outside the caller may lend to a box. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/request.h"

/* As many as images count on: nobody is 65534. */
#define RANGE_IDS 65536

/* Fills spec->range and the capabilities that make ids worth having; after ids_prepare and the
 * capabilities. ERR_MISSING says what the host lacks. */
int range_prepare(const struct request *r, struct box_spec *s, struct err *e);
/* The caller's row of /etc/subuid or /etc/subgid: by name, else by number. False: there is none. */
bool range_of_file(const char *file, const char *name, uint32_t id, uint32_t *ret_start,
		   uint32_t *ret_n);
/* The pure part. */
bool range_find(const char *text, const char *who, uint32_t *ret_start, uint32_t *ret_n);
