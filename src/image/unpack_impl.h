/* What the parts of unpacking share: unpack.c (entries), unpack_dir.c (the directories they go
 * into), unpack_lower.c (what the layers below have). */
#pragma once

#include <limits.h>
#include <sys/stat.h>

#include "base/layers.h"
#include "image/unpack.h"

#define UNPACK_DEPTH_MAX 256
#define UNPACK_NAMES_MAX (128u << 20) /* bytes of the names of all directories */

/* A directory's metadata, set at the end: until then all are 0700 of the caller. */
struct unpack_dir {
	char *path; /* without links, relative to the layer */
	uint64_t seq;
	uint32_t mode, uid, gid;
	int64_t mtime;
	uint32_t mtime_ns;
};

struct unpack {
	int root;
	const struct img_unpack_how *how;
	struct img_unpacked done;

	/* The parent of the last entry: the next one is mostly in the same. */
	int parent;			 /* O_PATH, or -1 */
	char parent_path[TAR_PATH_CAP];	 /* where it is */
	char parent_asked[TAR_PATH_CAP]; /* its name in the archive */

	struct tar_entry implied; /* room for the metadata of a directory made on the way */

	struct unpack_dir *dirs;
	size_t n_dirs, cap_dirs, names;
};

/* What messages call the archive. */
static inline const char *unpack_what(const struct unpack *u)
{
	return u->how->files ? "archive" : "layer";
}

/* What stands at a name. */
enum unpack_there { THERE_NOTHING, THERE_DIR, THERE_WHITEOUT, THERE_OTHER };

/* Normalises a name of an archive: "" is the layer's own directory. */
int unpack_name(const char *text, char ret[TAR_PATH_CAP], struct err *e);
/* The directory of `path`, made where missing; *ret_name points to the last part. `path` is written
 * anew when links of layers below were followed. The descriptor is the unpack's until the next
 * call. -1 with *e. */
int unpack_parent(struct unpack *u, char path[TAR_PATH_CAP], const char **ret_name, struct err *e);
/* What stands at `name` in the directory, or -1. */
int unpack_there(int dir, const char *name, struct err *e);
/* Removes what is there, if anything. */
int unpack_remove(int dir, const char *name, struct err *e);
/* Makes the directory `name`, or takes the one that is there. In place of a file or a whiteout it
 * is opaque: either hid the directory of that name in the layers below. */
int unpack_mkdir(int dir, const char *name, struct err *e);
int unpack_opaque(int dir, const char *name, struct err *e);
/* Another entry is about to be made. */
int unpack_count(struct unpack *u, struct err *e);
/* n bytes of content are about to be written. */
int unpack_count_bytes(struct unpack *u, size_t n, struct err *e);
/* Remembers a directory's metadata; the latest of a path counts. */
int unpack_dir_note(struct unpack *u, const char *path, const struct tar_entry *en, struct err *e);
/* Sets what was noted, the deepest first. */
int unpack_dirs_finish(struct unpack *u, struct err *e);
void unpack_dirs_free(struct unpack *u);

/* What stands at a path of the stack of layers. */
struct unpack_found {
	struct layers_found at;
	bool lower; /* not in this layer */
};

/* Looks for a normalised path as overlayfs would. 1: found; 0: nothing; -1. */
int unpack_find(const struct unpack *u, const char *path, struct unpack_found *ret, struct err *e);
/* The directory that `dir` (normalised, may be ret) is when links of layers below are followed. */
int unpack_resolve(struct unpack *u, const char *dir, char ret[TAR_PATH_CAP], struct err *e);
/* Fills u->implied with the metadata of a directory that the archive does not name. */
int unpack_implied(struct unpack *u, const char *path, struct err *e);
/* Copies the file `target` of a layer below. 1; 0: there is none; -1. */
int unpack_borrow(struct unpack *u, const char *target, int dir, const char *name, struct err *e);
