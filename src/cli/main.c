/* The program: finds the verb and hands over. Nothing here is touched twice on the way to a box, so
 * it does no more than compare a few names; help and generators live in files of their own, whose
 * pages a run never faults in. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/spawn.h"
#include "cli/verbs.h"

#define VERBS_MAX 64

const struct opt_verb *cli_find(const char *name)
{
	for (size_t i = 0; i < cli_n_verbs; i++)
		if (strcmp(cli_verbs[i]->name, name) == 0)
			return cli_verbs[i];
	return strcmp(name, cli_spawn_verb.name) == 0 ? &cli_spawn_verb : NULL;
}

int cli_fail(const char *verb, const struct err *e)
{
	char safe[sizeof(e->msg)], line[sizeof(e->msg) + 128];
	int n;

	str_printable(safe, sizeof(safe), e->msg);
	n = snprintf(line, sizeof(line), "cloche%s%s: %s", verb ? " " : "", verb ? verb : "", safe);
	if (n < 0)
		return 1;
	if ((size_t)n > sizeof(line) - 64)
		n = (int)sizeof(line) - 64;
	if (e->kind == ERR_USAGE)
		n += snprintf(line + n, sizeof(line) - (size_t)n, " (see \"cloche help%s%.32s\")",
			      verb ? " " : "", verb ? verb : "");
	line[n++] = '\n';
	fd_write_all(STDERR_FILENO, line, (size_t)n);
	return e->kind == ERR_USAGE ? 2 : 1;
}

int cli_parse(const struct opt_verb *verb, int argc, char **argv, opt_fn fn, void *ctx,
	      int *ret_rest)
{
	struct err e;
	int rc = opt_parse(verb, argc, argv, fn, ctx, ret_rest, &e);

	if (rc > 0)
		return cli_show_help(verb);
	return rc < 0 ? cli_fail(verb->name, &e) : -1;
}

static int unknown_verb(const char *name)
{
	const char *words[VERBS_MAX + 1], *near;
	char shown[64];
	struct err e;
	size_t n = 0;

	str_printable(shown, sizeof(shown), name);
	if (name[0] == '-') {
		err_set(&e, ERR_USAGE,
			"unknown option %s: options stand behind the verb, as in \"cloche run %s\"",
			shown, shown);
		return cli_fail(NULL, &e);
	}
	for (; n < cli_n_verbs && n < VERBS_MAX; n++)
		words[n] = cli_verbs[n]->name;
	words[n] = NULL;
	near = str_nearest(name, words);
	if (near)
		err_set(&e, ERR_USAGE, "unknown verb \"%s\": did you mean \"%s\"?", shown, near);
	else
		err_set(&e, ERR_USAGE,
			"unknown verb \"%s\": to run a command, write \"cloche run -- %s\"", shown,
			shown);
	return cli_fail(NULL, &e);
}

int cli_main(int argc, char **argv)
{
	static const struct {
		const char *option, *verb;
	} aliases[] = { { "-h", "help" }, { "--help", "help" }, { "--version", "version" } };
	const struct opt_verb *verb;

	if (argc < 2)
		return cli_banner();
	verb = cli_find(argv[1]);
	for (size_t i = 0; !verb && i < sizeof(aliases) / sizeof(aliases[0]); i++)
		if (strcmp(argv[1], aliases[i].option) == 0)
			verb = cli_find(aliases[i].verb);
	if (!verb)
		return unknown_verb(argv[1]);
	return verb->run(argc - 1, argv + 1);
}
