/* A client of D-Bus, as small as asking a systemd manager for something needs: one connection, one
 * call at a time, to a unix socket. Written from the D-Bus specification (wire format and SASL
 * profile), with no library.
 *
 * Two parts. dbus_wire.c puts messages together and takes them apart; it does nothing else, so that
 * it can be tested and fuzzed. dbus.c connects, proves who we are (SASL EXTERNAL), calls, and waits
 * for the one answer.
 *
 * Whoever answers is taken for hostile: a message and a connection have a most of bytes, every call
 * has a deadline and all of them together another, and of an answer only this is used: that it
 * came, whether it is an error, and the error's name and text. Nothing here allocates. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum {
	DBUS_OUT_MAX = 2048,	  /* a message of ours */
	DBUS_IN_MAX = 16384,	  /* an answer */
	DBUS_SKIP_MAX = 4u << 20, /* what is passed over while waiting, on one connection */
	DBUS_TIMEOUTS = 3,	  /* all calls together may take as often the time of one */
	DBUS_NAME_MAX = 255,	  /* as the specification has it */
};

/* Writing. What does not fit sets `failed`, and later writes do nothing: dbus_message looks. */
struct dbus_out {
	uint8_t data[DBUS_OUT_MAX];
	size_t len;
	bool failed;
};

void dbus_align(struct dbus_out *o, size_t n);
void dbus_byte(struct dbus_out *o, uint8_t v);
void dbus_u32(struct dbus_out *o, uint32_t v);
void dbus_u64(struct dbus_out *o, uint64_t v);
void dbus_str(struct dbus_out *o, const char *s); /* a string or an object path */
void dbus_sig(struct dbus_out *o, const char *s); /* a signature, as before a variant's value */
/* An array: elements that begin at multiples of `align` go between the two calls. */
struct dbus_array {
	size_t length_at, begin;
};
struct dbus_array dbus_array(struct dbus_out *o, size_t align);
void dbus_array_end(struct dbus_out *o, struct dbus_array a);

/* What to call. All strings are ours. */
struct dbus_method {
	const char *destination, *path, *interface, *member;
	const char *signature; /* of the body; NULL when there is none */
};

/* A whole message, in *ret. -1 with *e when it does not fit. */
int dbus_message(struct dbus_out *ret, const struct dbus_method *m, uint32_t serial,
		 const struct dbus_out *body, struct err *e);

/* Reading */

enum dbus_type { DBUS_CALL = 1, DBUS_RETURN, DBUS_ERROR, DBUS_SIGNAL };

enum { DBUS_HEAD = 16 }; /* bytes that tell how long a message is */

/* The kind of a message and its whole length, from its first DBUS_HEAD bytes. -1 with *e when they
 * are no beginning of a message. */
int dbus_head(const uint8_t head[DBUS_HEAD], enum dbus_type *ret_type, uint32_t *ret_len,
	      struct err *e);

struct dbus_in {
	enum dbus_type type;
	uint32_t reply_to;	       /* 0: to nothing */
	char error[DBUS_NAME_MAX + 1]; /* an error's name, "" when there is none */
	char text[256];		       /* the string an error begins with, printable, cut; or "" */
};

/* Takes a whole message of n bytes apart. -1 with *e when anything in it is not as it must be. */
int dbus_parse(const uint8_t *data, size_t n, struct dbus_in *ret, struct err *e);

/* The connection. Large: keep it static. */
struct dbus {
	int fd;
	pid_t peer;  /* who listens there, as the kernel tells */
	bool proved; /* the other side took us for who we are */
	uint32_t serial;
	unsigned timeout_ms;  /* of a call */
	uint64_t deadline_us; /* CLOCK_MONOTONIC: the present call's, or connecting's */
	uint64_t end_us;      /* no deadline is later */
	size_t have, skipped;
	uint8_t in[DBUS_IN_MAX];
};

/* Connects to the peer whose socket is at `path` and says who we are, without waiting. The peer
 * must be root or the caller, and a process that can be seen from here. ERR_MISSING with errno in
 * e->num when nobody listens there. */
int dbus_open(struct dbus *d, const char *path, unsigned timeout_ms, struct err *e);
/* Waits until the other side took us for who we are. For who leaves without a call: a manager would
 * complain in its log. */
int dbus_prove(struct dbus *d, struct err *e);
/* Calls and waits. 0 with the answer, which may be an error (ret->error is not "" then); -1 with
 * *e when there was no answer in time, or none that makes sense: the connection is of no use then.
 */
int dbus_call(struct dbus *d, const struct dbus_method *m, const struct dbus_out *body,
	      struct dbus_in *ret, struct err *e);
void dbus_close(struct dbus *d);
