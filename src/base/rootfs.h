/* Where a root file system comes from, as plain values: `image` (and later others) gives one of
 * these, `box` builds from it, and neither sees the other. Whoever fills it owns the strings and
 * keeps them until the box has ended. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/layers.h"

enum rootfs_kind {
	ROOTFS_HOST,   /* a tmpfs of our own with host directories laid over it read-only */
	ROOTFS_DIR,    /* a directory that is a root file system, below an overlay */
	ROOTFS_LAYERS, /* layers of an image, below an overlay */
	ROOTFS_KIND_N
};

enum rootfs_entry_kind {
	ROOTFS_ENTRY_DIR,   /* a directory of this mode */
	ROOTFS_ENTRY_FILE,  /* a file with `text`, of this mode */
	ROOTFS_ENTRY_LINK,  /* a symbolic link to `text` */
	ROOTFS_ENTRY_LOWER, /* the host directory `text`, read-only, through a lower-only overlay */
	ROOTFS_ENTRY_BIND,  /* the host's regular file `text`, read-only */
	ROOTFS_ENTRY_KIND_N
};

/* One thing a root is furnished with, in order; parents come before children. `path` has no leading
 * slash. */
struct rootfs_entry {
	enum rootfs_entry_kind kind;
	const char *path;
	const char *text;
	size_t len;  /* FILE: bytes of text; else 0 */
	mode_t mode; /* DIR and FILE */
	bool copy;   /* LOWER of a directory of links, BIND of a small file: a copy kept ready is as
			good */
};

struct rootfs {
	enum rootfs_kind kind;
	const char *name; /* "host", the directory as given, or the image: for messages */
	const char *dir;  /* canonical path. DIR: the root; else: the directory that holds layers */
	/* LAYERS: their names in it, "NAME:NAME", the topmost first. HOST: the same of what is
	 * shown at /opt/deps, or NULL */
	const char *lowers;
	struct layers layers; /* the same, open and so kept from being removed */
	/* HOST: all there is. LAYERS: DIR and FILE that take the place of the image's own */
	const struct rootfs_entry *entries;
	size_t n_entries;
};
