/* `cloche spawn`: the boxes of one sandbox (session/spawn.h), for `cloche serve` alone. */
#pragma once

#include "box/holder.h"
#include "cli/run_opts.h"
#include "session/spawn.h"

extern const struct opt_verb cli_spawn_verb;

/* A keeper: a fork of the spawner, which builds a box, runs in it the one call that comes over
 * `claims`, and ends. `p` is the sandbox's, and this process's own copy. */
_Noreturn void keeper_main(struct prepared *p, const struct run_options *o,
			   const struct holder holders[2], int claims);
