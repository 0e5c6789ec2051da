#include "cli/pull.h"

#include <string.h>

#include "base/str.h"
#include "cli/program.h"
#include "cli/verbs.h"

enum pull_opt {
	PULL_PLATFORM,
	PULL_INSECURE,
	PULL_CA_FILE,
	PULL_MIRROR,
	PULL_TIMEOUT,
	PULL_QUIET,
	PULL_JSON,
};

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	struct pull_options *o = ctx;

	switch ((enum pull_opt)row->id) {
	case PULL_PLATFORM:
		return img_platform_parse(value, &o->platform, e);
	case PULL_INSECURE:
		o->insecure = true;
		return 0;
	case PULL_CA_FILE:
		o->ca_file = value;
		return 0;
	case PULL_MIRROR:
		if (o->n_mirrors == PULL_MIRRORS_MAX)
			return err_set(e, ERR_USAGE, "at most %d mirrors", PULL_MIRRORS_MAX);
		o->mirrors[o->n_mirrors++] = value;
		return 0;
	case PULL_TIMEOUT:
		return parse_duration(value, &o->timeout_us, e);
	case PULL_QUIET:
		o->quiet = true;
		return 0;
	case PULL_JSON:
		o->json = true;
		return 0;
	}
	return 0;
}

static int take_ref(int rest, int argc, char **argv, struct img_ref *ret, struct err *e)
{
	if (rest == argc)
		return err_set(e, ERR_USAGE, "which image? Write \"cloche pull IMAGE\"");
	if (rest + 1 < argc)
		return err_set(e, ERR_USAGE, "takes one image, and \"%.100s\" was given as well",
			       argv[rest + 1]);
	if (img_ref_parse(argv[rest], ret, e) < 0)
		return -1;
	if (ret->kind != IMG_REF_REGISTRY)
		return err_set(e, ERR_USAGE, "%s: %s", argv[rest],
			       ret->kind == IMG_REF_HOST
				       ? "this is the machine's own /usr, there is nothing to pull"
				       : "images of that name are made here, by \"cloche setup\"");
	return 0;
}

int pull_parse(int argc, char **argv, struct pull_options *ret)
{
	struct pull_options o = { .timeout_us = PULL_TIMEOUT_US };
	int rest, rc = cli_parse(&cli_pull_verb, argc, argv, on_option, &o, &rest);
	struct err e;

	if (rc >= 0)
		return rc;
	if (take_ref(rest, argc, argv, &o.ref, &e) < 0)
		return cli_fail("pull", &e);
	*ret = o;
	return -1;
}

static int run(int argc, char **argv)
{
	struct pull_options o;
	int rc = pull_parse(argc, argv, &o);

	return rc >= 0 ? rc : program_become(PROGRAM_IMAGE, argv);
}

static const struct opt_row rows[] = {
	{ .name = "platform",
	  .type = OPT_STR,
	  .value = "OS/ARCH[/VARIANT]",
	  .group = "Image",
	  .help = "take the image of this platform instead of this machine's",
	  .since = "0.2.0",
	  .id = PULL_PLATFORM },
	{ .name = "insecure",
	  .type = OPT_FLAG,
	  .group = "Registry",
	  .help = "take plain HTTP, and any certificate, from a registry on this machine (localhost or a loopback address)",
	  .since = "0.2.0",
	  .id = PULL_INSECURE },
	{ .name = "ca-file",
	  .type = OPT_PATH,
	  .group = "Registry",
	  .help = "trust the certificate authorities in this PEM file besides the system's",
	  .since = "0.2.0",
	  .id = PULL_CA_FILE },
	{ .name = "mirror",
	  .type = OPT_STR,
	  .many = true,
	  .value = "[REGISTRY=]HOST[:PORT][/PATH]",
	  .group = "Registry",
	  .help = "ask this mirror first; without REGISTRY it is one of docker.io",
	  .since = "0.2.0",
	  .id = PULL_MIRROR },
	{ .name = "timeout",
	  .type = OPT_DURATION,
	  .dflt = "600s",
	  .group = "Registry",
	  .help = "give up after this time; what was downloaded is kept, and the next pull goes on from there. 0: never",
	  .since = "0.2.0",
	  .id = PULL_TIMEOUT },
	{ .name = "quiet",
	  .letter = 'q',
	  .type = OPT_FLAG,
	  .group = "Output",
	  .help = "no progress; print the image's id only",
	  .conflicts = "json",
	  .since = "0.2.0",
	  .id = PULL_QUIET },
	{ .name = "json",
	  .type = OPT_FLAG,
	  .group = "Output",
	  .help = "print progress and result as JSON, one object a line",
	  .conflicts = "quiet",
	  .since = "0.2.0",
	  .id = PULL_JSON },
};

static const char *const examples[] = {
	"cloche pull python:3.12-slim",
	"cloche pull --ca-file /etc/ssl/ours.pem registry.example.com/team/app:1.4",
	"cloche pull --mirror mirror.example.com debian:12",
	NULL,
};

const struct opt_verb cli_pull_verb = {
	.name = "pull",
	.summary = "Download an image into the store",
	.operands = "IMAGE",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.examples = examples,
	.run = run,
};
