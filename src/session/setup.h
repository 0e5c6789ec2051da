/* What a sandbox's `setup` installs: `cloche setup` makes an image of it, or finds it made already,
 * and the sandbox's boxes begin with that. */
#pragma once

#include "session/sandbox.h"

/* The option of `open`. What comes of it: sandbox_spawn, or a failed sandbox. */
void setup_of_open(struct sandbox *sb);
void setup_operation(struct session *s, const struct request *r);
/* The spawner for the new image has said READY (NULL), or what it failed with (taken over). */
void setup_spawned(struct sandbox *sb, json_t *fault);
/* The request that waits for it, but for an `open`; 0: none. */
uint64_t setup_id(const struct sandbox *sb);
/* The client has taken so many bytes of its live output. */
void setup_ack(struct sandbox *sb, size_t n);
/* Ends it; its request is answered with `closed`. */
void setup_end(struct sandbox *sb);
