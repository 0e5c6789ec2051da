/* What the parts of a workspace's file operations share. Paths here are normalised ones (ses_path):
 * "" is the workspace. */
#pragma once

#include <limits.h>

#include "session/workspace.h"

/* While it lives, a root caller makes and reaches files as the workspace's owner does, so that
 * nothing in it leads further than the owner's own rights, and what is made is the owner's from the
 * start: to change the owner afterwards, by a name that a box may have exchanged, could give away
 * another's file. The kernel takes the privileges over files away with the id (capabilities(7),
 * "Effect of user ID changes"), and gives them back. It also forgets PR_SET_PDEATHSIG. */
struct ses_as {
	bool changed;
	int uid, gid;
};
struct ses_as ses_become(const struct ses_workspace *w);
void ses_return(struct ses_as *as); /* keeps errno */
#define SES_AS_OWNER(w)                                                                            \
	struct ses_as as_owner __attribute__((cleanup(ses_return), unused)) = ses_become(w)

/* Fills *e from errno: the kinds of workspace.h. Returns -1. */
int ses_fail(struct err *e, const char *path);
/* As err_set, with the path in front. */
int ses_refuse(struct err *e, enum err_kind kind, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The open directory (O_PATH) that the last component of `path` is in; *ret_name points to that
 * component. With `make`, missing directories are made. The workspace itself is ERR_PATH. */
int ses_parent(const struct ses_workspace *w, const char *path, bool make, const char **ret_name,
	       struct err *e);
/* Opens the directory `name` in `dir` to read it. With `open_up`, one that is closed to its owner
 * is opened up first (0700). Never a link. -1 with errno. */
int ses_open_dir(int dir, const char *name, bool open_up);
/* "PREFIX-" and 16 hexadecimal digits of chance. */
void ses_draft(char ret[SES_DRAFT_CAP], const char *prefix);

/* Looks at `name` in the directory; *ret has its own copies, and is called `path`. -1 with errno.
 */
int ses_file_fill(int dir, const char *name, const char *path, struct ses_file *ret);

/* Reads a directory's names. */
struct ses_dir {
	int fd; /* the caller's */
	unsigned at, n;
	char buf[32768] __attribute__((aligned(8)));
};
struct ses_name {
	const char *name;   /* until the next one is read */
	unsigned char type; /* DT_... */
};
static inline void ses_dir(struct ses_dir *d, int fd)
{
	d->fd = fd;
	d->at = d->n = 0;
}
/* 1; 0 at the end; -1 with errno. "." and ".." are left out. */
int ses_dir_next(struct ses_dir *d, struct ses_name *ret);

/* Removes the directory `name` and all in it. -1 with errno; ENOTEMPTY: somebody fills it. */
int ses_remove_tree(int dir, const char *name);
