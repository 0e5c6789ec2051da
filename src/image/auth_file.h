/* Credentials as docker and the containers tools keep them: config.json and auth.json. What is in
 * such a file never gets into a message. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "image/ref.h"

#define IMG_SECRET_MAX 16384 /* tokens of cloud registries are long */
#define IMG_HELPER_MAX 64

enum img_auth_kind {
	IMG_AUTH_NONE,
	IMG_AUTH_PASSWORD, /* user and secret */
	IMG_AUTH_REFRESH,  /* secret: what tokens are got for */
	IMG_AUTH_TOKEN,	   /* secret: the token itself */
	IMG_AUTH_HELPER,   /* the program docker-credential-HELPER has to be asked */
};

struct img_auth {
	enum img_auth_kind kind;
	char helper[IMG_HELPER_MAX + 1]; /* letters, digits, . _ - */
	char user[IMG_SECRET_MAX + 1];
	char secret[IMG_SECRET_MAX + 1];
};
/* Overwrites it. */
void img_auth_wipe(struct img_auth *a);
#define _cleanup_auth_ __attribute__((cleanup(img_auth_wipe)))

/* What the file of n bytes says for the registry `host` and the repository: the entry of the
 * longest part of HOST/REPO. 0 (kind NONE when it says nothing), or -1 with ERR_REFUSED. */
int img_auth_file(const char *json, size_t n, const char *host, const char *repo,
		  struct img_auth *ret, struct err *e);
/* What a helper has answered. */
int img_auth_helper_answer(const char *json, size_t n, struct img_auth *ret, struct err *e);
/* What a helper is asked for: the host, or Docker Hub's old address. */
const char *img_auth_server(const char *host);
