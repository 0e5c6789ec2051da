/* Removing what nobody needs.
 *
 * How: under the lock it is decided (which records have a name, which layers have a record), and
 * what goes loses its name: records and infos are unlinked, layers moved to draft/. Deleting them
 * takes long, and is done after the lock is let go, as for every draft whose maker is gone. A
 * collection that is killed leaves only such drafts.
 *
 * What may go wrong: somebody has just made a layer whose image is not there yet, or is about to
 * name an image. He holds the layers, so they stay, and a record without a name stays as long as
 * one of its layers is held. Something in the store may be of a later version: then nothing but
 * drafts is removed, as what it refers to can't be told. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/store_impl.h"
#include "image/text.h"
#include "image/tree.h"

#define PART_OLD (7 * 24 * 3600) /* seconds */

/* Sorted words: ids with a name, layers with a record. */
struct set {
	char **v;
	size_t n, cap;
};

struct gc {
	const struct img_store *s;
	enum img_gc what;
	struct img_gc_done done;
	struct err first; /* what could not be removed; the rest is, nevertheless */
	struct set ids, layers;
};

static int set_add(struct set *set, const char *word, struct err *e)
{
	if (set->n == set->cap) {
		size_t cap = set->cap ? 2 * set->cap : 64;
		char **v = reallocarray(set->v, cap, sizeof(*v));

		if (!v)
			return err_sys(e, "the store of images");
		set->v = v;
		set->cap = cap;
	}
	set->v[set->n] = strdup(word);
	if (!set->v[set->n])
		return err_sys(e, "the store of images");
	set->n++;
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void set_sort(struct set *set)
{
	if (set->n > 0)
		qsort(set->v, set->n, sizeof(*set->v), by_text);
}

static bool set_has(const struct set *set, const char *word)
{
	return set->n > 0 && bsearch(&word, set->v, set->n, sizeof(*set->v), by_text);
}

static void set_free(struct set *set)
{
	for (size_t i = 0; i < set->n; i++)
		free(set->v[i]);
	free(set->v);
	*set = (struct set){ 0 };
}

static int note_name(void *ctx, const struct img_name *name, struct err *e)
{
	struct gc *gc = ctx;

	if (*name->id)
		return set_add(&gc->ids, name->id, e);
	if (name->newer)
		return err_set(
			e, ERR_REFUSED,
			"the store has images of a later version of cloche: use that to remove what is unused");
	return unlinkat(gc->s->names, name->ref, 0) < 0 ? err_sys(e, "names/%s", name->ref) : 0;
}

static bool is_held(const struct img_store *s, const struct img_record *r)
{
	for (size_t i = 0; i < r->n_layers; i++) {
		_cleanup_fd_ int fd = store_hold(s->layers, r->layers[i].name, LOCK_EX);

		if (fd < 0 && errno == EWOULDBLOCK)
			return true;
	}
	return false;
}

static int keep_layers(struct gc *gc, const struct img_record *r, struct err *e)
{
	char key[IMG_DIGEST_LEN + 1], bytecode[IMG_LAYER_NAME];

	for (size_t i = 0; i < r->n_layers; i++)
		if (set_add(&gc->layers, r->layers[i].name, e) < 0)
			return -1;
	img_bytecode_key(r, key);
	if (img_layer_name('s', key, bytecode, e) < 0)
		return -1;
	return set_add(&gc->layers, bytecode, e);
}

/* Keeps the layers of images that stay, and removes the records of those that don't. */
static int one_config(void *ctx, int dir, const char *name, struct err *e)
{
	char id[IMG_DIGEST_LEN + 1];
	struct img_record r = { 0 };
	struct gc *gc = ctx;
	bool known;
	int rc = 0;

	if (!store_is_config(name, id) || strchr(name, '.'))
		return 0;
	known = store_record(gc->s, id, &r, e) == 0;
	if (!known && e->num == TEXT_NEWER)
		return err_set(
			e, ERR_REFUSED,
			"the store has images of a later version of cloche: use that to remove what is unused");
	if (!known && e->kind == ERR_SYS)
		return -1;
	if (!set_has(&gc->ids, id) && !(known && is_held(gc->s, &r))) {
		gc->done.images++;
		rc = unlinkat(dir, name, 0) < 0 ? err_sys(e, "configs/%s", name) : 0;
	} else if (known) {
		rc = keep_layers(gc, &r, e);
	}
	img_record_free(&r);
	return rc;
}

/* A document goes when its record is gone. */
static int one_json(void *ctx, int dir, const char *name, struct err *e)
{
	char id[IMG_DIGEST_LEN + 1];

	if (!store_is_config(name, id) || !strchr(name, '.') ||
	    faccessat(dir, store_hex(id), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	return unlinkat(dir, name, 0) < 0 ? err_sys(e, "configs/%s", name) : 0;
}

/* "d0123456789abcdef0123", maybe with .info. */
static bool is_layer(const char *name, char ret[IMG_LAYER_NAME])
{
	size_t n =
		*name && strchr(IMG_LAYER_KINDS, *name) ? strspn(name + 1, "0123456789abcdef") : 0;

	if (n != IMG_LAYER_NAME - 2 || (name[n + 1] && strcmp(name + n + 1, STORE_INFO) != 0))
		return false;
	snprintf(ret, IMG_LAYER_NAME, "%.21s", name);
	return true;
}

static int one_layer(void *ctx, int dir, const char *file, struct err *e)
{
	struct img_layer_info info = { 0 };
	char name[IMG_LAYER_NAME], gone[48];
	struct gc *gc = ctx;
	_cleanup_fd_ int fd = -1;
	struct err ignored;
	struct stat st;

	if (!is_layer(file, name) || strchr(file, '.') || set_has(&gc->layers, name))
		return 0;
	fd = store_hold(dir, name, LOCK_EX);
	if (fd < 0 && errno == EWOULDBLOCK) {
		gc->done.held++;
		return 0;
	}
	if (fd < 0) /* no directory, or gone: nothing of ours */
		return 0;
	img_layer_info(gc->s, name, &info, &ignored);
	/* To be moved to another directory, its own has to be writable. */
	if (fstat(fd, &st) < 0 || fchmod(fd, (st.st_mode & 07777) | 0700) < 0 ||
	    store_draft_name(gc->s, "gone", gone) < 0 ||
	    renameat(dir, name, gc->s->draft, gone) < 0)
		return err_sys(e, "layers/%s", name);
	gc->done.layers++;
	gc->done.bytes += info.done.bytes;
	return 0;
}

static int one_info(void *ctx, int dir, const char *file, struct err *e)
{
	char name[IMG_LAYER_NAME];

	if (!is_layer(file, name) || !strchr(file, '.') ||
	    faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	return unlinkat(dir, file, 0) < 0 ? err_sys(e, "layers/%s", file) : 0;
}

static int decide(struct gc *gc, struct err *e)
{
	_cleanup_fd_ int lock = store_lock(gc->s, e);

	if (lock < 0 || img_store_each_name(gc->s, note_name, gc, e) < 0)
		return -1;
	set_sort(&gc->ids);
	if (store_each(gc->s->configs, one_config, gc, e) < 0 ||
	    store_each(gc->s->configs, one_json, gc, e) < 0)
		return -1;
	set_sort(&gc->layers);
	if (store_each(gc->s->layers, one_layer, gc, e) < 0 ||
	    store_each(gc->s->layers, one_info, gc, e) < 0)
		return -1;
	return fsync(gc->s->configs) < 0 || fsync(gc->s->layers) < 0
		       ? err_sys(e, "the store of images")
		       : 0;
}

/* A file in draft/ is being made only while the lock is held. */
static int one_file(void *ctx, int dir, const char *name, struct err *e)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
		unlinkat(dir, name, 0);
	return 0;
}

static int one_draft(void *ctx, int dir, const char *name, struct err *e)
{
	struct gc *gc = ctx;
	_cleanup_fd_ int fd = store_hold(dir, name, LOCK_EX);
	bool gone = !strncmp(name, "gone-", 5);

	if (fd < 0)
		return 0;
	if (store_draft_remove(gc->s, name, fd, false, e) == 0) {
		gc->done.drafts += !gone;
	} else if (e->kind != ERR_REFUSED && gc->first.kind == ERR_NONE) {
		err_prefix(e, "draft/%s of the store of images", name);
		gc->first = *e;
	}
	return 0;
}

static int one_part(void *ctx, int dir, const char *name, struct err *e)
{
	struct gc *gc = ctx;
	size_t n = strspn(name, "0123456789abcdef");
	_cleanup_fd_ int fd = -1;
	struct stat st;

	if (n != 64 || strcmp(name + n, ".part") != 0)
		return 0;
	fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || fstat(fd, &st) < 0 || st.st_nlink == 0)
		return 0;
	if (gc->what != IMG_GC_ALL && st.st_mtime > time(NULL) - PART_OLD)
		return 0;
	if (unlinkat(dir, name, 0) < 0)
		return err_sys(e, "blobs/%s of the store of images", name);
	gc->done.parts++;
	gc->done.bytes += (uint64_t)st.st_blocks * 512;
	return 0;
}

static int sweep(struct gc *gc, struct err *e)
{
	_cleanup_fd_ int lock = store_lock(gc->s, e);

	if (lock < 0 || store_each(gc->s->draft, one_file, gc, e) < 0)
		return -1;
	fd_close(&lock);
	if (store_each(gc->s->draft, one_draft, gc, e) < 0 ||
	    store_each(gc->s->blobs, one_part, gc, e) < 0)
		return -1;
	if (gc->first.kind == ERR_NONE)
		return 0;
	*e = gc->first;
	return -1;
}

int img_store_gc(const struct img_store *s, enum img_gc what, struct img_gc_done *ret,
		 struct err *e)
{
	struct gc gc = { .s = s, .what = what };
	int r = s->fd < 0 || what == IMG_GC_LEFT ? 0 : decide(&gc, e);

	set_free(&gc.ids);
	set_free(&gc.layers);
	if (r == 0 && s->fd >= 0)
		r = sweep(&gc, e);
	if (r == 0)
		*ret = gc.done;
	return r;
}
