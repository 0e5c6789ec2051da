/* `cloche spawn`: the boxes of one sandbox (session/spawn.h), for `cloche serve` alone. */
#pragma once

#include "cli/run_opts.h"
#include "session/spawn.h"

extern const struct opt_verb cli_spawn_verb;

/* A keeper: a fork of the spawner, which runs one call and ends. `p` is the sandbox's, and this
 * process's own copy. It takes the descriptors over. */
_Noreturn void keeper_main(struct prepared *p, const struct run_options *o,
			   const struct spawn_call *c, struct spawn_fds *f);
