/* Watching one live box: orders and reports, output, deadline, limits, the caller's signals. Used
 * by launch.c alone. */
#pragma once

#include "box/init.h"
#include "box/launch.h"
#include "box/limits.h"
#include "box/notify.h"
#include "box/relay.h"
#include "box/terminal.h"

struct live {
	const struct box_spec *spec;
	struct box_outcome *out;
	struct plan plan;
	struct init_args args;
	struct sc_request request[2]; /* as init_args.code */
	struct err filter_err[2];
	struct limits limits;
	bool placed, limits_open; /* the two steps of limits.h */
	struct notify notify;
	struct relay
		relays[3]; /* stdin, stdout, stderr; with a terminal: [0] into it, [1] out of it */
	struct terminal terminal;
	const struct box_io *io;
	struct box_owner *owner;
	bool unclaimed; /* it waits for its owner to say what to run */
	int owner_fd;	/* -1: none, or it has nothing more to say */
	pid_t pid;	/* init */
	int pidfd, order, signals;
	int skeleton, cwd; /* what the child stood in, with its lock; the caller's own working
			      directory meanwhile */
	int tty;	   /* the terminal's master, owned by the relays */
	/* evidence */
	struct err why;
	bool born;	/* init stands in a group that it can't leave */
	bool reaps;	/* init must be waited for: nobody else would */
	bool reap_due;	/* it has said that it ended, and waits to be let go */
	bool stop_due;	/* Ctrl-Z came before there was a command */
	uint64_t early; /* signals that the owner sent before there was a command, 1 << n - 1 */
	struct winsize early_size;
	bool killed; /* the owner sent the command a SIGKILL */
	bool failed, started, ended, gone, start_deadline, deadline, cancelled, termed;
	int status, forwarded;
	enum limit_hit hit;
	uint64_t end_typed; /* when the end of input was typed last */
	uint64_t started_ns, end_ns, cpu_user_us, cpu_sys_us, maxrss, in_bytes, out_bytes;
};

/* Blocks what the loop will read from a descriptor, before anything is cloned. */
void monitor_block_signals(struct live *b);
/* Ends all that is in it. */
void monitor_kill(struct live *b);
/* Sends init an order. */
void monitor_order(struct live *b, const struct init_order *o);
/* An order of the owner's has come, or its hang-up (owner.c); and init's answer to one. */
void monitor_obey(struct live *b);
/* The command runs: tells the owner, and does what it has asked for meanwhile. */
void monitor_owned(struct live *b);
/* A pipe of root's could not be opened by its name (/dev/stdout) in the box: it becomes the box's
 * user's. */
void monitor_give(const struct live *b, int fd);
void monitor_connected(struct live *b, const struct init_msg *m, const int *fds, size_t n);
/* The box could not be started: ends whatever stands. */
void monitor_failed(struct live *b, const struct err *why);
/* Runs until the box is gone and its output is delivered. */
void monitor_run(struct live *b, const struct box_io *io);
/* Fills the outcome. */
void monitor_judge(struct live *b);
/* Waits for init to be gone, if that is needed and has not been done. */
void monitor_reap(struct live *b);
/* Takes away what a killed cloche left beside this box's groups. */
void monitor_sweep(const struct live *b);
