#include <string.h>
#include <unistd.h>

#include "cli/program.h"
#include "cli/load.h"
#include "cli/verbs.h"

enum save_opt { SAVE_OUTPUT };

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	((struct save_options *)ctx)->file = value;
	return 0;
}

int save_parse(int argc, char **argv, struct save_options *ret)
{
	struct save_options o = { 0 };
	int rest, rc = cli_parse(&cli_save_verb, argc, argv, on_option, &o, &rest);
	struct err e;

	if (rc >= 0)
		return rc;
	if (rest + 1 != argc) {
		err_set(&e, ERR_USAGE, "takes one image, and %d are given", argc - rest);
		return cli_fail("save", &e);
	}
	if (o.file && !strcmp(o.file, "-"))
		o.file = NULL;
	if (!o.file && isatty(STDOUT_FILENO)) {
		err_set(&e, ERR_USAGE,
			"the archive would go to the terminal: give it a file with -o FILE");
		return cli_fail("save", &e);
	}
	o.image = argv[rest];
	*ret = o;
	return -1;
}

static int run(int argc, char **argv)
{
	struct save_options o;
	int rc = save_parse(argc, argv, &o);

	return rc >= 0 ? rc : program_become(PROGRAM_IMAGE, argv);
}

static const struct opt_row rows[] = {
	{ .name = "output",
	  .letter = 'o',
	  .type = OPT_PATH,
	  .value = "FILE",
	  .group = "Output",
	  .help = "write the archive to this file instead of standard output",
	  .since = "0.2.0",
	  .id = SAVE_OUTPUT },
};

static const char *const examples[] = {
	"cloche save -o python.tar python:3.12-slim",
	"cloche save debian:12 > debian.tar",
	NULL,
};

const struct opt_verb cli_save_verb = {
	.name = "save",
	.summary = "Write an image as an archive that podman, skopeo and docker load",
	.operands = "IMAGE",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.examples = examples,
	.run = run,
};
