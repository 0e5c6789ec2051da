/* The last words behind a box's output. */
#pragma once

/* "cloche: HEAD: TEXT" as one line on stderr, safe for a terminal. */
void cli_say(const char *head, const char *text);
