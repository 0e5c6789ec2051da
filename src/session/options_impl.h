/* What the files of the options share: the rows of the table, and how one value is read. */
#pragma once

#include "session/options.h"

/* What an option's value is. Each has a row in options_read.c: how it is told to people, how it is
 * checked, which words it becomes. */
enum ses_kind {
	KIND_STRING,  /* not empty */
	KIND_COMMAND, /* text of a shell: longer, and of several lines */
	KIND_PATH,    /* of this machine, absolute */
	KIND_LABEL,
	KIND_CHOICE, /* one of `choices` */
	KIND_BOOL,
	KIND_INTEGER, /* min to max */
	KIND_NUMBER,  /* min to max */
	KIND_MIB,     /* MiB, min to max */
	KIND_BYTES,   /* bytes, min to max */
	KIND_SECONDS, /* number, min to max; null is none */
	KIND_USER,    /* "NAME", "UID:GID", or a number */
	KIND_STRINGS, /* an array of strings, none empty */
	KIND_CAPS,    /* as KIND_STRINGS; empty: NONE */
	KIND_MOUNTS,
	KIND_TMPFS,
	KIND_RLIMITS,
	KIND_ENV,
	KIND_PROFILES,
	KIND_LATER, /* null and its default alone: the rest comes in a later release */
	KIND_N
};

struct ses_option {
	const char *name;
	enum ses_kind kind;
	const char *dflt;    /* JSON */
	const char *null_is; /* what null stands for, where that is not "none"; or NULL */
	const char *choices; /* KIND_CHOICE: "a|b|c" */
	double min, max;
	const char *word; /* the option of `cloche run` that it becomes, or NULL: the loop's own */
	bool negated;	  /* KIND_BOOL: the word is given when it is false */
	bool here;	  /* of one sandbox alone: not in `defaults` of cloche.yaml */
	const char *since;
	const char *help;
};
extern const struct ses_option ses_option_table[];
extern const size_t ses_option_n;

/* Options of the bindings alone, which `open` does not know. */
struct ses_callback {
	const char *name, *since, *help;
};
extern const struct ses_callback ses_callbacks[];
extern const size_t ses_callbacks_n;

const struct ses_option *ses_option_find(const char *name);
/* The value of this row's type that JSON has, for the bindings: "string", "integer", "object" ...
 */
const char *ses_option_json(const struct ses_option *row);
/* Which values there are: "an integer from 1 to 10". */
void ses_option_expects(const struct ses_option *row, char ret[300]);
/* 0, or -1 with *e of type option or unsupported, which names it. null is always right, but for
 * KIND_SECONDS. */
int ses_option_check(const struct ses_option *row, const json_t *v, struct ses_error *e);
/* Appends what it is for `cloche run`; nothing where it has no word, or is null. */
void ses_option_words(const struct ses_option *row, const json_t *v, struct ses_words *w);
/* Appends a word; without memory w->failed is set. */
void ses_word(struct ses_words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define SES_TMP_MIB                                                                                \
	64 /* of the file system at /tmp that a sandbox has unless it says otherwise               \
	    */
#define SES_NUMBER_MAX 9007199254740991.0 /* the largest integer that every JSON reader keeps */
