/* Options are a table: one row gives parser, --help, man page, completion, JSON surface and the
 * docs' reference.
 *
 * Grammar: `--name VALUE`, `--name=VALUE`, `-x VALUE`, flags may be bundled (`-it`). Options end at
 * `--` or at the first operand when the verb takes a command. Unknown, misspelt (a near name is
 * suggested), repeated (unless `many`), valueless (an empty value is none; one that begins with a
 * dash is taken only as `--name=-VALUE`) and contradictory options are one line of error each, kind
 * ERR_USAGE. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define OPT_ROWS_MAX 128 /* a verb */

enum opt_type {
	OPT_FLAG,
	OPT_STR,
	OPT_PATH,
	OPT_DIR,
	OPT_SIZE,
	OPT_DURATION,
	OPT_NUMBER,
	OPT_CPUS,
	OPT_CHOICE,
	OPT_TYPE_N
};

struct opt_row {
	const char *name; /* long name without dashes */
	char letter;	  /* 0 when none */
	enum opt_type type;
	bool many;	   /* may be given more than once */
	const char *value; /* metavariable, e.g. "SIZE"; for OPT_CHOICE "a|b|c" */
	const char *dflt;  /* shown default, or NULL */
	const char *group; /* heading in the help: "Box", "Files", "Limits", "Locks", "Output" */
	const char *help;  /* one sentence, begun in lower case, no full stop */
	const char *conflicts; /* comma-separated long names that can't be given with it, or NULL */
	const char *since;
	int id;	    /* the verb's own enum */
	bool empty; /* an empty value is one */
};

struct opt_verb {
	const char *name, *summary; /* the summary begins with a capital, no full stop */
	const char *operands;	    /* "-- COMMAND [ARG...]", "[VERB]", "" */
	const struct opt_row *rows;
	size_t n_rows;
	bool takes_command;		   /* stop at the first operand */
	const char *const *examples;	   /* NULL-terminated command lines */
	int (*run)(int argc, char **argv); /* argv[0] is the verb; returns the exit code */
};

/* Called for each option given, values already checked for shape by type; value is NULL for flags.
 * A message that does not begin with a dash gets the option's name in front ("--memory: ..."). */
typedef int (*opt_fn)(void *ctx, const struct opt_row *row, const char *value, struct err *e);

/* Parses argv[1..]; *ret_rest is the index of the first operand (argc when none; after `--` when
 * there is one). `--help` and `-h` are known to every verb: returns 1 then, and has printed
 * nothing. 0 parsed, -1 with *e. Reorders argv when options stand behind operands (only where the
 * verb takes no command). */
int opt_parse(const struct opt_verb *verb, int argc, char **argv, opt_fn fn, void *ctx,
	      int *ret_rest, struct err *e);

/* The type's name as it stands in the surface, and the metavariable ("" for flags). */
const char *opt_type_name(enum opt_type type);
const char *opt_value_name(const struct opt_row *row);
/* The next word of a list such as "a|b|c", not terminated; NULL at the end. Moves *list on. */
const char *opt_next(const char **list, char sep, size_t *ret_n);
bool opt_in_list(const char *list, char sep, const char *word);

struct buf;
void opt_help(const struct opt_verb *verb, struct buf *out); /* terminal text, 80 columns */
void opt_overview(const struct opt_verb *const *verbs, size_t n,
		  struct buf *out); /* the help of the program itself */
void opt_man(const struct opt_verb *const *verbs, size_t n,
	     struct buf *out); /* cloche(1) in man(7) */
int opt_completion(const struct opt_verb *const *verbs, size_t n, const char *shell,
		   struct buf *out, struct err *e);
void opt_markdown(const struct opt_verb *const *verbs, size_t n, struct buf *out); /* docs/CLI.md */
void opt_json(const struct opt_verb *const *verbs, size_t n,
	      struct buf *out); /* the frozen surface */
