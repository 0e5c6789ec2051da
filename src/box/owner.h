/* Whom a box belongs to, when that is a program that goes on talking to it while it runs: its
 * orders come over one descriptor, its answers go by functions. A box whose owner hangs up ends at
 * once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>

#include "base/err.h"

enum box_order_kind {
	BOX_ORDER_NONE,
	BOX_ORDER_CANCEL,  /* end it; so does a hang-up */
	BOX_ORDER_SIGNAL,  /* to the command's process group */
	BOX_ORDER_RESIZE,  /* of its terminal */
	BOX_ORDER_CONNECT, /* to a port of the box's own loopback */
};

struct box_order {
	enum box_order_kind kind;
	int sig;
	struct winsize size;
	uint16_t port;
	uint64_t tag; /* CONNECT: comes back with the answer */
};

/* What to run. The descriptors are the box's from then on; -1: none. */
struct box_claim {
	int words;	  /* base/sealed.h: argv, environment, and a list of one, the directory */
	int in, out, err; /* the command's own; none of them with a terminal */
	int code;	  /* sealed bytes that become the file BOX_CODE */
};

struct box_outcome;

struct box_owner {
	int fd; /* borrowed: where the claim comes from; what `claim` puts here instead gives orders
		 */
	/* What to run has come. Fills *ret, and of the box's spec and io what cloche's own side
	 * goes by: argv, tty, interactive, the deadline. 1; 0: nobody will claim it any more; -1
	 * with *e: it can't be run. */
	int (*claim)(struct box_owner *o, struct box_claim *ret, struct err *e);
	/* Reads an order; never blocks. */
	struct box_order (*take)(struct box_owner *o);
	void (*started)(struct box_owner *o);
	/* `fd` is a connected stream socket that stays the box's, or -1 and `num` says why. */
	void (*connected)(struct box_owner *o, uint64_t tag, int fd, int num);
	/* The command and all it left are gone and this came of it; what remains is to clean up. */
	void (*over)(struct box_owner *o, const struct box_outcome *out);
};
