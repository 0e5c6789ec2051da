/* Which certificate authorities vouch for a registry: libcurl's own, or those that SSL_CERT_FILE
 * and SSL_CERT_DIR name, and besides them --ca-file and every *.crt in a directory of the
 * registry's: CONFIG/certs.d/HOST[:PORT], /etc/containers/certs.d/..., /etc/docker/certs.d/... */
#pragma once

#include "image/http.h"

/* Fills h->ca, ca_file and ca_dir (pointers into the environment). `config` is cloche's directory
 * of configuration, or NULL; ca_file may be NULL. -1 with ERR_USAGE for a file that can't be read.
 */
int img_trust(const char *ca_file, const char *config, const char *host, struct img_http *h,
	      struct err *e);

/* The lines of CONFIG/mirrors, each a mirror (img_mirror_parse), shown one by one; '#' begins a
 * comment. No such file: nothing. -1 with *e, or what `each` returns below 0. */
int img_mirrors_each(const char *config, int (*each)(void *ctx, const char *text, struct err *e),
		     void *ctx, struct err *e);
