/* The box's network namespace, made beside the rest of the start: the kernel needs as long for it
 * as for everything else together, and there is a second core as a rule. A helper of init's, in the
 * box's own user and pid namespaces, makes it and brings loopback up while init builds the file
 * system; init then moves over.
 *
 * The helper shares init's memory and descriptors, but no more: to copy them would take as long as
 * a quarter of its work. It runs on a stack of its own and touches nothing but its struct netns.
 * errno, which it shares, is written by calls that fail, and then the box fails with it. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

struct netns {
	pid_t pid; /* 0: none was started */
	int proc;  /* /proc of the host, open before the root changes */
	int fd;	   /* the helper's result */
	struct err err;
};

/* In init, as soon as it is in the box's user namespace. `*n` must stay where it is until
 * netns_enter. */
int netns_start(struct netns *n, struct err *e);
/* Waits for the helper and moves init into the namespace. */
int netns_enter(struct netns *n, struct err *e);
