/* The real tables: every verb's rows are whole, don't collide, refer only to what exists, and every example is one that the parser takes. */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/verbs.h"

static const struct opt_row *row_of(const struct opt_verb *verb, const char *name, size_t n)
{
	for (size_t i = 0; i < verb->n_rows; i++)
		if (strlen(verb->rows[i].name) == n && memcmp(verb->rows[i].name, name, n) == 0)
			return &verb->rows[i];
	return NULL;
}

/* Every verb, and every row of it. */
#define EACH_VERB(v) for (size_t v##_i = 0; v##_i < cli_n_verbs; v##_i++) for (const struct opt_verb *v = cli_verbs[v##_i]; v; v = NULL)
#define EACH_ROW(v, r) for (const struct opt_row *r = (v)->rows; r && r < (v)->rows + (v)->n_rows; r++)

START_TEST(verbs_are_whole)
{
	EACH_VERB(v) {
		ck_assert_ptr_eq(cli_find(v->name), v);
		ck_assert(v->summary && *v->summary && v->operands && v->run);
		ck_assert_msg(v->summary[strlen(v->summary) - 1] != '.' && v->summary[0] >= 'A' && v->summary[0] <= 'Z', "%s: summary", v->name);
		ck_assert_msg(strlen(v->summary) <= 66, "%s: the banner has 80 columns", v->name);
		ck_assert_uint_le(v->n_rows, 128);
		ck_assert_uint_eq(strspn(v->name, "abcdefghijklmnopqrstuvwxyz-"), strlen(v->name));
	}
	ck_assert_ptr_eq(cli_find("run"), &cli_run_verb);
	ck_assert_ptr_null(cli_find("ru"));
	ck_assert_ptr_null(cli_find(""));
}
END_TEST

START_TEST(rows_are_whole)
{
	EACH_VERB(v) EACH_ROW(v, r) {
		ck_assert_msg(r->help && *r->help && r->help[strlen(r->help) - 1] != '.', "%s --%s: help", v->name, r->name);
		ck_assert_msg(r->help[0] < 'A' || r->help[0] > 'Z' || r->help[1] < 'a', "%s --%s: help begins in lower case", v->name, r->name);
		ck_assert_msg(r->group && *r->group && r->since && *r->since, "%s --%s: group, since", v->name, r->name);
		ck_assert_msg(r->type >= 0 && r->type < OPT_TYPE_N, "%s --%s: type", v->name, r->name);
		ck_assert_msg(strspn(r->name, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(r->name), "%s --%s", v->name, r->name);
		ck_assert_msg(strcmp(r->name, "help") != 0 && r->letter != 'h', "%s --%s: help is every verb's", v->name, r->name);
		ck_assert_msg(r->type != OPT_CHOICE || (r->value && *r->value), "%s --%s: choices", v->name, r->name);
		ck_assert_msg(r->type != OPT_FLAG || (!r->value && !r->dflt), "%s --%s: a flag has no value", v->name, r->name);
		/* The scripts for shells write names and choices as they are. */
		ck_assert_msg(r->type != OPT_CHOICE || !strpbrk(r->value, "'\\\" $`()"), "%s --%s: choices", v->name, r->name);
		EACH_ROW(v, other) {
			ck_assert_msg(other == r || strcmp(other->name, r->name) != 0, "%s --%s twice", v->name, r->name);
			ck_assert_msg(other == r || !r->letter || other->letter != r->letter, "%s -%c twice", v->name, r->letter);
		}
	}
}
END_TEST

START_TEST(conflicts_exist)
{
	EACH_VERB(v) EACH_ROW(v, r) {
		const char *list = r->conflicts, *w;
		size_t n;

		while ((w = opt_next(&list, ',', &n)))
			ck_assert_msg(row_of(v, w, n) && row_of(v, w, n) != r, "%s --%s conflicts with %.*s", v->name, r->name, (int)n, w);
	}
}
END_TEST

static int take(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	return 0;
}

/* A shown default that begins like a value of its type must be one: "512m", not "half a gigabyte". */
START_TEST(defaults_parse)
{
	EACH_VERB(v) EACH_ROW(v, r) {
		char name[64], value[64], verb_name[64];
		char *argv[] = { verb_name, name, value, NULL };
		struct err e;
		int rest;

		if (!r->dflt || r->type == OPT_STR || r->type == OPT_PATH || r->type == OPT_DIR || strpbrk(r->dflt, " "))
			continue;
		snprintf(verb_name, sizeof(verb_name), "%s", v->name);
		snprintf(name, sizeof(name), "--%s", r->name);
		snprintf(value, sizeof(value), "%s", r->dflt);
		if (strcmp(value, "none") == 0 && r->type != OPT_CHOICE)
			continue;
		ck_assert_msg(opt_parse(v, 3, argv, take, NULL, &rest, &e) == 0, "%s --%s: default %s: %s", v->name, r->name, r->dflt, e.msg);
	}
}
END_TEST

/* "cloche run --json -- echo hi | jq .": the words up to a shell operator; quotes hold blanks together. */
START_TEST(examples_parse)
{
	EACH_VERB(v) for (const char *const *ex = v->examples; ex && *ex; ex++) {
		char copy[512], *argv[64];
		int argc = 0, rest;
		bool in_word = false;
		char quote = 0;
		struct err e = { 0 };

		ck_assert_msg(strlen(*ex) <= 78 || strlen(*ex) < sizeof(copy), "%s", *ex);
		snprintf(copy, sizeof(copy), "%s", *ex);
		for (char *c = copy; *c && argc < 63; c++) {
			if (!quote && (*c == '|' || *c == '>' || *c == '<' || *c == '&'))
				break;
			if (quote ? *c == quote : *c == '\'' || *c == '"')
				quote = quote ? 0 : *c;
			if (!quote && *c == ' ') {
				*c = '\0';
				in_word = false;
			} else if (!in_word) {
				argv[argc++] = c;
				in_word = true;
			}
		}
		argv[argc] = NULL;
		ck_assert_msg(argc >= 2 && strcmp(argv[0], "cloche") == 0, "%s", *ex);
		ck_assert_msg(strcmp(argv[1], v->name) == 0, "%s stands at %s", *ex, v->name);
		ck_assert_msg(opt_parse(v, argc - 1, argv + 1, take, NULL, &rest, &e) == 0, "%s: %s", *ex, e.msg);
		ck_assert_msg(!v->takes_command || rest < argc - 1, "%s: no command", *ex);
	}
}
END_TEST

START_TEST(everything_is_generated)
{
	static const char *const shells[] = { "bash", "zsh", "fish" };
	_cleanup_buf_ struct buf b;
	struct err e;

	buf_init(&b, 1 << 20);
	opt_man(cli_verbs, cli_n_verbs, &b);
	opt_markdown(cli_verbs, cli_n_verbs, &b);
	opt_json(cli_verbs, cli_n_verbs, &b);
	opt_overview(cli_verbs, cli_n_verbs, &b);
	for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++)
		ck_assert_int_eq(opt_completion(cli_verbs, cli_n_verbs, shells[i], &b, &e), 0);
	ck_assert(!b.failed);
	/* The program's text is ASCII, so that columns are bytes. */
	for (size_t i = 0; i < b.len; i++)
		ck_assert_msg((unsigned char)b.data[i] < 0x7f, "at %.40s", b.data + i);
}
END_TEST

START_TEST(help_fits_the_terminal)
{
	EACH_VERB(v) {
		_cleanup_buf_ struct buf b;

		buf_init(&b, 1 << 20);
		opt_help(v, &b);
		ck_assert(!b.failed);
		for (const char *line = b.data; *line;) {
			size_t n = strcspn(line, "\n");

			ck_assert_msg(n <= 80, "%s: %zu columns: %.*s", v->name, n, (int)n, line);
			line += n + (line[n] == '\n');
		}
	}
}
END_TEST

/* ---- the program itself, its output caught in files ---- */

struct said {
	int rc;
	char out[65536], err[4096];
};

static void catch_file(int fd, char *text, size_t cap)
{
	ssize_t n;

	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	n = fd_read_full(fd, text, cap - 1);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
}

/* Runs in the test's own process; Check forks each test. */
static void program(struct said *s, int argc, char **argv)
{
	char out_name[] = "/tmp/unit-verbs-XXXXXX", err_name[] = "/tmp/unit-verbs-XXXXXX";
	int out = mkstemp(out_name), err = mkstemp(err_name), keep_out = dup(1), keep_err = dup(2);

	ck_assert(out >= 0 && err >= 0 && keep_out >= 0 && keep_err >= 0);
	unlink(out_name);
	unlink(err_name);
	dup2(out, 1);
	dup2(err, 2);
	s->rc = cli_main(argc, argv);
	dup2(keep_out, 1);
	dup2(keep_err, 2);
	close(keep_out);
	close(keep_err);
	catch_file(out, s->out, sizeof(s->out));
	catch_file(err, s->err, sizeof(s->err));
	close(out);
	close(err);
}

#define CALL(s, ...)                                                                       \
	do {                                                                               \
		char *argv_[] = { (char[]){ "cloche" }, __VA_ARGS__ __VA_OPT__(, ) NULL }; \
		program((s), (int)(sizeof(argv_) / sizeof(argv_[0])) - 1, argv_);          \
	} while (0)
#define W(text) ((char[]){ text })

static void one_line(const char *s)
{
	ck_assert_msg(strchr(s, '\n') == s + strlen(s) - 1, "not one line: %s", s);
}

START_TEST(program_help_and_version)
{
	static struct said s;

	CALL(&s, W("--version"));
	ck_assert_int_eq(s.rc, 0);
	ck_assert_str_eq(s.out, "cloche " CLOCHE_VERSION "\n");
	CALL(&s, W("version"));
	ck_assert_str_eq(s.out, "cloche " CLOCHE_VERSION "\n");
	CALL(&s, W("--help"));
	ck_assert_int_eq(s.rc, 0);
	ck_assert_ptr_nonnull(strstr(s.out, "Usage: cloche VERB"));
	ck_assert_str_eq(s.err, "");
	CALL(&s, W("-h"));
	ck_assert_int_eq(s.rc, 0);
	EACH_VERB(v) {
		char name[32];
		static struct said other;

		snprintf(name, sizeof(name), "%s", v->name);
		CALL(&s, name, W("--help"));
		ck_assert_msg(s.rc == 0 && *s.out && !*s.err, "%s --help: %d %s", name, s.rc, s.err);
		CALL(&other, W("help"), name);
		ck_assert_int_eq(other.rc, 0);
		ck_assert_str_eq(s.out, other.out);
	}
}
END_TEST

START_TEST(program_usage_errors)
{
	static struct said s;

	CALL(&s);
	ck_assert_int_eq(s.rc, 2);
	ck_assert_str_eq(s.out, "");
	ck_assert_ptr_nonnull(strstr(s.err, "\n  run "));
	CALL(&s, W("rum"));
	ck_assert_int_eq(s.rc, 2);
	one_line(s.err);
	ck_assert_ptr_nonnull(strstr(s.err, "did you mean \"run\"?"));
	CALL(&s, W("frobnicate\x1b[2J\n"));
	ck_assert_int_eq(s.rc, 2);
	one_line(s.err);
	ck_assert_ptr_null(strchr(s.err, 0x1b));
	CALL(&s, W(""));
	ck_assert_int_eq(s.rc, 2);
	CALL(&s, W("--memory"), W("1g"), W("run"));
	ck_assert_int_eq(s.rc, 2);
	one_line(s.err);
	CALL(&s, W("help"), W("nothing"));
	ck_assert_int_eq(s.rc, 2);
	CALL(&s, W("help"), W("run"), W("gc"));
	ck_assert_int_eq(s.rc, 2);
	CALL(&s, W("version"), W("x"));
	ck_assert_int_eq(s.rc, 2);
	CALL(&s, W("completion"));
	ck_assert_int_eq(s.rc, 2);
	CALL(&s, W("completion"), W("csh"));
	ck_assert_int_eq(s.rc, 2);
	CALL(&s, W("help"), W("--json"), W("--markdown"));
	ck_assert_int_eq(s.rc, 2);
	ck_assert_str_eq(s.out, "");
	one_line(s.err);
	EACH_VERB(v) {
		char name[32];

		snprintf(name, sizeof(name), "%s", v->name);
		CALL(&s, name, W("--no-such-option"));
		ck_assert_msg(s.rc == 2 && !*s.out, "%s: %d %s", name, s.rc, s.out);
		one_line(s.err);
		ck_assert_ptr_nonnull(strstr(s.err, "--no-such-option"));
	}
}
END_TEST

/* A full disk or a closed pipe is not success. */
START_TEST(program_reports_a_failed_write)
{
	int full = open("/dev/full", O_WRONLY), keep = dup(1), rc;

	ck_assert_int_ge(full, 0);
	dup2(full, 1);
	rc = cli_main(2, (char *[]){ W("cloche"), W("version"), NULL });
	dup2(keep, 1);
	ck_assert_int_eq(rc, 1);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, verbs_are_whole);
	tcase_add_test(tc, rows_are_whole);
	tcase_add_test(tc, conflicts_exist);
	tcase_add_test(tc, defaults_parse);
	tcase_add_test(tc, examples_parse);
	tcase_add_test(tc, everything_is_generated);
	tcase_add_test(tc, help_fits_the_terminal);
	tcase_add_test(tc, program_help_and_version);
	tcase_add_test(tc, program_usage_errors);
	tcase_add_test(tc, program_reports_a_failed_write);
}

int main(void)
{
	return unit_main("verbs", fill);
}
