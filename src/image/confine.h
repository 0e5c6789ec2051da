/* How cloche-image locks itself in before it reads a byte of a registry's or an archive's: no more
 * rights than the work needs, the files of that work alone (Landlock), and the system calls of that
 * work alone (seccomp). There is no way back, and children inherit it.
 *
 * What the kernel lacks is an error that names it (ERR_MISSING): nothing is read without these
 * locks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* A program with the sanitizers needs memory without bound. */
#if defined(__SANITIZE_ADDRESS__)
#define IMG_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IMG_SANITIZED
#endif
#endif

/* That the kernel has what img_confine needs. */
int img_confine_ready(struct err *e);

/* For the whole process, before it has threads: no_new_privs; as root no capability but those that
 * unpacking with owners takes; as an ordinary user, where the host allows it, a user namespace of
 * its own with this user and group alone and CAP_DAC_OVERRIDE over their files, so that a directory
 * of mode 0500 is no obstacle. Where the host does not allow it: the same without. */
int img_confine_rights(struct err *e);

enum img_work {
	IMG_WORK_UNPACK, /* files and memory; no socket, no process, no program */
	IMG_WORK_SERVE,	 /* and children that are copies and lock themselves in */
	IMG_WORK_STORE,	 /* or what the store and waiting for others take */
	IMG_WORK_FETCH,	 /* and with that sockets and threads; no child, no program */
	IMG_WORK_N
};

struct img_confine {
	enum img_work work;
	const int *writes; /* directories below which all is allowed but executing */
	size_t n_writes;
	const int *reads; /* directories and files that may be read */
	size_t n_reads;
};
/* Descriptors that are open stay of use. */
int img_confine(const struct img_confine *how, struct err *e);
