/* An outcome on its way to the client: what a keeper sent, checked, and taken apart into the frames
 * of docs/PROTOCOL.md ("Events of a call"). */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "box/outcome.h"
#include "session/out.h"

#define RESULT_OUTCOME_MAX (8u << 20)
#define RESULT_CHANGES_MAX (512u << 20)

struct result {
	json_t *outcome, *denied, *notes; /* the last two taken out of the first */
	struct box_stream out, err;
	char *changes; /* a mapping: {"files": [...], "cut": N}, read as it is sent */
	size_t changes_n, changes_at;
	uint64_t files_cut;
	/* how far it was sent */
	int phase;
	size_t at;
};

/* Takes the outcome's text (not the mapping). -1: it is none. */
int result_read(struct result *r, const char *text, size_t n, struct err *e);
/* Takes a mapping over. */
void result_changes(struct result *r, char *changes, size_t n);
/* An outcome of ours where no box has one: a fault of this type. `stage` may be NULL. */
void result_fault(struct result *r, enum box_fault fault, const char *stage, const char *message);
/* Sends frames for `id` as long as there is room. True when it has sent the last one. */
bool result_send(struct result *r, struct out *o, uint64_t id);
void result_free(struct result *r);
