/* What the tests of the store share: a store of its own for root or an ordinary user, and layers and images made by hand. */
#pragma once

#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/store.h"
#include "image/tree.h"

static char base[64], path[80];
static struct img_store s = { -1, -1, -1, -1, -1, -1 };
static struct err e;

static void setup(void)
{
	snprintf(base, sizeof(base), "/tmp/ct-store-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	snprintf(path, sizeof(path), "%s/images", base);
}

static void teardown(void)
{
	img_store_close(&s);
	ck_assert_msg(img_tree_remove(AT_FDCWD, base, &e) == 0, "%s", e.msg);
}

/* Loops of two: as the caller, and as an ordinary user, which only root can become. False: not possible. */
static bool begin(int who)
{
	if (who == 1) {
		if (geteuid() != 0)
			return false;
		ck_assert_int_eq(chown(base, 12345, 12345) | setresgid(12345, 12345, 12345) | setresuid(12345, 12345, 12345), 0);
	}
	ck_assert_msg(img_store_open(path, true, &s, &e) == 0, "%s", e.msg);
	return true;
}

/* "sha256:NNNN..." */
static const char *digest(unsigned n)
{
	static char ret[4][IMG_DIGEST_LEN + 1];
	static unsigned at;
	char *d = ret[at++ % 4];

	snprintf(d, IMG_DIGEST_LEN + 1, "sha256:%08x%056d", n, 0);
	return d;
}

static struct img_ref ref(const char *text)
{
	struct img_ref r;

	ck_assert_msg(img_ref_parse(text, &r, &e) == 0, "%s", e.msg);
	return r;
}

static void file_in(int dir, const char *name, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, text, strlen(text)), 0);
}

/* A draft whose tree has one file. */
static void draft(struct img_draft *d, const char *text)
{
	ck_assert_msg(img_draft_new(&s, d, &e) == 0, "%s", e.msg);
	file_in(d->tree, "file", text);
}

static void layer(unsigned n, struct img_draft *d, char name[IMG_LAYER_NAME])
{
	const struct img_unpacked done = { .entries = 1, .bytes = 100 + n };

	draft(d, "text");
	ck_assert_msg(img_layer_publish(&s, d, 'd', digest(n), &done, name, &e) == 0, "%s", e.msg);
}

/* An image of the layers from..to; its id is digest(id). */
static void image(unsigned id, unsigned from, unsigned to, const char *name)
{
	struct img_record r = { .platform = { "linux", "amd64", "" } };
	struct img_draft d[8];
	struct img_ref at = ref(name);

	memcpy(r.id, digest(id), IMG_DIGEST_LEN + 1);
	for (unsigned i = from; i <= to; i++) {
		struct img_record_layer *l = &r.layers[r.n_layers];

		layer(i, &d[r.n_layers++], l->name);
		memcpy(l->id, digest(i), IMG_DIGEST_LEN + 1);
	}
	ck_assert_msg(img_image_publish(&s, &r, "{}", 2, &e) == 0, "%s", e.msg);
	ck_assert_msg(img_name_set(&s, &at, r.id, "", &e) == 0, "%s", e.msg);
	for (size_t i = 0; i < r.n_layers; i++)
		img_draft_drop(&d[i]);
}

/* How many names the directory has. */
static unsigned entries(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fdopendir(fd);
	unsigned n = 0;

	ck_assert_ptr_nonnull(d);
	for (struct dirent *ent; (ent = readdir(d));)
		n += ent->d_name[0] != '.';
	closedir(d);
	return n;
}
