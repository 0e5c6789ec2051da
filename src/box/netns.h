/* The box's network namespace, made beside the rest of the start: the kernel needs as long for it as for everything else together, and there is
 * a second core as a rule. A helper process joins the box's user namespace, makes the namespace, brings loopback up, and sends it to init over
 * the order socket (ORDER_NET); then it is gone. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "box/init.h"

/* Parent: starts the helper. `init` is init's pidfd, `order` cloche's end of the socket. *ret is the helper's pid, to be waited for with __WALL. */
int netns_start(int init, int order, pid_t *ret, struct err *e);
