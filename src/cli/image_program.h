/* cloche-image, the program that fetches images and reads archives: where it is, and handing over
 * to it. It takes the same verbs and options, by the same tables. */
#pragma once

#include "base/err.h"

#define IMAGE_PROGRAM_PATH_MAX 4096

/* The program's path: beside this one's own executable, else in ../lib/cloche of that. 0, or -1
 * with ERR_MISSING and how to get it. */
int image_program_path(char ret[IMAGE_PROGRAM_PATH_MAX], struct err *e);
/* Executes it in place of this process, with the verb and all its words: argv[0] is the verb.
 * Returns only when that failed: the exit code, and the complaint is printed. */
int image_program_become(char **argv);
