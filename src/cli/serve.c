/* `cloche serve`: sessions of the SDKs. cloche-serve holds them. */
#include "cli/serve.h"

#include <string.h>

#include "base/str.h"
#include "cli/program.h"
#include "cli/verbs.h"

enum { O_BOXES, O_QUEUE };

static const struct opt_row rows[] = {
	{ "boxes", 0, OPT_NUMBER, false, "N", "128", "Limits",
	  "boxes at once; further calls wait for one to end", NULL, "0.3", O_BOXES },
	{ "queue", 0, OPT_NUMBER, false, "N", "1024", "Limits",
	  "calls that may wait; further ones are refused", NULL, "0.3", O_QUEUE },
};

static const char *const examples[] = {
	"cloche serve",
	"cloche serve --boxes 8 --queue 32",
	NULL,
};

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	struct serve_words *o = ctx;
	uint64_t n;

	if (parse_u64(value, 1, row->id == O_BOXES ? 4096 : 65536, &n, e) < 0)
		return -1;
	*(row->id == O_BOXES ? &o->boxes : &o->queue) = (unsigned)n;
	return 0;
}

int serve_parse(int argc, char **argv, struct serve_words *ret)
{
	struct serve_words o = { 0 };
	int rest, rc = cli_parse(&cli_serve_verb, argc, argv, on_option, &o, &rest);
	struct err e;

	if (rc >= 0)
		return rc;
	if (rest < argc) {
		err_set(&e, ERR_USAGE,
			"takes no words: it is spoken with over standard input and output");
		return cli_fail("serve", &e);
	}
	*ret = o;
	return -1;
}

static int run(int argc, char **argv)
{
	struct serve_words o;
	int rc = serve_parse(argc, argv, &o);

	return rc >= 0 ? rc : program_become(PROGRAM_SERVE, argv);
}

const struct opt_verb cli_serve_verb = {
	.name = "serve",
	.summary = "Run boxes for one client, over standard input and output",
	.operands = "",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.examples = examples,
	.run = run,
};
