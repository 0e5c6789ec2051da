/* A stack of directories read as one tree, as overlayfs (`userxattr`) would show it: the topmost
 * that has a name gives it; the character device 0:0 is a whiteout; a directory with
 * user.overlay.opaque=y hides what is below it. For whoever must know what an image holds before it
 * is mounted.
 *
 * The content is hostile: links are text, followed inside the stack alone, where ".." stops at the
 * root; each step is one name in an open directory; and the walk is bounded. */
#pragma once

#include <limits.h>
#include <stddef.h>
#include <sys/stat.h>

/* Descriptors of the layers, the topmost first; they stay the caller's. */
struct layers {
	const int *fds;
	size_t n;
};

/* What stands at a path. */
struct layers_found {
	int dir; /* the directory it is in; the caller closes it */
	char name[NAME_MAX + 1];
	struct stat st;
};

/* Looks for a normalised path (relative, not empty) in one layer, without following links. 1:
 * found, and *ret is filled; 0: a layer below may have it; 2: nothing, and the layers below do not
 * count either; -1 with errno. */
int layers_find_in(int root, const char *path, struct layers_found *ret);
/* The path without links that `path` stands for, with a leading slash; what does not exist is taken
 * as plain names. 0, or -1 with errno (ELOOP: too many links or steps). */
int layers_resolve(const struct layers *l, const char *path, char ret[4096]);
/* Opens what `path` leads to, O_PATH and close-on-exec. -1 with errno. A directory is the topmost
 * layer's part of it only. */
int layers_open(const struct layers *l, const char *path);
