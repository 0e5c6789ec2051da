/* What may go wrong: the file is hostile as any other. libyaml reads it event by event; nothing of
 * it is kept but what is a node here, and nodes are counted. An alias, which could make a small
 * file a large tree, is never followed. */
#include "session/yaml_read.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/str.h"

struct reader {
	yaml_parser_t parser;
	size_t nodes;
};

static int at(unsigned line, unsigned column, struct err *e, const char *fmt, va_list ap)
	__attribute__((format(printf, 4, 0)));
static int at(unsigned line, unsigned column, struct err *e, const char *fmt, va_list ap)
{
	char text[400], safe[400];

	vsnprintf(text, sizeof(text), fmt, ap);
	return err_set(e, ERR_USAGE, "%u:%u: %s", line, column,
		       str_printable(safe, sizeof(safe), text));
}

int ses_yaml_at(const struct ses_yaml *node, struct err *e, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = at(node->line, node->column, e, fmt, ap);
	va_end(ap);
	return r;
}

int ses_yaml_at_key(const struct ses_yaml *node, struct err *e, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = at(node->key_line, node->key_column, e, fmt, ap);
	va_end(ap);
	return r;
}

static int at_mark(const yaml_mark_t *m, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int at_mark(const yaml_mark_t *m, struct err *e, const char *fmt, ...)
{
	va_list ap;
	int r;

	va_start(ap, fmt);
	r = at((unsigned)m->line + 1, (unsigned)m->column + 1, e, fmt, ap);
	va_end(ap);
	return r;
}

void ses_yaml_free(struct ses_yaml *node)
{
	while (node) {
		struct ses_yaml *next = node->next;

		ses_yaml_free(node->child);
		json_decref(node->value);
		free(node->key);
		free(node);
		node = next;
	}
}

static int parser_error(const yaml_parser_t *p, struct err *e)
{
	const yaml_mark_t *m = p->error == YAML_READER_ERROR ? &p->mark : &p->problem_mark;

	if (p->error == YAML_MEMORY_ERROR)
		return err_set(e, ERR_SYS, "out of memory");
	if (p->error == YAML_READER_ERROR)
		return at_mark(m, e, "it is no text in UTF-8: %s",
			       p->problem ? p->problem : "unknown");
	return at_mark(m, e, "%s%s%s", p->context ? p->context : "", p->context ? ": " : "",
		       p->problem ? p->problem : "it can't be read");
}

static int next(struct reader *r, yaml_event_t *ret, struct err *e)
{
	if (yaml_parser_parse(&r->parser, ret))
		return 0;
	return parser_error(&r->parser, e);
}

/* A plain scalar is a number, true, false or null where it is spelt as one in JSON; all else is a
 * string. */
static json_t *plain(const char *s)
{
	json_t *v;

	if (!*s || strcmp(s, "~") == 0)
		return json_null();
	v = json_loads(s, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
	if (v && (json_is_number(v) || json_is_boolean(v) || json_is_null(v)))
		return v;
	json_decref(v);
	return json_string(s);
}

static int read_scalar(const yaml_event_t *ev, struct ses_yaml *n, struct err *e)
{
	const char *s = (const char *)ev->data.scalar.value;
	size_t len = ev->data.scalar.length;

	if (len > YAML_SCALAR_MAX)
		return at_mark(&ev->start_mark, e, "longer than %d bytes", YAML_SCALAR_MAX);
	if (strlen(s) != len)
		return at_mark(&ev->start_mark, e, "it holds a NUL");
	n->value = ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain(s) : json_string(s);
	if (!n->value)
		return err_set(e, ERR_SYS, "out of memory");
	return 0;
}

static int no_extras(const yaml_event_t *ev, const yaml_char_t *anchor, const yaml_char_t *tag,
		     struct err *e)
{
	if (anchor)
		return at_mark(&ev->start_mark, e, "no anchors (&%.40s) here: write it out",
			       (const char *)anchor);
	if (tag)
		return at_mark(&ev->start_mark, e, "no tags (%.40s) here", (const char *)tag);
	return 0;
}

static int read_node(struct reader *r, const yaml_event_t *ev, unsigned depth,
		     struct ses_yaml **ret, struct err *e);

/* The key of a map's next pair. */
static int read_key(const yaml_event_t *ev, const struct ses_yaml *before, char **ret,
		    struct err *e)
{
	const char *s = (const char *)ev->data.scalar.value;

	if (ev->type != YAML_SCALAR_EVENT)
		return at_mark(&ev->start_mark, e, "a key is a word");
	if (no_extras(ev, ev->data.scalar.anchor, ev->data.scalar.tag, e) < 0)
		return -1;
	if (!*s || strlen(s) != ev->data.scalar.length || strlen(s) > YAML_SCALAR_MAX)
		return at_mark(&ev->start_mark, e, "a key is a word");
	if (strcmp(s, "<<") == 0)
		return at_mark(&ev->start_mark, e, "no merge keys here: write it out");
	for (; before; before = before->next)
		if (strcmp(before->key, s) == 0)
			return at_mark(&ev->start_mark, e,
				       "\"%.60s\" is given twice; first in line %u", s,
				       before->key_line);
	*ret = strdup(s);
	return *ret ? 0 : err_set(e, ERR_SYS, "out of memory");
}

/* One element of a map or a list, whose first event is `ev`. */
static int read_element(struct reader *r, const yaml_event_t *ev, bool map, unsigned depth,
			const struct ses_yaml *before, struct ses_yaml **ret, struct err *e)
{
	const yaml_mark_t mark = ev->start_mark;
	char *key = NULL;
	yaml_event_t value;
	int rc;

	if (!map)
		return read_node(r, ev, depth, ret, e);
	if (read_key(ev, before, &key, e) < 0)
		return -1;
	rc = next(r, &value, e);
	if (rc == 0) {
		rc = read_node(r, &value, depth, ret, e);
		yaml_event_delete(&value);
	}
	if (rc < 0) {
		free(key);
		return -1;
	}
	(*ret)->key = key;
	(*ret)->key_line = (unsigned)mark.line + 1;
	(*ret)->key_column = (unsigned)mark.column + 1;
	return 0;
}

static int read_children(struct reader *r, struct ses_yaml *n, unsigned depth, struct err *e)
{
	const bool map = n->kind == YAML_MAP;
	struct ses_yaml **tail = &n->child;

	for (;;) {
		yaml_event_t ev;
		bool end;
		int rc;

		if (next(r, &ev, e) < 0)
			return -1;
		end = ev.type == YAML_MAPPING_END_EVENT || ev.type == YAML_SEQUENCE_END_EVENT;
		rc = end ? 0 : read_element(r, &ev, map, depth + 1, n->child, tail, e);
		yaml_event_delete(&ev);
		if (end || rc < 0)
			return rc;
		tail = &(*tail)->next;
	}
}

static int fill(struct reader *r, const yaml_event_t *ev, unsigned depth, struct ses_yaml *n,
		struct err *e)
{
	if (ev->type == YAML_ALIAS_EVENT)
		return at_mark(&ev->start_mark, e, "no aliases (*%.40s) here: write it out",
			       (const char *)ev->data.alias.anchor);
	if (ev->type == YAML_SCALAR_EVENT) {
		n->kind = YAML_SCALAR;
		if (no_extras(ev, ev->data.scalar.anchor, ev->data.scalar.tag, e) < 0)
			return -1;
		return read_scalar(ev, n, e);
	}
	if (ev->type != YAML_MAPPING_START_EVENT && ev->type != YAML_SEQUENCE_START_EVENT)
		return at_mark(&ev->start_mark, e, "a value is wanted");
	if (depth >= YAML_DEPTH_MAX)
		return at_mark(&ev->start_mark, e, "nested deeper than %d", YAML_DEPTH_MAX);
	n->kind = ev->type == YAML_MAPPING_START_EVENT ? YAML_MAP : YAML_LIST;
	if (no_extras(ev,
		      n->kind == YAML_MAP ? ev->data.mapping_start.anchor
					  : ev->data.sequence_start.anchor,
		      n->kind == YAML_MAP ? ev->data.mapping_start.tag
					  : ev->data.sequence_start.tag,
		      e) < 0)
		return -1;
	return read_children(r, n, depth, e);
}

static int read_node(struct reader *r, const yaml_event_t *ev, unsigned depth,
		     struct ses_yaml **ret, struct err *e)
{
	struct ses_yaml *n;

	if (++r->nodes > YAML_NODES_MAX)
		return at_mark(&ev->start_mark, e, "more than %d values", YAML_NODES_MAX);
	n = calloc(1, sizeof(*n));
	if (!n)
		return err_set(e, ERR_SYS, "out of memory");
	n->line = (unsigned)ev->start_mark.line + 1;
	n->column = (unsigned)ev->start_mark.column + 1;
	if (fill(r, ev, depth, n, e) < 0) {
		ses_yaml_free(n);
		return -1;
	}
	*ret = n;
	return 0;
}

/* The stream: its start, at most one document, its end. */
static int read_stream(struct reader *r, struct ses_yaml **root, struct err *e)
{
	for (bool started = false;;) {
		yaml_event_t ev;
		bool end;
		int rc = 0;

		if (next(r, &ev, e) < 0)
			return -1;
		end = ev.type == YAML_STREAM_END_EVENT;
		if (ev.type == YAML_DOCUMENT_START_EVENT) {
			if (started)
				rc = at_mark(&ev.start_mark, e, "a second document: one is all");
			started = true;
		} else if (!end && ev.type != YAML_STREAM_START_EVENT &&
			   ev.type != YAML_DOCUMENT_END_EVENT) {
			rc = *root ? at_mark(&ev.start_mark, e, "a second value: one is all")
				   : read_node(r, &ev, 0, root, e);
		}
		yaml_event_delete(&ev);
		if (end || rc < 0)
			return rc;
	}
}

int ses_yaml_read(const char *text, size_t n, struct ses_yaml **ret, struct err *e)
{
	struct reader r = { 0 };
	struct ses_yaml *root = NULL;
	int rc;

	if (n > YAML_BYTES_MAX)
		return err_set(e, ERR_USAGE, "1:1: larger than %d bytes", YAML_BYTES_MAX);
	if (!yaml_parser_initialize(&r.parser))
		return err_set(e, ERR_SYS, "out of memory");
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
	rc = read_stream(&r, &root, e);
	yaml_parser_delete(&r.parser);
	if (rc < 0) {
		ses_yaml_free(root);
		return -1;
	}
	*ret = root;
	return 0;
}

json_t *ses_yaml_json(const struct ses_yaml *node)
{
	json_t *v;

	if (node->kind == YAML_SCALAR)
		return json_incref(node->value);
	v = node->kind == YAML_MAP ? json_object() : json_array();
	for (const struct ses_yaml *c = node->child; v && c; c = c->next) {
		json_t *one = ses_yaml_json(c);
		int r = node->kind == YAML_MAP ? json_object_set_new(v, c->key, one)
					       : json_array_append_new(v, one);

		if (r < 0) {
			json_decref(v);
			return NULL;
		}
	}
	return v;
}
