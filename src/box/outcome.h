/* An outcome: what one box came to. Faults come from wait status, kernel counters and cloche's own
 * deadline, never from text and never from an exit code that the program chose. The table in
 * outcome.c is the table of the docs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "box/denied.h"
#include "box/init.h"
#include "box/limits.h"

enum box_fault {
	FAULT_NONE,
	FAULT_TIMEOUT,
	FAULT_OOM,
	FAULT_WORKSPACE_FULL,
	FAULT_ESCAPE_BLOCKED,
	FAULT_KILLED,
	FAULT_INIT_LOST,
	FAULT_EXEC_FAILED,
	FAULT_STARTUP_FAILED,
	FAULT_CANCELLED,
	FAULT_N
};
const char *fault_name(enum box_fault f); /* "timeout", ... as in JSON */

/* What a stream printed: all of it, or its first and last half with `cut` bytes left out between.
 */
struct box_stream {
	char *data;	 /* a mapping that the outcome owns (outcome_free), or NULL */
	size_t mapped;	 /* its size */
	size_t len;	 /* bytes of data that count */
	size_t head_len; /* where in them the cut is; len when nothing was cut */
	uint64_t cut;
};

struct box_outcome {
	enum box_fault fault;
	struct err err; /* its message, and stage for startup_failed */
	int exit_code;	/* of the table; -1: nothing ran and the code is the fault's */
	int signal;	/* that ended the command, 0 for none */
	uint64_t wall_us, start_us;
	struct limit_state limits[LIMIT_N];
	struct limit_usage usage;
	struct box_denied denied[BOX_DENIED_MAX];
	unsigned n_denied;	   /* recorded; one that ended the box is always among them */
	uint64_t unlisted_denials; /* refused when there was no room for one more record */
	unsigned lost_denials;	   /* notifications that a signal took away */
	struct box_stream out, err_out;
	int landlock_abi;
	const char *no_overlay; /* the directory that untrusted refuses to show by bind, or NULL */
	unsigned binds; /* read-only directories of the host that are binds, since no overlay could
			   be had */
	int stream_errno; /* why input or output was not delivered whole, 0 when it was (or nobody
			     listened any more) */
	char note[160];	  /* what the limits have to say in words, or "" */
	uint64_t marks[MARK_N];
};

/* The code that `cloche run` exits with. */
int outcome_code(const struct box_outcome *o);
void outcome_free(struct box_outcome *o);
/* The outcome of what never came to a box. */
void outcome_refused(struct box_outcome *o, const struct err *why);

/* The recorded call that ended the box, or NULL. */
const struct box_denied *outcome_escape(const struct box_outcome *o);

/* What the monitor saw, for outcome_judge: the decision in one place, testable without a box. */
struct box_evidence {
	bool failed; /* init reported that the box never ran; `err` says why */
	const struct err *err;
	bool ended; /* init reported the command's end: `status` */
	int status;
	bool start_deadline; /* cloche ended it while it was being built */
	bool deadline;	     /* cloche ended it at its deadline */
	bool cancelled; /* cloche ended it because the caller asked twice, or the command died of
			   the forwarded signal */
	bool killed;	/* the caller sent the command a SIGKILL */
	enum limit_hit hit;		 /* a limit that cloche saw hit and ended the box for */
	uint64_t oom_kills;		 /* of the box's own cgroup; UINT64_MAX unknown */
	const struct box_denied *escape; /* the refused escape call that ended it */
};
void outcome_judge(const struct box_spec *spec, const struct box_evidence *v,
		   struct box_outcome *o);
