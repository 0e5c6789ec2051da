/* Where a registry's password is kept: $REGISTRY_AUTH_FILE alone when it is set; else the first
 * that knows the registry of $DOCKER_CONFIG/config.json, $XDG_RUNTIME_DIR/containers/auth.json,
 * $XDG_CONFIG_HOME/containers/auth.json (or ~/.config) and ~/.docker/config.json. A credential
 * helper that is named there is executed, which is why this comes before anything of a registry is
 * read. */
#pragma once

#include "base/err.h"
#include "image/auth_file.h"

#define IMG_NOTE_MAX 300

/* The credentials for HOST/REPO; kind NONE when there are none. A helper that does not answer is no
 * error: `note` then says so, else it is "". -1 with ERR_REFUSED: a file can't be read. */
int img_credentials(const char *host, const char *repo, struct img_auth *ret,
		    char note[IMG_NOTE_MAX], struct err *e);
