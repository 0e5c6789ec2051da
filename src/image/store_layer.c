/* Layers: made in a draft, published with one rename, held by who uses them; and unfinished
 * downloads.
 *
 * The info gets its name before the layer does. A directory without an info was left by somebody
 * who removed things by hand: nothing is known of it, so it counts as not there, and the next maker
 * puts it aside. Its content may still be in use by a box; it goes when its lock does.
 *
 * What may go wrong: the power fails. All of the tree is brought to the disk before it gets its
 * name (syncfs: one call for a hundred thousand files), so that a layer that has its name has its
 * content. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "image/store_impl.h"
#include "image/text.h"
#include "image/tree.h"

#define DRAFT_TRIES 16
#define OLD "old"
#define INFO "info"

#define COUNT(k, member)                                                                           \
	{                                                                                          \
		k, offsetof(struct img_layer_info, done.member)                                    \
	}
static const struct {
	const char *key;
	size_t at;
} counts[] = {
	COUNT("bytes", bytes),	     COUNT("entries", entries), COUNT("whiteouts", whiteouts),
	COUNT("devices", devices),   COUNT("set_ids", set_ids), COUNT("xattrs", xattrs),
	COUNT("borrowed", borrowed),
};
#define N_COUNTS (sizeof(counts) / sizeof(*counts))

static void info_name(const char *name, char ret[IMG_LAYER_NAME + sizeof(STORE_INFO)])
{
	snprintf(ret, IMG_LAYER_NAME + sizeof(STORE_INFO), "%.21s" STORE_INFO, name);
}

static void info_write(const struct img_layer_info *info, struct buf *out)
{
	img_line(out, "format", "1");
	img_line(out, "id", info->id);
	img_line_u64(out, "mode", info->mode);
	img_line_u64(out, "opaque_root", info->done.opaque_root);
	for (size_t i = 0; i < N_COUNTS; i++) {
		uint64_t v;

		memcpy(&v, (const char *)info + counts[i].at, sizeof(v));
		img_line_u64(out, counts[i].key, v);
	}
}

static int info_line(struct img_layer_info *info, const char *key, const char *value, struct err *e)
{
	uint64_t n;

	if (!strcmp(key, "id"))
		return img_line_copy(key, value, info->id, sizeof(info->id), e);
	if (!strcmp(key, "mode") || !strcmp(key, "opaque_root")) {
		bool mode = *key == 'm';

		if (img_line_number(key, value, mode ? 07777 : 1, &n, e) < 0)
			return -1;
		if (mode)
			info->mode = (uint32_t)n;
		else
			info->done.opaque_root = n;
	}
	for (size_t i = 0; i < N_COUNTS; i++) {
		if (strcmp(key, counts[i].key) != 0)
			continue;
		if (img_line_number(key, value, UINT64_MAX, &n, e) < 0)
			return -1;
		memcpy((char *)info + counts[i].at, &n, sizeof(n));
	}
	return 0;
}

static int info_parse(char *at, char *end, struct img_layer_info *info, struct err *e)
{
	const char *key;
	char *value;
	int r;

	if (img_line_format(&at, end, e) < 0)
		return -1;
	while ((r = img_line_next(&at, end, &key, &value, e)) > 0)
		if (info_line(info, key, value, e) < 0)
			return -1;
	return r < 0 ? -1 : img_digest_check(info->id, e);
}

int img_layer_info(const struct img_store *s, const char *name, struct img_layer_info *ret,
		   struct err *e)
{
	char file[IMG_LAYER_NAME + sizeof(STORE_INFO)], should[IMG_LAYER_NAME];
	struct img_layer_info info = { 0 };
	char *text;
	size_t n;
	int r;

	info_name(name, file);
	if (img_text_load(s->layers, file, STORE_INFO_MAX, &text, &n, e) < 0)
		return -1;
	r = info_parse(text, text + n, &info, e);
	free(text);
	if (r == 0)
		r = img_layer_name(name[0], info.id, should, e);
	if (r == 0 && strcmp(should, name) != 0)
		r = err_set(e, ERR_REFUSED, "it is of another layer");
	if (r < 0) {
		e->kind = ERR_REFUSED;
		return err_prefix(e, "%s of the store of images", file);
	}
	*ret = info;
	return 0;
}

int img_layer_hold(const struct img_store *s, char kind, const char *id, struct img_layer_info *ret,
		   struct err *e)
{
	char name[IMG_LAYER_NAME];
	struct img_layer_info info;
	_cleanup_fd_ int fd = -1;

	if (img_layer_name(kind, id, name, e) < 0)
		return -1;
	fd = store_hold(s->layers, name, LOCK_SH);
	if (fd < 0 &&
	    (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EWOULDBLOCK))
		return err_set(e, ERR_MISSING, "layer %s is not in the store", name);
	if (fd < 0)
		return err_sys(e, "layer %s", name);
	if (img_layer_info(s, name, &info, e) < 0) {
		if (e->kind == ERR_REFUSED) /* as if it were gone */
			e->kind = ERR_MISSING;
		return -1;
	}
	if (strcmp(info.id, id) != 0)
		return err_set(e, ERR_REFUSED,
			       "layer %s is there, and is another one's: %s, not %s", name, info.id,
			       id);
	if (ret)
		*ret = info;
	return fd_steal(&fd);
}

bool img_store_has_layer(const struct img_store *s, char kind, const char *id,
			 char ret_name[IMG_LAYER_NAME])
{
	char name[IMG_LAYER_NAME];
	struct img_layer_info info;
	struct err ignored;

	if (img_layer_name(kind, id, name, &ignored) < 0 || !store_layer_there(s, name) ||
	    img_layer_info(s, name, &info, &ignored) < 0 || strcmp(info.id, id) != 0)
		return false;
	if (ret_name)
		memcpy(ret_name, name, sizeof(name));
	return true;
}

int img_draft_new(const struct img_store *s, struct img_draft *ret, struct err *e)
{
	struct img_draft d = IMG_DRAFT_NONE;

	d.store = s;
	for (unsigned i = 0; d.fd < 0; i++) {
		if (store_draft_name(s, "draft", d.name) < 0 || i == DRAFT_TRIES)
			return err_sys(e, "can't make a draft in the store of images");
		if (mkdirat(s->draft, d.name, 0700) == 0)
			d.fd = store_hold(s->draft, d.name, LOCK_EX);
		/* Held or gone: a sweep took it for a dead one before it was locked. */
		if (d.fd < 0 && errno != EEXIST && errno != EWOULDBLOCK && errno != ENOENT)
			return err_sys(e, "can't make a draft in the store of images");
	}
	/* What a directory is that no archive names. */
	if (mkdirat(d.fd, IMG_DRAFT_TREE, 0700) == 0 &&
	    fchmodat(d.fd, IMG_DRAFT_TREE, 0755, 0) == 0)
		d.tree = store_hold(d.fd, IMG_DRAFT_TREE, LOCK_SH);
	if (d.tree < 0) {
		err_sys(e, "can't make a draft in the store of images");
		img_draft_drop(&d);
		return -1;
	}
	*ret = d;
	return 0;
}

void img_draft_drop(struct img_draft *d)
{
	struct err ignored;

	fd_close(&d->tree);
	if (d->fd >= 0)
		store_draft_remove(d->store, d->name, d->fd, true, &ignored);
	fd_close(&d->fd);
}

int store_draft_remove(const struct img_store *s, const char *name, int fd, bool mine,
		       struct err *e)
{
	static const char *const parts[] = { OLD, IMG_DRAFT_TREE };

	for (size_t i = 0; i < (mine ? 1 : sizeof(parts) / sizeof(*parts)); i++) {
		_cleanup_fd_ int part = store_hold(fd, parts[i], LOCK_EX);

		if (part < 0 && errno == EWOULDBLOCK)
			return err_set(e, ERR_REFUSED, "draft/%s is in use", name);
	}
	return img_tree_remove(s->draft, name, e);
}

/* What stands where the layer is to be, and is none. */
static int put_aside(const struct img_store *s, struct img_draft *d, const char *name,
		     struct err *e)
{
	struct stat st;

	if (fstatat(s->layers, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(e, "layer %s", name);
	/* To be moved to another directory, its own has to be writable. */
	if (S_ISDIR(st.st_mode) && (st.st_mode & 0700) != 0700 &&
	    fchmodat(s->layers, name, 0700, 0) < 0)
		return err_sys(e, "layer %s", name);
	return renameat(s->layers, name, d->fd, OLD) < 0 ? err_sys(e, "layer %s", name) : 0;
}

/* Beside the tree, to be brought to the disk with it. */
static int info_put(const struct img_draft *d, const struct img_layer_info *info, struct err *e)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_fd_ int fd = -1;

	buf_init(&text, STORE_INFO_MAX);
	info_write(info, &text);
	fd = openat(d->fd, INFO, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || text.failed || fd_write_all(fd, text.data, text.len) < 0)
		return err_sys(e, "write the info");
	return 0;
}

/* The lock is held. */
static int publish(const struct img_store *s, struct img_draft *d, char kind, const char *name,
		   const struct img_layer_info *info, struct err *e)
{
	char file[IMG_LAYER_NAME + sizeof(STORE_INFO)];
	int there = img_layer_hold(s, kind, info->id, NULL, e);

	if (there >= 0) {
		fd_close(&d->tree);
		d->tree = there;
		return 0;
	}
	if (e->kind != ERR_MISSING || put_aside(s, d, name, e) < 0)
		return -1;
	info_name(name, file);
	if (renameat(d->fd, INFO, s->layers, file) < 0 ||
	    renameat(d->fd, IMG_DRAFT_TREE, s->layers, name) < 0 || fsync(s->layers) < 0)
		return err_sys(e, "give it its name");
	return 0;
}

int img_layer_publish(const struct img_store *s, struct img_draft *d, char kind, const char *id,
		      const struct img_unpacked *done, char ret_name[IMG_LAYER_NAME], struct err *e)
{
	struct img_layer_info info = { .done = *done };
	char name[IMG_LAYER_NAME];
	_cleanup_fd_ int lock = -1;
	struct stat st;

	if (img_layer_name(kind, id, name, e) < 0)
		return -1;
	memcpy(info.id, id, strlen(id) + 1);
	if (fstat(d->tree, &st) < 0 || fchmod(d->tree, (st.st_mode & 07777) | 0700) < 0)
		return err_sys(e, "layer %s", name);
	info.mode = st.st_mode & 07777;
	if (info_put(d, &info, e) < 0)
		return err_prefix(e, "layer %s", name);
	if (syncfs(d->tree) < 0)
		return err_sys(e, "layer %s: bring it to the disk", name);
	lock = store_lock(s, e);
	if (lock < 0)
		return -1;
	if (publish(s, d, kind, name, &info, e) < 0)
		return err_prefix(e, "layer %s", name);
	memcpy(ret_name, name, sizeof(name));
	return 0;
}

static int part_name(const char *digest, char ret[80], struct err *e)
{
	if (img_digest_check(digest, e) < 0)
		return -1;
	snprintf(ret, 80, "%s.part", store_hex(digest));
	return 0;
}

int img_part_open(const struct img_store *s, const char *digest, bool wait, struct err *e)
{
	char name[80];

	if (part_name(digest, name, e) < 0)
		return -1;
	for (;;) {
		_cleanup_fd_ int fd =
			openat(s->blobs, name,
			       O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
			       0600);
		struct stat st;

		if (fd < 0)
			return err_sys(e, "blobs/%s of the store of images", name);
		while (flock(fd, LOCK_EX | (wait ? 0 : LOCK_NB)) < 0) {
			if (errno == EINTR)
				continue;
			if (errno == EWOULDBLOCK)
				return err_set(e, ERR_REFUSED,
					       "another cloche is downloading sha256:%.12s...",
					       name);
			return err_sys(e, "blobs/%s of the store of images", name);
		}
		if (fstat(fd, &st) < 0)
			return err_sys(e, "blobs/%s of the store of images", name);
		if (!S_ISREG(st.st_mode))
			return err_set(e, ERR_REFUSED,
				       "blobs/%s of the store of images is no file: remove it",
				       name);
		/* Its last holder may have removed it. */
		if (st.st_nlink > 0)
			return fd_steal(&fd);
	}
}

int img_part_remove(const struct img_store *s, const char *digest, struct err *e)
{
	char name[80];

	if (part_name(digest, name, e) < 0)
		return -1;
	return unlinkat(s->blobs, name, 0) < 0 && errno != ENOENT
		       ? err_sys(e, "blobs/%s of the store of images", name)
		       : 0;
}
