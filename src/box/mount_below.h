/* What is mounted below a directory that the caller shares: a bind carries it along. */
#pragma once

#include "base/err.h"
#include "box/mount_check.h"

/* Refuses when a file system of the kernel's own (proc, sysfs, a cgroup tree, devtmpfs ...) is
 * mounted below m->src: the chroot that it belongs to would hand the box what its own /proc and
 * /dev keep from it. Where the sharing `hides` what is mounted below (id-mapped mounts of root
 * callers), each such mount is put down as a denial, a few at most. */
int mount_below_check(struct mount_check *c, const struct box_mount *m, bool hides, struct err *e);
