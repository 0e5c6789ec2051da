/* What goes to the client: frames in order, in one buffer, written when the client takes them.
 *
 * What may be long asks out_room first, and goes on when it is told that there is room again
 * (serve.c); what is short, the answer of a request, is always taken, and no request is read while
 * there is no room: so the buffer stays bounded whether the client reads or not. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OUT_HIGH (1u << 20)
#define OUT_MAX (64u << 20)

struct out {
	int fd;
	char *data;
	size_t at, len, cap;
	bool failed; /* nobody reads any more, or OUT_MAX was reached */
};

void out_open(struct out *o, int fd);
void out_close(struct out *o);
static inline size_t out_waiting(const struct out *o)
{
	return o->len - o->at;
}
static inline bool out_room(const struct out *o)
{
	return !o->failed && out_waiting(o) < OUT_HIGH;
}
/* A frame. Takes `head` over (NULL, as after a failed json_pack, sets `failed`). */
void out_frame(struct out *o, json_t *head);
void out_frame_bytes(struct out *o, json_t *head, const void *bytes, size_t n);
/* A frame as it came from somebody who makes them like this file: its line with the newline. */
void out_raw(struct out *o, const char *line, size_t line_n, const void *bytes, size_t n);
/* Writes what can be written without waiting. */
void out_flush(struct out *o);
