/* Who the box's user is, inside and outside. */
#pragma once

#include "engine/request.h"

/* Fills uid, gid, outer ids and home of the spec, and p->user. Needs the root to be known. HOME is
 * what an image sets as such, else the account's, else /home/user, or /root for root. */
int ids_prepare(const struct request *r, struct prepared *p, struct err *e);
/* The ids that a box of the caller's has outside: its own, or where it is root those of nobody. */
int ids_outside(uid_t *ret_uid, gid_t *ret_gid, struct err *e);
/* The pure part, for tests: from the text of /proc/self/uid_map, an id for a root caller's box that
 * is not 0 and exists in this user namespace; 0 when there is none. */
uint32_t ids_outer(const char *map);
