/* The options of `cloche load`, `cloche save` and `cloche import`. As with pull, the verbs check
 * them and hand over to cloche-image, which parses them by the same tables. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "image/platform.h"
#include "image/ref.h"

struct load_options {
	const char *file;	      /* "-": standard input */
	struct img_platform platform; /* os "" when not given: this machine's */
	bool named;
	struct img_ref name; /* of import always; of load with --name */
	bool quiet, json;
};

/* Parse argv (argv[0] is the verb) into *ret, which points into argv. -1, or the exit code when
 * there is no more to do: the help or the complaint is printed. */
int load_parse(int argc, char **argv, struct load_options *ret);
int import_parse(int argc, char **argv, struct load_options *ret);

struct save_options {
	const char *image; /* a reference or an id */
	const char *file;  /* NULL: standard output */
};
int save_parse(int argc, char **argv, struct save_options *ret);
