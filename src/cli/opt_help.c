/* Help for the terminal: what a verb is for, its options by group with defaults, examples, and
 * where to read on; 80 columns. */
#include <string.h>

#include "base/str.h"
#include "cli/opt.h"

#define COLUMNS 80
#define LEFT_MAX 28 /* names longer than this get a line of their own */

/* Writes words from column *col on, starting new lines at `indent`. The text is ASCII of our own
 * tables. */
static void wrap(struct buf *out, size_t *col, size_t indent, const char *text)
{
	bool space = false;

	while (*text) {
		size_t n = strcspn(text, " ");

		if (space && *col + 1 + n > COLUMNS) {
			buf_fmt(out, "\n%*s", (int)indent, "");
			*col = indent;
		} else if (space) {
			buf_add(out, " ", 1);
			(*col)++;
		}
		buf_add(out, text, n);
		*col += n;
		text += n;
		text += strspn(text, " ");
		space = true;
	}
}

static void paragraph(struct buf *out, size_t indent, const char *text)
{
	size_t col = indent;

	buf_fmt(out, "%*s", (int)indent, "");
	wrap(out, &col, indent, text);
	buf_add(out, "\n", 1);
}

/* "  -v, --volume SRC:DST"; returns its width. */
static size_t left_side(struct buf *out, const struct opt_row *row)
{
	size_t from = out->len;

	if (row->letter)
		buf_fmt(out, "  -%c, --%s", row->letter, row->name);
	else
		buf_fmt(out, "      --%s", row->name);
	if (row->type != OPT_FLAG)
		buf_fmt(out, " %s", opt_value_name(row));
	return out->len - from;
}

static size_t left_width(const struct opt_row *row)
{
	return strlen("      --") + strlen(row->name) +
	       (row->type == OPT_FLAG ? 0 : 1 + strlen(opt_value_name(row)));
}

static void row_help(struct buf *out, const struct opt_row *row, size_t column)
{
	char text[1024];
	size_t col = left_side(out, row);
	struct buf line;

	if (col + 2 > column) {
		buf_add(out, "\n", 1);
		col = 0;
	}
	buf_fmt(out, "%*s", (int)(column - col), "");
	col = column;
	buf_init(&line, sizeof(text) - 1);
	buf_str(&line, row->help);
	if (row->many)
		buf_str(&line, "; may be repeated");
	if (row->dflt)
		buf_fmt(&line, " (default: %s)", row->dflt);
	if (line.failed)
		out->failed = true;
	else
		wrap(out, &col, column, line.data);
	buf_free(&line);
	buf_add(out, "\n", 1);
}

static bool seen_before(const struct opt_verb *verb, size_t row)
{
	for (size_t i = 0; i < row; i++)
		if (strcmp(verb->rows[i].group, verb->rows[row].group) == 0)
			return true;
	return false;
}

/* Groups come in the order in which the table first names them. */
static void groups(struct buf *out, const struct opt_verb *verb)
{
	static const struct opt_row help = { .name = "help",
					     .letter = 'h',
					     .type = OPT_FLAG,
					     .help = "show this text" };
	size_t column = left_width(&help);

	for (size_t i = 0; i < verb->n_rows; i++) {
		size_t w = left_width(&verb->rows[i]);

		if (w <= LEFT_MAX && w > column)
			column = w;
	}
	column += 2;
	for (size_t i = 0; i < verb->n_rows; i++) {
		if (seen_before(verb, i))
			continue;
		buf_fmt(out, "\n%s:\n", verb->rows[i].group);
		for (size_t k = i; k < verb->n_rows; k++)
			if (strcmp(verb->rows[k].group, verb->rows[i].group) == 0)
				row_help(out, &verb->rows[k], column);
	}
	buf_str(out, "\nHelp:\n");
	row_help(out, &help, column);
}

static void examples(struct buf *out, const char *const *lines)
{
	if (!lines || !*lines)
		return;
	buf_str(out, "\nExamples:\n");
	for (; *lines; lines++)
		buf_fmt(out, "  %s\n", *lines);
}

void opt_help(const struct opt_verb *verb, struct buf *out)
{
	buf_fmt(out, "Usage: cloche %s [OPTIONS]%s%s\n\n", verb->name, *verb->operands ? " " : "",
		verb->operands);
	paragraph(out, 0, verb->summary);
	groups(out, verb);
	examples(out, verb->examples);
	if (verb->takes_command)
		buf_str(out,
			"\nSizes are bytes, or take k, m, g or t (powers of 1024): 512m, 1.5g.\n"
			"Durations are seconds, or take ms, s, m or h: 0.5, 200ms, 5m.\n");
	buf_str(out, "\nThe manual (`cloche man`, docs/CLI.md) has every option and exit code.\n");
}

void opt_overview(const struct opt_verb *const *verbs, size_t n, struct buf *out)
{
	size_t width = 0;

	for (size_t i = 0; i < n; i++)
		if (strlen(verbs[i]->name) > width)
			width = strlen(verbs[i]->name);
	buf_str(out,
		"Usage: cloche VERB [OPTIONS] [OPERANDS]\n\n"
		"Runs code that nobody has read: one call, one box, built, used and thrown away.\n\nVerbs:\n");
	for (size_t i = 0; i < n; i++) {
		size_t col = 2 + width + 2;

		buf_fmt(out, "  %-*s  ", (int)width, verbs[i]->name);
		wrap(out, &col, 2 + width + 2, verbs[i]->summary);
		buf_add(out, "\n", 1);
	}
	for (size_t i = 0; i < n; i++)
		if (verbs[i]->takes_command)
			examples(out, verbs[i]->examples);
	buf_str(out, "\n`cloche help VERB` explains a verb; `cloche man` prints the manual;\n"
		     "`cloche doctor` says what this host can do.\n");
}
