/* Options: the grammar and every refusal, and what is generated from a table, among it texts that try to break out of their markup. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "cli/opt.h"

enum { IMAGE, ROOTFS, VOLUME, ENV, MEMORY, TIMEOUT, PIDS, CPUS, PROC, STDIN, TTY, JSON, FILE_ };

static const struct opt_row rows[] = {
	{ .name = "image", .type = OPT_CHOICE, .value = "host", .dflt = "host", .group = "Box", .help = "Where the root comes from",
	  .conflicts = "rootfs", .since = "0.1.0", .id = IMAGE },
	{ .name = "rootfs", .type = OPT_DIR, .group = "Box", .help = "A directory as the root", .since = "0.1.0", .id = ROOTFS },
	{ .name = "volume", .letter = 'v', .type = OPT_STR, .many = true, .value = "SRC:DST[:ro|rw]", .group = "Files",
	  .help = "It's [shown]: `id` $(id) \"quoted\" \\n * _x_ <b> 100%", .since = "0.1.0", .id = VOLUME },
	{ .name = "env", .letter = 'e', .type = OPT_STR, .many = true, .value = "NAME=VALUE", .group = "Box", .help = "Set a variable",
	  .since = "0.1.0", .id = ENV },
	{ .name = "memory", .letter = 'm', .type = OPT_SIZE, .dflt = "512m", .group = "Limits",
	  .help = "Memory that all processes of the box together may use before the kernel ends one of them", .since = "0.1.0", .id = MEMORY },
	{ .name = "timeout", .type = OPT_DURATION, .group = "Limits", .help = "End after this long", .since = "0.1.0", .id = TIMEOUT },
	{ .name = "pids", .type = OPT_NUMBER, .group = "Limits", .help = "Processes", .since = "0.1.0", .id = PIDS },
	{ .name = "cpus", .type = OPT_CPUS, .group = "Limits", .help = "Processors", .since = "0.1.0", .id = CPUS },
	{ .name = "proc", .type = OPT_CHOICE, .value = "none|full", .group = "Locks", .help = "What /proc shows", .since = "0.1.0", .id = PROC },
	{ .name = "interactive", .letter = 'i', .type = OPT_FLAG, .group = "Box", .help = "Forward stdin", .since = "0.1.0", .id = STDIN },
	{ .name = "tty", .letter = 't', .type = OPT_FLAG, .group = "Box", .help = "A terminal", .conflicts = "json", .since = "0.1.0",
	  .id = TTY },
	{ .name = "json", .type = OPT_FLAG, .group = "Output", .help = "One object", .since = "0.1.0", .id = JSON },
	{ .name = "env-file", .type = OPT_PATH, .group = "Files", .help = "Variables from a file", .since = "0.1.0", .id = FILE_ },
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct opt_verb run = {
	.name = "run", .summary = "Run a command", .operands = "[--] COMMAND [ARG...]", .rows = rows, .n_rows = N_ROWS, .takes_command = true,
	.examples = (const char *const[]){ "cloche run -- echo 'a\\b'", ".dot -dash", NULL },
};
static const struct opt_verb help = {
	.name = "help", .summary = "Explain it's: a verb", .operands = "[VERB]", .rows = rows + JSON, .n_rows = 1,
};
static const struct opt_verb completion = { .name = "completion", .summary = "Print a script", .operands = "bash|zsh|fish" };
static const struct opt_verb config = { .name = "config", .summary = "Check a file", .operands = "check [FILE]" };
static const struct opt_verb load = { .name = "load", .summary = "Load a file", .operands = "FILE|- NAME" };
static const struct opt_verb *const verbs[] = { &run, &help, &completion, &config, &load };
#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

/* ---- the parser ---- */

/* Splits `line` at blanks (`''` is an empty argument), parses it, and writes what the callback saw and the operands as one text. */
struct result {
	int rc, rest, argc;
	char *argv[32];
	char line[512], seen[1024];
	struct err e;
};

static int note(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	struct result *r = ctx;
	size_t n = strlen(r->seen);

	if (value && strcmp(value, "refuse") == 0)
		return err_set(e, ERR_REFUSED, "not that");
	if (value && strcmp(value, "refuse-named") == 0)
		return err_set(e, ERR_REFUSED, "--other: not that");
	snprintf(r->seen + n, sizeof(r->seen) - n, "%s%s%s ", row->name, value ? "=" : "", value ? value : "");
	return 0;
}

static struct result *parse(const struct opt_verb *verb, const char *line)
{
	struct result *r = calloc(1, sizeof(*r));
	char *save = NULL;

	ck_assert_uint_lt(strlen(line), sizeof(r->line));
	strcpy(r->line, line);
	for (char *w = strtok_r(r->line, " ", &save); w; w = strtok_r(NULL, " ", &save))
		r->argv[r->argc++] = strcmp(w, "''") == 0 ? w + 2 : w;
	r->rest = -7;
	r->rc = opt_parse(verb, r->argc, r->argv, note, r, &r->rest, &r->e);
	if (r->rc == 0) {
		size_t n = strlen(r->seen);

		ck_assert_int_ge(r->rest, 1);
		ck_assert_int_le(r->rest, r->argc);
		n += (size_t)snprintf(r->seen + n, sizeof(r->seen) - n, "|");
		for (int i = r->rest; i < r->argc; i++)
			n += (size_t)snprintf(r->seen + n, sizeof(r->seen) - n, " %s", r->argv[i]);
	} else {
		ck_assert_int_eq(r->rest, -7);
	}
	return r;
}

static void accepts(const struct opt_verb *verb, const char *line, const char *seen)
{
	struct result *r = parse(verb, line);

	ck_assert_msg(r->rc == 0, "\"%s\": %d %s", line, r->rc, r->e.msg);
	ck_assert_msg(strcmp(r->seen, seen) == 0, "\"%s\" gave \"%s\"", line, r->seen);
	free(r);
}

/* One line, kind ERR_USAGE, with `part` in it. */
static void refuses(const struct opt_verb *verb, const char *line, const char *part)
{
	struct result *r = parse(verb, line);

	ck_assert_msg(r->rc == -1, "\"%s\" was taken: %s", line, r->seen);
	ck_assert_int_eq(r->e.kind, ERR_USAGE);
	ck_assert_msg(strstr(r->e.msg, part) != NULL, "\"%s\" said: %s", line, r->e.msg);
	ck_assert_ptr_null(strchr(r->e.msg, '\n'));
	free(r);
}

START_TEST(forms)
{
	accepts(&run, "run", "|");
	accepts(&run, "run --json", "json |");
	accepts(&run, "run --memory 1g", "memory=1g |");
	accepts(&run, "run --memory=1g", "memory=1g |");
	accepts(&run, "run -m 1g", "memory=1g |");
	accepts(&run, "run -it", "interactive tty |");
	accepts(&run, "run -ti", "tty interactive |");
	accepts(&run, "run -itv a:b", "interactive tty volume=a:b |");
	accepts(&run, "run -v a -v b --volume c --volume=d", "volume=a volume=b volume=c volume=d |");
	accepts(&run, "run --env=A=B=C -e D=E", "env=A=B=C env=D=E |");
	accepts(&run, "run --env=--x", "env=--x |");
	accepts(&run, "run --env-file -", "env-file=- |");
}
END_TEST

START_TEST(where_options_end)
{
	accepts(&run, "run ls --json -x", "| ls --json -x");
	accepts(&run, "run --json -- --memory 1", "json | --memory 1");
	accepts(&run, "run --json --", "json |");
	accepts(&run, "run -- --", "| --");
	accepts(&run, "run --json ls -- a", "json | ls -- a");
	accepts(&run, "run - --json", "| - --json");
	accepts(&run, "run -i '' --json", "interactive |  --json");
	/* Without a command, options may stand behind operands; the operands keep their order. */
	accepts(&help, "help run --json", "json | run");
	accepts(&help, "help --json run", "json | run");
	accepts(&help, "help a b --json c", "json | a b c");
	accepts(&help, "help a -- --json b", "| a --json b");
	accepts(&help, "help a --json -- b", "json | a b");
	accepts(&completion, "completion bash", "| bash");
}
END_TEST

START_TEST(help_is_known_everywhere)
{
	static const char *const lines[] = { "run --help", "run -h", "run -ih", "run --json --help --bogus", "run -h ls" };

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct result *r = parse(&run, lines[i]);

		ck_assert_msg(r->rc == 1, "%s", lines[i]);
		free(r);
	}
	accepts(&run, "run ls --help", "| ls --help");
	accepts(&run, "run -- --help", "| --help");
	refuses(&run, "run --help=x", "--help takes no value");
	refuses(&run, "run --memory --help", "--memory needs a value");
}
END_TEST

START_TEST(unknown_options)
{
	refuses(&run, "run --bogus", "unknown option --bogus");
	refuses(&run, "run --memroy 1", "unknown option --memroy: did you mean --memory?");
	refuses(&run, "run --memroy=1", "unknown option --memroy: did you mean --memory?");
	refuses(&run, "run --mem 1", "did you mean --memory?");
	refuses(&run, "run --jsn", "did you mean --json?");
	refuses(&run, "run --hlep", "did you mean --help?");
	refuses(&run, "run --JSON", "did you mean --json?");
	refuses(&run, "run -z", "unknown option -z");
	refuses(&run, "run -itz", "unknown option -z");
	refuses(&run, "run --=x", "unknown option --");
	refuses(&run, "run -json", "did you mean --json?");
	refuses(&run, "run -memory 1g", "unknown option -memory: did you mean --memory?");
	refuses(&run, "run -memory=1g", "unknown option -memory: did you mean --memory?");
	refuses(&run, "run -=x", "unknown option -=");
	refuses(&run, "run ---json", "unknown option ---json");
	refuses(&completion, "completion --x", "unknown option --x");
	{
		struct result *r = parse(&run, "run --wholly-different");

		ck_assert_ptr_null(strstr(r->e.msg, "did you mean"));
		free(r);
	}
}
END_TEST

START_TEST(values_missing_and_unwanted)
{
	refuses(&run, "run --memory", "--memory needs a value: --memory SIZE");
	refuses(&run, "run --memory=", "--memory needs a value");
	refuses(&run, "run --memory ''", "--memory needs a value");
	refuses(&run, "run -e", "-e needs a value: -e NAME=VALUE");
	refuses(&run, "run -ie", "-e needs a value");
	refuses(&run, "run -e ''", "-e needs a value");
	refuses(&run, "run --env=", "--env needs a value");
	refuses(&run, "run --env --json", "write --env=--json");
	refuses(&run, "run --env -- ls", "--env needs a value");
	refuses(&run, "run -v -i", "write --volume=-i");
	refuses(&run, "run --json=1", "--json takes no value");
	refuses(&run, "run --json=", "--json takes no value");
	refuses(&run, "run -i=1", "-i takes no value");
	refuses(&run, "run -eA=B", "-e takes its value as an argument of its own");
	refuses(&run, "run -ieA=B", "-e takes its value as an argument of its own");
	refuses(&run, "run -e=A", "-e takes its value as an argument of its own");
}
END_TEST

START_TEST(repeated_and_contradictory)
{
	refuses(&run, "run --json --json", "--json is given twice");
	refuses(&run, "run -m 1 --memory 2", "--memory is given twice");
	refuses(&run, "run --memory 1 -m 1", "-m is given twice");
	refuses(&run, "run -ii", "-i is given twice");
	refuses(&run, "run --image host --rootfs /", "--image and --rootfs contradict each other");
	/* Either of the two may name the other. */
	refuses(&run, "run --rootfs / --image host", "--rootfs and --image contradict each other");
	refuses(&run, "run -t --json", "--tty and --json contradict each other");
	refuses(&run, "run --json -it", "--json and --tty contradict each other");
	accepts(&run, "run --rootfs / -i --json", "rootfs=/ interactive json |");
}
END_TEST

START_TEST(values_by_type)
{
	accepts(&run, "run --memory 1.5g --timeout 0.5 --pids 7 --cpus 0.25 --proc full --image host",
		"memory=1.5g timeout=0.5 pids=7 cpus=0.25 proc=full image=host |");
	refuses(&run, "run --memory 12q", "--memory: \"12q\" is not a size");
	refuses(&run, "run -m 12q", "-m: \"12q\" is not a size");
	refuses(&run, "run --memory=-1", "--memory: \"-1\" is not a size");
	refuses(&run, "run --timeout 1d", "--timeout: \"1d\" is not a duration");
	refuses(&run, "run --pids 1k", "--pids: \"1k\" is not a whole number");
	refuses(&run, "run --cpus 0", "--cpus: \"0\" cpus are not within");
	refuses(&run, "run --proc nome", "did you mean \"none\"?");
	refuses(&run, "run --proc x", "\"x\" is none of none|full");
	refuses(&run, "run --proc none|full", "is none of none|full");
	refuses(&run, "run --proc ful", "did you mean \"full\"?");
	refuses(&run, "run --image docker", "only \"host\" is");
}
END_TEST

START_TEST(the_verb_can_refuse)
{
	struct result *r = parse(&run, "run -v refuse");

	ck_assert_int_eq(r->rc, -1);
	ck_assert_int_eq(r->e.kind, ERR_REFUSED);
	ck_assert_str_eq(r->e.msg, "-v: not that");
	free(r);
	r = parse(&run, "run -v refuse-named");
	ck_assert_str_eq(r->e.msg, "--other: not that");
	free(r);
}
END_TEST

START_TEST(hostile_arguments)
{
	char big[400];
	struct result *r;

	memset(big, 'A', sizeof(big));
	memcpy(big, "run --\x1b[31m", 11);
	big[sizeof(big) - 1] = '\0';
	r = parse(&run, big);
	ck_assert_int_eq(r->rc, -1);
	ck_assert_ptr_null(strchr(r->e.msg, 0x1b));
	ck_assert_uint_lt(strlen(r->e.msg), 200);
	free(r);
	refuses(&run, "run -\x1b", "unknown option -?");
	refuses(&run, "run -\xc3\xa9", "unknown option -?");
	memset(big, 'i', sizeof(big));
	memcpy(big, "run -", 5);
	big[sizeof(big) - 1] = '\0';
	refuses(&run, big, "-i is given twice");
}
END_TEST

/* ---- what is generated ---- */

static void contains(const struct buf *b, const char *part)
{
	ck_assert(!b->failed);
	ck_assert_msg(strstr(b->data, part) != NULL, "missing: %s\nin:\n%s", part, b->data);
}

static void lacks(const struct buf *b, const char *part)
{
	ck_assert(!b->failed);
	ck_assert_msg(strstr(b->data, part) == NULL, "unwanted: %s\nin:\n%s", part, b->data);
}

START_TEST(help_text)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 1 << 20);
	opt_help(&run, &b);
	contains(&b, "Usage: cloche run [OPTIONS] [--] COMMAND [ARG...]\n\nRun a command\n");
	contains(&b, "\nBox:\n      --image host        Where the root comes from (default: host)\n");
	contains(&b, "  -e, --env NAME=VALUE    Set a variable; may be repeated\n");
	contains(&b, "  -i, --interactive       Forward stdin\n");
	/* Too long for its column: the text begins on the next line. */
	contains(&b, "  -v, --volume SRC:DST[:ro|rw]\n                          It's [shown]");
	contains(&b, "\nExamples:\n  cloche run -- echo 'a\\b'\n");
	contains(&b, "-h, --help");
	contains(&b, "docs/CLI.md");
	/* Every option once, every group once, and nothing beyond 80 columns or with blanks at its end. */
	for (size_t i = 0; i < N_ROWS; i++) {
		char name[64];

		snprintf(name, sizeof(name), " --%s ", rows[i].name);
		contains(&b, name);
	}
	ck_assert_ptr_eq(strstr(b.data, "\nBox:\n"), strstr(b.data, "Box:\n") - 1);
	ck_assert_ptr_null(strstr(strstr(b.data, "\nBox:\n") + 1, "\nBox:\n"));
	for (const char *line = b.data; *line;) {
		size_t n = strcspn(line, "\n");

		ck_assert_msg(n <= 80, "%zu columns: %.*s", n, (int)n, line);
		ck_assert_msg(n == 0 || line[n - 1] != ' ', "blank at the end: %.*s", (int)n, line);
		line += n + (line[n] == '\n');
	}
}
END_TEST

START_TEST(overview_text)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 1 << 20);
	opt_overview(verbs, N_VERBS, &b);
	contains(&b, "  run         Run a command\n");
	contains(&b, "  completion  Print a script\n");
	contains(&b, "  cloche run -- echo");
}
END_TEST

START_TEST(man_page)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 1 << 20);
	opt_man(verbs, N_VERBS, &b);
	ck_assert_int_eq(strncmp(b.data, ".TH CLOCHE 1 ", 13), 0);
	contains(&b, "\\fB\\-v\\fR, \\fB\\-\\-volume\\fR \\fISRC:DST[:ro|rw]\\fR\n");
	contains(&b, "\\fB\\-\\-env\\-file\\fR \\fIFILE\\fR\n");
	contains(&b, "Not with \\fB\\-\\-rootfs\\fR.");
	contains(&b, "\\fB124\\fR timeout\n");
	/* Backslashes, quotes and dots of the tables are text. */
	contains(&b, "\"quoted\" \\en");
	contains(&b, "It\\(aqs");
	contains(&b, "\n\\&.dot \\-dash\n");
	contains(&b, "echo \\(aqa\\eb\\(aq\n");
	for (const char *l = b.data; l && *l; l = strchr(l, '\n') ? strchr(l, '\n') + 1 : NULL) {
		static const char *const known[] = { ".TH ", ".SH ", ".SS ", ".TP\n", ".PP\n", ".nf\n", ".fi\n" };
		bool ok = *l != '.' && *l != '\'';

		for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
			ok = ok || strncmp(l, known[i], 4) == 0;
		ck_assert_msg(ok, "line: %.40s", l);
	}
}
END_TEST

START_TEST(markdown)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 1 << 20);
	opt_markdown(verbs, N_VERBS, &b);
	contains(&b, "\n## cloche run\n");
	contains(&b, "| `-v`, `--volume SRC:DST[:ro\\|rw]` | It's \\[shown\\]: ");
	contains(&b, "\\* \\_x\\_ \\<b\\>");
	contains(&b, "| `--image host` | Where the root comes from; not with `--rootfs` | host | 0.1.0 |\n");
	contains(&b, "| 159 | `escape_blocked` |");
	/* In a table every row has the cells of its head. */
	for (const char *l = b.data; l && *l; l = strchr(l, '\n') ? strchr(l, '\n') + 1 : NULL) {
		int bars = 0;

		if (*l != '|')
			continue;
		for (const char *c = l; *c != '\n'; c++)
			bars += *c == '|' && (c == l || c[-1] != '\\');
		ck_assert_msg(bars == 5 || bars == 4, "%d bars: %.60s", bars, l);
	}
}
END_TEST

START_TEST(json_surface)
{
	_cleanup_buf_ struct buf b;

	buf_init(&b, 1 << 20);
	opt_json(verbs, N_VERBS, &b);
	contains(&b, "{\"program\":\"cloche\",\"verbs\":[{\"name\":\"run\",");
	contains(&b, "{\"name\":\"proc\",\"letter\":null,\"type\":\"choice\",\"value\":\"none|full\","
		     "\"choices\":[\"none\",\"full\"],\"many\":false,"
		     "\"default\":null,\"group\":\"Locks\",\"help\":\"What /proc shows\",\"conflicts\":[],\"since\":\"0.1.0\"}");
	contains(&b, "{\"name\":\"interactive\",\"letter\":\"i\",\"type\":\"flag\",\"value\":null,");
	contains(&b, "\"conflicts\":[\"rootfs\"]");
	contains(&b, "\"exit_codes\":[{\"code\":\"n\",\"fault\":null,");
	ck_assert_ptr_eq(strchr(b.data, '\n'), b.data + b.len - 1);
}
END_TEST

START_TEST(completion_bash)
{
	_cleanup_buf_ struct buf b;
	struct err e;

	buf_init(&b, 1 << 20);
	ck_assert_int_eq(opt_completion(verbs, N_VERBS, "bash", &b, &e), 0);
	contains(&b, "complete -F _cloche cloche\n");
	contains(&b, "'run --proc') _cloche_words 'none full' \"$3\" ;;\n");
	contains(&b, "'run --rootfs') _cloche_dirs \"$3\" ;;\n");
	contains(&b, "'run --env-file') _cloche_files \"$3\" ;;\n");
	contains(&b, "'run --volume' | 'run -v') return 0 ;;\n");
	lacks(&b, "'run --json') return 0");
	contains(&b, "_cloche_verbs='run help completion config load'\n");
	contains(&b, "'completion 1') _cloche_words 'bash zsh fish' \"$3\" ;;\n");
	contains(&b, "'help 1') _cloche_words \"$_cloche_verbs\" \"$3\" ;;\n");
	contains(&b, "'config 1') _cloche_words 'check' \"$3\" ;;\n");
	contains(&b, "'config 2') _cloche_files \"$3\" ;;\n");
	contains(&b, "'load 1') _cloche_files \"$3\" ;;\n");
	lacks(&b, "'load 2')");
	lacks(&b, "'run 1')");
	/* No help text in it, so none that a shell could run. */
	lacks(&b, "$(id)");
}
END_TEST

START_TEST(completion_zsh)
{
	_cleanup_buf_ struct buf b;
	struct err e;

	buf_init(&b, 1 << 20);
	ck_assert_int_eq(opt_completion(verbs, N_VERBS, "zsh", &b, &e), 0);
	ck_assert_int_eq(strncmp(b.data, "#compdef cloche\n", 16), 0);
	/* Inside single quotes, with the quote itself and the characters of a spec escaped. */
	contains(&b, "\t\t'*--volume=[It'\\''s \\[shown\\]\\: `id` $(id) \"quoted\" \\\\n * _x_ <b> 100%]:SRC\\:DST\\[\\:ro|rw\\]: ' \\\n");
	contains(&b, "'(--image --rootfs)--image=[Where the root comes from]:image:(host)' \\\n");
	contains(&b, "'(-t --tty --json)-t[A terminal]' \\\n");
	contains(&b, "--rootfs=[A directory as the root]:DIR:_files -/' \\\n");
	contains(&b, "'help:Explain it'\\''s\\: a verb'\n");
	contains(&b, "'1:completion:(bash zsh fish)' '*: : ' ;;\n");
	contains(&b, "'1:help:(run help completion config load)' '*: : ' ;;\n");
	contains(&b, "'1:config:(check)' '2:file:_files' '*: : ' ;;\n");
	contains(&b, "'1:file:_files' '*: : ' ;;\n");
}
END_TEST

START_TEST(completion_fish)
{
	_cleanup_buf_ struct buf b;
	struct err e;

	buf_init(&b, 1 << 20);
	ck_assert_int_eq(opt_completion(verbs, N_VERBS, "fish", &b, &e), 0);
	contains(&b, "-l proc -x -a 'none full' -d 'What /proc shows'\n");
	contains(&b, "-l volume -s v -x -d 'It\\'s [shown]: `id` $(id) \"quoted\" \\\\n * _x_ <b> 100%'\n");
	contains(&b, "-l rootfs -x -a '(__fish_complete_directories)' -d ");
	contains(&b, "-n '__cloche_verb run' -a '(__cloche_complete_command)'\n");
	contains(&b, "-n '__cloche_verb help' -a 'run help completion config load'\n");
	contains(&b, "-n '__cloche_verb completion; and not __fish_seen_subcommand_from bash zsh fish' -a 'bash zsh fish'\n");
	contains(&b, "-n '__cloche_verb config; and not __fish_seen_subcommand_from check' -a 'check'\n");
	contains(&b, "-n '__cloche_verb config; and __fish_seen_subcommand_from check' -F\n");
	contains(&b, "-n '__cloche_verb load' -F\n");
	contains(&b, "\t\t\tset valued --image --rootfs --volume -v --env -e ");
}
END_TEST

START_TEST(completion_of_no_shell)
{
	_cleanup_buf_ struct buf b;
	struct err e;

	buf_init(&b, 1 << 20);
	assert_refused(opt_completion(verbs, N_VERBS, "ksh", &b, &e), &e, ERR_USAGE);
	ck_assert_str_eq(e.msg, "no completion for \"ksh\": there is one for bash, zsh and fish");
	assert_refused(opt_completion(verbs, N_VERBS, "powershell\n", &b, &e), &e, ERR_USAGE);
	assert_refused(opt_completion(verbs, N_VERBS, "", &b, &e), &e, ERR_USAGE);
	ck_assert_uint_eq(b.len, 0);
}
END_TEST

static void generate(int which, struct buf *b)
{
	struct err e;

	if (which == 0)
		opt_help(&run, b);
	else if (which == 1)
		opt_overview(verbs, N_VERBS, b);
	else if (which == 2)
		opt_man(verbs, N_VERBS, b);
	else if (which == 3)
		opt_markdown(verbs, N_VERBS, b);
	else if (which == 4)
		opt_json(verbs, N_VERBS, b);
	else
		opt_completion(verbs, N_VERBS, ((const char *const[]){ "bash", "zsh", "fish" })[which - 5], b, &e);
}

/* A buffer that is too small is reported by the buffer, by every generator, at every size; the right size is enough. */
START_TEST(generators_stop_at_the_maximum)
{
	for (int which = 0; which < 8; which++) {
		_cleanup_buf_ struct buf whole;

		buf_init(&whole, 1 << 20);
		generate(which, &whole);
		ck_assert(!whole.failed && whole.len > 100);
		for (size_t max = 0; max <= whole.len; max = max + 17 < whole.len || max == whole.len ? max + 17 : whole.len) {
			_cleanup_buf_ struct buf b;

			buf_init(&b, max);
			generate(which, &b);
			ck_assert_msg(b.failed == (max < whole.len), "generator %d at %zu of %zu", which, max, whole.len);
			ck_assert_uint_le(b.len, max);
		}
	}
}
END_TEST

START_TEST(lists)
{
	const char *list = "a|bc||d", *w;
	size_t n;

	w = opt_next(&list, '|', &n);
	ck_assert(n == 1 && *w == 'a');
	w = opt_next(&list, '|', &n);
	ck_assert(n == 2 && strncmp(w, "bc", 2) == 0);
	ck_assert(opt_next(&list, '|', &n) && n == 0);
	ck_assert(opt_next(&list, '|', &n) && n == 1);
	ck_assert_ptr_null(opt_next(&list, '|', &n));
	list = NULL;
	ck_assert_ptr_null(opt_next(&list, '|', &n));
	ck_assert(opt_in_list("json,tty", ',', "tty"));
	ck_assert(!opt_in_list("json,tty", ',', "js"));
	ck_assert(!opt_in_list("json,tty", ',', "json,tty"));
	ck_assert(!opt_in_list(NULL, ',', "json"));
	ck_assert(!opt_in_list("", ',', ""));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, forms);
	tcase_add_test(tc, where_options_end);
	tcase_add_test(tc, help_is_known_everywhere);
	tcase_add_test(tc, unknown_options);
	tcase_add_test(tc, values_missing_and_unwanted);
	tcase_add_test(tc, repeated_and_contradictory);
	tcase_add_test(tc, values_by_type);
	tcase_add_test(tc, the_verb_can_refuse);
	tcase_add_test(tc, hostile_arguments);
	tcase_add_test(tc, help_text);
	tcase_add_test(tc, overview_text);
	tcase_add_test(tc, man_page);
	tcase_add_test(tc, markdown);
	tcase_add_test(tc, json_surface);
	tcase_add_test(tc, completion_bash);
	tcase_add_test(tc, completion_zsh);
	tcase_add_test(tc, completion_fish);
	tcase_add_test(tc, completion_of_no_shell);
	tcase_add_test(tc, generators_stop_at_the_maximum);
	tcase_add_test(tc, lists);
}

int main(void)
{
	return unit_main("opt", fill);
}
