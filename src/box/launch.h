/* One box, from spec to outcome: builds the plan, clones init, sets the limits while init builds,
 * watches, judges.
 *
 * Single-threaded but for the listener (notify.h). Blocks until the box is gone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "box/outcome.h"
#include "box/owner.h"
#include "box/plan.h"
#include "box/spec.h"

struct box_io {
	int in, out, err;	 /* the caller's, borrowed; in is -1 unless spec->interactive */
	bool capture;		 /* keep stdout and stderr in the outcome instead of writing them */
	struct box_owner *owner; /* built ahead, for who claims it; NULL: the spec has it all */
	struct winsize size;	 /* of the terminal of a claimed box */
	char *title;		 /* see init_args */
	size_t title_len;
};

#define BOX_RUNS_MAX 2 /* in one process: the second when the first was never claimed */

/* 0 whenever there is an outcome, also for a box that never ran (its fault says why); -1 with *e
 * only when cloche itself could not go on. The outcome is the caller's: outcome_free. */
int box_run(const struct box_spec *spec, const struct box_io *io, struct box_outcome *ret,
	    struct err *e);
