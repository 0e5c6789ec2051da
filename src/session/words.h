/* What a call's command gets: its words, its environment and its directory, out of a request. */
#pragma once

#include "session/options.h"
#include "session/request.h"

/* A sealed memfd for the spawner (spawn_words_make). run_code has no words of its own. */
int words_of(const struct request *r, const struct ses_options *o, int *ret, struct ses_error *e);
