/* Walks a plan, in the child, inside the box's own user and mount namespaces. No heap. */
#pragma once

#include "base/err.h"
#include "box/plan.h"

/* Opens every source by its own path, before the new root covers anything. A checked one must still be what was checked. */
int ops_open_sources(struct plan *p, struct err *e);
/* Mounts the new root, walks the ops, makes it the process's root and lets go of the host's tree. */
int ops_run(struct plan *p, struct err *e);
