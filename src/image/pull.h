/* Pulling an image: from a registry's manifest to a name in the store. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "image/platform.h"
#include "image/progress.h"
#include "image/ref.h"

struct img_pull_how {
	struct img_ref ref;	      /* of a registry */
	struct img_platform platform; /* normalised */
	const char *ca_file;	      /* or NULL */
	const char *const *mirrors;   /* asked before those of the configuration */
	unsigned n_mirrors;
	bool insecure;	     /* only for a registry on this machine, else refused */
	uint64_t timeout_us; /* 0: none */
	const char *store;   /* the store's path */
	const char *config;  /* cloche's directory of configuration, or NULL */
	struct img_progress *progress;
	const volatile sig_atomic_t *stop; /* set: end, and leave what can be resumed */
};

struct img_pulled {
	char id[IMG_DIGEST_LEN + 1];
	char manifest[IMG_DIGEST_LEN + 1]; /* what the registry calls the reference */
	bool was_there;			   /* nothing had changed */
	uint64_t downloaded;		   /* bytes of layers */
	size_t layers, shared;		   /* of which so many were there */
};

/* Locks the process in for good: it is of no other use afterwards. 0, or -1 with the phase in the
 * message. */
int img_pull(const struct img_pull_how *how, struct img_pulled *ret, struct err *e);
