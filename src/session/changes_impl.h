/* A tree as one walk found it, for changes.c (which compares two) and changes_walk.c (which walks).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session/changes.h"

#define TREE_NONE UINT32_MAX

enum tree_type { TREE_FILE, TREE_SYMLINK, TREE_DIR };

/* 48 bytes, as there may be a million. Times are nanoseconds since 1970, wrapped. */
struct tree_entry {
	uint64_t ino, birth, ctime, size; /* of files and links; 0 in directories */
	uint32_t name;			  /* offset in tree.names */
	uint32_t dir;			  /* which directory it is in; of a directory: see `is` */
	uint32_t dev;			  /* of files and links; of a directory: which one it is */
	uint8_t type;
	bool matched; /* compare: the other walk has it, too */
};

/* Directory 0 is the workspace. Its entries stand one behind the other. */
struct tree_dir {
	uint32_t entry;	   /* its own; TREE_NONE of the workspace */
	uint32_t parent;   /* a directory */
	uint32_t first, n; /* entries */
	uint32_t depth;
	uint32_t path_len; /* of its path, without a slash at the end */
};

struct tree {
	struct tree_entry *v;
	struct tree_dir *dirs;
	char *names;
	size_t n, cap, n_dirs, cap_dirs, n_names, cap_names;
	uint64_t newest; /* ctime of all files */
};

int tree_walk(int dirfd, struct tree *ret, struct err *e);
void tree_free(struct tree *t);
static inline const char *tree_name(const struct tree *t, const struct tree_entry *v)
{
	return t->names + v->name;
}
/* Length of the entry's path, and the path itself, without a NUL. */
size_t tree_path_len(const struct tree *t, const struct tree_entry *v);
void tree_path(const struct tree *t, const struct tree_entry *v, char *ret);
/* Waits until a file that is written to now gets another ctime than those that were just seen. */
void tree_settle(int dirfd, const struct tree *t);
