/* The part of the host image that is the same for every box, kept ready in a directory: an overlay
 * over it is one mount where its fifty directories, links and files would each be made in every
 * box, a third of the time that building a root takes.
 *
 * It is a cache of ops: those marked `ready` in the plan are carried out in a directory once, under
 * a name made of what they say and of what they copy (size, time, inode); a box that finds the
 * directory skips them. Any doubt (no store, a full disk, a file system that can't be below an
 * overlay) means the ops run as ever. The directory is never written again, and never visible to a
 * box but as the lower side. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "box/plan.h"

/* At most this many are kept in a store; the next one first removes those that nobody uses. */
#define SKELETONS_MAX 16

/* Finds or makes the directory below `store` (an absolute path, made 0700 when missing), owned by
 * the box's outer ids. Returns its descriptor, which holds a shared lock as long as it is open, or
 * -1 when there is none to be had. */
int skeleton_open(const struct plan *p, const char *store, uid_t owner, gid_t group);
/* Removes those below `store` that no living cloche holds; returns how many. */
unsigned skeleton_sweep(const char *store);
