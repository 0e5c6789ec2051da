/* A sandbox: its options, its workspace, and the spawner that makes its boxes (spawn.h). */
#pragma once

#include "session/options.h"
#include "session/serve.h"
#include "session/workspace.h"
#include "session/spawner.h"

enum sandbox_state {
	SANDBOX_OPENING, /* its `open` has no answer yet */
	SANDBOX_OPEN,
	SANDBOX_CLOSING, /* waits for its calls, then for its processes */
};

struct sandbox {
	struct session *s;
	struct sandbox *next;
	unsigned number;
	enum sandbox_state state;
	struct ses_options options;
	struct pending open;
	bool live;	  /* what its `setup` prints is sent on */
	uint64_t closing; /* the id of its `close`; 0: none, as at the end of the session */

	char workspace[SES_PATH_TEXT], own[64]; /* own: its name below the session's directory */
	int dir;	      /* the workspace in memory, in place of the directory; -1: none */
	int holder;	      /* whom its spawners have it from (SPAWN_HOLDER), or -1 */
	struct sandbox *from; /* whose files it gets before it is open, or NULL */
	bool made;	      /* the workspace that was named was missing, and was made */
	char place[SES_PLACE_TEXT]; /* which directory it was when the sandbox was opened */
	struct spawner *spawners;   /* all that live */
	struct spawner *current;    /* the one that takes calls, or NULL */
	struct spawner *coming;	    /* the one that has said nothing yet, or NULL */
	char *image;		    /* that a setup has made; NULL: that of the options */
	struct setup *setup;	    /* the one that is on its way */

	json_t *facts;	 /* what READY brought */
	json_t *outcome; /* of every call, when no box can be had */
	struct call *calls;
	unsigned n_calls;
	struct files *files;   /* processes that work with its files */
	bool ending;	       /* it is being told to go */
	bool swept;	       /* its directory is gone, or somebody is on it */
	struct files *forking; /* the process that fills its workspace */
	json_t *given;	       /* `options` of its open, for those that are forked off it */
};

void sandbox_open(struct session *s, const struct request *r);
void sandbox_close(struct session *s, const struct request *r);
void sandbox_fork(struct session *s, const struct request *r);
/* The sandbox that a request names; NULL: the error is answered. */
struct sandbox *sandbox_of(struct session *s, const struct request *r);
/* Starts the spawner for the image as it is now; what comes of it is told by sandbox_hello. */
int sandbox_spawn(struct sandbox *sb, struct ses_error *e);
/* Every call has this outcome from now on (taken over). */
void sandbox_fault(struct sandbox *sb, json_t *outcome);
/* No box can be had, or not even tried: `open` is answered. */
void sandbox_failed(struct sandbox *sb, json_t *outcome);
void sandbox_refused(struct sandbox *sb, const struct ses_error *e);
/* What its spawner says, and that it has gone. Descriptors that are not taken stay the caller's. */
void sandbox_hello(struct sandbox *sb, struct spawner *p, const struct spawn_hello *hello,
		   int fds[SPAWN_HELLO_FDS]);
void sandbox_progress(struct sandbox *sb, const char *line, size_t n);
/* An outcome with the fault startup_failed. */
json_t *sandbox_no_start(const char *stage, const char *message);
void sandbox_spawner_gone(struct sandbox *sb, struct spawner *p);
/* A call of it, or a process, is gone. */
void sandbox_part_gone(struct sandbox *sb);
/* Ends all of it; later, frees it. */
void sandbox_end(struct sandbox *sb);
json_t *sandbox_info(const struct sandbox *sb);
