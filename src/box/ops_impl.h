/* What the files of the child's half share. */
#pragma once

#include <stdbool.h>
#include <sys/mount.h>

#include "box/plan.h"

#define FIXED_FLAGS (MS_NOSUID | MS_NODEV)

struct walk {
	struct plan *p;
	int root;    /* the new root, O_PATH; also the working directory between ops */
	int scratch; /* the tmpfs that holds the root, or its upper side, and the helpers above */
	int empty;
	int draft;		  /* what keeps the root's upper side, or -1: it is thrown away */
	unsigned views, attached; /* so far: each has a name of its own on the scratch tmpfs */
	bool ready;		  /* the ops marked so stand already */
};

int ops_source_open(struct plan_source *s, struct err *e);
/* Stands in a source, and back in the root. */
int ops_source_enter(struct walk *w, const struct plan_source *s, struct err *e);
int ops_source_leave(const struct walk *w, const struct plan_source *s, struct err *e);
/* The place of an op as a path that mount(2) may follow, or NULL with errno. `*ret_fd` keeps it
 * alive. */
const char *ops_place_path(const struct walk *w, const struct op *op, char buf[64], int *ret_fd);
/* Puts a detached mount there. */
int ops_attach(const struct walk *w, const struct op *op, int tree, struct err *e);
/* OP_LOWER and OP_LAYERS. */
int ops_lower(struct walk *w, const struct op *op, struct err *e);
int ops_layers(struct walk *w, const struct op *op, struct err *e);
