#include "session/frame.h"

#include <stdlib.h>
#include <string.h>

void frame_free(struct frame *f)
{
	json_decref(f->head);
	f->head = NULL;
}

int frame_reader_open(struct frame_reader *r)
{
	*r = (struct frame_reader){ .buf = malloc(FRAME_MAX) };
	return r->buf ? 0 : -1;
}

void frame_reader_close(struct frame_reader *r)
{
	json_decref(r->head);
	free(r->buf);
	*r = (struct frame_reader){ 0 };
}

char *frame_room(struct frame_reader *r, size_t *ret_n)
{
	/* What is left goes to the front when its frame would not fit behind it. */
	if (r->at > 0 && (r->at == r->end || FRAME_MAX - r->end < FRAME_LINE_MAX)) {
		memmove(r->buf, r->buf + r->at, r->end - r->at);
		r->end -= r->at;
		r->seen -= r->at;
		r->at = 0;
	}
	*ret_n = FRAME_MAX - r->end;
	return r->buf + r->end;
}

void frame_fed(struct frame_reader *r, size_t n)
{
	r->end += n;
}

bool frame_begun(const struct frame_reader *r)
{
	return r->at < r->end || r->head;
}

/* jansson's own limit of depth is fixed when it is built, and far higher. */
static bool too_deep(const char *p, size_t n)
{
	unsigned depth = 0;
	bool text = false;

	for (size_t i = 0; i < n; i++) {
		if (text && p[i] == '\\')
			i++;
		else if (p[i] == '"')
			text = !text;
		else if (!text && (p[i] == '{' || p[i] == '['))
			depth++;
		else if (!text && (p[i] == '}' || p[i] == ']') && depth > 0)
			depth--;
		if (depth > FRAME_DEPTH_MAX)
			return true;
	}
	return false;
}

static int broken(struct frame_reader *r, struct ses_error *e, const char *what, const char *why)
{
	r->broken = true;
	return ses_error_set(e, SES_PROTOCOL, "a frame %s%s%s", what, *why ? ": " : "", why);
}

static int take_head(struct frame_reader *r, const char *line, size_t n, struct ses_error *e)
{
	json_error_t why;
	json_t *head, *bytes;

	if (too_deep(line, n))
		return broken(r, e, "is nested more than 16 deep", "");
	head = json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	if (!head)
		return broken(r, e, "is no line of JSON", why.text);
	bytes = json_object_get(head, "bytes");
	if (!json_is_object(head) ||
	    (bytes && (!json_is_integer(bytes) || json_integer_value(bytes) < 0 ||
		       json_integer_value(bytes) > (json_int_t)FRAME_BYTES_MAX))) {
		broken(r, e,
		       json_is_object(head) ? "has \"bytes\" that are no integer of 0 to 1048576"
					    : "is no JSON object",
		       "");
		json_decref(head);
		return -1;
	}
	r->with_bytes = bytes != NULL;
	r->n = bytes ? (size_t)json_integer_value(bytes) : 0;
	json_object_del(head, "bytes");
	r->head = head;
	return 0;
}

int frame_next(struct frame_reader *r, struct frame *ret, struct ses_error *e)
{
	const char *from = r->buf + r->at, *nl;

	if (r->broken)
		return broken(r, e, "before was wrong, so where the next begins is not known", "");
	if (!r->head) {
		nl = memchr(r->buf + r->seen, '\n', r->end - r->seen);
		r->seen = r->end;
		if ((nl ? (size_t)(nl - from) + 1 : r->end - r->at + 1) > FRAME_LINE_MAX)
			return broken(r, e, "has a line of more than 65536 bytes", "");
		if (!nl)
			return 0;
		if (take_head(r, from, (size_t)(nl - from), e) < 0)
			return -1;
		r->at += (size_t)(nl - from) + 1;
		r->seen = r->at;
	}
	if (r->end - r->at < r->n)
		return 0;
	*ret = (struct frame){ .head = r->head,
			       .bytes = r->buf + r->at,
			       .n = r->n,
			       .with_bytes = r->with_bytes };
	r->head = NULL;
	r->at += r->n;
	r->seen = r->at;
	r->n = 0;
	return 1;
}

char *frame_line(json_t *head, size_t bytes, bool with_bytes, size_t *ret_n)
{
	char *line;
	size_t n;

	if (with_bytes && json_object_set_new(head, "bytes", json_integer((json_int_t)bytes)) < 0)
		return NULL;
	n = json_dumpb(head, NULL, 0, JSON_COMPACT);
	if (n == 0 || n >= FRAME_LINE_MAX || !(line = malloc(n + 1)))
		return NULL;
	json_dumpb(head, line, n, JSON_COMPACT);
	line[n] = '\n';
	*ret_n = n + 1;
	return line;
}

json_t *ses_error_json(const struct ses_error *e)
{
	json_t *j = json_pack("{s:s,s:s}", "type", ses_error_name(e->type), "message", e->message);

	if (*e->option)
		json_object_set_new(j, "option", json_string(e->option));
	if (*e->allowed)
		json_object_set_new(j, "allowed", json_string(e->allowed));
	if (*e->rule)
		json_object_set_new(j, "rule", json_string(e->rule));
	return j;
}
