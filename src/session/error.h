/* Why a request is refused, as docs/PROTOCOL.md "Errors" has it: what a client gets in `error`.
 *
 * A function that takes a `struct ses_error *e` as its last argument keeps to the contract of
 * base/err.h: 0 or -1; *e is set if and only if it is -1; outputs are untouched then. */
#pragma once

#include <stddef.h>

enum ses_error_type {
	SES_PROTOCOL,
	SES_OPTION,
	SES_MOUNT_REFUSED,
	SES_PATH,
	SES_NOT_FOUND,
	SES_EXISTS,
	SES_TOO_LARGE,
	SES_UNSUPPORTED,
	SES_BUSY,
	SES_CANCELLED,
	SES_CLOSED,
	SES_SYSTEM,
	SES_ERROR_TYPE_N
};

struct ses_error {
	enum ses_error_type type;
	char message[600]; /* one printable line */
	char option[64];   /* which option or argument; "" for none */
	char allowed[700]; /* which values there are; "" when that says nothing */
	char rule[128];	   /* of a mount: the kind of rule that refuses it; "" */
};

/* "mount_refused". */
const char *ses_error_name(enum ses_error_type type);
/* Of an error of the workspace's files (ERR_PATH, ERR_NOT_FOUND, ...) or of the machine. Returns
 * -1. */
struct err;
int ses_error_err(struct ses_error *e, const struct err *why);
/* Fills *e, made printable, with nothing but type and message. Returns -1. */
int ses_error_set(struct ses_error *e, enum ses_error_type type, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds the option, or argument, that it is about, and which values there are. Returns -1. */
int ses_error_about(struct ses_error *e, const char *option, const char *allowed, ...)
	__attribute__((format(printf, 3, 4)));
