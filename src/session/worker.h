/* The process that works with a sandbox's files, so that the loop never waits for a disk. It speaks
 * the client's own frames: the loop hands requests on as they came, and their answers back.
 *
 * A sandbox has one for what is short, which answers in the order of the requests, and one more for
 * each request that may take long (snapshot, restore, fork). */
#pragma once

#include <stdbool.h>

#define WORKER_SOCKET 0 /* both ways */
#define WORKER_LIFE                                                                                \
	3 /* a pipe's end: when the other goes, SIGTERM ends the process and its own               \
	   */

struct worker_options {
	const char *dir;   /* the workspace */
	const char *place; /* which directory that must be, which is judged as a mount is; NULL: a
			    * temporary one, made by the loop */
	const char *image; /* cloche-image; "": it is not there */
	const char *max;   /* bytes that a restore may bring, or NULL */
	const char *to;	   /* of a fork: the directory, made by the loop, that the copy goes into */
};
/* Returns the exit code, when the loop has gone. */
int worker_run(const struct worker_options *o);
/* Removes the directory `name` in WORKER_SOCKET, which is one, with all in it. */
int worker_remove(const char *name);
