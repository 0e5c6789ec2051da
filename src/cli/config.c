/* `cloche config check`: whether cloche.yaml says what it is meant to say. The static program has
 * no reader of YAML: cloche-serve reads it. */
#include "cli/config.h"

#include <string.h>

#include "cli/program.h"
#include "cli/verbs.h"

enum { O_JSON };

static const struct opt_row rows[] = {
	{ "json", 0, OPT_FLAG, false, NULL, NULL, "Output",
	  "print one JSON object: whether it is right, or what is wrong where", NULL, "0.3",
	  O_JSON },
};

static const char *const examples[] = {
	"cloche config check",
	"cloche config check ./cloche.yaml --json",
	NULL,
};

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	((struct config_options *)ctx)->json = true;
	return 0;
}

int config_parse(int argc, char **argv, struct config_options *ret)
{
	struct config_options o = { 0 };
	struct err e;
	int rest, rc;

	rc = cli_parse(&cli_config_verb, argc, argv, on_option, &o, &rest);
	if (rc >= 0)
		return rc;
	if (rest >= argc || strcmp(argv[rest], "check") != 0 || argc - rest > 2) {
		err_set(&e, ERR_USAGE, "write: cloche config check [FILE]");
		return cli_fail("config", &e);
	}
	o.file = rest + 1 < argc ? argv[rest + 1] : NULL;
	*ret = o;
	return -1;
}

static int run_config(int argc, char **argv)
{
	struct config_options o;
	int rc = config_parse(argc, argv, &o);

	return rc >= 0 ? rc : program_become(PROGRAM_SERVE, argv);
}

const struct opt_verb cli_config_verb = {
	.name = "config",
	.summary = "Check the configuration of sandboxes, cloche.yaml",
	.operands = "check [FILE]",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.examples = examples,
	.run = run_config,
};
