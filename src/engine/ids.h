/* Who the box's user is, inside and outside. */
#pragma once

#include "engine/request.h"

/* Fills uid, gid, outer ids and home of the spec. Needs the root to be known. */
int ids_prepare(const struct request *r, struct prepared *p, struct err *e);
/* The pure part, for tests: from the text of /proc/self/uid_map, an id for a root caller's box that
 * is not 0 and exists in this user namespace; 0 when there is none. */
uint32_t ids_outer(const char *map);
/* Finds `name` in the text of a passwd(5) file, which is the root file system's and so hostile. 0
 * with its ids, and with its home when that is absolute and fits `cap` bytes; else -1. */
int ids_passwd(const char *text, const char *name, uid_t *uid, gid_t *gid, char *home, size_t cap);
