/* The listener: answers the calls that the filter sends to cloche, on a thread that only ever
 * blocks in RECV.
 *
 * An event loop that polls before it receives loses what a signal takes away in between (measured:
 * up to half of the calls of a process under a fast timer leave no trace); a blocked RECV gets one
 * ENOENT for each. The refusal never depends on the record: without an answer the call does not
 * happen, and if the listener goes, it answers ENOSYS. Source: seccomp_unotify(2). */
#pragma once

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/err.h"
#include "box/outcome.h"
#include "box/seccomp.h"

struct notify {
	bool running;
	sem_t given;  /* posted when what follows is set */
	int listener; /* owned */
	int init;     /* pidfd of init, borrowed: killing it ends the box */
	int order;    /* its socket, borrowed: hanging up does so too */
	pid_t init_pid;
	const struct box_spec *spec;
	const struct sc_request *request;
	pthread_mutex_t lock; /* of the records: the listener's thread and those that mediate write
				 them */
	struct box_denied denied[BOX_DENIED_MAX];
	unsigned n_denied;
	uint64_t unlisted;
	atomic_uint lost, mediating;
	atomic_int tid; /* of the thread, once it runs */
	atomic_bool stop;
	atomic_int escape; /* index into denied + 1 of the call that ended the box; 0 none */
};

/* Starts the thread, before the command runs: it may fail, and a command without a listener must
 * never have run. It waits for notify_start, or for the end of the process. */
int notify_open(struct notify *n, struct err *e);
/* Hands the listener over. `init` must stay open until the thread is gone. */
void notify_start(struct notify *n, int listener, int init, int order, pid_t init_pid,
		  const struct box_spec *spec, const struct sc_request *request);
/* When nobody is left who could make a refused call: the thread ends while its owner goes on, which
 * the end of the process would have to wait for. Only a hint: a thread that misses it is ended by
 * that. */
void notify_stop(struct notify *n);
/* The call that ended the box, or NULL. */
const struct box_denied *notify_escape(const struct notify *n);
/* Copies the records into the outcome. */
void notify_tell(struct notify *n, struct box_outcome *ret);
