/* One thread, one epoll: who waits for a descriptor has a `struct source` in a struct of its own.
 *
 * Within one round a source may be removed while an event of it was fetched already; such an event
 * is passed over. Memory that holds a source is freed by loop_free only: after the round. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct source {
	int fd; /* not owned; -1: not in the loop */
	void (*ready)(void *ctx, unsigned events);
	void *ctx;
	unsigned events;
	bool always;	     /* a regular file: epoll takes none, and it never makes anybody wait */
	struct source *next; /* of those */
};

#define LOOP_BATCH 64

struct loop {
	int epoll;
	struct source *always;
	void **dead;
	size_t n_dead, cap_dead;
};

int loop_open(struct loop *l, struct err *e);
void loop_close(struct loop *l);
/* Waits for `events` (EPOLLIN, EPOLLOUT, or 0: for a hang-up alone) of fd. The source must be zero
 * or removed. */
int loop_add(struct loop *l, struct source *s, int fd, unsigned events,
	     void (*ready)(void *ctx, unsigned events), void *ctx, struct err *e);
/* What is waited for from now on. EPOLLET with 0 to see a hang-up only once. */
void loop_want(struct loop *l, struct source *s, unsigned events);
void loop_remove(struct loop *l, struct source *s);
/* Frees p when the round is over. */
void loop_free(struct loop *l, void *p);
/* One round. timeout_ms -1: as long as it takes. 0, or -1 with *e. */
int loop_round(struct loop *l, int timeout_ms, struct err *e);
/* CLOCK_MONOTONIC in microseconds. */
uint64_t loop_now(void);
