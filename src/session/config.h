/* cloche.yaml, the user's own configuration of sandboxes: defaults of their options, and profiles
 * (docs/CONFIG.md). It is read anew by each `open`, strictly: an unknown key is an error with its
 * line and column. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "state/dirs.h"

#define CONFIG_FILE "cloche.yaml"

/* Zeroed: empty. */
struct ses_config {
	char path[STATE_PATH_MAX]; /* the file, whether it is there or not */
	bool there;
	json_t *defaults; /* options by name; NULL: none */
	json_t *vcpu;	  /* NAME: {"cpus", "memory_mb", "pids"} */
	json_t *vdisk;	  /* NAME: {"path", "size"} */
	json_t *vgpio;	  /* NAME: {"devices"} */
};

/* Reads `path`, or the usual file for NULL, which need not be there. Errors name file, line and
 * column; ERR_USAGE for what the file says. */
int ses_config_load(const char *path, struct ses_config *ret, struct err *e);
/* The same of n bytes of text. */
int ses_config_read(const char *text, size_t n, struct ses_config *ret, struct err *e);
void ses_config_free(struct ses_config *c);
#define _cleanup_config_ __attribute__((cleanup(ses_config_free)))
/* The profile "vcpu:heavy", borrowed, and *ret_kind "vcpu"; or NULL with *e, which names those that
 * there are. */
const json_t *ses_config_profile(const struct ses_config *c, const char *token,
				 const char **ret_kind, struct err *e);
