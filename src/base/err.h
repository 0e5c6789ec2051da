/* Errors: a fixed-size value, so that it works between clone and exec and travels from child to
 * parent in one write.
 *
 * Contract of every function that takes a `struct err *e` as its last argument: it returns 0 or -1;
 * *e is set if and only if it returns -1; its outputs are untouched on failure. Context is put in
 * front of the message on the way up (err_prefix) and never cuts the cause. Nothing here allocates.
 */
#pragma once

#include <stddef.h>

enum err_kind {
	ERR_NONE,
	ERR_USAGE,     /* the caller's words are wrong: exit code 2 */
	ERR_REFUSED,   /* a rule of ours forbids it; the message names rule and option */
	ERR_MISSING,   /* the host lacks something; the message names it and the fix */
	ERR_SYS,       /* a system call failed; `num` holds errno */
	ERR_NAMESPACE, /* the kernel refused a namespace or what is done in one; `num` holds errno,
			  `msg` names the step, and the parent says why (box/userns_why.h) */
	ERR_EXEC,      /* the box's command could not be executed; `num` holds errno */
	/* What a file of a workspace is not (session/workspace.h); `num` is 0. */
	ERR_PATH,      /* the path leaves it, passes a link, or names what is of the wrong kind */
	ERR_NOT_FOUND, /* nothing is there */
	ERR_EXISTS,    /* something is there already */
	ERR_TOO_LARGE, /* more than may be read or listed */
	ERR_KIND_N
};

/* The step of a start that failed, as it stands in an outcome (`fault.stage`). A static_assert ties
 * the names to it. */
enum err_stage {
	STAGE_NONE,
	STAGE_SPEC,	 /* options and files named by them */
	STAGE_IMAGE,	 /* the root file system's source */
	STAGE_WORKSPACE, /* the shared directory */
	STAGE_MOUNT,	 /* -v, --tmpfs, and the box's own mounts */
	STAGE_LIMITS,	 /* cgroup, rlimits */
	STAGE_NAMESPACE, /* clone, id maps */
	STAGE_NETWORK,	 /* loopback and its settings */
	STAGE_LOCKS,	 /* capabilities, Landlock, seccomp, AppArmor */
	STAGE_COMMAND,	 /* terminal, working directory, spawn */
	STAGE_N
};

struct err {
	enum err_kind kind;
	enum err_stage stage;
	int num; /* errno, or 0 */
	char msg[500];
};

/* Fills *e from a format and returns -1. */
int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* As err_set with ERR_SYS and the current errno, whose text is appended after ": ", and after it
 * how to mend it where errno alone tells. Returns -1. */
int err_sys(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* As err_sys, after a process or thread could not be started: says which limits may be the cause.
 * Returns -1. */
int err_fork(struct err *e, const char *what);
extern const char err_fork_fix[];
/* As err_sys, after a file of /proc could not be opened: says so when no /proc is mounted.
 * Returns -1. */
int err_proc(struct err *e, const char *path);
/* Puts "text: " in front of the message; when it does not fit, the context is cut, never the cause.
 * Returns -1. */
int err_prefix(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Names the stage unless a deeper layer already did. Returns -1. */
int err_at(struct err *e, enum err_stage stage);
/* The stage's name as it stands in JSON ("mount"), "" for STAGE_NONE. */
const char *err_stage_name(enum err_stage stage);
