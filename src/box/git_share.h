/* --git: what a commit in a linked worktree needs, and no more. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "box/mount_check.h"
#include "box/spec.h"

/* Adds to spec->mounts what the worktree `dir` (the --workspace) needs of its repository. -1:
 * ERR_USAGE when it is no linked worktree, ERR_REFUSED when the two do not name each other. */
int git_share(struct mount_check *c, const char *dir, struct box_spec *spec, struct err *e);
/* Is `dir` a linked worktree, whose repository a box does not see without --git? */
bool git_is_linked(const char *dir);
