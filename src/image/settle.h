/* Makes a layer of what a set-up box has written: the upper side of its overlay, as the kernel left
 * it, in the form that unpacked layers have (unpack.h).
 *
 * What is there was made by foreign code, as the root of a user namespace with set-id bits let
 * through. The policy is that of unpacking:
 * - set-user-id and set-group-id bits of files are cleared; of directories the first
 * - sockets go, and so do devices; a whiteout is the device 0:0 and stays
 * - of overlayfs's own attributes a directory keeps user.overlay.opaque=y; what else it has (the
 *   kernel's notes about copies) goes, and so do file capabilities and ACLs; user.* stays
 * - the caller owns everything: root's boxes write as somebody else
 * - at most 256 directories deep, and no more entries and bytes than an archive may have */
#pragma once

#include "base/err.h"
#include "image/unpack.h"

/* `tree` is a directory that no one else changes. Each step can be done again: after an error, the
 * caller removes the tree. -1: ERR_REFUSED names the entry, ERR_SYS the call. */
int img_settle(int tree, struct img_unpacked *ret, struct err *e);
