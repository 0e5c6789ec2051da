/* Frames: a line of JSON, and the raw bytes that it announces (docs/PROTOCOL.md). Reading and
 * writing them here is memory to memory; who moves the bytes is another matter.
 *
 * Everything a reader gets is hostile: its buffer is as large as the largest frame and never
 * grows. After an error it reads nothing more: where the next frame begins is not known. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "session/error.h"

#define FRAME_LINE_MAX 65536u
#define FRAME_BYTES_MAX (1u << 20)
#define FRAME_DEPTH_MAX 16
#define FRAME_MAX (FRAME_LINE_MAX + FRAME_BYTES_MAX)

struct frame {
	json_t *head; /* an object, without "bytes" when that was there; the receiver's. Its strings
			 may hold NULs, which request_read refuses */
	const char *bytes; /* until the next call of the reader */
	size_t n;
	bool with_bytes; /* there was "bytes", be it 0 */
};
void frame_free(struct frame *f);
#define _cleanup_frame_ __attribute__((cleanup(frame_free)))

struct frame_reader {
	char *buf; /* FRAME_MAX */
	size_t at, end, seen;
	json_t *head; /* of a frame whose bytes are still to come */
	size_t n;
	bool with_bytes, broken;
};

int frame_reader_open(struct frame_reader *r);
void frame_reader_close(struct frame_reader *r);
/* Where the next bytes go (always some room when frame_next has said 0), and that they are there.
 */
char *frame_room(struct frame_reader *r, size_t *ret_n);
void frame_fed(struct frame_reader *r, size_t n);
/* The next frame: 1, or 0 when more bytes are needed, or -1 with *e (`protocol`). */
int frame_next(struct frame_reader *r, struct frame *ret, struct ses_error *e);
/* Is there the beginning of a frame? */
bool frame_begun(const struct frame_reader *r);

/* The line of a frame: `head` with "bytes" put in when with_bytes. malloc'd, not terminated. NULL
 * when it would be longer than a line may be. */
char *frame_line(json_t *head, size_t bytes, bool with_bytes, size_t *ret_n);
/* The `error` of an answer. */
json_t *ses_error_json(const struct ses_error *e);
