/* Where the kernel keeps this process's command line: the box's init, a copy of this process, wipes
 * it. Set by main. */
#pragma once

#include <stddef.h>

struct cli_title {
	char **argv; /* the whole, as main got it */
	char *start;
	size_t len;
};
extern struct cli_title cli_title;
