/* An outcome as JSON: field names are stable, unknown numbers are null. docs/OUTCOME.md describes
 * each. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"
#include "box/outcome.h"
#include "engine/request.h"

/* One object and a newline, with the notes and the denials of mounts that `p` gathered. */
void outcome_json(const struct prepared *p, const struct box_outcome *o, bool timing,
		  struct buf *out);
/* The names of the phases, in order, for --timing in text and in JSON: name of phase i and its
 * microseconds, UINT64_MAX when it was not reached. Returns NULL past the last. */
const char *outcome_phase(const struct box_outcome *o, unsigned i, uint64_t *ret_us);
