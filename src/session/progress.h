/* What a child of the loop tells of its progress: lines of JSON in a pipe, each an event `progress`
 * of the request that waits for it. */
#pragma once

#include "session/loop.h"

struct sandbox;

struct progress {
	struct sandbox *sb;
	int fd; /* -1: not open */
	struct source src;
	char line[4096];
	size_t n;
};

/* *theirs is the end that the child writes into. */
int progress_open(struct progress *p, struct sandbox *sb, int *theirs, struct err *e);
/* Reads what is there and waits for nothing. */
void progress_drain(struct progress *p);
void progress_close(struct progress *p);
