/* Programs that the loop starts. They are started as posix_spawn(3) does it, by a child that shares
 * this process's memory until it executes: so the cost does not grow with the loop. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

#define CHILD_FDS_MAX 7

struct child_how {
	const char *path;
	char *const *argv, *const *env;
	int fds[CHILD_FDS_MAX]; /* what its descriptors 0, 1, ... are; -1: /dev/null */
	unsigned n_fds;
	bool die_with_us; /* SIGKILL when this process ends, however it does */
};

/* *ret_pidfd is close-on-exec; the child is reaped by child_reap, or not at all. */
int child_start(const struct child_how *how, int *ret_pidfd, struct err *e);
/* After its pidfd is readable: the exit code, or 128 + signal. */
int child_reap(int pidfd);
void child_kill(int pidfd);
/* To one that runs a box: the box ends, and then the child. The first signal is the command's, the
 * second means the box; one that runs none is ended by either. */
void child_end(int pidfd);
