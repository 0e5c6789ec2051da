/* Init: the first process of a box. A fork of cloche that never executes anything itself: it builds
 * the file system, locks itself in, spawns the command, reaps, takes orders over one socket,
 * reports, and exits; its end is the end of everything in the box.
 *
 * The socket (SOCK_SEQPACKET) is orders, reports and life pipe in one: the other end is held by
 * cloche alone, and its hang-up ends the box. Messages are fixed structs; both ends are the same
 * program. No heap, no signal handlers, not dumpable. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/plan.h"
#include "box/seccomp.h"
#include "box/spec.h"

/* Where the time of a start goes: clock readings (CLOCK_MONOTONIC, ns). The first rows are the
 * parent's. */
enum box_mark {
	MARK_BEGIN,
	MARK_PLANNED,
	MARK_CLONED,
	MARK_CHILD,
	MARK_IDS,
	MARK_SOURCES,
	MARK_ROOT,
	MARK_JOINED,
	MARK_LOCKED,
	MARK_STARTED,
	MARK_ENDED,
	MARK_REAPED,
	MARK_N
};
uint64_t box_now(void); /* CLOCK_MONOTONIC in ns */
/* Ends a box from outside: a SIGKILL to its first process, and where that is refused (by a security
 * module, say) a hang-up of its socket. */
void box_kill(int pidfd, int order);

enum init_msg_kind {
	INIT_ALIVE,	/* init has a cpu */
	INIT_FAILED,	/* err: the box never ran */
	INIT_STARTED,	/* with the listener, and the terminal's master when one was asked for */
	INIT_ENDED,	/* the command ended; everything else in the box is gone */
	INIT_CONNECTED, /* with a socket, or `num` says why there is none */
};

struct init_msg {
	enum init_msg_kind kind;
	struct err err;	  /* FAILED */
	int no_overlay;	  /* FAILED: 1 + the plan's source that untrusted does not show by bind */
	int status;	  /* ENDED: as wait(2) gives it */
	int landlock_abi; /* STARTED */
	unsigned binds;	  /* STARTED: read-only directories shown by bind */
	int num;	  /* CONNECTED: errno */
	uint64_t tag;	  /* CONNECTED: of its order */
	bool left;	  /* ENDED: init stands in no group any more, which may be removed */
	uint64_t user_us, sys_us, maxrss_bytes, in_bytes,
		out_bytes; /* ENDED: of all that was reaped */
	uint64_t marks[MARK_N];
};

enum init_order_kind {
	ORDER_IDS,     /* the ids of a range are mapped */
	ORDER_GO,      /* limits stand; with the groups to enter */
	ORDER_SIGNAL,  /* while the command runs */
	ORDER_COMMAND, /* to who was built ahead: with the words and what is the command's own */
	ORDER_CONNECT, /* to a port of the box's loopback */
};
struct init_order {
	enum init_order_kind kind;
	int sig;		    /* SIGNAL: to the command's process group */
	bool tty, has_in, has_code; /* COMMAND */
	struct winsize size;	    /* COMMAND: of its terminal */
	uint16_t port;		    /* CONNECT */
	uint64_t tag;
	unsigned held; /* GO: limits that a cgroup holds, as limits.h has them */
	size_t enter;  /* GO: how many of its descriptors are for limits_enter; the rest for
			  limits_leave */
};

struct init_args {
	const struct box_spec *spec;
	struct plan *plan;
	const struct sock_filter *code[2]; /* memory held by a cgroup: no, yes */
	uint16_t code_len[2];
	int order;    /* init's end of the socket */
	int stdio[3]; /* ends for the command; [0] is -1 for an empty stdin; all -1 with a terminal
		       */
	bool ahead;   /* what to run comes with an order, when all is built and locked */
	bool root_caller; /* real and saved ids are root's until init sets its own */
	unsigned held;	  /* as GO said */
	struct winsize winsize;
	char *title; /* cloche's own argv area, overwritten once the command runs; may be NULL */
	size_t title_len;
};

_Noreturn void init_main(struct init_args *a);
