/* What an outcome has to say in words: the same for every front door. */
#pragma once

#include <stdbool.h>

#include "box/outcome.h"
#include "engine/request.h"

void outcome_note(struct prepared *p, const char *text);
/* `captured`: somebody has the streams, and must know when they are not whole. */
void outcome_notes(struct prepared *p, const struct box_outcome *out, bool captured);
