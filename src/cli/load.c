#include "cli/load.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/program.h"
#include "cli/verbs.h"

enum load_opt { LOAD_NAME, LOAD_PLATFORM, LOAD_QUIET, LOAD_JSON };

/* A bare name is not one of docker.io's: it is given here. */
static int take_name(const char *text, struct load_options *o, struct err *e)
{
	char local[IMG_REF_CAP];
	bool bare = !strchr(text, '/') && strcmp(text, "host") != 0;

	if (snprintf(local, sizeof(local), "%s%s", bare ? "local/" : "", text) >=
	    (int)sizeof(local))
		return err_set(e, ERR_USAGE, "the name is too long");
	if (img_ref_parse(local, &o->name, e) < 0)
		return -1;
	if (o->name.kind == IMG_REF_HOST)
		return err_set(e, ERR_USAGE, "host is the machine's own /usr: choose another name");
	if (*o->name.digest)
		return err_set(e, ERR_USAGE, "a name that is given has no digest");
	o->named = true;
	return 0;
}

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	struct load_options *o = ctx;

	switch ((enum load_opt)row->id) {
	case LOAD_NAME:
		return take_name(value, o, e);
	case LOAD_PLATFORM:
		return img_platform_parse(value, &o->platform, e);
	case LOAD_QUIET:
		o->quiet = true;
		return 0;
	case LOAD_JSON:
		o->json = true;
		return 0;
	}
	return 0;
}

/* Somebody who names no file and types at a terminal has forgotten it. */
static int take_file(const char *text, struct load_options *o, struct err *e)
{
	if (!strcmp(text, "-") && isatty(STDIN_FILENO))
		return err_set(e, ERR_USAGE, "- is standard input, and that is a terminal");
	o->file = text;
	return 0;
}

int load_parse(int argc, char **argv, struct load_options *ret)
{
	struct load_options o = { 0 };
	int rest, rc = cli_parse(&cli_load_verb, argc, argv, on_option, &o, &rest);
	struct err e;

	if (rc >= 0)
		return rc;
	if (rest + 1 != argc) {
		err_set(&e, ERR_USAGE, "takes one archive (- for standard input), and %d are given",
			argc - rest);
		return cli_fail("load", &e);
	}
	if (take_file(argv[rest], &o, &e) < 0)
		return cli_fail("load", &e);
	*ret = o;
	return -1;
}

int import_parse(int argc, char **argv, struct load_options *ret)
{
	struct load_options o = { 0 };
	int rest, rc = cli_parse(&cli_import_verb, argc, argv, on_option, &o, &rest);
	struct err e;

	if (rc >= 0)
		return rc;
	if (rest + 2 != argc) {
		err_set(&e, ERR_USAGE,
			"takes an archive (- for standard input) and the name of the image, and %d words are given",
			argc - rest);
		return cli_fail("import", &e);
	}
	if (take_file(argv[rest], &o, &e) < 0 || take_name(argv[rest + 1], &o, &e) < 0)
		return cli_fail("import", &e);
	*ret = o;
	return -1;
}

static int run_load(int argc, char **argv)
{
	struct load_options o;
	int rc = load_parse(argc, argv, &o);

	return rc >= 0 ? rc : program_become(PROGRAM_IMAGE, argv);
}

static int run_import(int argc, char **argv)
{
	struct load_options o;
	int rc = import_parse(argc, argv, &o);

	return rc >= 0 ? rc : program_become(PROGRAM_IMAGE, argv);
}

#define PLATFORM(what)                                                                             \
	{                                                                                          \
		.name = "platform", .type = OPT_STR, .value = "OS/ARCH[/VARIANT]",                 \
		.group = "Image", .help = what " instead of this machine's", .since = "0.2.0",     \
		.id = LOAD_PLATFORM                                                                \
	}
#define QUIET                                                                                      \
	{                                                                                          \
		.name = "quiet", .letter = 'q', .type = OPT_FLAG, .group = "Output",               \
		.help = "no progress; print the image's id only", .conflicts = "json",             \
		.since = "0.2.0", .id = LOAD_QUIET                                                 \
	}
#define JSON                                                                                       \
	{                                                                                          \
		.name = "json", .type = OPT_FLAG, .group = "Output",                               \
		.help = "print progress and result as JSON, one object a line",                    \
		.conflicts = "quiet", .since = "0.2.0", .id = LOAD_JSON                            \
	}

static const struct opt_row load_rows[] = {
	{ .name = "name",
	  .type = OPT_STR,
	  .value = "NAME",
	  .group = "Image",
	  .help = "call the archive's image this, instead of what the archive calls it; a bare name is local/NAME",
	  .since = "0.2.0",
	  .id = LOAD_NAME },
	PLATFORM("take the image of this platform"),
	QUIET,
	JSON,
};
static const struct opt_row import_rows[] = {
	PLATFORM("the programs in it are of this platform"),
	QUIET,
	JSON,
};

static const char *const load_examples[] = {
	"cloche load app.tar",
	"cloche load --name app app.tar",
	NULL,
};
static const char *const import_examples[] = { "cloche import rootfs.tar.gz rootfs", NULL };

const struct opt_verb cli_load_verb = {
	.name = "load",
	.summary = "Take images out of an archive into the store",
	.operands = "FILE|-",
	.rows = load_rows,
	.n_rows = sizeof(load_rows) / sizeof(load_rows[0]),
	.examples = load_examples,
	.run = run_load,
};

const struct opt_verb cli_import_verb = {
	.name = "import",
	.summary = "Make an image of the tar of a root file system",
	.operands = "FILE|- NAME",
	.rows = import_rows,
	.n_rows = sizeof(import_rows) / sizeof(import_rows[0]),
	.examples = import_examples,
	.run = run_import,
};
