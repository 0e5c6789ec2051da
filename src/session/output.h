/* What a command prints: read as it comes, kept up to a cut, and, live, sent on. A client that
 * takes nothing, or has not acknowledged a window's worth, holds up that command alone, by its full
 * pipe.
 */
#pragma once

#include "box/relay.h"
#include "session/serve.h"

struct stream {
	struct output *of;
	const char *name; /* "stdout" */
	int fd;		  /* -1: at its end, or never opened */
	struct source src;
	struct relay kept;
	bool held;     /* not read: the command does not run yet, or there is no room */
	uint64_t left; /* after the end: what is still to be taken */
};

struct output {
	struct session *s;
	struct stream out, err;
	bool live; /* set by its owner before output_run */
	bool running, ended;
	size_t unacked;
	uint64_t stored; /* what is kept, until output_close */
	struct pump pump;
	void *ctx;
	json_t *(*event)(void *ctx, const char *name); /* of live output, without its bytes */
	void (*moved)(void *ctx);		       /* something was taken: it may be finished */
};

/* Nothing is open. */
void output_init(struct output *o, struct session *s, void *ctx,
		 json_t *(*event)(void *ctx, const char *name), void (*moved)(void *ctx));
/* t is one of o's two; at most `cap` bytes are kept. fd is its own from then on. */
int output_open(struct output *o, struct stream *t, const char *name, int fd, uint64_t cap,
		struct err *e);
/* The command runs: nothing is read before. */
void output_run(struct output *o);
/* The command has ended: no more is read than is there now. */
void output_finish(struct output *o);
bool output_finished(const struct output *o);
/* The client has taken so many bytes of live output. */
void output_ack(struct output *o, size_t n);
/* What was kept of a stream, once. */
void output_take(struct stream *t, struct box_stream *ret);
void output_close(struct output *o);
