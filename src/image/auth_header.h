/* What a registry asks for before it answers: the challenges of WWW-Authenticate (RFC 7235), of
 * which Basic and Bearer are taken and others passed over. Strict: what could be read in two ways
 * is refused, and so are control characters, bytes beyond ASCII, and parameters that come twice. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define IMG_REALM_MAX 1024
#define IMG_SERVICE_MAX 255

struct img_challenges {
	bool basic, bearer;
	char realm[IMG_REALM_MAX + 1];	   /* of Bearer: where tokens are to be had */
	char service[IMG_SERVICE_MAX + 1]; /* of Bearer, or "" */
};

/* Adds the challenges of one header's value to *ret, which begins zeroed; the first Bearer counts.
 * 0, or -1 with ERR_REFUSED. */
int img_auth_header(const char *value, struct img_challenges *ret, struct err *e);

/* Whether a password for the registry `host` (of a reference, with its port) may be shown to the
 * token server `realm` (a host name or address as it is dialled, without a port): when it is the
 * same host, or known to be the same house. */
bool img_realm_trusted(const char *host, const char *realm);

/* The host of a reference's registry is this machine: "localhost" or a loopback address, with or
 * without a port. A name is never looked up. */
bool img_host_loopback(const char *host);
