/* What is mounted below a directory that the caller shares: a bind carries it along. */
#pragma once

#include "base/err.h"
#include "box/spec.h"

/* Refuses when a file system of the kernel's own (proc, sysfs, a cgroup tree, devtmpfs ...) is
 * mounted below m->src: the chroot that it belongs to would hand the box what its own /proc and
 * /dev keep from it. */
int mount_below_check(const struct box_mount *m, struct err *e);
