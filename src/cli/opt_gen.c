/* What is generated from the tables beside the terminal's help: the man page, the Markdown
 * reference, and the JSON surface that the tests freeze. All three say the same things; only the
 * markup differs. */
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/opt.h"

#define CLOCHE_ABOUT "run code that nobody has read in a box that is thrown away"

/* The exit codes of `cloche run`, and 2, which every verb has. */
static const struct {
	const char *code, *fault, *meaning;
} exits[] = {
	{ "n", NULL, "the command's own exit code" },
	{ "128+n", NULL, "the command was ended by signal n" },
	{ "2", NULL, "usage: the options are wrong; nothing was started" },
	{ "124", "timeout", "the deadline passed" },
	{ "125", "startup_failed",
	  "the box never ran: image, mount, limits, or deadline while building; the message names the stage" },
	{ "125", "init_lost", "the box's init ended by something that cloche did not send" },
	{ "126", "exec_failed", "the command is not executable" },
	{ "127", "exec_failed", "there is no such command in the box" },
	{ "130", "cancelled", "the caller cancelled the run" },
	{ "137", "oom", "the memory limit was hit; the message says what filled it" },
	{ "137", "workspace_full", "the workspace outgrew its limit" },
	{ "137", "killed", "the box was killed from outside" },
	{ "159", "escape_blocked",
	  "a process of the box made a refused call; the message names call and process" },
};
#define N_EXITS (sizeof(exits) / sizeof(exits[0]))

static const char exits_note[] =
	"A command that itself exits with one of these codes has no fault; --json tells the two apart.";

/* Text for man(7): dashes that can be copied, no backslash or leading dot with a meaning. */
static void roff(struct buf *out, const char *s)
{
	bool start = out->len == 0 || out->data[out->len - 1] == '\n';

	if (start && (*s == '.' || *s == '\''))
		buf_str(out, "\\&");
	for (; *s; s++) {
		if (*s == '\\')
			buf_str(out, "\\e");
		else if (*s == '-')
			buf_str(out, "\\-");
		else if (*s == '\'')
			buf_str(out, "\\(aq");
		else if (*s == '`')
			buf_str(out, "\\(ga");
		else if (*s == '^')
			buf_str(out, "\\(ha");
		else if (*s == '~')
			buf_str(out, "\\(ti");
		else if (*s == '\n')
			buf_str(out, " ");
		else
			buf_add(out, s, 1);
	}
}

static void roff_row(struct buf *out, const struct opt_row *row)
{
	const char *list = row->conflicts, *w;
	size_t n;

	buf_str(out, ".TP\n");
	if (row->letter)
		buf_fmt(out, "\\fB\\-%c\\fR, ", row->letter);
	buf_str(out, "\\fB\\-\\-");
	roff(out, row->name);
	buf_str(out, "\\fR");
	if (row->type != OPT_FLAG) {
		buf_str(out, " \\fI");
		roff(out, opt_value_name(row));
		buf_str(out, "\\fR");
	}
	buf_str(out, "\n");
	roff(out, row->help);
	buf_str(out, ".");
	if (row->many)
		buf_str(out, " May be repeated.");
	if (row->dflt) {
		buf_str(out, " Default: ");
		roff(out, row->dflt);
		buf_str(out, ".");
	}
	while ((w = opt_next(&list, ',', &n))) {
		buf_str(out, w == row->conflicts ? " Not with \\fB\\-\\-" : ", \\fB\\-\\-");
		for (size_t i = 0; i < n; i++)
			roff(out, (char[]){ w[i], '\0' });
		buf_str(out, "\\fR");
	}
	if (row->conflicts)
		buf_str(out, ".");
	buf_str(out, "\n");
}

static bool seen_before(const struct opt_verb *verb, size_t row)
{
	for (size_t i = 0; i < row; i++)
		if (strcmp(verb->rows[i].group, verb->rows[row].group) == 0)
			return true;
	return false;
}

static void roff_verb(struct buf *out, const struct opt_verb *verb)
{
	buf_str(out, ".SS cloche ");
	roff(out, verb->name);
	buf_str(out, "\n\\fBcloche ");
	roff(out, verb->name);
	buf_str(out, "\\fR [\\fIOPTIONS\\fR]");
	if (*verb->operands) {
		buf_str(out, " ");
		roff(out, verb->operands);
	}
	buf_str(out, "\n.PP\n");
	roff(out, verb->summary);
	buf_str(out, ".\n");
	for (size_t i = 0; i < verb->n_rows; i++) {
		if (seen_before(verb, i))
			continue;
		buf_str(out, ".PP\n");
		roff(out, verb->rows[i].group);
		buf_str(out, ":\n");
		for (size_t k = i; k < verb->n_rows; k++)
			if (strcmp(verb->rows[k].group, verb->rows[i].group) == 0)
				roff_row(out, &verb->rows[k]);
	}
}

void opt_man(const struct opt_verb *const *verbs, size_t n, struct buf *out)
{
	buf_str(out,
		".TH CLOCHE 1 \"\" \"cloche " CLOCHE_VERSION "\" \"User Commands\"\n"
		".SH NAME\ncloche \\- " CLOCHE_ABOUT "\n"
		".SH SYNOPSIS\n\\fBcloche\\fR \\fIVERB\\fR [\\fIOPTIONS\\fR] [\\fIOPERANDS\\fR]\n"
		".SH DESCRIPTION\n"
		"One call, one box: built, used and thrown away, without root, a daemon, a VM or an account.\n"
		"Every verb also knows \\fB\\-h\\fR and \\fB\\-\\-help\\fR.\n"
		".SH VERBS\n");
	for (size_t i = 0; i < n; i++)
		roff_verb(out, verbs[i]);
	buf_str(out,
		".SH VALUES\n"
		"A \\fISIZE\\fR is a number of bytes, or takes k, m, g or t (powers of 1024): 512m, 1.5g.\n"
		"A \\fIDURATION\\fR is seconds, or takes ms, s, m or h: 0.5, 200ms, 5m.\n"
		".PP\n"
		"A value that begins with a dash is written \\fB\\-\\-name=\\fIvalue\\fR.\n"
		".SH EXIT STATUS\n"
		"0 when all went well, 1 when a verb other than run failed. For \\fBcloche run\\fR:\n");
	for (size_t i = 0; i < N_EXITS; i++) {
		buf_fmt(out, ".TP\n\\fB%s\\fR%s%s\n", exits[i].code, exits[i].fault ? " " : "",
			exits[i].fault ? exits[i].fault : "");
		roff(out, exits[i].meaning);
		buf_str(out, ".\n");
	}
	buf_str(out, ".PP\n");
	roff(out, exits_note);
	buf_str(out, "\n.SH EXAMPLES\n");
	for (size_t i = 0; i < n; i++)
		for (const char *const *ex = verbs[i]->examples; ex && *ex; ex++) {
			buf_str(out, ".PP\n.nf\n");
			roff(out, *ex);
			buf_str(out, "\n.fi\n");
		}
	buf_str(out,
		".SH SEE ALSO\n\\fBbwrap\\fR(1), \\fBunshare\\fR(1), \\fBnamespaces\\fR(7), \\fBcgroups\\fR(7), \\fBseccomp\\fR(2)\n");
}

/* Text for a Markdown table cell; nothing in it may end the cell or become markup. */
static void md(struct buf *out, const char *s)
{
	for (; *s; s++) {
		if (strchr("|<>*_[]\\", *s))
			buf_str(out, "\\");
		buf_add(out, s, 1);
	}
}

/* Code spans know no escapes, but a table's bars must be escaped even there. */
static void md_code(struct buf *out, const char *s)
{
	for (; *s; s++) {
		if (*s == '|')
			buf_str(out, "\\");
		buf_add(out, s, 1);
	}
}

static void md_row(struct buf *out, const struct opt_row *row)
{
	const char *list = row->conflicts, *w;
	size_t n;

	buf_str(out, "| ");
	if (row->letter)
		buf_fmt(out, "`-%c`, ", row->letter);
	buf_fmt(out, "`--%s", row->name);
	if (row->type != OPT_FLAG) {
		buf_str(out, " ");
		md_code(out, opt_value_name(row));
	}
	buf_str(out, "` | ");
	md(out, row->help);
	if (row->many)
		buf_str(out, "; may be repeated");
	while ((w = opt_next(&list, ',', &n)))
		buf_fmt(out, "%s`--%.*s`", w == row->conflicts ? "; not with " : ", ", (int)n, w);
	buf_str(out, " | ");
	if (row->dflt)
		md(out, row->dflt);
	buf_str(out, " | ");
	if (row->since)
		md(out, row->since);
	buf_str(out, " |\n");
}

static void md_verb(struct buf *out, const struct opt_verb *verb)
{
	buf_fmt(out, "\n## cloche %s\n\n```\ncloche %s [OPTIONS]%s%s\n```\n\n", verb->name,
		verb->name, *verb->operands ? " " : "", verb->operands);
	md(out, verb->summary);
	buf_str(out, ".\n");
	for (size_t i = 0; i < verb->n_rows; i++) {
		if (seen_before(verb, i))
			continue;
		buf_fmt(out,
			"\n### %s: %s\n\n| option | meaning | default | since |\n|---|---|---|---|\n",
			verb->name, verb->rows[i].group);
		for (size_t k = i; k < verb->n_rows; k++)
			if (strcmp(verb->rows[k].group, verb->rows[i].group) == 0)
				md_row(out, &verb->rows[k]);
	}
	if (verb->examples && *verb->examples) {
		buf_str(out, "\nExamples:\n\n```sh\n");
		for (const char *const *ex = verb->examples; *ex; ex++)
			buf_fmt(out, "%s\n", *ex);
		buf_str(out, "```\n");
	}
}

void opt_markdown(const struct opt_verb *const *verbs, size_t n, struct buf *out)
{
	buf_str(out,
		"<!-- Made by `cloche help --markdown` from the option tables; change those, not this. -->\n"
		"# The command line\n\n```\ncloche VERB [OPTIONS] [OPERANDS]\n```\n\n"
		"Every verb knows `-h` and `--help`. Options are `--name VALUE`, `--name=VALUE` or `-x VALUE`; flags of one letter may be\n"
		"bundled (`-it`). A value that begins with a dash is written `--name=VALUE`. An option that is unknown, given twice without\n"
		"need, or at odds with another one is an error, never ignored.\n\n"
		"A SIZE is a number of bytes, or takes k, m, g or t (powers of 1024): `512m`, `1.5g`. A DURATION is seconds, or takes ms, s,\n"
		"m or h: `0.5`, `200ms`, `5m`.\n");
	for (size_t i = 0; i < n; i++)
		md_verb(out, verbs[i]);
	buf_str(out,
		"\n## Exit codes\n\n0 when all went well, 2 for a usage error, 1 when a verb other than `run` failed. `cloche run`:\n\n"
		"| code | fault | meaning |\n|---|---|---|\n");
	for (size_t i = 0; i < N_EXITS; i++) {
		buf_fmt(out, "| %s | %s%s%s | ", exits[i].code, exits[i].fault ? "`" : "",
			exits[i].fault ? exits[i].fault : "", exits[i].fault ? "`" : "");
		md(out, exits[i].meaning);
		buf_str(out, " |\n");
	}
	buf_fmt(out, "\n%s\n", exits_note);
}

static void json_list(struct json *j, const char *key, const char *list, char sep)
{
	const char *w;
	size_t n;

	json_key(j, key);
	json_arr(j);
	while ((w = opt_next(&list, sep, &n)))
		json_bytes(j, w, n);
	json_arr_end(j);
}

static void json_row(struct json *j, const struct opt_row *row)
{
	char letter[2] = { row->letter, '\0' };

	json_obj(j);
	json_kstr(j, "name", row->name);
	json_kstr(j, "letter", row->letter ? letter : NULL);
	json_kstr(j, "type", opt_type_name(row->type));
	json_kstr(j, "value", row->type == OPT_FLAG ? NULL : opt_value_name(row));
	json_list(j, "choices", row->type == OPT_CHOICE ? row->value : NULL, '|');
	json_kbool(j, "many", row->many);
	json_kstr(j, "default", row->dflt);
	json_kstr(j, "group", row->group);
	json_kstr(j, "help", row->help);
	json_list(j, "conflicts", row->conflicts, ',');
	json_kstr(j, "since", row->since);
	json_obj_end(j);
}

void opt_json(const struct opt_verb *const *verbs, size_t n, struct buf *out)
{
	struct json j;

	json_init(&j, out);
	json_obj(&j);
	json_kstr(&j, "program", "cloche");
	json_key(&j, "verbs");
	json_arr(&j);
	for (size_t i = 0; i < n; i++) {
		json_obj(&j);
		json_kstr(&j, "name", verbs[i]->name);
		json_kstr(&j, "summary", verbs[i]->summary);
		json_kstr(&j, "operands", verbs[i]->operands);
		json_kbool(&j, "takes_command", verbs[i]->takes_command);
		json_key(&j, "options");
		json_arr(&j);
		for (size_t k = 0; k < verbs[i]->n_rows; k++)
			json_row(&j, &verbs[i]->rows[k]);
		json_arr_end(&j);
		json_key(&j, "examples");
		json_arr(&j);
		for (const char *const *ex = verbs[i]->examples; ex && *ex; ex++)
			json_str(&j, *ex);
		json_arr_end(&j);
		json_obj_end(&j);
	}
	json_arr_end(&j);
	json_key(&j, "exit_codes");
	json_arr(&j);
	for (size_t i = 0; i < N_EXITS; i++) {
		json_obj(&j);
		json_kstr(&j, "code", exits[i].code);
		json_kstr(&j, "fault", exits[i].fault);
		json_kstr(&j, "meaning", exits[i].meaning);
		json_obj_end(&j);
	}
	json_arr_end(&j);
	json_obj_end(&j);
	buf_add(out, "\n", 1);
}
