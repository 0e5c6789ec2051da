/* What an image's config says counts for less than what the caller says, and never opens anything:
 * the variables and words are the box's alone, users are looked up in the image's own files, places
 * are made inside the root.
 *
 * What may go wrong: a layer that is removed by hand while a box runs. The locks keep cloche's own
 * removal away; the kernel keeps what is mounted, but not what is inside. */
#include "engine/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/images.h"
#include "engine/request.h"
#include "image/platform.h"
#include "image/setup_files.h"
#include "image/store.h"

bool image_wanted(const struct request *r)
{
	return !r->rootfs && r->image && strcmp(r->image, "host") != 0;
}

void image_drop(struct image_use *u)
{
	img_store_let_go(u->layers, u->n_layers);
	img_record_free(&u->record);
	free(u->argv);
	u->n_layers = 0;
	u->lowers[0] = '\0';
	u->argv = NULL;
	u->asked = NULL;
	u->python[0] = '\0';
}

/* The directory of all layers as a source of the box: by its canonical path, and by what is there.
 */
static int find_dir(const struct img_store *s, struct image_use *u, struct err *e)
{
	char link[64];
	struct stat st;
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", s->layers);
	n = readlink(link, u->dir, sizeof(u->dir) - 1);
	if (n < 0)
		return err_proc(e, link);
	u->dir[n] = '\0';
	if (fstat(s->layers, &st) < 0)
		return err_sys(e, "the store of images");
	u->check = (struct box_mount){ .kind = BOX_MOUNT_DIR,
				       .src = u->dir,
				       .dst = "/",
				       .said = u->name,
				       .dev = st.st_dev,
				       .ino = st.st_ino,
				       .owner = st.st_uid,
				       .group = st.st_gid };
	return 0;
}

/* "" matches all: who names no platform takes what is there. */
static int fits(const struct request *r, const struct image_use *u, struct err *e)
{
	struct img_platform want;
	char have[IMG_PLATFORM_TEXT];

	if (!r->platform)
		return 0;
	if (img_platform_parse(r->platform, &want, e) < 0)
		return err_prefix(e, "--platform");
	if (img_platform_equal(&want, &u->record.platform))
		return 0;
	err_set(e, ERR_MISSING, "%.200s is here for %s only", u->name,
		img_platform_text(&u->record.platform, have));
	e->num = ENOENT;
	return -1;
}

/* There is no store yet. */
static int missing(const struct image_use *u, struct err *e)
{
	err_set(e, ERR_MISSING, "image %.200s is not in the store", u->name);
	e->num = ENOENT;
	return -1;
}

/* Names the layers for the mount, the topmost first. A mount takes no directory twice, and an image
 * may well have a layer twice: all that the lower one gives or hides the upper one gives or hides
 * as well, so the upper one alone is the same. */
static void stack(struct image_use *u)
{
	size_t n = 0, at = 0;

	for (size_t i = 0; i < u->n_layers; i++) {
		const char *name = u->record.layers[u->n_layers - 1 - i].name;
		int fd = u->layers[i];

		if (strstr(u->lowers, name)) { /* all names are equally long */
			fd_close(&fd);
			continue;
		}
		at += (size_t)snprintf(u->lowers + at, sizeof(u->lowers) - at, "%s%s",
				       at ? ":" : "", name);
		u->layers[n++] = fd;
	}
	u->n_layers = n;
}

/* The bytecode of the image's library above all of its own layers, if there is any and there is
 * room for it. */
static void find_bytecode(struct image_use *u, const struct img_store *s)
{
	const struct layers all = { u->layers, u->n_layers };
	char name[IMG_LAYER_NAME];
	int fd;

	if (u->n_layers == IMG_STACK_MAX)
		return;
	fd = bytecode_hold(s, &u->record, name);
	if (fd < 0) {
		if (!bytecode_lacks(&all, u->python))
			u->python[0] = '\0';
		return;
	}
	memmove(u->layers + 1, u->layers, u->n_layers * sizeof(u->layers[0]));
	u->layers[0] = fd;
	u->n_layers++;
	memmove(u->lowers + IMG_LAYER_NAME, u->lowers, strlen(u->lowers) + 1);
	memcpy(u->lowers, name, IMG_LAYER_NAME - 1);
	u->lowers[IMG_LAYER_NAME - 1] = ':';
}

static int find(const struct request *r, struct image_use *u, struct img_store *s, struct err *e)
{
	if (images_open(false, s, e) < 0)
		return e->kind == ERR_MISSING ? missing(u, e) : -1;
	if (img_store_find(s, &u->ref, &u->record, e) < 0) {
		if (e->kind == ERR_MISSING)
			e->num = ENOENT;
		return -1;
	}
	if (fits(r, u, e) < 0)
		return -1;
	if (u->record.n_layers == 0)
		return err_set(e, ERR_MISSING, "%.200s has no layers: there is nothing to run",
			       u->name);
	if (img_store_hold(s, &u->record, u->layers, &u->n_layers, e) < 0) {
		u->n_layers = 0;
		if (e->kind == ERR_MISSING)
			e->num = ENOENT;
		return -1;
	}
	stack(u);
	if (!r->no_bytecode && !u->record.host)
		find_bytecode(u, s);
	return find_dir(s, u, e);
}

int image_find(const struct request *r, struct image_use *u, struct err *e)
{
	_cleanup_img_store_ struct img_store s = IMG_STORE_NONE;

	image_drop(u);
	if (img_ref_parse(r->image, &u->ref, e) < 0)
		return err_prefix(e, "--image");
	img_ref_format(&u->ref, u->name);
	if (find(r, u, &s, e) < 0) {
		image_drop(u);
		return err_at(e, STAGE_IMAGE);
	}
	u->asked = r->image;
	return 0;
}

const char *image_env(const struct image_use *u, const char *name)
{
	size_t n = strlen(name);

	for (size_t i = 0; u->asked && i < u->record.env.n; i++)
		if (strncmp(u->record.env.v[i], name, n) == 0 && u->record.env.v[i][n] == '=')
			return u->record.env.v[i] + n + 1;
	return NULL;
}

/* cloche's names for the box go into the image's /etc, which keeps its mode. Where that is no
 * directory (a link to somewhere), the image has made its own arrangements. */
static void names(struct prepared *p)
{
	struct box_spec *s = &p->spec;
	struct layers_found f = { .dir = -1 };
	mode_t mode = 0755;
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->root.layers.n; i++)
		r = layers_find_in(s->root.layers.fds[i], "etc", &f);
	if (r == 1)
		mode = f.st.st_mode;
	fd_close(&f.dir);
	if (r >= 0 && (r != 1 || S_ISDIR(mode)))
		image_host_names(&p->host, mode & 07777, s->network == BOX_NET_HOST, &s->root);
	if (s->setup)
		image_setup_files(&p->host, &s->root);
}

int image_root(struct prepared *p, struct err *e)
{
	const struct image_use *u = &p->image;
	struct box_spec *s = &p->spec;

	if (u->record.env.n > BOX_ENV_MAX / 2) {
		err_set(e, ERR_REFUSED, "%.200s sets more than %d environment variables", u->name,
			BOX_ENV_MAX / 2);
		return err_at(e, STAGE_IMAGE);
	}
	s->root = (struct rootfs){ .kind = u->record.host ? ROOTFS_HOST : ROOTFS_LAYERS,
				   .name = u->name,
				   .dir = u->dir,
				   .lowers = u->lowers,
				   .layers = { u->layers, u->n_layers } };
	s->root_check = &u->check;
	s->volumes = u->record.volumes.v;
	s->stop_signal = u->record.stop_signal;
	if (!u->record.host)
		names(p);
	return 0;
}

/* Adds words behind those that are there; a list that is none has none. */
static int add_words(struct image_use *u, size_t *n, char *const *words)
{
	for (; words && *words; words++) {
		char **v = reallocarray(u->argv, *n + 2, sizeof(*v));

		if (!v)
			return -1;
		u->argv = v;
		v[(*n)++] = *words;
		v[*n] = NULL;
	}
	return 0;
}

/* As docker has it: words of the caller's take the place of the image's; so does an entrypoint, and
 * then the image's words, which were for its own, are left out. */
int image_command(const struct request *r, struct prepared *p, struct err *e)
{
	struct image_use *u = &p->image;
	char *given[] = { (char *)(uintptr_t)r->entrypoint, NULL };
	char *const *head = u->record.entrypoint.v, *const *tail = r->argv;
	size_t n = 0;

	if (r->entrypoint)
		head = *r->entrypoint ? given : NULL;
	else if (!tail || !*tail)
		tail = u->record.cmd.v;
	free(u->argv);
	u->argv = NULL;
	if (add_words(u, &n, head) < 0 || add_words(u, &n, tail) < 0)
		return err_sys(e, "the command");
	if (n == 0) {
		err_set(e, ERR_MISSING,
			"%.200s has no command of its own: write one, as in cloche run --image %.100s -- sh",
			u->name, r->image);
		return err_at(e, STAGE_IMAGE);
	}
	p->spec.argv = u->argv;
	return 0;
}
