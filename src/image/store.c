/* The store: opening it, its lock, its files, and the way from an id to the layers.
 *
 * How: all changes of names (a layer, a record, a reference) happen under one lock, which is held
 * for as long as a few renames take; what takes long (unpacking, bringing to the disk, deleting) is
 * done in draft/ before or after. Readers take no lock: a rename is seen whole or not at all, and
 * what they open they hold.
 *
 * What may go wrong: a layer is removed between the look at its name and the lock on it. Whoever
 * has the lock looks again, whether the name still leads to what is locked. */
#include "image/store.h"

#include <dirent.h>
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
#include "base/str.h"
#include "image/manifest.h"
#include "image/store_impl.h"
#include "image/text.h"

#define LOCK_WAIT_MS 30000
#define LOCK_STEP_MS 5

static const struct {
	const char *name;
	size_t at;
} dirs[] = {
	{ "layers", offsetof(struct img_store, layers) },
	{ "configs", offsetof(struct img_store, configs) },
	{ "names", offsetof(struct img_store, names) },
	{ "draft", offsetof(struct img_store, draft) },
	{ "blobs", offsetof(struct img_store, blobs) },
};
#define N_DIRS (sizeof(dirs) / sizeof(*dirs))

static int *dir_of(struct img_store *s, size_t i)
{
	return (int *)(void *)((char *)s + dirs[i].at);
}

void img_store_close(struct img_store *s)
{
	for (size_t i = 0; i < N_DIRS; i++)
		fd_close(dir_of(s, i));
	fd_close(&s->fd);
}

static int open_dir(int parent, const char *name)
{
	return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The store itself: ours alone, no link. */
static int open_top(const char *path, bool make, struct err *e)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;

	if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_sys(e, "can't make the store of images %s", path);
	fd = open_dir(AT_FDCWD, path);
	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_MISSING, "there is no store of images %s yet", path);
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return err_set(e, ERR_REFUSED,
			       "the store of images %s is a link or no directory: remove it", path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "the store of images %s", path);
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return err_set(
			e, ERR_REFUSED,
			"the store of images %s is not yours alone: chown and chmod it, or remove it",
			path);
	return fd_steal(&fd);
}

int img_store_open(const char *path, bool make, struct img_store *ret, struct err *e)
{
	_cleanup_img_store_ struct img_store s = IMG_STORE_NONE;

	s.fd = open_top(path, make, e);
	if (s.fd < 0)
		return -1;
	for (size_t i = 0; i < N_DIRS; i++) {
		int fd = open_dir(s.fd, dirs[i].name);

		/* Somebody else may make it at the same moment. */
		if (fd < 0 && errno == ENOENT &&
		    (mkdirat(s.fd, dirs[i].name, 0700) == 0 || errno == EEXIST))
			fd = open_dir(s.fd, dirs[i].name);
		if (fd < 0)
			return err_sys(e, "the store of images: %s/%s", path, dirs[i].name);
		*dir_of(&s, i) = fd;
	}
	*ret = s;
	s = IMG_STORE_NONE;
	return 0;
}

int store_lock(const struct img_store *s, struct err *e)
{
	const struct timespec step = { .tv_nsec = LOCK_STEP_MS * 1000000L };
	_cleanup_fd_ int fd =
		openat(s->fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_sys(e, "the lock of the store of images");
	for (int ms = 0;; ms += LOCK_STEP_MS) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return fd_steal(&fd);
		if (errno != EWOULDBLOCK && errno != EINTR)
			return err_sys(e, "the lock of the store of images");
		if (ms >= LOCK_WAIT_MS)
			return err_set(
				e, ERR_SYS,
				"another cloche holds the lock of the store of images for more than %d seconds",
				LOCK_WAIT_MS / 1000);
		nanosleep(&step, NULL);
	}
}

int store_draft_name(const struct img_store *s, const char *kind, char ret[48])
{
	struct timespec t;

	/* A pid is no name: containers that share a store all have a process 1. */
	for (unsigned i = 0; i < 100; i++) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		snprintf(ret, 48, "%s-%d-%lld%09ld", kind, (int)getpid(), (long long)t.tv_sec,
			 t.tv_nsec);
		if (faccessat(s->draft, ret, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			return errno == ENOENT ? 0 : -1;
	}
	errno = EEXIST;
	return -1;
}

static int write_file(int fd, const void *data, size_t n)
{
	return fd_write_all(fd, data, n) < 0 ? -1 : fsync(fd);
}

int store_put(const struct img_store *s, int dir, const char *name, const void *data, size_t n,
	      struct err *e)
{
	_cleanup_fd_ int fd = -1;
	char draft[48];

	if (store_draft_name(s, "file", draft) < 0)
		return err_sys(e, "the store of images: %s", name);
	fd = openat(s->draft, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return err_sys(e, "the store of images: %s", name);
	if (write_file(fd, data, n) < 0 || renameat(s->draft, draft, dir, name) < 0) {
		err_sys(e, "the store of images: %s", name);
		unlinkat(s->draft, draft, 0);
		return -1;
	}
	return 0;
}

int store_hold(int dir, const char *name, int how)
{
	_cleanup_fd_ int fd = open_dir(dir, name);
	struct stat held, named;

	if (fd < 0 || flock(fd, how | LOCK_NB) < 0 || fstat(fd, &held) < 0 ||
	    fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (held.st_dev != named.st_dev || held.st_ino != named.st_ino) {
		errno = ENOENT;
		return -1;
	}
	return fd_steal(&fd);
}

const char *store_hex(const char *id)
{
	return id + strlen("sha256:");
}

bool store_is_config(const char *name, char ret_id[IMG_DIGEST_LEN + 1])
{
	size_t n = strspn(name, "0123456789abcdef");

	if (n != 64 || (name[n] && strcmp(name + n, ".json") != 0))
		return false;
	snprintf(ret_id, IMG_DIGEST_LEN + 1, "sha256:%.64s", name);
	return true;
}

int store_each(int dir, int (*each)(void *ctx, int dir, const char *name, struct err *e), void *ctx,
	       struct err *e)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *ent;

	if (!d) {
		r = err_sys(e, "the store of images");
		fd_close(&fd);
		return r;
	}
	while (r == 0 && (errno = 0, ent = readdir(d)))
		if (ent->d_name[0] != '.')
			r = each(ctx, dir, ent->d_name, e);
	if (r == 0 && errno)
		r = err_sys(e, "the store of images");
	closedir(d);
	return r;
}

bool store_layer_there(const struct img_store *s, const char *name)
{
	char info[IMG_LAYER_NAME + sizeof(STORE_INFO)];
	struct stat st;

	snprintf(info, sizeof(info), "%s" STORE_INFO, name);
	return fstatat(s->layers, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
	       fstatat(s->layers, info, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

int store_record(const struct img_store *s, const char *id, struct img_record *ret, struct err *e)
{
	struct img_record r = { 0 };
	char *text;
	size_t n;
	int rc;

	if (img_digest_check(id, e) < 0)
		return -1;
	if (img_text_load(s->configs, store_hex(id), IMG_RECORD_MAX, &text, &n, e) < 0)
		return -1;
	rc = img_record_read(text, n, &r, e);
	free(text);
	if (rc < 0)
		return -1;
	if (strcmp(r.id, id) != 0) {
		img_record_free(&r);
		return err_set(e, ERR_REFUSED, "the image's record is another image's");
	}
	*ret = r;
	return 0;
}

int img_store_find_id(const struct img_store *s, const char *id, struct img_record *ret,
		      struct err *e)
{
	struct img_record r = { 0 };

	if (store_record(s, id, &r, e) < 0) {
		if (e->kind == ERR_SYS)
			return -1;
		if (e->kind == ERR_MISSING)
			err_set(e, ERR_MISSING, "its record is gone");
		e->kind = ERR_MISSING;
		return err_prefix(e, "incomplete");
	}
	for (size_t i = 0; i < r.n_layers; i++) {
		if (store_layer_there(s, r.layers[i].name))
			continue;
		err_set(e, ERR_MISSING, "incomplete: layer %s is gone", r.layers[i].name);
		img_record_free(&r);
		return -1;
	}
	*ret = r;
	return 0;
}

int img_store_find(const struct img_store *s, const struct img_ref *ref, struct img_record *ret,
		   struct err *e)
{
	char text[IMG_REF_CAP];
	struct img_name name;

	if (img_name_get(s, ref, &name, e) < 0)
		return -1;
	if (img_store_find_id(s, name.id, ret, e) < 0)
		return err_prefix(e, "image %s", img_ref_format(ref, text));
	return 0;
}

void img_store_let_go(int fds[IMG_STACK_MAX], size_t n)
{
	while (n > 0)
		fd_close(&fds[--n]);
}

int img_store_hold(const struct img_store *s, const struct img_record *r,
		   int ret_fds[IMG_STACK_MAX], size_t *ret_n, struct err *e)
{
	int fds[IMG_STACK_MAX];

	for (size_t i = 0; i < r->n_layers; i++) {
		const char *name = r->layers[r->n_layers - 1 - i].name;

		fds[i] = store_hold(s->layers, name, LOCK_SH);
		if (fds[i] >= 0)
			continue;
		if (errno == ENOENT || errno == EWOULDBLOCK || errno == ENOTDIR || errno == ELOOP)
			err_set(e, ERR_MISSING, "incomplete: layer %s is gone", name);
		else
			err_sys(e, "layer %s", name);
		img_store_let_go(fds, i);
		return -1;
	}
	memcpy(ret_fds, fds, r->n_layers * sizeof(*fds));
	*ret_n = r->n_layers;
	return 0;
}

struct each_id {
	int (*each)(void *ctx, const char *id, struct err *e);
	void *ctx;
};

static int one_id(void *ctx, int dir, const char *name, struct err *e)
{
	struct each_id *with = ctx;
	char id[IMG_DIGEST_LEN + 1];

	return store_is_config(name, id) && !name[64] ? with->each(with->ctx, id, e) : 0;
}

int img_store_each_id(const struct img_store *s,
		      int (*each)(void *ctx, const char *id, struct err *e), void *ctx,
		      struct err *e)
{
	struct each_id with = { each, ctx };

	return store_each(s->configs, one_id, &with, e);
}

int img_store_json(const struct img_store *s, const char *id, char **ret, size_t *ret_n,
		   struct err *e)
{
	char name[80];

	if (img_digest_check(id, e) < 0)
		return -1;
	snprintf(name, sizeof(name), "%s.json", store_hex(id));
	return img_text_load(s->configs, name, IMG_DOC_MAX, ret, ret_n, e);
}

int img_image_publish(const struct img_store *s, const struct img_record *r, const void *json,
		      size_t n, struct err *e)
{
	_cleanup_buf_ struct buf text = { 0 };
	_cleanup_fd_ int lock = -1;
	char name[80];

	buf_init(&text, IMG_RECORD_MAX);
	if (img_record_write(r, &text, e) < 0)
		return -1;
	if (n > IMG_DOC_MAX)
		return err_set(e, ERR_REFUSED, "the image's config has more than %u bytes",
			       IMG_DOC_MAX);
	lock = store_lock(s, e);
	if (lock < 0)
		return -1;
	for (size_t i = 0; i < r->n_layers; i++)
		if (!store_layer_there(s, r->layers[i].name))
			return err_set(e, ERR_MISSING, "layer %s is gone", r->layers[i].name);
	snprintf(name, sizeof(name), "%s.json", store_hex(r->id));
	if (json && store_put(s, s->configs, name, json, n, e) < 0)
		return -1;
	if (store_put(s, s->configs, store_hex(r->id), text.data, text.len, e) < 0)
		return -1;
	return fsync(s->configs) < 0 ? err_sys(e, "the store of images") : 0;
}
