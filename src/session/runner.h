/* Runners: how the code of a call is run in each language. The code stands in a file that only the
 * box has (SPAWN_CODE_PATH); the words of the command are the same for all code. */
#pragma once

#include "session/spawn.h"

#define RUNNER_WORDS_MAX 5

/* The command, NULL-terminated. Static. */
char *const *runner_argv(enum spawn_language l);
