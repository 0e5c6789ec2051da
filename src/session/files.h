/* Requests about a sandbox's files, in the loop: they go to a worker (worker.h), and its answers to
 * the client. */
#pragma once

#include "session/sandbox.h"

/* Any operation on files; also the parts of a write_file. */
void files_operation(struct session *s, const struct request *r);
/* Ends all of the sandbox's workers; who waits for an answer gets `closed`. They are gone when
 * sb->files is NULL. */
void files_end(struct sandbox *sb);
/* The workspace of `sb`, copied into the own one of `to`; when that is done, or has failed,
 * done(to, error or NULL). The request `id` of the copy can be cancelled meanwhile. */
void files_fork(struct sandbox *sb, struct sandbox *to, uint64_t id,
		void (*done)(struct sandbox *to, json_t *error));
/* Gives that copy up, and calls nothing. */
void files_fork_drop(struct sandbox *to);
/* Removes the temporary workspace: at once when it is empty, else by a process. */
void files_remove(struct sandbox *sb);
