#include "session/out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session/frame.h"

#define KEEP (4u << 20) /* a buffer that is larger is given back when it is empty */

void out_open(struct out *o, int fd)
{
	*o = (struct out){ .fd = fd };
}

void out_close(struct out *o)
{
	free(o->data);
	o->data = NULL;
	o->at = o->len = o->cap = 0;
}

static bool make_room(struct out *o, size_t n)
{
	size_t cap = o->cap ? o->cap : 65536;
	char *v;

	if (o->at > 0 && o->cap - o->len < n) {
		memmove(o->data, o->data + o->at, o->len - o->at);
		o->len -= o->at;
		o->at = 0;
	}
	if (o->cap - o->len >= n)
		return true;
	while (cap - o->len < n && cap < OUT_MAX)
		cap *= 2;
	if (cap - o->len < n || !(v = realloc(o->data, cap))) {
		o->failed = true;
		return false;
	}
	o->data = v;
	o->cap = cap;
	return true;
}

static void add(struct out *o, const void *p, size_t n)
{
	if (n > 0)
		memcpy(o->data + o->len, p, n);
	o->len += n;
}

void out_raw(struct out *o, const char *line, size_t line_n, const void *bytes, size_t n)
{
	if (o->failed || !make_room(o, line_n + n))
		return;
	add(o, line, line_n);
	add(o, bytes, n);
}

static void frame(struct out *o, json_t *head, const void *bytes, size_t n, bool with_bytes)
{
	size_t line_n;
	char *line = head ? frame_line(head, n, with_bytes, &line_n) : NULL;

	if (line)
		out_raw(o, line, line_n, bytes, n);
	else
		o->failed = true;
	free(line);
	json_decref(head);
}

void out_frame(struct out *o, json_t *head)
{
	frame(o, head, NULL, 0, false);
}

void out_frame_bytes(struct out *o, json_t *head, const void *bytes, size_t n)
{
	frame(o, head, bytes, n, true);
}

void out_flush(struct out *o)
{
	while (!o->failed && o->at < o->len) {
		ssize_t n = write(o->fd, o->data + o->at, o->len - o->at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			o->failed = true;
			return;
		}
		o->at += (size_t)n;
	}
	if (o->at == o->len) {
		o->at = o->len = 0;
		if (o->cap > KEEP)
			out_close(o);
	}
}
