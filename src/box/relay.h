/* Carries bytes between the box's pipes (or terminal) and the caller: streaming with back-pressure,
 * or captured up to a cut that keeps head and tail. Never blocks; memory is bounded by the cut. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "box/outcome.h"

#define RELAY_CHUNK 65536

/* One direction: from -> chunk -> to. */
struct relay {
	int from;	 /* -1: at its end */
	int to;		 /* -1: captured, or closed */
	bool to_regular; /* a regular file takes any size at once; others at most PIPE_BUF after
			    POLLOUT */
	bool keep_from;	 /* `from` is not ours (the caller's standard input, a terminal's master):
			    never closed here */
	bool own_to; /* `to` is ours: closed when `from` ended and all is written (the box's stdin)
		      */
	char *chunk; /* RELAY_CHUNK bytes, made at first use */
	size_t at, len;
	int failed; /* errno of a read, or of a write that failed for another reason than a reader
		       who left */
	/* capture */
	bool capture;
	char *store; /* mapped once: first half head, second half (a byte more when odd) a ring */
	uint64_t cap, total;
	size_t mapped;
};

void relay_init(struct relay *r, int from, int to);
/* One of the caller's descriptors, opened anew for us alone and without blocking, so that neither a
 * reader who stopped nor another writer on the same pipe can stop the deadline; *ret_own tells
 * whether that went. Else `fd` itself. */
int relay_reopen(int fd, int flags, bool *ret_own);
/* Captures instead of writing; `cap` bytes at most are kept. */
int relay_capture(struct relay *r, uint64_t cap, struct err *e);
/* Captures what was read by somebody else. */
void relay_store(struct relay *r, const char *data, size_t n);
/* Memory is short: what is kept from now on is `least` bytes, or twice of what is kept already. */
void relay_narrow(struct relay *r, uint64_t least);
/* How much is kept. */
static inline uint64_t relay_kept(const struct relay *r)
{
	return r->total < r->cap ? r->total : r->cap;
}
/* Fills up to two pollfds (events 0 and fd -1 when not waiting); returns how many. */
unsigned relay_poll(const struct relay *r, struct pollfd p[2]);
/* Moves what can be moved, by the revents of the two pollfds. */
void relay_move(struct relay *r, short in, short out);
/* After the box is gone: takes what is still in `from` without waiting for its end. */
void relay_drain(struct relay *r);
static inline bool relay_pending(const struct relay *r)
{
	return r->at < r->len && r->to >= 0;
}
/* Gives what was captured to `s` (which owns it from then on), without copying it. */
void relay_take(struct relay *r, struct box_stream *s);
void relay_close(struct relay *r);
