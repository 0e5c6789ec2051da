/* A running process's own directory below the runtime directory, and the removal of those whose
 * owner is gone.
 *
 * The name carries the owner's pid and start time ("owner-4711-90210"), and the owner holds a
 * flock(2) on the directory as long as it lives: the lock is what counts (it ends with the owner
 * however that ends, and holds across pid namespaces), the name only tells a directory that is just
 * being made from one that was left. */
#pragma once

#include "base/err.h"

struct state_owner {
	int runtime_fd; /* the runtime directory, or -1 */
	int fd;		/* our own directory, locked, or -1 */
	char name[64];
};

/* Makes and locks the caller's directory (and the runtime directory when it is missing).
 * Descriptors are close-on-exec; a child that outlives the caller must close `fd`, else the
 * directory counts as owned. */
int state_owner_open(struct state_owner *ret, struct err *e);
/* Removes the directory with all in it and closes. Safe on a struct whose descriptors are -1. */
void state_owner_close(struct state_owner *o);

/* Removes at most `max` directories of dead owners; never makes the runtime directory, follows no
 * link, leaves no file system. Returns how many went. What can't be removed stays for the next
 * sweep. */
unsigned state_sweep(unsigned max);
/* As above, and names each one that went. */
unsigned state_sweep_each(unsigned max, void (*gone)(void *ctx, const char *name), void *ctx);
