/* Denials for people: a few lines of notes behind the command's output. */
#pragma once

#include "box/outcome.h"
#include "engine/request.h"

#define DENIED_LINES_MAX 6

/* One line for each action that was refused, with the options that would allow it, at most
 * DENIED_LINES_MAX and one that says how many more there are. What the fault or a note tells
 * already is left out. */
void denied_text(const struct prepared *p, const struct box_outcome *o,
		 void (*say)(const char *head, const char *text));
