/* What the parts of the worker share. */
#pragma once

#include "base/json.h"
#include "box/mount_check.h"
#include "session/error.h"
#include "session/frame.h"
#include "session/out.h"
#include "session/request.h"
#include "session/worker.h"
#include "session/workspace.h"

struct writing;

struct worker {
	struct out out;
	struct ses_workspace place;
	struct ses_error refused; /* why there is no workspace */
	struct writing *writes;
	unsigned n_writes;
	const char *dir, *image, *max, *to;
	bool to_held;
	struct worker_cancels *cancels; /* NULL: one for a single request */
	uint64_t op;			/* the number of the one that is worked on */
};

void worker_done(struct worker *w, uint64_t id, json_t *fields);
void worker_refuse(struct worker *w, uint64_t id, const struct ses_error *e);
void worker_fail(struct worker *w, uint64_t id, const struct err *why);

/* worker_tree.c: what may take long */
void worker_snapshot(struct worker *w, const struct request *r);
void worker_restore(struct worker *w, const struct request *r);
void worker_fork(struct worker *w, const struct request *r);
