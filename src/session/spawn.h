/* Between a session's loop, its spawner (`cloche spawn`, one a sandbox) and the keepers (forks of
 * the spawner, one a call, each of which runs one box).
 *
 * The loop starts the spawner with a SOCK_SEQPACKET socket as descriptor SPAWN_SOCKET, nothing on 0
 * and 1 (/dev/null), and, when it wants the progress of a pull, a pipe as SPAWN_PROGRESS, which
 *gets one JSON object a line. With the word "--own-workspace" the directory that the workspace is
 *belongs to the sandbox alone, and a file system in memory takes its place where one can be had
 *(box/holder.h); a later spawner of the same sandbox gets what READY brought of it as SPAWN_HOLDER.
 *Everything else the loop holds must be close-on-exec.
 *
 *	spawner -> loop   SPAWN_READY + facts | SPAWN_FAILED + outcome, once
 *	loop -> spawner   SPAWN_CALL + descriptors, as often as wanted, without an answer;
 *			  SPAWN_RETIRE: no more of them come, and what it holds is still wanted
 *	keeper -> loop    SPAWN_STARTED, SPAWN_CONNECTED..., SPAWN_OUTCOME + outcome [+ changes],
 *end loop -> keeper    SPAWN_CANCEL, SPAWN_SIGNAL, SPAWN_RESIZE, SPAWN_CONNECT
 *
 * The last two go over the call's own control socket, a SOCK_SEQPACKET pair that the loop made.
 * Hang-ups are orders: of the loop's end of a control, to end that box at once; of SPAWN_SOCKET, to
 * end all of them and the spawner. A control that ends without SPAWN_OUTCOME was a keeper that was
 * killed: its box is gone, and its outcome is the fault `init_lost`. A SPAWN_SOCKET that ends
 * without SPAWN_READY or SPAWN_FAILED, or later, is the end of the sandbox.
 *
 * A message is one packet with one of the structs below, all of whose ends are built from the same
 * tree: no versions, no byte order. What it brings is in sealed memfds, or in descriptors that
 * become the command's own.
 *
 * Streams: what the loop gives as stdin, stdout and stderr are the ends that the command itself
 * gets; nobody stands in between and copies. All holders of the other ends but the box close theirs
 * before the command runs. The end of a call is SPAWN_OUTCOME, not the end of its streams (a
 * descriptor may have been carried out of the box): with it, whatever the box printed is in the
 * pipe, and the loop takes it without waiting. The deadline and the limits hold whether anybody
 * reads or not. With SPAWN_PTY the keeper holds the terminal and copies between it and `in` and
 * `out`; there is no `err`.
 *
 * Ownership: descriptors that were sent stay the sender's, who closes them; received ones are the
 * receiver's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "box/spec.h"

#define SPAWN_SOCKET 3
#define SPAWN_PROGRESS 4
#define SPAWN_HOLDER 5
#define SPAWN_HELLO_FDS 3

/* Of `cloche setup --live`: what its command prints, unchanged, and its progress, as above. */
#define SETUP_OUT 3
#define SETUP_ERR 4
#define SETUP_PROGRESS 5
/* And its command's variables, behind this: by their own names they would be the program's. */
#define SETUP_ENV "CLOCHE_SETUP_ENV_"

#define SPAWN_WORDS_MAX (8u << 20) /* bytes of argv, environment and directory together */
#define SPAWN_CODE_MAX BOX_CODE_MAX
#define SPAWN_CODE_PATH "/" BOX_CODE

enum spawn_kind {
	SPAWN_READY = 1,
	SPAWN_FAILED,
	SPAWN_CALL,
	SPAWN_STARTED,
	SPAWN_CONNECTED,
	SPAWN_OUTCOME,
	SPAWN_CANCEL,
	SPAWN_SIGNAL,
	SPAWN_RESIZE,
	SPAWN_CONNECT,
	SPAWN_RETIRE,
	SPAWN_KIND_N
};

/* The first word of the spawner. READY: with a memfd of one JSON object, {"image": {...} or null,
 * "workspace": path or null, "place"?: ses_place_text, "notes": [...]}; image as in an outcome.
 * After it, where the workspace is in memory: a mount of it, through which its files are reached as
 * long as somebody holds it, and the socket that SPAWN_HOLDER is. FAILED: `err` says why. When its
 * kind is ERR_USAGE the words of the command line were wrong (`option` names the one, without its
 * dashes, or is ""); when `rule` is not "", a mount, workspace or device was refused, by that rule;
 * else the sandbox can't run anything on this machine, and the memfd that comes with it is the
 * outcome (as below) that every call of it has. */
struct spawn_hello {
	enum spawn_kind kind;
	struct err err;
	char option[32];
	char rule[96];
};

enum spawn_flag {
	SPAWN_STDIN = 1 << 0, /* `in` comes along; else the command reads nothing */
	SPAWN_PTY = 1 << 1,   /* a terminal of its own; `err` does not come along */
	SPAWN_CODE = 1 << 2,  /* run `code` by the runner of `language`; no words but its own */
	SPAWN_TRACK = 1 << 3, /* tell which files of the workspace changed */
};

enum spawn_language { SPAWN_PYTHON, SPAWN_BASH, SPAWN_SH, SPAWN_NODE, SPAWN_LANGUAGE_N };

#define SPAWN_TIMEOUT_OWN UINT64_MAX /* the sandbox's */

struct spawn_call {
	enum spawn_kind kind;
	unsigned flags;
	enum spawn_language language; /* with SPAWN_CODE */
	unsigned short rows, cols;    /* with SPAWN_PTY */
	uint64_t timeout_us;	      /* 0: none */
	uint64_t queued_us;	      /* what the outcome's usage has to say of it */
};

/* The descriptors of a call, in the order they are sent in; -1 for one that its flags leave out. */
struct spawn_fds {
	int words;   /* spawn_words_make */
	int control; /* the keeper's end */
	int in, out, err;
	int code; /* spawn_memfd of the code's bytes */
};

/* Loop to keeper. Before STARTED, signals and sizes wait for it; connections are refused. */
struct spawn_order {
	enum spawn_kind kind;
	int sig;		   /* SIGNAL: to the command's process group */
	unsigned short rows, cols; /* RESIZE */
	uint16_t port;		   /* CONNECT: to 127.0.0.1, or ::1, of the box */
	uint64_t tag;		   /* CONNECT: comes back with its answer */
};

/* Keeper to loop. STARTED: the command runs. CONNECTED: one connected stream socket, or none and
 * `num` is the errno. OUTCOME: a memfd with the outcome's JSON, one object, the fields of `cloche
 * run --json` but stdout, stderr, truncated and the two cuts; with SPAWN_TRACK a second with the
 * changes, {"files": [...], "cut": N}. */
struct spawn_event {
	enum spawn_kind kind;
	int num;
	uint64_t tag;
};

/* The words of a call, in a map of their own. */
struct spawn_words {
	char **argv;	 /* NULL-terminated */
	char **env;	 /* NULL-terminated NAME=VALUE, on top of the sandbox's */
	const char *cwd; /* NULL: the sandbox's */
	size_t argc, envc;
};

/* A sealed memfd with these bytes. */
int spawn_memfd(const char *name, const void *data, size_t n, int *ret, struct err *e);
/* Maps one: refuses what is no sealed memfd (its sender could change it under the reader's eyes) or
 * larger than max. *ret is not terminated, and NULL when n is 0; munmap(2) it. */
int spawn_map(int fd, size_t max, char **ret, size_t *ret_n, struct err *e);

/* argv and env NULL-terminated (env may be NULL), cwd may be NULL. */
int spawn_words_make(char *const *argv, char *const *env, const char *cwd, int *ret, struct err *e);
/* What it fills stays for the life of the process. */
int spawn_words_read(int fd, struct spawn_words *ret, struct err *e);

/* All of these: 0 (or a length), or -1 with errno; EAGAIN on a socket that does not block. */
int spawn_send_call(int sock, const struct spawn_call *c, const struct spawn_fds *fds);
int spawn_send_retire(int sock);
/* 1 for a call or SPAWN_RETIRE (ret->kind), 0 at the end, -1 with errno (EPROTO: no call, or not
 * the descriptors that its flags promise). */
int spawn_recv_call(int sock, struct spawn_call *ret, struct spawn_fds *ret_fds);
/* 1 for a message, 0 at the end, -1 with errno. *ret_fds are -1 where none came. */
int spawn_recv_hello(int sock, struct spawn_hello *ret, int ret_fds[SPAWN_HELLO_FDS]);
int spawn_recv_event(int control, struct spawn_event *ret, int ret_fds[2]);
int spawn_send_order(int control, const struct spawn_order *o);

void spawn_fds_close(struct spawn_fds *f);
extern const char *const spawn_language_names[SPAWN_LANGUAGE_N]; /* "python", ... */
