/* Files of a workspace, for whoever is outside the box: everything that a box may have left there
 * is hostile, and boxes may be running while it is looked at.
 *
 * Paths are relative to the workspace's directory, '/'-separated, at most 4095 bytes, bytes
 * otherwise; an empty component and "." are passed over, ".." is refused. No component may be a
 * symbolic link, but for the last one of ses_stat, ses_remove and ses_rename, which take the link
 * itself. Only regular files are read. Nothing here waits for what is in the workspace: no FIFO,
 * device or socket is ever opened, and a file that somebody holds a lease on is an error.
 *
 * Errors: ERR_PATH, ERR_NOT_FOUND, ERR_EXISTS, ERR_TOO_LARGE, ERR_SYS (all begin with the path, in
 * printable form).
 *
 * What is made belongs to the workspace's owner and group when the caller is root (a box of root's
 * sees that owner as its own user, see box/idmap.h), else to the caller.
 *
 * ses_list, ses_remove and ses_copy take as long as the tree is large: an event loop gives them to
 * a child process. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/json.h"

#define SES_PATH_CAP 4096
#define SES_LIST_MAX 100000
#define SES_READ_MAX (UINT64_C(64) << 20) /* what read_file gives unless more is asked for */
#define SES_MODE_FILE 0644
#define SES_MODE_DIR 0755

/* Which directory a workspace is. Its path may lead through what other boxes can change. */
#define SES_PLACE_TEXT 48
#define SES_ELSEWHERE                                                                              \
	"the workspace: its path leads to another directory than when the sandbox was opened"
static inline void ses_place_text(uint64_t dev, uint64_t ino, char ret[SES_PLACE_TEXT])
{
	snprintf(ret, SES_PLACE_TEXT, "%llu:%llu", (unsigned long long)dev,
		 (unsigned long long)ino);
}

struct ses_workspace {
	int fd;	   /* its directory; stays the caller's */
	bool give; /* what is made is given to: */
	uid_t uid;
	gid_t gid;
};
/* Normalises a path from outside. */
int ses_path(const char *text, char ret[SES_PATH_CAP], struct err *e);

/* Looks at the directory. */
int ses_workspace(int dirfd, struct ses_workspace *ret, struct err *e);

/* Writing: open, data as often as there is some, end. Until the end nobody sees any of it; then the
 * file is there, whole, in place of whatever file or link was at its name (a directory there is
 * ERR_EXISTS). Missing directories are made at the beginning, of mode SES_MODE_DIR. */
struct ses_write {
	const struct ses_workspace *w;
	int fd, dir;
	char name[256], draft[48]; /* draft "": it has no name yet */
	char path[SES_PATH_CAP];
	mode_t mode;
	uint64_t size;
};
#define SES_WRITE_NONE ((struct ses_write){ .fd = -1, .dir = -1 })
/* `mode` at most 0777. */
int ses_write_open(const struct ses_workspace *w, const char *path, mode_t mode,
		   struct ses_write *ret, struct err *e);
int ses_write_data(struct ses_write *f, const void *data, size_t n, struct err *e);
int ses_write_end(struct ses_write *f, struct err *e); /* f->size stays */
/* Gives it up: nothing is left of it. Harmless after the end and on none. */
void ses_write_drop(struct ses_write *f);
#define _cleanup_ses_write_ __attribute__((cleanup(ses_write_drop)))

/* Reading `length` bytes (UINT64_MAX: to the end) from `offset` of a regular file. ERR_TOO_LARGE
 * when that is more than max: its size is looked at before a byte is read, and what grows meanwhile
 * is not read. */
struct ses_read {
	int fd;
	uint64_t offset, left;
	uint64_t size; /* of the whole file, as it was found */
};
#define SES_READ_NONE ((struct ses_read){ .fd = -1 })
int ses_read_open(const struct ses_workspace *w, const char *path, uint64_t offset, uint64_t length,
		  uint64_t max, struct ses_read *ret, struct err *e);
/* 1 to n bytes, 0 at the end, -1. */
ssize_t ses_read_data(struct ses_read *f, void *buf, size_t n, struct err *e);
void ses_read_close(struct ses_read *f);
#define _cleanup_ses_read_ __attribute__((cleanup(ses_read_close)))

enum ses_type {
	SES_FILE,
	SES_DIRECTORY,
	SES_SYMLINK,
	SES_FIFO,
	SES_SOCKET,
	SES_DEVICE,
	SES_TYPE_N
};
/* "file", "directory", "symlink", "fifo", "socket", "device" */
const char *ses_type_name(enum ses_type type);
enum ses_type ses_type_of(mode_t mode);

struct ses_file {
	char *path;   /* relative to the workspace, without "." or doubled slashes; "" is itself */
	char *target; /* of a link, else NULL */
	enum ses_type type;
	uint32_t mode; /* 07777 */
	uint64_t size;
	int64_t mtime_ns; /* since 1970 */
};
int ses_stat(const struct ses_workspace *w, const char *path, struct ses_file *ret, struct err *e);
void ses_file_free(struct ses_file *f);
/* An object of docs/PROTOCOL.md's stat. */
void ses_file_json(struct json *j, const struct ses_file *f);

struct ses_files {
	struct ses_file *v;
	size_t n, cap;
};
/* What is in the directory `path` ("" is the workspace), and below when recursive; sorted by the
 * bytes of the path; links are shown and not followed. More than SES_LIST_MAX is ERR_TOO_LARGE.
 * What goes away meanwhile is left out, and so is what lies deeper than paths are long. */
int ses_list(const struct ses_workspace *w, const char *path, bool recursive, struct ses_files *ret,
	     struct err *e);
void ses_files_free(struct ses_files *f);

/* A file, a link (not its target), an empty directory; with `recursive` a directory with all that
 * is in it, whatever its depth and modes. The workspace itself is ERR_PATH. */
int ses_remove(const struct ses_workspace *w, const char *path, bool recursive, struct err *e);
/* With `parents` missing ones are made, and a directory that is there already is fine. */
int ses_make_dir(const struct ses_workspace *w, const char *path, bool parents, struct err *e);
/* Without `replace` a target that is there is ERR_EXISTS; with it, a file or link takes the place
 * of a file or link, and a directory that of an empty directory. The target's missing parents are
 * not made. */
int ses_rename(const struct ses_workspace *w, const char *path, const char *to, bool replace,
	       struct err *e);

/* Replacing all that a workspace has: begin, fill `fresh`, end. The workspace's directory itself
 * stays, as boxes have it. Between begin and end its old content is there; the change is a rename
 * of each of the names at its top, taken back when one of them fails. */
#define SES_DRAFT_CAP 48
struct ses_replace {
	const struct ses_workspace *w;
	char draft[SES_DRAFT_CAP]; /* a directory at the top of the workspace */
	int fd;			   /* it */
	int fresh;		   /* what is to be filled, empty; of mode 0700 */
	int old;
	bool keep; /* the draft has what could not be put back */
};
#define SES_REPLACE_NONE ((struct ses_replace){ .fd = -1, .fresh = -1, .old = -1 })
int ses_replace_begin(const struct ses_workspace *w, struct ses_replace *ret, struct err *e);
/* -1: all is as it was; or else the message says where the old content is. */
int ses_replace_end(struct ses_replace *r, struct err *e);
/* Removes the draft, with the old content or with what was to be. Harmless on none. */
int ses_replace_drop(struct ses_replace *r, struct err *e);
/* Ends what others have begun who were killed since: the workspace has again what it had, or all
 * that it was to have; the drafts are removed. What somebody works at is left alone, and so is what
 * can't be moved. begin does this, too. */
void ses_replace_recover(const struct ses_workspace *w);
/* May there be one, in the directory of a workspace? */
bool ses_replace_left(int top);
/* Is that name at the workspace's top a draft that somebody works at? It is no file of the user's:
 * no list, no change, no snapshot has it. */
bool ses_replace_is_at(int top, const char *name);
/* The names of at most `max` of them; how many there are. */
unsigned ses_replace_all_at(int top, char ret[][SES_DRAFT_CAP], unsigned max);

/* fork: copies all of `from` into `to`, which is empty, the caller's and known to nobody else:
 * links, modes (without set-id bits), times, user extended attributes, hard links, holes; contents
 * by reference where the file system can (FICLONE). Sockets, FIFOs and devices are left out. `to`
 * gets the owner of `from` when it is the caller's; else what is made is its own owner's. After an
 * error the caller removes what there is. */
int ses_copy(const struct ses_workspace *from, const struct ses_workspace *to, struct err *e);
