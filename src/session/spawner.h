/* The process that makes a sandbox's boxes (spawn.h), as the loop sees it. A sandbox has one, and
 * for a while an older one, whose calls still run after a setup has put another in its place. */
#pragma once

#include "session/loop.h"
#include "session/progress.h"
#include "session/spawn.h"

struct sandbox;

struct spawner {
	struct sandbox *sb;
	struct spawner *next;
	int sock, pidfd;
	struct source sock_src, pid_src;
	struct progress progress;
	bool said;	/* READY or FAILED */
	unsigned calls; /* that were given to it and have not ended */
	bool retired;	/* goes when these have ended */
	bool holds;	/* the workspace in memory is its: it goes with the sandbox only */
};

/* Starts one with these words ("spawn", ...), into the sandbox's list. NULL with *e. */
struct spawner *spawner_start(struct sandbox *sb, char *const *words, size_t n, struct err *e);
/* A call of it has ended. */
void spawner_call_ended(struct spawner *p);
/* It goes as soon as its calls have ended. */
void spawner_retire(struct spawner *p);
/* It goes now, and takes what runs with it. */
void spawner_end(struct spawner *p);
