/* Calls: one command in one box. A call waits in the queue, is given to the spawner of its sandbox,
 * runs, and its outcome is sent: at once, or, when `start` began it, to whoever asks by `wait`. */
#pragma once

#include "session/output.h"
#include "session/result.h"
#include "session/serve.h"
#include "session/spawn.h"

enum call_state {
	CALL_QUEUED,
	CALL_STARTING, /* the spawner has it */
	CALL_RUNNING,
	CALL_ENDED,   /* the box is gone; what it printed is taken */
	CALL_KEPT,    /* the outcome waits for `wait` */
	CALL_SENDING, /* the outcome is on its way */
};

struct call {
	struct session *s;
	struct sandbox *sb;
	struct spawner *spawner; /* that was given it, until the box is gone */
	struct call *next_of_sandbox, *next_queued;
	struct pending pending; /* of the request; after `start` was answered, its id as a call */
	struct pending wait;
	uint64_t signals; /* a bit each, until the command runs */
	bool resized;	  /* and so long the size is that of the order */
	enum call_state state;
	bool background, cancelled;
	uint64_t *cancels; /* ids of the `cancel`s that wait for the end */
	size_t n_cancels;

	struct spawn_call order;
	struct spawn_fds fds; /* until the spawner has them */
	size_t held;	      /* bytes of them */
	size_t kept;	      /* bytes of output that wait for `wait` */
	uint64_t queued_at;
	int control;
	struct source control_src;
	struct output output;

	int in; /* our end of the command's standard input */
	struct source in_src;
	char *in_data; /* of in_pending */
	size_t in_at, in_n;
	bool in_eof;
	struct pending in_pending;

	struct port *ports;
	uint64_t tags; /* of connections, so far */

	struct pump pump;
	struct result result;
};

/* run, run_code, start; memfd: the payload, or -1. */
void call_begin(struct session *s, const struct request *r);
/* wait, signal, stdin, resize, ack, port */
void call_operation(struct session *s, const struct request *r);
/* Gives places to those that wait. */
void call_pump_queue(struct session *s);
/* Ends the box; the outcome is that of the cancel. */
void call_cancel(struct call *c);
/* Its sandbox is being closed. */
void call_close(struct call *c);
/* Frees it, whatever it is doing; nothing is answered. */
void call_drop(struct call *c);

/* call_told.c */
/* An order to the keeper; a size is that of c->order. False: so many wait there that this one has
 * no room. */
bool call_order(struct call *c, enum spawn_kind kind, int sig);
/* Refuses what only a call can do that was started with that option. */
void call_lacks(struct call *c, uint64_t id, const char *option);
void call_signal(struct call *c, const struct request *r);
void call_resize(struct call *c, const struct request *r);

/* call_stdin.c */
int call_stdin_open(struct call *c, int fd, struct err *e); /* fd is its own from then on */
void call_stdin(struct call *c, const struct request *r);
void call_stdin_end(struct call *c);
