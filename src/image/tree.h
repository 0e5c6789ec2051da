/* Removing a tree. */
#pragma once

#include "base/err.h"

/* Removes what `name` is in the directory, with all below it: of any depth, with a bounded number
 * of descriptors, through directories that are closed to their owner; follows no link and leaves no
 * file system. Nobody else changes it meanwhile. Nothing there is fine. */
int img_tree_remove(int dir, const char *name, struct err *e);
