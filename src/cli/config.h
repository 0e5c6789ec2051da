/* The options of `cloche config`. The verb only checks them and hands over to cloche-serve, which
 * parses them by the same table. */
#pragma once

#include <stdbool.h>

struct config_options {
	const char *file; /* NULL: the usual one */
	bool json;
};

/* Parses argv (argv[0] is the verb) into *ret, which points into argv. -1, or the exit code when
 * there is no more to do: the help or the complaint is printed. */
int config_parse(int argc, char **argv, struct config_options *ret);
