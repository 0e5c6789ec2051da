/* Whom a box belongs to, when that is a program that goes on talking to it while it runs: its
 * orders come over one descriptor, its answers go by functions. A box whose owner hangs up ends at
 * once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>

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

struct box_owner {
	int fd; /* borrowed */
	/* Reads what has come; never blocks. */
	struct box_order (*take)(struct box_owner *o);
	void (*started)(struct box_owner *o);
	/* `fd` is a connected stream socket that stays the box's, or -1 and `num` says why. */
	void (*connected)(struct box_owner *o, uint64_t tag, int fd, int num);
};
