/* A layer unpacked by a child that has locked itself in (confine.h) before it reads a byte: decoded
 * (codec.h), summed and written (unpack.h) in one go. All that it can reach is the directory that
 * it fills, the layers below, to read, and the file that it reads.
 *
 * Only the child's own account says what the digest of the plain archive is; the one of the file as
 * it came is known to whoever downloaded it. What it says is checked for form. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "image/codec.h"
#include "image/unpack.h"

struct img_unpack_job {
	int in;		 /* read from where it stands to its end: a file, a pipe */
	uint64_t max_in; /* bytes of it */
	int tree;	 /* an empty directory */
	struct img_unpack_how how;
};

struct img_unpack_result {
	struct img_decoded decoded;
	struct img_unpacked done;
};

struct img_unpack_child {
	pid_t pid;  /* 0: none, or a server's */
	int answer; /* readable when it has ended: poll it */
};
#define IMG_UNPACK_NO_CHILD ((struct img_unpack_child){ 0, -1 })

/* Starts it; it dies with the caller's thread. The descriptors stay the caller's: how far `in` has
 * been read tells its progress. */
int img_unpack_start(const struct img_unpack_job *job, struct img_unpack_child *ret, struct err *e);
/* Waits for its end. -1 with its error, or with how it died. */
int img_unpack_end(struct img_unpack_child *c, struct img_unpack_result *ret, struct err *e);
/* Ends it; harmless on none. */
void img_unpack_kill(struct img_unpack_child *c);

/* The child itself, in the process that is to be it: writes its account to `back`. It ends with its
 * parent. */
void img_unpack_child(const struct img_unpack_job *job, int back, pid_t parent)
	__attribute__((noreturn));
