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
#define WORKER_LIFE                                                                                \
	3 /* a pipe's end: when the other goes, SIGTERM ends the process and its own               \
	   */

#define WORKER_CANCELS 4 /* a memfd with a struct worker_cancels; of a worker for what is short */

/* Shared by both sides, since the worker reads its socket only when it has worked off what came
 * before. Operations are counted from 1 on; the loop writes the n-th's number to v[n % OPS] to have
 * it given up, and sends a `cancel` after it, for a write_file that waits for its next part. */
#define WORKER_OPS_MAX 4096 /* that wait for one worker */
struct worker_cancels {
	_Atomic uint64_t v[WORKER_OPS_MAX];
};

struct worker_options {
	const char *dir;   /* the workspace */
	bool own;	   /* a temporary one, made by the loop; else it is judged as a mount is */
	const char *image; /* cloche-image; "": it is not there */
	const char *max;   /* bytes that a restore may bring, or NULL */
	const char *to;	   /* of a fork: the directory, made by the loop, that the copy goes into */
};
/* Returns the exit code, when the loop has gone. */
int worker_run(const struct worker_options *o);
/* Removes the directory `name` in WORKER_SOCKET, which is one, with all in it. */
int worker_remove(const char *name);
