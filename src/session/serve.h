/* A session of `cloche serve`: one client, one loop, until the client's end.
 *
 *	client --requests--> serve.c: read, checked by request.c, handed to the operation
 *	                     sandbox.c: open, close; the spawner        call.c: run, run_code,
 *start, ... client <--frames---- out.c, when the client takes them
 *
 * Who can't answer a request at once keeps a `struct pending` with its id. Who has more to send
 *than there is room for waits as a `struct pump`. Nothing here blocks, and nothing grows by what a
 * client, a spawner or a box does beyond the bounds below. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session/error.h"
#include "session/frame.h"
#include "session/loop.h"
#include "session/out.h"
#include "session/request.h"
#include "state/owner.h"

#define SES_PROTOCOL_VERSION 1
#define SES_PATH_TEXT 4096
#define SES_BOXES 128	       /* at once */
#define SES_QUEUE 1024	       /* calls that wait for a place */
#define SES_CALLS_MAX 4096     /* calls there are, those that nobody has waited for among them */
#define SES_PENDING_MAX 8192   /* requests without an answer */
#define SES_SANDBOXES_MAX 1024 /* open at once */
#define SES_UPLOADS_MAX 64     /* requests whose payload is not whole yet */
#define SES_HELD_BYTES (256u << 20) /* of payloads that nobody else has yet */
#define SES_KEPT_BYTES (1u << 30)   /* of output that waits for a `wait` */
#define SES_STORED_BYTES (1u << 30) /* of output that is kept: with more, each stream keeps */
#define SES_STORED_LEAST (1u << 20) /* this much, or as much again as it has */
#define SES_CONNS 1024		    /* to ports of boxes, at once */
#define SES_WINDOW (1u << 20)	    /* un-acknowledged live output of a command */

struct session;

/* A request that has no answer yet. */
struct pending {
	uint64_t id; /* 0: not there */
	struct pending *next;
	void *owner;
	/* `by` asks that the request be given up: answers `by` when it is gone. NULL: it can't be.
	 */
	void (*cancel)(struct session *s, void *owner, uint64_t by);
	/* Takes the next part of its payload. NULL: it takes none. */
	void (*more)(struct session *s, void *owner, const struct request *r);
	/* So many bytes of its live output were taken. NULL: it has none. */
	void (*ack)(struct session *s, void *owner, size_t n);
};
#define SES_BUCKETS 256

/* Waits for room in what goes to the client. */
struct pump {
	bool waits;
	struct pump *prev, *next;
	void (*go)(void *ctx);
	void *ctx;
};

struct call;
struct sandbox;
struct upload;

struct session {
	struct loop loop;
	struct frame_reader in;
	struct source in_src, out_src, stop_src;
	int in_fd;
	struct out out;
	bool greeted, acks, ending;
	int code;
	const char *cloche; /* the program that runs boxes */
	unsigned boxes_max, queue_max, conns_max;
	unsigned n_conns; /* to ports of boxes; other users can make them, too */
	int spare;	  /* a descriptor for when there is none */

	struct pending *pending[SES_BUCKETS];
	size_t n_pending;
	struct pump room; /* the list's head */

	struct sandbox *sandboxes;
	unsigned n_sandboxes, last_sandbox;
	struct call *queue, **queue_end;
	unsigned boxes, queued, calls;
	bool pumping;
	bool unread;	  /* a whole frame may be in the reader's buffer */
	unsigned stalled; /* processes that have to take more before a request is read */
	struct upload *uploads;
	unsigned n_uploads;
	size_t held_bytes, kept_bytes;
	uint64_t stored_bytes;
	struct state_owner owner; /* where temporary workspaces are; made at first use */
	bool owned;
};

struct serve_options {
	int in, out;
	const char *cloche;
	unsigned boxes_max, queue_max; /* 0: as above */
};
/* Returns the exit code. */
int serve(const struct serve_options *o);

/* Answers. `fields` is taken over (NULL: none). */
void reply_event(struct session *s, uint64_t id, const char *event, json_t *fields);
void reply_bytes(struct session *s, uint64_t id, const char *event, const void *bytes, size_t n);
void reply_done(struct session *s, uint64_t id, json_t *fields);
void reply_fail(struct session *s, uint64_t id, const struct ses_error *e);
/* As reply_fail, with a message alone; or with that of *e. */
void reply_refuse(struct session *s, uint64_t id, enum ses_error_type type, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
void reply_err(struct session *s, uint64_t id, const struct err *e);

/* The owner of a pending request is `owner`; it must not be there already. */
void pending_add(struct session *s, struct pending *p, uint64_t id, void *owner);
void pending_drop(struct session *s, struct pending *p);
struct pending *pending_find(struct session *s, uint64_t id);

void pump_wait(struct session *s, struct pump *p, void (*go)(void *ctx), void *ctx);
void pump_drop(struct pump *p);

/* upload.c: gathers a payload that comes in parts, and hands the request on when it is whole. */
void upload_begin(struct session *s, const struct request *r);
void upload_drop_all(struct session *s);
/* serve.c: an operation whose payload is whole; memfd, when it is not -1, holds it, and is closed
 * here. */
void serve_operation(struct session *s, struct request *r);
