/* The verbs of the program, and what every verb's front door shares: parsing with help and usage
 * errors, and one line of complaint.
 *
 * A verb is a `const struct opt_verb` in its own file, listed in verbs.c. Its run() starts like
 * this:
 *
 *	int rc = cli_parse(&cli_gc_verb, argc, argv, on_option, &ctx, &rest);
 *	if (rc >= 0)
 *		return rc; // help was printed, or a usage error
 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "cli/opt.h"

extern const struct opt_verb *const cli_verbs[];
extern const size_t cli_n_verbs;

extern const struct opt_verb cli_run_verb, cli_doctor_verb, cli_gc_verb;
extern const struct opt_verb cli_pull_verb, cli_setup_verb, cli_config_verb;
extern const struct opt_verb cli_images_verb, cli_inspect_verb, cli_rm_verb, cli_prune_verb;
extern const struct opt_verb cli_load_verb, cli_import_verb, cli_save_verb;
extern const struct opt_verb cli_serve_verb;
extern const struct opt_verb cli_help_verb, cli_version_verb, cli_completion_verb, cli_man_verb;

/* The program: argv[1] names the verb. Returns the exit code. */
int cli_main(int argc, char **argv);

/* opt_parse for a verb's run(): prints the help when asked for it, and the complaint when there is
 * one. Returns -1 when the verb should go on, else the exit code to return. */
int cli_parse(const struct opt_verb *verb, int argc, char **argv, opt_fn fn, void *ctx,
	      int *ret_rest);

/* Prints "cloche VERB: MESSAGE" as one line on stderr, safe for a terminal; usage errors get a
 * pointer to the verb's help. Returns the exit code: 2 for ERR_USAGE, else 1. `verb` may be NULL.
 */
int cli_fail(const char *verb, const struct err *e);

/* Prints the list of verbs on stderr; returns 2. */
int cli_banner(void);

/* Prints the verb's help on stdout. Returns the exit code. */
int cli_show_help(const struct opt_verb *verb);

struct buf;
/* Writes the whole buffer to fd; complains when it failed to fill or to be written. Returns the
 * exit code. */
int cli_put(int fd, const struct buf *out);

/* The verb of that name, or NULL. */
const struct opt_verb *cli_find(const char *name);
