/* The one user of a new user namespace, from inside. */
#pragma once

#include "base/err.h"
#include "box/spec.h"

/* One id inside stands for one id outside: whatever the box's user is called, it is the caller, or
 * an unprivileged id when the caller is root. The process must be dumpable. */
int user_map(const struct box_spec *s, struct err *e);
/* Then nothing of the caller's ids is left: not the real ones, not the saved ones. */
int user_become(const struct box_spec *s, struct err *e);
