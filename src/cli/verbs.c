/* The table of verbs, in the order of the help. */
#include "cli/verbs.h"

const struct opt_verb *const cli_verbs[] = {
	&cli_run_verb,	      &cli_setup_verb,	&cli_pull_verb,	  &cli_load_verb,
	&cli_save_verb,	      &cli_import_verb, &cli_images_verb, &cli_inspect_verb,
	&cli_rm_verb,	      &cli_prune_verb,	&cli_config_verb, &cli_doctor_verb,
	&cli_gc_verb,	      &cli_serve_verb,	&cli_help_verb,	  &cli_version_verb,
	&cli_completion_verb, &cli_man_verb,
};
const size_t cli_n_verbs = sizeof(cli_verbs) / sizeof(cli_verbs[0]);
