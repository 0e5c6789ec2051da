/* What the parts of the store share: store.c (opening, the lock, records), store_name.c (names),
 * store_layer.c (layers and drafts), store_gc.c (removing). */
#pragma once

#include "image/store.h"

#define STORE_INFO ".info"
#define STORE_INFO_MAX 4096
#define STORE_NAME_MAX 8192 /* bytes of a name's file */

/* Takes the lock for changing names: a descriptor that holds it until closed. Never held while
 * something is waited for or removed. */
int store_lock(const struct img_store *s, struct err *e);
/* Makes the file dir/name, or replaces it, by way of draft/: its content is on the disk when it
 * gets its name; that it has it is for the caller to bring there (fsync of dir). The lock is held.
 */
int store_put(const struct img_store *s, int dir, const char *name, const void *data, size_t n,
	      struct err *e);
/* Opens a directory without following a link, and locks it (LOCK_SH, LOCK_EX) without waiting. -1
 * with errno: EWOULDBLOCK when it is held, ENOENT when it is not there or was removed meanwhile. */
int store_hold(int dir, const char *name, int how);
/* A name that nothing in draft/ has. */
int store_draft_name(const struct img_store *s, const char *kind, char ret[48]);
/* Removes a draft whose lock (fd) is held; ERR_REFUSED when something in it is in use: what it put
 * aside, or, unless it is the caller's own (mine), its tree, which a child of its maker may fill.
 */
int store_draft_remove(const struct img_store *s, const char *name, int fd, bool mine,
		       struct err *e);
/* The file's name of an image: the digits of its id. */
const char *store_hex(const char *id);
/* Whether a file of configs/ is "0123...ef" of 64 digits, maybe with .json: an image's. */
bool store_is_config(const char *name, char ret_id[IMG_DIGEST_LEN + 1]);
/* Reads the record of that id, whatever its layers are like. */
int store_record(const struct img_store *s, const char *id, struct img_record *ret, struct err *e);
/* Whether a layer of that name is there, with an info. */
bool store_layer_there(const struct img_store *s, const char *name);

/* Shows the names of all files of a directory but hidden ones, until `each` returns not 0. */
int store_each(int dir, int (*each)(void *ctx, int dir, const char *name, struct err *e), void *ctx,
	       struct err *e);
