#include "session/request.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "base/str.h"
#include "session/spawn.h"

#define NEED(name, type, ...)                                                                      \
	{                                                                                          \
		name, type, true, __VA_ARGS__                                                      \
	}
#define MAY(name, type, ...)                                                                       \
	{                                                                                          \
		name, type, false, __VA_ARGS__                                                     \
	}

#define SANDBOX NEED("sandbox", FIELD_INT, 1, INT32_MAX)
#define CALL NEED("call", FIELD_INT, 1, REQUEST_ID_MAX)
#define PATH NEED("path", FIELD_PATH)
#define TIMEOUT MAY("timeout_s", FIELD_NUMBER, 0, 366 * 86400)
/* What every call may have. */
#define CALL_FIELDS                                                                                \
	SANDBOX, TIMEOUT, MAY("env", FIELD_ENV), MAY("cwd", FIELD_CWD), MAY("stdin", FIELD_BOOL),  \
		MAY("pty", FIELD_SIZE), MAY("stream", FIELD_BOOL), MAY("track_files", FIELD_BOOL)

const struct ses_op ses_ops[OP_ID_N] = {
	[OP_HELLO] = { "hello",
		       .fields = { NEED("protocol", FIELD_INT, 1, INT32_MAX),
				   MAY("client", FIELD_STR, 0, 200), MAY("ack", FIELD_BOOL) } },
	[OP_OPEN] = { "open",
		      .fields = { MAY("options", FIELD_OBJECT), MAY("stream", FIELD_BOOL) } },
	[OP_RUN] = { "run", PAYLOAD_PARTS, .fields = { CALL_FIELDS, MAY("argv", FIELD_WORDS) } },
	[OP_RUN_CODE] = { "run_code",
			  PAYLOAD_PARTS,
			  true,
			  { CALL_FIELDS, MAY("language", FIELD_LANGUAGE) } },
	[OP_START] = { "start", PAYLOAD_PARTS,
		       .fields = { CALL_FIELDS, MAY("argv", FIELD_WORDS) } },
	[OP_WAIT] = { "wait", .fields = { CALL } },
	[OP_CANCEL] = { "cancel", .fields = { CALL } },
	[OP_SIGNAL] = { "signal", .fields = { CALL, NEED("signal", FIELD_SIGNAL) } },
	[OP_STDIN] = { "stdin", PAYLOAD_ONE, .fields = { CALL, MAY("eof", FIELD_BOOL) } },
	[OP_ACK] = { "ack", .fields = { CALL, NEED("size", FIELD_INT, 1, INT32_MAX) } },
	[OP_RESIZE] = { "resize", .fields = { CALL, NEED("rows", FIELD_INT, 1, 65535),
					      NEED("cols", FIELD_INT, 1, 65535) } },
	[OP_PORT] = { "port", .fields = { CALL, NEED("port", FIELD_INT, 1, 65535) } },
	[OP_WRITE_FILE] = { "write_file",
			    PAYLOAD_PARTS,
			    true,
			    { SANDBOX, PATH, MAY("mode", FIELD_INT, 0, 0777) } },
	[OP_READ_FILE] = { "read_file",
			   .fields = { SANDBOX, PATH, MAY("offset", FIELD_INT, 0, REQUEST_ID_MAX),
				       MAY("length", FIELD_INT, 0, REQUEST_ID_MAX),
				       MAY("max_bytes", FIELD_INT, 0, REQUEST_ID_MAX) } },
	[OP_LIST_FILES] = { "list_files", .fields = { SANDBOX, MAY("path", FIELD_PATH),
						      MAY("recursive", FIELD_BOOL) } },
	[OP_STAT] = { "stat", .fields = { SANDBOX, PATH } },
	[OP_REMOVE] = { "remove", .fields = { SANDBOX, PATH, MAY("recursive", FIELD_BOOL) } },
	[OP_MAKE_DIR] = { "make_dir", .fields = { SANDBOX, PATH, MAY("parents", FIELD_BOOL) } },
	[OP_RENAME] = { "rename", .fields = { SANDBOX, PATH, NEED("to", FIELD_PATH),
					      MAY("replace", FIELD_BOOL) } },
	[OP_SNAPSHOT] = { "snapshot", .fields = { SANDBOX, NEED("file", FIELD_ABSOLUTE),
						  MAY("format", FIELD_STR, 0, 16) } },
	[OP_RESTORE] = { "restore", .fields = { SANDBOX, NEED("file", FIELD_ABSOLUTE) } },
	[OP_FORK] = { "fork", .fields = { SANDBOX } },
	[OP_SETUP] = { "setup", .fields = { SANDBOX, NEED("command", FIELD_STR, 0, 60000), TIMEOUT,
					    MAY("stream", FIELD_BOOL) } },
	[OP_INFO] = { "info", .fields = { MAY("sandbox", FIELD_INT, 1, INT32_MAX) } },
	[OP_CLOSE] = { "close", .fields = { SANDBOX } },
	[OP_MORE] = { "more", PAYLOAD_ONE, true },
};

static int wrong(struct ses_error *e, const char *name, const char *allowed)
{
	ses_error_set(e, SES_OPTION, "%s: %s", name, allowed);
	return ses_error_about(e, name, "%s", allowed);
}

static int check_int(const struct op_field *f, const json_t *v, struct ses_error *e)
{
	char allowed[80];

	if (json_is_integer(v) && json_integer_value(v) >= f->min &&
	    json_integer_value(v) <= f->max)
		return 0;
	snprintf(allowed, sizeof(allowed), "an integer of %lld to %lld", (long long)f->min,
		 (long long)f->max);
	return wrong(e, f->name, allowed);
}

static int check_number(const struct op_field *f, const json_t *v, struct ses_error *e)
{
	char allowed[80];

	if (json_is_number(v) && json_number_value(v) > 0 && json_number_value(v) <= (double)f->max)
		return 0;
	snprintf(allowed, sizeof(allowed), "a number above 0, up to %lld", (long long)f->max);
	return wrong(e, f->name, allowed);
}

static int check_str(const struct op_field *f, const json_t *v, size_t max, struct ses_error *e)
{
	size_t n = json_is_string(v) ? json_string_length(v) : 0;
	char allowed[80];

	if (n > 0 && n <= max && (f->type != FIELD_ABSOLUTE || *json_string_value(v) == '/'))
		return 0;
	snprintf(allowed, sizeof(allowed), "%s of at most %zu bytes, not empty",
		 f->type == FIELD_ABSOLUTE ? "an absolute path" : "a string", max);
	return wrong(e, f->name, allowed);
}

static int check_cwd(const char *name, const json_t *v, struct ses_error *e)
{
	static const char allowed[] =
		"an absolute path of the box, without \"..\" and control characters";
	char clean[REQUEST_PATH_MAX + 1];
	struct err why;

	if (!json_is_string(v))
		return wrong(e, name, allowed);
	if (path_normalise(json_string_value(v), clean, &why) == 0)
		return 0;
	wrong(e, name, allowed);
	snprintf(e->message, sizeof(e->message), "%s: %s", name, why.msg);
	return -1;
}

static int check_words(const char *name, const json_t *v, struct ses_error *e)
{
	static const char allowed[] =
		"an array of strings: a command, which is not empty, and its arguments";
	const json_t *word;
	size_t i;

	if (!json_is_array(v) || json_string_length(json_array_get(v, 0)) == 0)
		return wrong(e, name, allowed);
	json_array_foreach(v, i, word) if (!json_is_string(word)) return wrong(e, name, allowed);
	return 0;
}

/* As the sandbox's own (env_check). */
static bool is_variable(const char *name)
{
	static const char all[] = "0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

	return *name && !name[strspn(name, all)] && (*name < '0' || *name > '9');
}

static int check_env(const char *name, json_t *v, struct ses_error *e)
{
	static const char allowed[] =
		"an object of strings; names have letters, digits and _, and no digit first";
	const char *key;
	json_t *value;

	if (!json_is_object(v))
		return wrong(e, name, allowed);
	json_object_foreach(v, key, value) if (!json_is_string(value) ||
					       !is_variable(key)) return wrong(e, name, allowed);
	return 0;
}

static bool is_side(const json_t *v)
{
	return json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 65535;
}

static int check_size(const char *name, const json_t *v, struct ses_error *e)
{
	if (json_is_object(v) && json_object_size(v) == 2 && is_side(json_object_get(v, "rows")) &&
	    is_side(json_object_get(v, "cols")))
		return 0;
	return wrong(e, name, "an object with rows and cols, integers of 1 to 65535");
}

static int check_language(const char *name, const json_t *v, struct ses_error *e)
{
	for (int i = 0; json_is_string(v) && i < SPAWN_LANGUAGE_N; i++)
		if (strcmp(json_string_value(v), spawn_language_names[i]) == 0)
			return 0;
	return wrong(e, name, "python, bash, sh, node");
}

/* The number of a signal by its name, with or without SIG; 0 when it has none. */
static int signal_number(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} all[] = {
		{ "HUP", SIGHUP },   { "INT", SIGINT },	  { "QUIT", SIGQUIT },
		{ "ABRT", SIGABRT }, { "KILL", SIGKILL }, { "USR1", SIGUSR1 },
		{ "USR2", SIGUSR2 }, { "PIPE", SIGPIPE }, { "ALRM", SIGALRM },
		{ "TERM", SIGTERM }, { "CHLD", SIGCHLD }, { "CONT", SIGCONT },
		{ "STOP", SIGSTOP }, { "TSTP", SIGTSTP }, { "TTIN", SIGTTIN },
		{ "TTOU", SIGTTOU }, { "URG", SIGURG },	  { "WINCH", SIGWINCH },
		{ "IO", SIGIO },
	};

	if (strncmp(name, "SIG", 3) == 0)
		name += 3;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(name, all[i].name) == 0)
			return all[i].number;
	return 0;
}

static int check_signal(const char *name, const json_t *v, struct ses_error *e)
{
	if (json_is_string(v) ? signal_number(json_string_value(v)) > 0
			      : json_is_integer(v) && json_integer_value(v) >= 1 &&
					json_integer_value(v) <= 64)
		return 0;
	return wrong(e, name, "a signal's name, such as TERM, or a number of 1 to 64");
}

static int check(const struct op_field *f, json_t *v, struct ses_error *e)
{
	switch (f->type) {
	case FIELD_INT:
		return check_int(f, v, e);
	case FIELD_NUMBER:
		return check_number(f, v, e);
	case FIELD_BOOL:
		return json_is_boolean(v) ? 0 : wrong(e, f->name, "true or false");
	case FIELD_STR:
		return check_str(f, v, (size_t)f->max, e);
	case FIELD_PATH:
	case FIELD_ABSOLUTE:
		return check_str(f, v, REQUEST_PATH_MAX, e);
	case FIELD_CWD:
		return check_cwd(f->name, v, e);
	case FIELD_LANGUAGE:
		return check_language(f->name, v, e);
	case FIELD_SIGNAL:
		return check_signal(f->name, v, e);
	case FIELD_WORDS:
		return check_words(f->name, v, e);
	case FIELD_ENV:
		return check_env(f->name, v, e);
	case FIELD_SIZE:
		return check_size(f->name, v, e);
	case FIELD_OBJECT:
		return json_is_object(v) ? 0 : wrong(e, f->name, "an object");
	case FIELD_TYPE_N:
		break;
	}
	return ses_error_set(e, SES_SYSTEM, "a field's type is unknown");
}

static int find_op(const char *name, enum ses_op_id *ret, struct ses_error *e)
{
	const char *words[OP_ID_N + 1] = { NULL }, *near;
	char shown[64];

	for (int i = 0; i < OP_ID_N; i++) {
		if (strcmp(ses_ops[i].name, name) == 0) {
			*ret = (enum ses_op_id)i;
			return 0;
		}
		words[i] = ses_ops[i].name;
	}
	str_printable(shown, sizeof(shown), name);
	near = str_nearest(name, words);
	return ses_error_set(e, SES_PROTOCOL, "unknown op \"%s\"%s%s%s", shown,
			     near ? ": did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static const struct op_field *find_field(const struct ses_op *op, const char *name)
{
	for (size_t i = 0; i < OP_FIELDS_MAX && op->fields[i].name; i++)
		if (strcmp(op->fields[i].name, name) == 0)
			return &op->fields[i];
	return NULL;
}

/* In a binding's call it is an option that there is not. */
static int no_such(const struct ses_op *op, const char *key, struct ses_error *e)
{
	char shown[64];
	size_t n = 0;

	str_printable(shown, sizeof(shown), key);
	ses_error_set(e, SES_OPTION, "%s has no \"%s\"", op->name, shown);
	str_printable(e->option, sizeof(e->option), key);
	for (size_t i = 0; i < OP_FIELDS_MAX && op->fields[i].name; i++)
		if (n < sizeof(e->allowed))
			n += (size_t)snprintf(e->allowed + n, sizeof(e->allowed) - n, "%s%s",
					      i ? ", " : "", op->fields[i].name);
	return -1;
}

static int check_fields(const struct ses_op *op, json_t *head, struct ses_error *e)
{
	const char *key;
	json_t *v;

	json_object_foreach(head, key, v)
	{
		const struct op_field *f = find_field(op, key);

		if (strcmp(key, "id") == 0 || strcmp(key, "op") == 0)
			continue;
		if (strcmp(key, "more") == 0 &&
		    (op->payload == PAYLOAD_PARTS || op == &ses_ops[OP_MORE])) {
			if (!json_is_boolean(v))
				return wrong(e, key, "true or false");
			continue;
		}
		if (!f)
			return no_such(op, key, e);
		if ((!json_is_null(v) || f->needed) && check(f, v, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < OP_FIELDS_MAX && op->fields[i].name; i++)
		if (op->fields[i].needed && !json_object_get(head, op->fields[i].name))
			return ses_error_set(e, SES_PROTOCOL, "%s needs the field \"%s\"", op->name,
					     op->fields[i].name);
	return 0;
}

static int check_payload(const struct ses_op *op, const struct request *r, struct ses_error *e)
{
	bool words = r->op == OP_RUN || r->op == OP_START;

	if (r->with_bytes && op->payload == PAYLOAD_NONE)
		return ses_error_set(e, SES_PROTOCOL, "%s takes no bytes", op->name);
	if (!r->with_bytes && (op->payload_needed || r->more))
		return ses_error_set(e, SES_PROTOCOL, "%s needs \"bytes\"", op->name);
	if (words && r->with_bytes == (request_json(r, "argv") != NULL))
		return ses_error_set(e, SES_PROTOCOL,
				     "%s needs the command's words, once: in \"argv\", or as bytes",
				     op->name);
	return 0;
}

/* No deeper than a frame may be. */
static bool has_nul(json_t *v)
{
	const char *key;
	json_t *x;
	size_t i;

	if (json_is_string(v))
		return strlen(json_string_value(v)) != json_string_length(v);
	json_array_foreach(v, i, x) if (has_nul(x)) return true;
	json_object_foreach(v, key, x) if (has_nul(x)) return true;
	return false;
}

int request_read(const struct frame *f, struct request *ret, uint64_t *ret_id, struct ses_error *e)
{
	const json_t *id = json_object_get(f->head, "id"), *op = json_object_get(f->head, "op");
	struct request r = { .head = f->head,
			     .bytes = f->bytes,
			     .n = f->n,
			     .with_bytes = f->with_bytes };

	*ret_id = 0;
	if (!json_is_integer(id) || json_integer_value(id) < 1 ||
	    json_integer_value(id) > REQUEST_ID_MAX)
		return ses_error_set(e, SES_PROTOCOL,
				     "a request needs an \"id\", an integer of 1 to 2^53-1");
	r.id = *ret_id = (uint64_t)json_integer_value(id);
	if (has_nul(f->head))
		return ses_error_set(e, SES_PROTOCOL, "a string has a NUL in it");
	if (!json_is_string(op))
		return ses_error_set(e, SES_PROTOCOL, "a request needs an \"op\", a string");
	if (find_op(json_string_value(op), &r.op, e) < 0 ||
	    check_fields(&ses_ops[r.op], f->head, e) < 0)
		return -1;
	r.more = request_bool(&r, "more", false);
	if (check_payload(&ses_ops[r.op], &r, e) < 0)
		return -1;
	*ret = r;
	return 0;
}

json_t *request_json(const struct request *r, const char *name)
{
	json_t *v = json_object_get(r->head, name);

	return json_is_null(v) ? NULL : v;
}

int64_t request_int(const struct request *r, const char *name, int64_t dflt)
{
	const json_t *v = request_json(r, name);

	return v ? json_integer_value(v) : dflt;
}

bool request_bool(const struct request *r, const char *name, bool dflt)
{
	const json_t *v = request_json(r, name);

	return v ? json_is_true(v) : dflt;
}

const char *request_str(const struct request *r, const char *name)
{
	return json_string_value(request_json(r, name));
}

uint64_t request_us(const struct request *r, const char *name, uint64_t dflt)
{
	const json_t *v = request_json(r, name);
	double us = json_number_value(v) * 1e6;

	return !v ? dflt : us < 1 ? 1 : (uint64_t)us;
}

int request_signal(const struct request *r)
{
	const json_t *v = request_json(r, "signal");

	return json_is_string(v) ? signal_number(json_string_value(v)) : (int)json_integer_value(v);
}
