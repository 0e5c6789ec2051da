/* The verbs of cloche-image. argv[0] is the verb; each returns the exit code. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

int image_pull(int argc, char **argv);
int image_load(int argc, char **argv);
int image_import(int argc, char **argv);
int image_save(int argc, char **argv);
int image_snapshot(int argc, char **argv);
int image_restore(int argc, char **argv);
/* What all of them say of a failure: an event on stdout when events are asked for, and the line on
 * stderr. Returns the exit code. */
int image_fail(const char *verb, bool as_json, const struct err *e);
