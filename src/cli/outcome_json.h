/* An outcome as JSON: field names are stable, unknown numbers are null. docs/OUTCOME.md describes
 * each. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/str.h"
#include "box/outcome.h"
#include "engine/request.h"

struct outcome_show {
	bool streams; /* what was captured; a call of a session hands it over by itself */
	bool timing;
	uint64_t queued_us;
	size_t notes_from; /* those before it were told already */
};

/* One object and a newline, with the notes and the denials of mounts that `p` gathered. */
void outcome_json(const struct prepared *p, const struct box_outcome *o,
		  const struct outcome_show *show, struct buf *out);
/* The value of "image". */
void outcome_image(struct json *j, const struct image_use *u);
/* The names of the phases, in order, for --timing in text and in JSON: name of phase i and its
 * microseconds, UINT64_MAX when it was not reached. Returns NULL past the last. */
const char *outcome_phase(const struct box_outcome *o, unsigned i, uint64_t *ret_us);
