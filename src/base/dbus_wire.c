/* D-Bus messages as bytes (dbus.h).
 *
 * A message is a fixed head (byte order, kind, flags, version, length of the body, serial), an
 * array of header fields (a byte and a variant each, beginning at multiples of 8), and the body, at
 * a multiple of 8. Numbers stand at multiples of their size, counted from the message's first byte.
 * We write little-endian and read nothing else: a bus and a manager on this machine have its byte
 * order.
 *
 * What may go wrong in what is read: lengths that lead out of the message, strings without their
 * end or with one inside, a field of another type than it has to have, padding that is not zero.
 * All of that is refused. Field codes of later versions are passed over when their value is a plain
 * one. */
#include "base/dbus.h"

#include <string.h>

#include "base/str.h"

enum { LITTLE = 'l', VERSION = 1, LENGTH_MAX = 128 << 20, FIELDS_MAX = 64 << 20 };

enum field {
	FIELD_PATH = 1,
	FIELD_INTERFACE,
	FIELD_MEMBER,
	FIELD_ERROR_NAME,
	FIELD_REPLY_SERIAL,
	FIELD_DESTINATION,
	FIELD_SENDER,
	FIELD_SIGNATURE,
	FIELD_UNIX_FDS,
	FIELD_N
};

/* The one type that a field may have. */
static const char field_type[FIELD_N] = {
	[FIELD_PATH] = 'o',	  [FIELD_INTERFACE] = 's',    [FIELD_MEMBER] = 's',
	[FIELD_ERROR_NAME] = 's', [FIELD_REPLY_SERIAL] = 'u', [FIELD_DESTINATION] = 's',
	[FIELD_SENDER] = 's',	  [FIELD_SIGNATURE] = 'g',    [FIELD_UNIX_FDS] = 'u',
};

static void put(struct dbus_out *o, const void *data, size_t n)
{
	if (o->failed || n > sizeof(o->data) - o->len) {
		o->failed = true;
		return;
	}
	if (n > 0)
		memcpy(o->data + o->len, data, n);
	o->len += n;
}

static void set_u32(uint8_t at[4], uint32_t v)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_u32(const uint8_t at[4])
{
	return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static size_t round_up(size_t at, size_t n)
{
	return (at + n - 1) / n * n;
}

void dbus_align(struct dbus_out *o, size_t n)
{
	static const uint8_t zero[8];

	put(o, zero, round_up(o->len, n) - o->len);
}

void dbus_byte(struct dbus_out *o, uint8_t v)
{
	put(o, &v, 1);
}

void dbus_u32(struct dbus_out *o, uint32_t v)
{
	uint8_t bytes[4];

	set_u32(bytes, v);
	dbus_align(o, 4);
	put(o, bytes, 4);
}

void dbus_u64(struct dbus_out *o, uint64_t v)
{
	dbus_align(o, 8);
	dbus_u32(o, (uint32_t)v);
	dbus_u32(o, (uint32_t)(v >> 32));
}

void dbus_str(struct dbus_out *o, const char *s)
{
	size_t n = strlen(s);

	if (n >= DBUS_OUT_MAX) {
		o->failed = true;
		return;
	}
	dbus_u32(o, (uint32_t)n);
	put(o, s, n + 1);
}

void dbus_sig(struct dbus_out *o, const char *s)
{
	size_t n = strlen(s);

	if (n > DBUS_NAME_MAX) {
		o->failed = true;
		return;
	}
	dbus_byte(o, (uint8_t)n);
	put(o, s, n + 1);
}

struct dbus_array dbus_array(struct dbus_out *o, size_t align)
{
	struct dbus_array a;

	dbus_u32(o, 0);
	a.length_at = o->len - 4;
	dbus_align(o, align); /* the space before the first element does not count as the array's */
	a.begin = o->len;
	return a;
}

void dbus_array_end(struct dbus_out *o, struct dbus_array a)
{
	if (!o->failed)
		set_u32(o->data + a.length_at, (uint32_t)(o->len - a.begin));
}

static void put_field(struct dbus_out *o, enum field code, const char *value)
{
	char type[2] = { field_type[code], '\0' };

	if (!value)
		return;
	dbus_align(o, 8);
	dbus_byte(o, (uint8_t)code);
	dbus_sig(o, type);
	if (type[0] == 'g')
		dbus_sig(o, value);
	else
		dbus_str(o, value);
}

int dbus_message(struct dbus_out *ret, const struct dbus_method *m, uint32_t serial,
		 const struct dbus_out *body, struct err *e)
{
	struct dbus_array fields;

	ret->len = 0;
	ret->failed = body && body->failed;
	dbus_byte(ret, LITTLE);
	dbus_byte(ret, DBUS_CALL);
	dbus_byte(ret, 0);
	dbus_byte(ret, VERSION);
	dbus_u32(ret, body ? (uint32_t)body->len : 0);
	dbus_u32(ret, serial);
	fields = dbus_array(ret, 8);
	put_field(ret, FIELD_PATH, m->path);
	put_field(ret, FIELD_DESTINATION, m->destination);
	put_field(ret, FIELD_INTERFACE, m->interface);
	put_field(ret, FIELD_MEMBER, m->member);
	put_field(ret, FIELD_SIGNATURE, m->signature);
	dbus_array_end(ret, fields);
	dbus_align(ret, 8);
	if (body)
		put(ret, body->data, body->len);
	return ret->failed ? err_set(e, ERR_SYS, "a D-Bus call of more than %d bytes", DBUS_OUT_MAX)
			   : 0;
}

static int bad(struct err *e, const char *what)
{
	return err_set(e, ERR_SYS, "a D-Bus message that makes no sense: %s", what);
}

int dbus_head(const uint8_t head[DBUS_HEAD], enum dbus_type *ret_type, uint32_t *ret_len,
	      struct err *e)
{
	uint32_t body = get_u32(head + 4), fields = get_u32(head + 12);

	if (head[0] != LITTLE || head[3] != VERSION)
		return bad(e, "byte order or version");
	if (head[1] < DBUS_CALL || head[1] > DBUS_SIGNAL)
		return bad(e, "its kind");
	if (get_u32(head + 8) == 0)
		return bad(e, "its serial");
	if (fields > FIELDS_MAX || body > LENGTH_MAX - DBUS_HEAD - round_up(fields, 8))
		return bad(e, "its length");
	*ret_type = (enum dbus_type)head[1];
	*ret_len = (uint32_t)(DBUS_HEAD + round_up(fields, 8)) + body;
	return 0;
}

/* What is left to read. Once something is wrong nothing more is read, and `what` says why. */
struct in {
	const uint8_t *data;
	size_t n, at;
	const char *what;
};

static bool room(struct in *in, size_t n)
{
	if (!in->what && n > in->n - in->at)
		in->what = "a length leads out of it";
	return !in->what;
}

static void align(struct in *in, size_t n)
{
	size_t to = round_up(in->at, n);

	if (!room(in, to - in->at))
		return;
	for (; in->at < to; in->at++)
		if (in->data[in->at] != 0)
			in->what = "padding";
}

static uint8_t take_byte(struct in *in)
{
	return room(in, 1) ? in->data[in->at++] : 0;
}

static uint32_t take_u32(struct in *in)
{
	uint32_t v;

	align(in, 4);
	if (!room(in, 4))
		return 0;
	v = get_u32(in->data + in->at);
	in->at += 4;
	return v;
}

/* The n bytes of a string, and its end. */
static const char *take_text(struct in *in, size_t n)
{
	const char *s;

	if (n >= SIZE_MAX - 1 || !room(in, n + 1))
		return "";
	s = (const char *)in->data + in->at;
	if (memchr(s, '\0', n) || s[n] != '\0') {
		in->what = "a string's end";
		return "";
	}
	in->at += n + 1;
	return s;
}

static const char *take_str(struct in *in)
{
	return take_text(in, take_u32(in));
}

static const char *take_sig(struct in *in)
{
	return take_text(in, take_byte(in));
}

static void take_plain(struct in *in, char type)
{
	static const struct {
		char type;
		unsigned char size;
	} sizes[] = { { 'y', 1 }, { 'b', 4 }, { 'n', 2 }, { 'q', 2 }, { 'i', 4 },
		      { 'u', 4 }, { 'x', 8 }, { 't', 8 }, { 'd', 8 }, { 'h', 4 } };

	if (type == 's' || type == 'o') {
		take_str(in);
		return;
	}
	if (type == 'g') {
		take_sig(in);
		return;
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (sizes[i].type != type)
			continue;
		align(in, sizes[i].size);
		if (room(in, sizes[i].size))
			in->at += sizes[i].size;
		return;
	}
	in->what = "a field of an unknown type";
}

/* Names are made of these; nothing else is worth passing on. */
static bool is_name(const char *s)
{
	size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	return n > 0 && n <= DBUS_NAME_MAX && s[n] == '\0';
}

struct fields {
	const char *error, *signature;
	uint32_t reply_to;
};

static void take_field(struct in *in, struct fields *f)
{
	const char *sig;
	uint8_t code;

	align(in, 8);
	code = take_byte(in);
	sig = take_sig(in);
	if (in->what)
		return;
	if (code == 0 || !sig[0] || sig[1] || (code < FIELD_N && sig[0] != field_type[code])) {
		in->what = "a field's type";
		return;
	}
	if (code == FIELD_ERROR_NAME)
		f->error = take_str(in);
	else if (code == FIELD_SIGNATURE)
		f->signature = take_sig(in);
	else if (code == FIELD_REPLY_SERIAL)
		f->reply_to = take_u32(in);
	else
		take_plain(in, sig[0]);
}

int dbus_parse(const uint8_t *data, size_t n, struct dbus_in *ret, struct err *e)
{
	struct in in = { .data = data, .n = n, .at = DBUS_HEAD };
	struct fields f = { .error = "", .signature = "" };
	const char *text = "";
	enum dbus_type type = DBUS_CALL;
	size_t fields_end;
	uint32_t len = 0;

	if (n < DBUS_HEAD)
		return bad(e, "it is cut");
	if (dbus_head(data, &type, &len, e) < 0)
		return -1;
	if (len != n)
		return bad(e, "its length");
	fields_end = DBUS_HEAD + get_u32(data + 12);
	in.n = fields_end; /* fields must not lead into the body */
	while (!in.what && in.at < fields_end)
		take_field(&in, &f);
	in.n = n;
	align(&in, 8);
	if (!in.what && type == DBUS_ERROR && f.signature[0] == 's')
		text = take_str(&in);
	if (in.what)
		return bad(e, in.what);
	if (type == DBUS_ERROR ? !is_name(f.error) : f.error[0] != '\0')
		return bad(e, "the error's name");
	if ((type == DBUS_RETURN || type == DBUS_ERROR) && f.reply_to == 0)
		return bad(e, "an answer to nothing");
	ret->type = type;
	ret->reply_to = f.reply_to;
	memcpy(ret->error, f.error, strlen(f.error) + 1);
	str_printable(ret->text, sizeof(ret->text), text);
	return 0;
}
