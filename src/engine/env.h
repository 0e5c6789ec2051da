/* The environment of a box: rebuilt, never inherited. */
#pragma once

#include "engine/request.h"

/* Fills p->env and spec->env: a base that makes toolchains work, then --env-file in order, then -e in order; a later one wins. `-e NAME` copies
 * one variable of the caller, by name. */
int env_prepare(const struct request *r, struct prepared *p, struct err *e);
/* A copy of `s` that lives as long as *p; never NULL (out of memory ends the program: nothing runs yet). */
const char *env_keep(struct prepared *p, const char *s);
