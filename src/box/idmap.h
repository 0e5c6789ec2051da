/* Id-mapped mounts for a root caller: in the box the owner of a shared directory is the box's user,
 * on the host files stay the owner's. */
#pragma once

#include "base/err.h"
#include "box/plan.h"
#include "box/spec.h"

/* Opens every checked source of the plan as a detached mount whose owner is mapped to the box's
 * outer id, and leaves it in source.fd. Refuses by name where the file system or the kernel
 * (5.12; 5.19 below an overlay) can't. Needs real root. Parent only. */
int idmap_sources(struct plan *p, const struct box_spec *spec, struct err *e);
/* Reaps what that has started. Harmless when there was nothing. */
void idmap_reap(void);
