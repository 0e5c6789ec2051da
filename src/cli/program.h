/* The programs beside the static one, which stand on the host's libraries: where they are, and
 * handing over to them. They take the same verbs and options, by the same tables. */
#pragma once

#include "base/err.h"

#define PROGRAM_CLOCHE "cloche"	     /* the static one */
#define PROGRAM_IMAGE "cloche-image" /* fetches images, reads archives */
#define PROGRAM_SERVE "cloche-serve" /* sessions, and their configuration */
#define PROGRAM_PATH_MAX 4096

/* The program's path: beside this one's own executable, else in ../lib/cloche of that, or (the
 * static one, from there) in ../../bin. 0, or -1
 * with ERR_MISSING and how to get it. */
int program_path(const char *name, char ret[PROGRAM_PATH_MAX], struct err *e);
/* Executes it in place of this process, with the verb and all its words: argv[0] is the verb.
 * Returns only when that failed: the exit code, and the complaint is printed. */
int program_become(const char *name, char **argv);
