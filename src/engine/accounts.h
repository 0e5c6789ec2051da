/* The accounts of a root file system that is not ours: its own /etc/passwd and /etc/group. Hostile
 * text in hostile places: only regular files of at most a MiB are read, over links inside the root
 * alone. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "box/spec.h"

struct account {
	uid_t uid;
	gid_t gid;
	char name[33];	/* "" when the file does not know the id, or the name is longer */
	char home[256]; /* absolute, or "" */
};

/* Whom "NAME|UID[:GROUP|GID]" means in the spec's root. With `lookup` an id is looked up too: its
 * group when none is given (0 when it is not there), its name and home; without, the group is the
 * id. 0, or -1 with *e: what is not there, or can't be read so. */
int account_find(const struct box_spec *s, const char *user, bool lookup, struct account *ret,
		 struct err *e);

/* The pure parts. */

/* A decimal id, but not the two highest, which the kernel keeps for itself. Moves *text on. */
#define ACCOUNT_ID_MAX (UINT32_MAX - 2)
int account_id(const char **text, uint32_t *ret);
/* The first line of passwd(5) with that name, or with that id. 0, or -1. */
int account_by_name(const char *passwd, const char *name, struct account *ret);
int account_by_id(const char *passwd, uid_t uid, struct account *ret);
/* The id of the group of that name in group(5). 0, or -1. */
int account_group(const char *group, const char *name, gid_t *ret);
