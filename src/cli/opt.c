/* The parser of options.
 *
 * One pass over argv. Each argument is an option (found in the verb's table), an operand, or "--".
 * Verbs without a command of their own may have options behind operands; those are moved in front,
 * so that the operands are one block at the end. Strictness is the point: an option given twice,
 * two that contradict each other, a value that looks like an option, or a name that is nearly right
 * all end in an error that says what to write instead, because a lock or limit that was silently
 * not set is the worst outcome there is. */
#include "cli/opt.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define NAME_MAX_SHOWN 64

static const struct {
	const char *name, *value;
} types[] = {
	[OPT_FLAG] = { "flag", "" },	  [OPT_STR] = { "string", "TEXT" },
	[OPT_PATH] = { "path", "FILE" },  [OPT_DIR] = { "directory", "DIR" },
	[OPT_SIZE] = { "size", "SIZE" },  [OPT_DURATION] = { "duration", "DURATION" },
	[OPT_NUMBER] = { "number", "N" }, [OPT_CPUS] = { "cpus", "N" },
	[OPT_CHOICE] = { "choice", "" },
};
static_assert(sizeof(types) / sizeof(types[0]) == OPT_TYPE_N, "a name for every type");

const char *opt_type_name(enum opt_type type)
{
	return types[type].name;
}

const char *opt_value_name(const struct opt_row *row)
{
	return row->value ? row->value : types[row->type].value;
}

const char *opt_next(const char **list, char sep, size_t *ret_n)
{
	const char *word = *list, *end;

	if (!word || !*word)
		return NULL;
	end = strchrnul(word, sep);
	*ret_n = (size_t)(end - word);
	*list = *end ? end + 1 : end;
	return word;
}

bool opt_in_list(const char *list, char sep, const char *word)
{
	const char *w;
	size_t n;

	while ((w = opt_next(&list, sep, &n)))
		if (strlen(word) == n && memcmp(w, word, n) == 0)
			return true;
	return false;
}

struct parse {
	const struct opt_verb *verb;
	opt_fn fn;
	void *ctx;
	bool seen[OPT_ROWS_MAX];
	char given[NAME_MAX_SHOWN]; /* the current option as the user wrote it */
};

static const struct opt_row *by_name(const struct opt_verb *verb, const char *name, size_t n)
{
	for (size_t i = 0; i < verb->n_rows; i++)
		if (strlen(verb->rows[i].name) == n && memcmp(verb->rows[i].name, name, n) == 0)
			return &verb->rows[i];
	return NULL;
}

static const struct opt_row *by_letter(const struct opt_verb *verb, char letter)
{
	for (size_t i = 0; i < verb->n_rows; i++)
		if (verb->rows[i].letter && verb->rows[i].letter == letter)
			return &verb->rows[i];
	return NULL;
}

/* "unknown option --memroy: did you mean --memory?" */
static int unknown(const struct parse *p, const char *name, struct err *e)
{
	const char *words[OPT_ROWS_MAX + 2], *near;
	size_t n = 0;

	for (size_t i = 0; i < p->verb->n_rows; i++)
		words[n++] = p->verb->rows[i].name;
	words[n++] = "help";
	words[n] = NULL;
	near = str_nearest(name, words);
	if (near)
		return err_set(e, ERR_USAGE, "unknown option %s: did you mean --%s?", p->given,
			       near);
	return err_set(e, ERR_USAGE, "unknown option %s", p->given);
}

static int check_choice(const struct opt_row *row, const char *value, struct err *e)
{
	const char *words[17], *list = row->value, *w, *near;
	char copy[16][NAME_MAX_SHOWN], shown[NAME_MAX_SHOWN];
	size_t n = 0, len;

	if (opt_in_list(row->value, '|', value))
		return 0;
	while (n < 16 && (w = opt_next(&list, '|', &len))) {
		snprintf(copy[n], sizeof(copy[n]), "%.*s", (int)len, w);
		words[n] = copy[n];
		n++;
	}
	words[n] = NULL;
	near = str_nearest(value, words);
	str_printable(shown, sizeof(shown), value);
	if (n == 1)
		return err_set(e, ERR_USAGE, "\"%s\" is not a choice: only \"%s\" is", shown,
			       row->value);
	if (near)
		return err_set(e, ERR_USAGE, "\"%s\" is none of %s: did you mean \"%s\"?", shown,
			       row->value, near);
	return err_set(e, ERR_USAGE, "\"%s\" is none of %s", shown, row->value);
}

/* The shape that the type demands. What the value means is the verb's business. */
static int check_value(const struct opt_row *row, const char *value, struct err *e)
{
	uint64_t u;
	double d;

	switch (row->type) {
	case OPT_SIZE:
		return parse_size(value, &u, e);
	case OPT_DURATION:
		return parse_duration(value, &u, e);
	case OPT_NUMBER:
		return parse_u64(value, 0, UINT64_MAX, &u, e);
	case OPT_CPUS:
		return parse_cpus(value, &d, e);
	case OPT_CHOICE:
		return check_choice(row, value, e);
	case OPT_FLAG:
	case OPT_STR:
	case OPT_PATH:
	case OPT_DIR:
	case OPT_TYPE_N:
		break;
	}
	return 0;
}

static int check_conflicts(const struct parse *p, const struct opt_row *row, struct err *e)
{
	for (size_t i = 0; i < p->verb->n_rows; i++) {
		const struct opt_row *other = &p->verb->rows[i];

		if (p->seen[i] && other != row &&
		    (opt_in_list(row->conflicts, ',', other->name) ||
		     opt_in_list(other->conflicts, ',', row->name)))
			return err_set(e, ERR_USAGE,
				       "--%s and --%s contradict each other: give one of them",
				       other->name, row->name);
	}
	return 0;
}

/* One option with its value; NULL when it stands without one. */
static int take(struct parse *p, const struct opt_row *row, const char *value, struct err *e)
{
	size_t i = (size_t)(row - p->verb->rows);

	if (row->type == OPT_FLAG && value)
		return err_set(e, ERR_USAGE, "%s takes no value", p->given);
	if (row->type != OPT_FLAG && (!value || (!*value && !row->empty)))
		return err_set(e, ERR_USAGE, "%s needs a value: %s %s", p->given, p->given,
			       opt_value_name(row));
	if (p->seen[i] && !row->many)
		return err_set(e, ERR_USAGE, "%s is given twice: give it once", p->given);
	if (check_conflicts(p, row, e) < 0)
		return -1;
	p->seen[i] = true;
	if (check_value(row, value, e) < 0)
		return err_prefix(e, "%s", p->given);
	if (p->fn(p->ctx, row, value, e) < 0) {
		/* The verb may have named an option itself. */
		if (e->msg[0] != '-')
			err_prefix(e, "%s", p->given);
		return -1;
	}
	return 0;
}

/* The value in the next argument. One that looks like an option is far more often a forgotten value
 * than a value. */
static int take_next(struct parse *p, const struct opt_row *row, const char *next, struct err *e)
{
	if (next && next[0] == '-' && next[1] != '\0') {
		char shown[NAME_MAX_SHOWN];

		str_printable(shown, sizeof(shown), next);
		return err_set(
			e, ERR_USAGE,
			"%s needs a value: %s %s (if \"%s\" is meant to be the value, write --%s=%s)",
			p->given, p->given, opt_value_name(row), shown, row->name, shown);
	}
	return take(p, row, next, e);
}

/* Returns the number of arguments used, -2 when help was asked for, or -1. */
static int long_option(struct parse *p, const char *arg, const char *next, struct err *e)
{
	const char *name = arg + 2, *eq = strchr(name, '=');
	size_t n = eq ? (size_t)(eq - name) : strlen(name);
	const struct opt_row *row = by_name(p->verb, name, n);
	char raw[NAME_MAX_SHOWN];

	snprintf(raw, sizeof(raw), "%.*s", (int)(n < sizeof(raw) ? n : sizeof(raw) - 1), name);
	memcpy(p->given, "--", 2);
	str_printable(p->given + 2, sizeof(p->given) - 2, raw);
	if (!row && n == strlen("help") && memcmp(name, "help", n) == 0)
		return eq ? err_set(e, ERR_USAGE, "--help takes no value") : -2;
	if (!row)
		return unknown(p, raw, e);
	if (eq)
		return take(p, row, eq + 1, e) < 0 ? -1 : 1;
	if (row->type == OPT_FLAG)
		return take(p, row, NULL, e) < 0 ? -1 : 1;
	return take_next(p, row, next, e) < 0 ? -1 : 2;
}

/* What is wrong with a bundle at the letter *l. */
static int bad_letter(const struct parse *p, const char *arg, const char *l,
		      const struct opt_row *row, struct err *e)
{
	size_t n = strcspn(arg + 1, "=");

	if (n > 1 && by_name(p->verb, arg + 1, n))
		return err_set(e, ERR_USAGE, "unknown option -%.*s: did you mean --%.*s?", (int)n,
			       arg + 1, (int)n, arg + 1);
	if (row)
		return err_set(e, ERR_USAGE, "%s takes its value as an argument of its own: %s %s",
			       p->given, p->given, opt_value_name(row));
	if (*l == '=' && l > arg + 1)
		return err_set(e, ERR_USAGE, "-%c takes no value", l[-1]);
	return err_set(e, ERR_USAGE, "unknown option %s", p->given);
}

/* A bundle of letters: flags, and at its end perhaps one option with a value. */
static int letters(struct parse *p, const char *arg, const char *next, struct err *e)
{
	for (const char *l = arg + 1; *l; l++) {
		const struct opt_row *row = by_letter(p->verb, *l);
		char shown[2];

		snprintf(p->given, sizeof(p->given), "-%s",
			 str_printable(shown, sizeof(shown), (char[]){ *l, '\0' }));
		if (!row && *l == 'h')
			return -2;
		if (!row || (row->type != OPT_FLAG && l[1] != '\0'))
			return bad_letter(p, arg, l, row, e);
		if (row->type != OPT_FLAG)
			return take_next(p, row, next, e) < 0 ? -1 : 2;
		if (take(p, row, NULL, e) < 0)
			return -1;
	}
	return 1;
}

/* Moves the argument at `at` in front of the operands that begin at `to`. */
static void move_up(char **argv, int to, int at)
{
	char *arg = argv[at];

	memmove(argv + to + 1, argv + to, (size_t)(at - to) * sizeof(*argv));
	argv[to] = arg;
}

int opt_parse(const struct opt_verb *verb, int argc, char **argv, opt_fn fn, void *ctx,
	      int *ret_rest, struct err *e)
{
	struct parse p = { .verb = verb, .fn = fn, .ctx = ctx };
	int operands = 1, i = 1; /* argv[operands..i) are operands already seen */

	assert(verb->n_rows <= OPT_ROWS_MAX);
	while (i < argc) {
		const char *arg = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
		int used;

		if (strcmp(arg, "--") == 0) {
			move_up(argv, operands++, i);
			break;
		}
		if (arg[0] != '-' || arg[1] == '\0') {
			if (verb->takes_command)
				break;
			i++;
			continue;
		}
		used = arg[1] == '-' ? long_option(&p, arg, next, e) : letters(&p, arg, next, e);
		if (used == -2)
			return 1;
		if (used < 0)
			return -1;
		while (used-- > 0)
			move_up(argv, operands++, i++);
	}
	*ret_rest = operands;
	return 0;
}
