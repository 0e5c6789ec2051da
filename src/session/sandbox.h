/* A sandbox: its options, its workspace, and the spawner that makes its boxes (spawn.h). */
#pragma once

#include "session/options.h"
#include "session/serve.h"

enum sandbox_state {
	SANDBOX_OPENING, /* its spawner has said nothing yet */
	SANDBOX_READY,
	SANDBOX_FAILED,	 /* no box can be had: every call has `fault` as its outcome */
	SANDBOX_CLOSING, /* waits for its calls, then for its spawner */
};

struct sandbox {
	struct session *s;
	struct sandbox *next;
	unsigned number;
	enum sandbox_state state;
	struct ses_options options;
	struct pending open, close;
	uint64_t closing; /* the id of its `close`; 0: none, as at the end of the session */

	char workspace[SES_PATH_TEXT], own[64]; /* own: its name below the session's directory */
	int sock, pidfd;
	struct source sock_src, pid_src;
	int progress;
	struct source progress_src;
	char line[4096]; /* of the progress */
	size_t line_n;

	json_t *facts;	 /* what READY brought */
	json_t *outcome; /* FAILED: of every call */
	struct call *calls;
	struct files *files; /* processes that work with its files */
	bool swept;	     /* its directory is gone, or somebody is on it */
	struct files *forking; /* the process that fills its workspace */
	json_t *given;	     /* `options` of its open, for those that are forked off it */
};

void sandbox_open(struct session *s, const struct request *r);
void sandbox_close(struct session *s, const struct request *r);
void sandbox_fork(struct session *s, const struct request *r);
/* The sandbox that a request names; NULL: the error is answered. */
struct sandbox *sandbox_of(struct session *s, const struct request *r);
/* A call of it, or a process, is gone. */
void sandbox_part_gone(struct sandbox *sb);
/* Ends all of it; later, frees it. */
void sandbox_end(struct sandbox *sb);
json_t *sandbox_info(const struct sandbox *sb);
