/* The environment of a box: rebuilt, never inherited. */
#pragma once

#include "engine/request.h"

/* Fills p->env and spec->env; a later one wins: defaults (PATH, LANG, USER, LOGNAME); the image's
 * own; where programs may write (HOME, TMPDIR and caches); --env-file in order; -e in order. `-e
 * NAME` copies one variable of the caller, by name. HOME is the image's own where it sets one
 * (ids.h). */
int env_prepare(const struct request *r, struct prepared *p, struct err *e);
/* The text of an --env-file: one NAME=VALUE a line; empty lines and lines that start with # are
 * passed over. Cuts `text` in place, and it lives on: pairs point into it. `path` is for messages.
 */
int env_file_text(struct prepared *p, const char *path, char *text, size_t len, struct err *e);
/* Is it NAME=VALUE (or NAME alone), as POSIX has names, and not too long? `where` begins the
 * message. */
int env_check(const char *pair, const char *where, struct err *e);
/* One more of a box that is prepared already: NAME=VALUE, which `p` keeps pointing to. */
int env_add(struct prepared *p, const char *pair, struct err *e);
bool env_has(const struct prepared *p, const char *name);
/* A copy of `s` that lives as long as *p; never NULL (out of memory ends the program: nothing runs
 * yet). */
const char *env_keep(struct prepared *p, const char *s);
