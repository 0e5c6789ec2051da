/* A registry's second protocol version: manifests and blobs of one repository, from its mirrors in
 * turn or from the registry itself.
 *
 * A question is answered after as many exchanges as it takes: redirects (HTTPS only, without the
 * password once they lead to another host), a token (from the realm that the registry names; a
 * password is shown there only by img_realm_trusted), retries (after what Retry-After says or a
 * growing, uneven time), the next mirror. What comes back has been asked for, and no more: its
 * digest is for the caller to compare. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "image/auth_file.h"
#include "image/http.h"
#include "image/manifest.h"
#include "image/ref.h"

#define IMG_ENDPOINTS_MAX 9 /* eight mirrors and the registry */

struct img_endpoint {
	char host[IMG_HOST_MAX + 1];   /* as references have it, with its port */
	char prefix[IMG_REPO_MAX + 1]; /* of a mirror's repositories: "" or "path" */
	struct img_auth auth;
	char *authorization; /* the header that it was last content with, or NULL */
	unsigned generation; /* of that: counts up */
	bool plain;	     /* speaks no TLS */
};

struct img_registry {
	const struct img_http *http;
	const struct img_ref *ref;
	struct img_endpoint ends[IMG_ENDPOINTS_MAX]; /* the registry is the last */
	size_t n;
	size_t at; /* the one that answered last: where the next question begins */
	void (*note)(void *ctx, const char *text); /* one line for the user */
	void *ctx;
};

/* A mirror as it is written: "[REGISTRY=]HOST[:PORT][/PATH]". 1 when it is one of `host`, 0 when of
 * another, -1 with ERR_USAGE. */
int img_mirror_parse(const char *text, const char *host, struct img_endpoint *ret, struct err *e);
/* Overwrites the passwords. */
void img_registry_free(struct img_registry *r);

struct img_fetch {
	struct img_registry *reg;
	const char *kind; /* "manifests", "blobs" */
	const char *what; /* a tag or digest */
	size_t end;	  /* the endpoint that is asked */
	size_t ends_left; /* others that may be asked after it */
	unsigned tries, redirects, generation;
	bool renewed, foreign;
	uint64_t not_before; /* img_http_now of the next exchange */
	struct img_exchange x;
};

/* Begins the question; x's own fields (method, accept, sink ...) are the caller's to set before. */
int img_fetch_begin(struct img_fetch *f, struct err *e);
/* After an exchange: 1 when it is to be repeated, from f->not_before on; 0 when f->x has the
 * answer, a 2xx; -1. `gained`: bytes came since the last time, so that it is worth going on. */
int img_fetch_next(struct img_fetch *f, bool gained, struct err *e);
void img_fetch_free(struct img_fetch *f);
/* After img_fetch_begin: all of it, waiting; the answer is in f->x. */
int img_fetch_go(struct img_fetch *f, struct err *e);
/* What was answered is not what was asked for: as img_fetch_next, for the next mirror. */
int img_fetch_reject(struct img_fetch *f, const struct err *why, struct err *e);
