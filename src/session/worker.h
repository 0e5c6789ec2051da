/* The process that works with a sandbox's files, so that the loop never waits for a disk. It speaks
 * the client's own frames: the loop hands requests on as they came, and their answers back.
 *
 * A sandbox has one for what is short, which answers in the order of the requests, and one more for
 * each request that may take long (snapshot, restore, fork). */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define WORKER_SOCKET 0 /* both ways */
/* A pipe's end: when the other goes, SIGTERM ends the process and its own. */
#define WORKER_LIFE 3

#define WORKER_CANCELS 4 /* a memfd with a struct worker_cancels; of a worker for what is short */

/* Shared by both sides, since the worker reads its socket only when it has worked off what came
 * before. Operations are counted from 1 on; the loop writes the n-th's number to v[n % OPS] to have
 * it given up, and sends a `cancel` after it, for a write_file that waits for its next part. */
#define WORKER_OPS_MAX 4096 /* that wait for one worker */
struct worker_cancels {
	_Atomic uint64_t v[WORKER_OPS_MAX];
};

#define WORKER_DIR 5 /* the workspace, when it is `held` */
#define WORKER_TO 6  /* the same of a fork */
#define WORKER_FDS 7

struct worker_options {
	const char *dir;   /* the workspace */
	const char *place; /* which directory that must be, which is judged as a mount is; NULL: a
			    * temporary one, made by the loop */
	const char *image; /* cloche-image; "": it is not there */
	const char *max;   /* bytes that a restore may bring, or NULL */
	bool held;	   /* in memory, open as WORKER_DIR */
	const char *to;	   /* of a fork: the directory, made by the loop, that the copy goes into */
	bool to_held;	   /* it is WORKER_TO */
};
/* Returns the exit code, when the loop has gone. */
int worker_run(const struct worker_options *o);
/* Removes the directory `name` in WORKER_SOCKET, which is one, with all in it. */
int worker_remove(const char *name);
