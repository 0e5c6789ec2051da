/* Walks a plan, in the child, inside the box's own user and mount namespaces. No heap. */
#pragma once

#include "base/err.h"
#include "box/plan.h"

/* Opens every source by its own path, before the new root covers anything. A checked one must still
 * be what was checked. */
int ops_open_sources(struct plan *p, struct err *e);
/* Mounts the new root, walks the ops and makes it the process's root; the host's tree is the
 * working directory, on top of it. */
int ops_run(struct plan *p, struct err *e);
/* Lets go of the host's tree. A step of its own, because the kernel waits in it for every cpu to
 * pass through a quiet moment, and a cpu that makes a network namespace has none: done after that
 * it takes 20 us, beside it up to 1 ms. */
int ops_detach(const struct plan *p, struct err *e);
