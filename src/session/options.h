/* The options of a sandbox: what `open` takes, by the names that the SDKs have.
 *
 * One table (options_table.c) has a row for each: its type, its default, which values there are,
 * the option of `cloche run` that it becomes, and a sentence. Reading, docs/OPTIONS.md and what the
 * bindings are checked against come from it. What an option means is known to `cloche run`'s own
 * table and to the engine alone (mount rules, limits, users, capabilities): the words that are made
 * here go to `cloche spawn`, which reads them with that table.
 *
 *	ses_options_parse(given, &o, e)		when `open` comes
 *	ses_options_setup(&o, ...)		words of `cloche setup`, where there is one
 *	ses_options_spawn(&o, &at, ...)		words of `cloche spawn`
 *	ses_options_blame(&o, &err, ...)	what the spawner has refused, in the names of `open`
 *	ses_options_free(&o)			harmless on a zeroed one
 *
 * Precedence: what `open` says, then a profile that it names, then `defaults` of cloche.yaml, then
 *the table. null is as if the option were not given. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "session/error.h"

/* Words for execv: NULL-terminated; owns them. `failed`: there was no memory for all. */
struct ses_words {
	char **v;
	size_t n;
	bool failed;
};
void ses_words_free(struct ses_words *w);
#define _cleanup_words_ __attribute__((cleanup(ses_words_free)))

/* What the loop itself needs of them; the rest is in the words. Strings are its own. */
struct ses_options {
	json_t *effective;	/* all options by name, as they hold: what `info` answers */
	const char *image;	/* "host" or a reference */
	const char *pull;	/* "missing", "always", "never" */
	const char *platform;	/* or NULL */
	const char *setup;	/* a command for sh -c, or NULL */
	const char *workspace;	/* absolute, or NULL: a temporary one */
	const char *name;	/* or NULL */
	uint64_t workspace_max; /* bytes; UINT64_MAX: none */
	uint64_t output;	/* bytes kept of each stream */
	uint64_t timeout_us;	/* of a call that has none of its own; never 0 */
	uint64_t setup_timeout_us;
	bool track_files;
	char **env; /* NAME=VALUE of each call, NULL-terminated: by descriptor, never in argv */
	size_t n_env;
	struct ses_words words; /* all that `open` alone decides; ses_options_spawn adds the rest */
};

/* `given` is the `options` of `open`, borrowed (NULL: none). Errors: `option` (with option and
 * allowed), `unsupported`, and `mount_refused` for what the words alone show. Nothing is started
 * and no file is looked at but cloche.yaml. */
int ses_options_parse(const json_t *given, struct ses_options *ret, struct ses_error *e);
void ses_options_free(struct ses_options *o);

/* Makes the directory of `workspace` where it is missing, with those above it, unless a box may not
 * share it; *ret is what is there then. */
int ses_workspace_make(const char *path, struct stat *ret, struct ses_error *e);

/* Where a sandbox stands: what only the loop knows. */
struct ses_place {
	const char *workspace; /* the directory, absolute: o->workspace or the temporary one */
	bool in_memory;	       /* may be in memory */
	const char *image;     /* what setup has made, in place of o->image; NULL: o->image */
};
/* "spawn" and its options. */
int ses_options_spawn(const struct ses_options *o, const struct ses_place *at,
		      struct ses_words *ret, struct ses_error *e);
/* "setup" and its options, the command at the end ("sh" "-c" COMMAND), for `command`; timeout_us 0:
 * the sandbox's own. The child needs `o->env` in its environment: the words name the variables only
 * (-e NAME). `from` is the image that it begins with (an earlier setup's), or NULL: o->image. The
 * name that the result gets is in *ret_name (freed by the caller). */
int ses_options_setup(const struct ses_options *o, const char *from, const char *command,
		      uint64_t timeout_us, struct ses_words *ret, char **ret_name,
		      struct ses_error *e);
/* A message of `cloche run` in the names of `open`, at most cap - 1 bytes of it. Returns the first
 * option that it names, or NULL. */
const char *ses_options_say(const char *msg, char *out, size_t cap);
/* The same of the fault of a set-up, behind "setup: ". `own_deadline`: it was asked for with a
 * `timeout_s`, so that the deadline is not the option setup_timeout_s. */
void ses_options_say_setup(const char *msg, bool own_deadline, char *out, size_t cap);
/* An error of the spawner as one of `open`: true, and *ret has it, with --NAME as the option's name
 * here; or false, when it is the fault of the machine or the image: startup_failed. `rule`: the
 * mount rule that refuses, or NULL. */
bool ses_options_blame(const struct err *why, const char *rule, struct ses_error *ret);
/* The same of a line with which `cloche setup` has refused what it was asked. */
void ses_options_blame_setup(const char *line, size_t n, struct ses_error *ret);

/* docs/OPTIONS.md, and the table for the bindings' checks; on stdout. Returns an exit code. */
int ses_options_print(const char *format);
