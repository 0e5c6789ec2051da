/* Paths from outside: the one place that walks them. openat2(2) with RESOLVE_* where the kernel has
 * it and an outer sandbox lets it through; else a walk with O_NOFOLLOW component by component. No
 * other file concatenates paths. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Opens `path` (relative, no leading slash; "" is dirfd itself) below dirfd without following any
 * symbolic link, O_PATH and close-on-exec; `flags` may add O_DIRECTORY. -1 with errno (ELOOP: a
 * component is a link; EXDEV: it starts with / or has ".."). */
int path_open_beneath(int dirfd, const char *path, int flags);
/* As above but an absolute path from the process root, no links on any component. */
int path_open_nolinks(const char *abs, int flags);
/* Opens `path` as a root file system would see it: links are followed inside `rootfd` and can't
 * leave it (RESOLVE_IN_ROOT, no magic links). O_PATH. -1 with errno. */
int path_open_in_root(int rootfd, const char *path, int flags);
/* Makes directories (0755) or, at the end, an empty file (0644) where missing (less the umask),
 * below rootfd, following links only inside it; returns an O_PATH descriptor of the target. -1 with
 * errno (ENOTDIR, EISDIR: it exists and is of the other kind). */
int path_make_dir(int rootfd, const char *path);
int path_make_file(int rootfd, const char *path);
/* The path without links that `path` stands for inside rootfd, with a leading slash; what does not
 * exist yet is taken as plain names. 0, or -1 with errno. */
int path_resolve_in_root(int rootfd, const char *path, char ret[4096]);

/* realpath(3) into a caller's buffer of PATH_MAX; relative paths are taken from the working
 * directory. 0 or -1 with errno. */
int path_canonical(const char *path, char ret[4096]);
/* Normalises an absolute path lexically: collapses "//" and "/./", refuses "..", control
 * characters, a relative path, more than 4095 bytes. The result has no trailing slash (but "/"
 * stays). */
int path_normalise(const char *path, char ret[4096], struct err *e);
/* True when `path` is `dir` or below it (both normalised). */
bool path_within(const char *path, const char *dir);
/* dst = dir "/" name, checked against cap. 0, or -1 with ENAMETOOLONG. */
int path_join(char *dst, size_t cap, const char *dir, const char *name);
