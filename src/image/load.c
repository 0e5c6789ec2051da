/* Loading and importing.
 *
 * How: the process that unpacks layers (unpack_server.h) unpacks the archive itself first, into a
 * draft, as if it were one: so one locked-in reader of compressed tars does it all, and a path in
 * an archive is as harmless as one in a layer. This process, which has locked itself in as well,
 * then reads the documents (archive.h) and has the layers unpacked, from the draft into the store.
 *
 * What may go wrong: what somebody saved is damaged or contradicts itself: blobs are compared with
 * their digests, layers with their diff ids, before anything gets a name. */
#include "image/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/str.h"
#include "image/archive.h"
#include "image/confine.h"
#include "image/sha256.h"
#include "image/stack.h"
#include "image/unpack_server.h"

#define ARCHIVE_ENTRIES 65536
#define JSON_MAX 65536

struct loading {
	const struct img_load_how *how;
	struct img_unpack_server server;
	struct img_unpack_child child;
	struct img_draft archive;
	int (*loaded)(void *ctx, const struct img_loaded *image, struct err *e);
	void *ctx;
};

/* The process that unpacks is there, and this one locked in. */
static int lock_in(const struct img_store *s, struct img_unpack_server *ret, struct err *e)
{
	const struct img_confine how = { .work = IMG_WORK_STORE, .writes = &s->fd, .n_writes = 1 };

	if (img_confine_ready(e) < 0 || img_sha256_ready(e) < 0 || img_unpack_serve(s, ret, e) < 0)
		return -1;
	return img_confine_rights(e) < 0 || img_confine(&how, e) < 0 ? err_prefix(e, "lock in") : 0;
}

/* What is unpacked has to fit beside the archive. */
static int full(struct err *e)
{
	struct err was = *e;

	if (was.num != ENOSPC && was.num != EDQUOT)
		return -1;
	err_set(e, was.kind, "%.380s; fix: make room for the store, by \"cloche prune\" perhaps",
		was.msg);
	e->num = was.num;
	return -1;
}

/* Ends the child first: it may be writing into the draft. */
static void finish(struct loading *l)
{
	img_progress_end(l->how->progress);
	img_unpack_server_end(&l->server);
	fd_close(&l->child.answer);
	img_draft_drop(&l->archive);
}

static void phase(const struct loading *l, const char *name, const char *text)
{
	img_progress_phase(l->how->progress, name, text);
}

/* What an earlier one that was killed has left goes first: there may be no room for both. */
static int begin(struct loading *l, struct err *e)
{
	struct img_gc_done ignored;

	if (img_store_gc(l->how->store, IMG_GC_LEFT, &ignored, e) < 0)
		return -1;
	return lock_in(l->how->store, &l->server, e);
}

static int unpack(struct loading *l, const struct img_unpack_order *o,
		  struct img_unpack_result *ret, struct err *e)
{
	if (img_draft_new(l->how->store, &l->archive, e) < 0 ||
	    img_unpack_order(&l->server, o, l->how->in, l->archive.tree, &l->child, e) < 0)
		return -1;
	return img_unpack_end(&l->child, ret, e);
}

/* A layer that is not in the store. */
static int load_layer(struct loading *l, struct img_stack *st,
		      const struct img_archive_layer *layer, struct err *e)
{
	_cleanup_fd_ int in = -1;
	uint64_t size;

	in = img_archive_layer(l->archive.tree, layer, &size, e);
	if (in < 0 || img_stack_start(st, &l->server, in, size, &l->child, e) < 0)
		return err_prefix(e, "layer %zu of %zu", st->at + 1, st->config->n_diff_ids);
	if (img_stack_end(st, &l->child, NULL, e) < 0)
		return -1;
	img_progress_layer(l->how->progress, "done", st->config->diff_ids[st->at - 1], size, size);
	return 0;
}

static int load_layers(struct loading *l, struct img_stack *st,
		       const struct img_archive_image *image, size_t *ret_unpacked, struct err *e)
{
	size_t i, n = 0;
	char text[80];

	while (img_stack_next(st, &i, e)) {
		snprintf(text, sizeof(text), "unpacking layer %zu of %zu", i + 1,
			 image->config.n_diff_ids);
		phase(l, "unpack", text);
		if (load_layer(l, st, &image->layers[i], e) < 0)
			return -1;
		n++;
	}
	*ret_unpacked = n;
	return e->kind == ERR_NONE ? 0 : -1;
}

static int publish(const struct loading *l, const struct img_archive_image *image,
		   const struct img_stack *st, const struct img_loaded *as, struct err *e)
{
	_cleanup_img_record_ struct img_record r = { 0 };

	if (img_record_of_config(&image->config, image->id, image->manifest, &r, e) < 0 ||
	    img_stack_finish(st, &r, e) < 0 ||
	    img_image_publish(l->how->store, &r, image->json, image->json_n, e) < 0)
		return -1;
	for (size_t i = 0; i < as->n_names; i++)
		if (img_name_set(l->how->store, &as->names[i], image->id, image->top, e) < 0)
			return -1;
	return 0;
}

static int load_image(struct loading *l, const struct img_archive_image *image, struct err *e)
{
	_cleanup_img_stack_ struct img_stack st = IMG_STACK_NONE;
	struct img_loaded as = { .n_names = image->n_names, .names = image->names };
	size_t unpacked;

	if (l->how->name) {
		as.names = l->how->name;
		as.n_names = 1;
	}
	/* What is in the store already has to be in the archive, too: else it is not what somebody
	 * saved. */
	for (size_t i = 0; i < image->config.n_diff_ids; i++)
		if (img_archive_has(l->archive.tree, &image->layers[i], e) < 0)
			return -1;
	if (as.n_names == 0)
		return err_set(
			e, ERR_REFUSED,
			"the archive does not say what its image is called; fix: --name NAME");
	if (img_stack_begin(&st, l->how->store, &image->config, e) < 0 ||
	    load_layers(l, &st, image, &unpacked, e) < 0)
		return -1;
	phase(l, "publish", "storing the image");
	if (publish(l, image, &st, &as, e) < 0)
		return -1;
	memcpy(as.id, image->id, sizeof(as.id));
	as.layers = image->config.n_diff_ids;
	as.shared = as.layers - unpacked;
	img_progress_end(l->how->progress);
	return l->loaded(l->ctx, &as, e);
}

static int each(void *ctx, const struct img_archive_image *image, struct err *e)
{
	char text[IMG_REF_CAP];

	if (load_image(ctx, image, e) == 0)
		return 0;
	return image->n_names > 0 ? err_prefix(e, "%s", img_ref_format(&image->names[0], text))
				  : -1;
}

static int count(void *ctx, const struct img_archive_image *image, struct err *e)
{
	++*(size_t *)ctx;
	return 0;
}

/* A name that is given is for one image: it is known that there is one before anything is stored.
 */
static int check_one(const struct loading *l, struct err *e)
{
	size_t n = 0;

	if (img_archive_each(l->archive.tree, &l->how->platform, count, &n, e) < 0)
		return -1;
	return n > 1 ? err_set(e, ERR_REFUSED, "the archive has %zu images, and --name is for one",
			       n)
		     : 0;
}

static int load(struct loading *l, struct err *e)
{
	struct img_unpack_order o = { .max_in = img_unpack_default.archive_bytes,
				      .limits = img_unpack_default };
	struct img_unpack_result ignored;

	o.limits.entries = ARCHIVE_ENTRIES;
	phase(l, "read", "reading the archive");
	if (begin(l, e) < 0 || unpack(l, &o, &ignored, e) < 0 ||
	    (l->how->name && check_one(l, e) < 0))
		return -1;
	return img_archive_each(l->archive.tree, &l->how->platform, each, l, e);
}

int img_load(const struct img_load_how *how,
	     int (*loaded)(void *ctx, const struct img_loaded *image, struct err *e), void *ctx,
	     struct err *e)
{
	struct loading l = { .how = how,
			     .server = IMG_UNPACK_NO_SERVER,
			     .child = IMG_UNPACK_NO_CHILD,
			     .archive = IMG_DRAFT_NONE,
			     .loaded = loaded,
			     .ctx = ctx };
	int r = load(&l, e);

	finish(&l);
	return r < 0 ? full(e) : 0;
}

/* The config of an imported root file system: it says nothing but what it consists of, so that the
 * same archive gives the same image. */
static void config_json(const struct img_platform *p, const char *diff, struct buf *out)
{
	struct json j;

	json_init(&j, out);
	json_obj(&j);
	json_kstr(&j, "architecture", p->arch);
	json_key(&j, "config");
	json_obj(&j);
	json_obj_end(&j);
	json_kstr(&j, "os", p->os);
	json_key(&j, "rootfs");
	json_obj(&j);
	json_kstr(&j, "type", "layers");
	json_key(&j, "diff_ids");
	json_arr(&j);
	json_str(&j, diff);
	json_arr_end(&j);
	json_obj_end(&j);
	if (*p->variant)
		json_kstr(&j, "variant", p->variant);
	json_obj_end(&j);
}

/* The one layer's chain id is its diff id. */
static int import_image(struct loading *l, const struct img_unpack_result *r, struct err *e)
{
	_cleanup_img_record_ struct img_record record = { .platform = l->how->platform,
							  .n_layers = 1 };
	struct img_record_layer *layer = &record.layers[0];
	struct img_loaded as = { .n_names = 1, .names = l->how->name, .layers = 1 };
	_cleanup_buf_ struct buf json = { 0 };
	const char *diff = r->decoded.out_digest;

	buf_init(&json, JSON_MAX);
	config_json(&l->how->platform, diff, &json);
	if (json.failed)
		return err_set(e, ERR_SYS, "the image's config does not fit in memory");
	if (img_sha256_of(json.data, json.len, record.id, e) < 0 ||
	    img_layer_publish(l->how->store, &l->archive, r->done.borrowed ? 'c' : 'd', diff,
			      &r->done, layer->name, e) < 0)
		return -1;
	memcpy(layer->id, diff, sizeof(layer->id));
	layer->bytes = r->done.bytes;
	if (img_image_publish(l->how->store, &record, json.data, json.len, e) < 0 ||
	    img_name_set(l->how->store, l->how->name, record.id, "", e) < 0)
		return -1;
	memcpy(as.id, record.id, sizeof(as.id));
	img_progress_end(l->how->progress);
	return l->loaded(l->ctx, &as, e);
}

int img_import(const struct img_load_how *how,
	       int (*loaded)(void *ctx, const struct img_loaded *image, struct err *e), void *ctx,
	       struct err *e)
{
	const struct img_unpack_order o = { .max_in = IMG_BLOB_MAX, .limits = img_unpack_default };
	struct loading l = { .how = how,
			     .server = IMG_UNPACK_NO_SERVER,
			     .child = IMG_UNPACK_NO_CHILD,
			     .archive = IMG_DRAFT_NONE,
			     .loaded = loaded,
			     .ctx = ctx };
	struct img_unpack_result r;
	int rc;

	phase(&l, "read", "unpacking the archive");
	rc = begin(&l, e) < 0 || unpack(&l, &o, &r, e) < 0 || import_image(&l, &r, e) < 0 ? -1 : 0;
	finish(&l);
	return rc < 0 ? full(e) : 0;
}
