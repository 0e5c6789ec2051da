/* What a call did to its workspace: one walk before it, one after, and the difference.
 *
 * Regular files and symbolic links count; directories, FIFOs, sockets and devices do not. A path
 * that was there before and after is `modified` when it is another file (inode, birth time) or when
 * its status or size has changed (ctime, which no program can set: contents, mode, owner, links,
 * extended attributes). One that was not there before is `renamed` when a file that has lost its
 * path is the same one, else `created`; one that is gone is `deleted`. Changes by whoever else
 * works in the directory meanwhile are in the difference, too.
 *
 * It follows no link and opens directories only; it works while boxes change the tree. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/json.h"

#define SES_CHANGES_WALK_MAX 1000000 /* entries of a workspace: with more, nothing is tracked */
#define SES_CHANGES_LIST_MAX 100000  /* changes: those beyond are counted */

struct ses_changes;

/* The walk before. `dirfd` is the workspace, which stays the caller's and open until the end.
 * ERR_TOO_LARGE when it has too many files. */
int ses_changes_begin(int dirfd, struct ses_changes **ret, struct err *e);
/* The walk after. Writes a JSON array, sorted by the bytes of the path, of
 *	{"path", "change", "size", "from"?, "type"?}
 * ("from": the path of a `renamed` one before; "type": "symlink", left out for files; a deleted
 * one's size is what it had). *ret_cut is how many of the changes were not written. */
int ses_changes_end(struct ses_changes *c, struct json *j, uint64_t *ret_cut, struct err *e);
void ses_changes_free(struct ses_changes **c);
#define _cleanup_changes_ __attribute__((cleanup(ses_changes_free)))
