/* Requests: the table of operations and of the fields that each one takes (docs/PROTOCOL.md, held
 * against this table by a test). request_read checks all that a frame alone can show, so that
 * nothing is begun for a request that is wrong. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session/error.h"
#include "session/frame.h"

#define REQUEST_ID_MAX 9007199254740991LL /* 2^53-1: what every language's numbers hold */
#define REQUEST_PATH_MAX 4095

enum ses_op_id {
	OP_HELLO,
	OP_OPEN,
	OP_RUN,
	OP_RUN_CODE,
	OP_START,
	OP_WAIT,
	OP_CANCEL,
	OP_SIGNAL,
	OP_STDIN,
	OP_ACK,
	OP_RESIZE,
	OP_PORT,
	OP_WRITE_FILE,
	OP_READ_FILE,
	OP_LIST_FILES,
	OP_STAT,
	OP_REMOVE,
	OP_MAKE_DIR,
	OP_RENAME,
	OP_SNAPSHOT,
	OP_RESTORE,
	OP_FORK,
	OP_SETUP,
	OP_INFO,
	OP_CLOSE,
	OP_MORE,
	OP_ID_N
};

enum field_type {
	FIELD_INT,    /* of min to max */
	FIELD_NUMBER, /* more than 0, at most max */
	FIELD_BOOL,
	FIELD_STR,  /* of at most max bytes, not empty */
	FIELD_PATH, /* a string of at most 4095 bytes; what it may be is the workspace's to say */
	FIELD_ABSOLUTE, /* a path of this machine */
	FIELD_CWD,	/* a path of the box */
	FIELD_LANGUAGE,
	FIELD_SIGNAL, /* "TERM", "SIGTERM", 15 */
	FIELD_WORDS,  /* at least one string, the first not empty */
	FIELD_ENV,    /* an object of strings */
	FIELD_SIZE,   /* {"rows", "cols"} */
	FIELD_OBJECT,
	FIELD_TYPE_N
};

struct op_field {
	const char *name;
	enum field_type type;
	bool needed;
	int64_t min, max;
};

enum op_payload { PAYLOAD_NONE, PAYLOAD_ONE, PAYLOAD_PARTS };

#define OP_FIELDS_MAX 12

struct ses_op {
	const char *name;
	enum op_payload payload;
	bool payload_needed;
	struct op_field fields[OP_FIELDS_MAX];
};

extern const struct ses_op ses_ops[OP_ID_N];

struct request {
	uint64_t id;
	enum ses_op_id op;
	json_t *head; /* the frame's */
	const char *bytes;
	size_t n;
	bool with_bytes, more;
};

/* Reads the frame's id first, so that an error can be told to its request: *ret_id is 0 when there
 * is none that can be used. Errors: `protocol` for what is no request, `option` for a field's
 * value.
 */
int request_read(const struct frame *f, struct request *ret, uint64_t *ret_id, struct ses_error *e);

/* Fields of a request that was read; what is not given is `dflt`, NULL, false. */
int64_t request_int(const struct request *r, const char *name, int64_t dflt);
bool request_bool(const struct request *r, const char *name, bool dflt);
const char *request_str(const struct request *r, const char *name);
json_t *request_json(const struct request *r, const char *name);
/* Seconds as microseconds, at least 1. */
uint64_t request_us(const struct request *r, const char *name, uint64_t dflt);
int request_signal(const struct request *r);
