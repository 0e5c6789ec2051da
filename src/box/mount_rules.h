/* Which host paths a box never sees: one table, and the matching of a path against it.
 *
 * A path is judged four ways, so that another spelling gives the same answer: by its names, by what
 * a directory holds further down
 * (~/.cargo is refused when ~/.cargo/credentials.toml exists), by device and inode (a bind mount or
 * a link of the same thing), and with the directories that the environment moved (XDG_CONFIG_HOME,
 * CARGO_HOME) read as their usual names. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

enum mount_class {
	CLASS_SYSTEM,
	CLASS_SYSTEM_RW, /* refused read-write only */
	CLASS_SOCKET,
	CLASS_STATE,
	CLASS_HOME,
	CLASS_KEYS,
	CLASS_CLOUD,
	CLASS_CONTAINER,
	CLASS_PACKAGE,
	CLASS_SOURCE_CONTROL,
	CLASS_BROWSER,
	CLASS_PASSWORDS,
	CLASS_DATABASE,
	CLASS_MESSAGES,
	CLASS_AGENT,
	CLASS_WALLET,
	CLASS_HISTORY,
	CLASS_STARTUP, /* refused read-write only */
	CLASS_N
};

enum mount_rule_kind {
	RULE_EXACT,   /* this absolute path itself */
	RULE_BELOW,   /* this absolute path and everything below it */
	RULE_NAMES,   /* these names in a row, anywhere in a path; or a directory on the way to them
			 that holds the rest */
	RULE_IN_HOME, /* this path below the caller's home, and everything below it */
	RULE_ENV, /* the path that this environment variable names (or paths, with ':' between), and
		     everything below */
	RULE_PLACE,	  /* a known place itself; pattern is its name */
	RULE_PLACE_BELOW, /* ... and everything below it */
	RULE_PLACE_ABOVE, /* a directory that has the place somewhere below it */
	RULE_KIND_N
};

struct mount_rule {
	const char *pattern;
	enum mount_rule_kind kind;
	enum mount_class class;
	const char *except; /* what is strictly below this path is allowed after all; NULL for
			       nothing */
};
extern const struct mount_rule mount_rules[];
extern const size_t mount_rules_n;

/* "ssh and other private keys". */
const char *mount_class_name(enum mount_class class);
/* What to do instead, with the option if there is one: "add :ro". */
const char *mount_class_advice(enum mount_class class);
bool mount_class_rw_only(enum mount_class class);

#define MOUNT_PLACES_MAX 16
#define MOUNT_ALIASES_MAX 8
#define MOUNT_KNOWN_MAX 512
#define MOUNT_STRINGS_MAX 512

#define PLACE_HOME "$HOME"
#define PLACE_RUNTIME "$XDG_RUNTIME_DIR"
#define PLACE_STATE "cloche's own directories"

struct mount_place {
	const char *name; /* PLACE_* */
	const char *path; /* canonical where it exists */
};
struct mount_alias {
	const char *path,
		*as; /* canonical directory, and the usual path that it stands for: "/.config" */
};
struct mount_env {
	const char *path;
	const struct mount_rule *rule;
};
struct mount_known {
	uint64_t dev, ino;
	const struct mount_rule *rule;
};

/* What the rules need to know of the caller. Owns its strings. */
struct mount_rules_ctx {
	struct mount_place places[MOUNT_PLACES_MAX];
	struct mount_alias aliases[MOUNT_ALIASES_MAX];
	struct mount_env envs[MOUNT_PLACES_MAX];
	struct mount_known known[MOUNT_KNOWN_MAX];
	char *strings[MOUNT_STRINGS_MAX];
	size_t n_places, n_aliases, n_envs, n_known, n_strings;
	bool blind; /* a place could not be looked at */
};

/* Starts from zeroed memory, with what mount_rules_place and mount_rules_keep already put there.
 * Reads HOME (of the environment and of the user database), XDG_*, CLOCHE_HOME and the variables of
 * RULE_ENV, and the usual places of cloche's own directories. */
int mount_rules_init(struct mount_rules_ctx *c, struct err *e);
void mount_rules_free(struct mount_rules_ctx *c);
/* Adds a place; a path that is empty or not absolute is passed over. */
int mount_rules_place(struct mount_rules_ctx *c, const char *name, const char *path, struct err *e);
/* Looks up device and inode of all that the rules name. Call once, after the last
 * mount_rules_place. */
void mount_rules_learn(struct mount_rules_ctx *c);
/* A copy of `s` that lives as long as c, or NULL with *e. */
const char *mount_rules_keep(struct mount_rules_ctx *c, const char *s, struct err *e);

/* The rule that refuses this path (absolute, normalised), or NULL. By its names only. */
const struct mount_rule *mount_rules_path(const struct mount_rules_ctx *c, const char *path,
					  bool rw);
/* The rule that refuses what `fd` (O_PATH) is open on: by device and inode, by what it holds, by
 * its kind of file system. */
const struct mount_rule *mount_rules_fd(const struct mount_rules_ctx *c, const char *path, int fd,
					bool rw);
/* All rules of the table that refuse what `fd` is open on, by its path or as it was spelt (NULL for
 * no other spelling); at most `max`, their number is returned. */
size_t mount_rules_all(const struct mount_rules_ctx *c, const char *path, const char *spelt, int fd,
		       bool rw, const struct mount_rule **ret, size_t max);
/* The rule of secrets that a single name falls under (".ssh"), or NULL: for the look into a shared
 * directory. */
const struct mount_rule *mount_rules_name(const char *name);
