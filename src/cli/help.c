/* The verbs that talk about the program: help, version, completion, man. */
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/verbs.h"

#define TEXT_MAX (1U << 20)

int cli_put(int fd, const struct buf *out)
{
	struct err e;

	if (out->failed) {
		err_set(&e, ERR_SYS, "the text does not fit in memory");
		return cli_fail(NULL, &e);
	}
	if (out->data && fd_write_all(fd, out->data, out->len) < 0) {
		err_sys(&e, "can't write the output");
		return cli_fail(NULL, &e);
	}
	return 0;
}

int cli_show_help(const struct opt_verb *verb)
{
	_cleanup_buf_ struct buf out = { 0 };

	buf_init(&out, TEXT_MAX);
	opt_help(verb, &out);
	return cli_put(STDOUT_FILENO, &out);
}

int cli_banner(void)
{
	_cleanup_buf_ struct buf out = { 0 };

	buf_init(&out, TEXT_MAX);
	buf_str(&out, "Usage: cloche VERB [OPTIONS] [OPERANDS]\n\n");
	for (size_t i = 0; i < cli_n_verbs; i++)
		buf_fmt(&out, "  %-11s %s\n", cli_verbs[i]->name, cli_verbs[i]->summary);
	buf_str(&out, "\n`cloche help` has examples.\n");
	cli_put(STDERR_FILENO, &out);
	return 2;
}

/* More operands than the verb has: the first that is too many. */
static int refuse_operand(const struct opt_verb *verb, const char *operand)
{
	char shown[64];
	struct err e;

	err_set(&e, ERR_USAGE, "\"%s\" is one operand too many",
		str_printable(shown, sizeof(shown), operand));
	return cli_fail(verb->name, &e);
}

static int no_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	return 0;
}

enum help_option { HELP_JSON, HELP_MARKDOWN };

static int help_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	*(int *)ctx = row->id;
	return 0;
}

static int help_run(int argc, char **argv)
{
	_cleanup_buf_ struct buf out = { 0 };
	const struct opt_verb *verb = NULL;
	int form = -1, rest, rc = cli_parse(&cli_help_verb, argc, argv, help_option, &form, &rest);
	struct err e;

	buf_init(&out, TEXT_MAX);
	if (rc >= 0)
		return rc;
	if (argc - rest > 1)
		return refuse_operand(&cli_help_verb, argv[rest + 1]);
	if (rest < argc) {
		verb = cli_find(argv[rest]);
		if (!verb) {
			char shown[64];

			err_set(&e, ERR_USAGE, "there is no verb \"%s\"",
				str_printable(shown, sizeof(shown), argv[rest]));
			return cli_fail("help", &e);
		}
	}
	if (form == HELP_JSON)
		opt_json(verb ? &verb : cli_verbs, verb ? 1 : cli_n_verbs, &out);
	else if (form == HELP_MARKDOWN)
		opt_markdown(verb ? &verb : cli_verbs, verb ? 1 : cli_n_verbs, &out);
	else if (verb)
		opt_help(verb, &out);
	else
		opt_overview(cli_verbs, cli_n_verbs, &out);
	return cli_put(STDOUT_FILENO, &out);
}

static int version_run(int argc, char **argv)
{
	_cleanup_buf_ struct buf out = { 0 };
	int rest, rc = cli_parse(&cli_version_verb, argc, argv, no_option, NULL, &rest);

	buf_init(&out, TEXT_MAX);
	if (rc >= 0)
		return rc;
	if (rest < argc)
		return refuse_operand(&cli_version_verb, argv[rest]);
	buf_str(&out, "cloche " CLOCHE_VERSION "\n");
	return cli_put(STDOUT_FILENO, &out);
}

static int completion_run(int argc, char **argv)
{
	_cleanup_buf_ struct buf out = { 0 };
	int rest, rc = cli_parse(&cli_completion_verb, argc, argv, no_option, NULL, &rest);
	struct err e;

	buf_init(&out, TEXT_MAX);
	if (rc >= 0)
		return rc;
	if (argc - rest > 1)
		return refuse_operand(&cli_completion_verb, argv[rest + 1]);
	if (rest == argc) {
		err_set(&e, ERR_USAGE, "name a shell: %s", cli_completion_verb.operands);
		return cli_fail("completion", &e);
	}
	if (opt_completion(cli_verbs, cli_n_verbs, argv[rest], &out, &e) < 0)
		return cli_fail("completion", &e);
	return cli_put(STDOUT_FILENO, &out);
}

static int man_run(int argc, char **argv)
{
	_cleanup_buf_ struct buf out = { 0 };
	int rest, rc = cli_parse(&cli_man_verb, argc, argv, no_option, NULL, &rest);

	buf_init(&out, TEXT_MAX);
	if (rc >= 0)
		return rc;
	if (rest < argc)
		return refuse_operand(&cli_man_verb, argv[rest]);
	opt_man(cli_verbs, cli_n_verbs, &out);
	return cli_put(STDOUT_FILENO, &out);
}

static const struct opt_row help_rows[] = {
	{ .name = "json",
	  .type = OPT_FLAG,
	  .group = "Output",
	  .help = "print verbs, options and exit codes as one JSON object",
	  .conflicts = "markdown",
	  .since = "0.1.0",
	  .id = HELP_JSON },
	{ .name = "markdown",
	  .type = OPT_FLAG,
	  .group = "Output",
	  .help = "print the reference as Markdown (docs/CLI.md)",
	  .conflicts = "json",
	  .since = "0.1.0",
	  .id = HELP_MARKDOWN },
};

const struct opt_verb cli_help_verb = {
	.name = "help",
	.summary = "Explain the program or a verb",
	.operands = "[VERB]",
	.rows = help_rows,
	.n_rows = sizeof(help_rows) / sizeof(help_rows[0]),
	.examples = (const char *const[]){ "cloche help run", "cloche help --json", NULL },
	.run = help_run,
};

const struct opt_verb cli_version_verb = {
	.name = "version",
	.summary = "Print the version",
	.operands = "",
	.run = version_run,
};

const struct opt_verb cli_completion_verb = {
	.name = "completion",
	.summary = "Print a completion script for a shell",
	.operands = "bash|zsh|fish",
	.examples =
		(const char *const[]){
			"cloche completion bash > ~/.local/share/bash-completion/completions/cloche",
			"cloche completion fish > ~/.config/fish/completions/cloche.fish", NULL },
	.run = completion_run,
};

const struct opt_verb cli_man_verb = {
	.name = "man",
	.summary = "Print the manual page, cloche(1)",
	.operands = "",
	.examples = (const char *const[]){ "cloche man | man -l -", NULL },
	.run = man_run,
};
