/* Refused calls for people: a few lines of notes behind the command's output. */
#pragma once

#include "box/outcome.h"

#define DENIED_LINES_MAX 6

/* One line for each call that was refused, with the options that would allow it, at most
 * DENIED_LINES_MAX and one that says how many more there are. Not for the call that ended the box,
 * which the fault tells; nor for mounts and files, of which the fault and the notes tell. */
void denied_text(const struct box_spec *s, const struct box_outcome *o,
		 void (*say)(const char *head, const char *text));
