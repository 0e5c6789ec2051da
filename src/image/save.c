/* Saving.
 *
 * How: each layer is written twice, first to be counted and summed, since its name in the archive
 * is its digest and stands before it; then for good. Nothing is kept in between.
 *
 * What may go wrong: the config document is as hostile as on the day it came, so that it is read
 * behind locks; a layer that is not the same the second time (noticed). */
#include "image/save_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "image/confine.h"
#include "image/layer_tar.h"
#include "image/manifest.h"
#include "image/sha256.h"

#define OUT_SIZE (1u << 20)

static int flush(struct saving *s, struct err *e)
{
	if (s->used > 0 && fd_write_all(s->how->out, s->out, s->used) < 0)
		return err_sys(e, "can't write the archive");
	s->written += s->used;
	s->used = 0;
	return 0;
}

static int write_out(struct saving *s, const char *data, size_t n, struct err *e)
{
	while (n > 0) {
		size_t room = OUT_SIZE - s->used, k = n < room ? n : room;

		memcpy(s->out + s->used, data, k);
		s->used += k;
		data += k;
		n -= k;
		if (s->used == OUT_SIZE && flush(s, e) < 0)
			return -1;
	}
	return 0;
}

static int put_plain(void *ctx, const void *data, size_t n, struct err *e)
{
	return write_out(ctx, data, n, e);
}

static int put_summed(void *ctx, const void *data, size_t n, struct err *e)
{
	struct saving *s = ctx;

	s->n += n;
	if (img_sha256_add(&s->sum, data, n, e) < 0)
		return -1;
	return s->only_sum ? 0 : write_out(s, data, n, e);
}

/* Layer i from below, summed; written, too, unless only_sum. */
static int layer(struct saving *s, size_t i, bool only_sum, struct save_blob *ret, struct err *e)
{
	const struct img_record *r = s->how->record;
	const struct tar_sink sink = { put_summed, s };
	struct img_layer_info info;

	if (img_layer_info(s->how->store, r->layers[i].name, &info, e) < 0 ||
	    img_sha256_begin(&s->sum, e) < 0)
		return -1;
	s->n = 0;
	s->only_sum = only_sum;
	if (img_layer_tar(s->held[r->n_layers - 1 - i], info.mode, &sink, e) < 0)
		return err_prefix(e, "layer %zu of %zu", i + 1, r->n_layers);
	ret->size = s->n;
	return img_sha256_end(&s->sum, ret->digest, e);
}

static int config(struct saving *s, struct err *e)
{
	char *text;
	size_t n;
	int r;

	r = img_store_json(s->how->store, s->how->record->id, &text, &n, e);
	if (r < 0 && e->kind != ERR_MISSING)
		return -1;
	if (r < 0) {
		r = save_config_new(s, e);
	} else {
		r = save_config_of_json(s, text, n, e);
		free(text);
		if (r < 0)
			err_prefix(e, "the image's config");
	}
	s->config.size = s->config_json.len;
	return r < 0 ? -1
		     : img_sha256_of(s->config_json.data, s->config_json.len, s->config.digest, e);
}

static int manifest(struct saving *s, struct err *e)
{
	save_manifest(s);
	s->manifest.size = s->manifest_json.len;
	return img_sha256_of(s->manifest_json.data, s->manifest_json.len, s->manifest.digest, e);
}

/* The archive */

static int put_dir(const struct tar_sink *sink, const char *path, struct err *e)
{
	struct tar_entry en = { .type = TAR_DIR, .mode = 0755 };

	snprintf(en.path, sizeof(en.path), "%s", path);
	return tar_put(sink, &en, e);
}

static int put_doc(const struct tar_sink *sink, const char *path, const struct buf *text,
		   struct err *e)
{
	if (text->failed)
		return err_set(e, ERR_REFUSED, "%s is too large", path);
	return tar_put_file(sink, path, text->data, text->len, e);
}

static int put_layer(struct saving *s, const struct tar_sink *sink, size_t i, struct err *e)
{
	struct tar_entry en = { .type = TAR_FILE, .mode = 0644, .size = s->layers[i].size };
	struct save_blob again = { 0 };
	char path[128];

	/* Two layers may be the same. */
	for (size_t k = 0; k < i; k++)
		if (!strcmp(s->layers[k].digest, s->layers[i].digest))
			return 0;
	save_blob_path(&s->layers[i], path);
	memcpy(en.path, path, strlen(path) + 1);
	if (tar_put(sink, &en, e) < 0 || layer(s, i, false, &again, e) < 0)
		return -1;
	if (strcmp(again.digest, s->layers[i].digest) != 0 || again.size != s->layers[i].size)
		return err_set(e, ERR_REFUSED, "layer %zu changed while it was written", i + 1);
	return tar_put_padding(sink, again.size, e);
}

static int put_all(struct saving *s, struct err *e)
{
	const struct tar_sink sink = { put_plain, s };
	static const char layout[] = "{\"imageLayoutVersion\":\"1.0.0\"}";
	_cleanup_buf_ struct buf index = { 0 }, docker = { 0 };
	char path[128];

	buf_init(&index, IMG_DOC_MAX);
	buf_init(&docker, IMG_DOC_MAX);
	save_index_json(s, &index);
	save_docker_json(s, &docker);
	if (tar_put_file(&sink, "oci-layout", layout, strlen(layout), e) < 0 ||
	    put_doc(&sink, "index.json", &index, e) < 0 ||
	    put_doc(&sink, "manifest.json", &docker, e) < 0 || put_dir(&sink, "blobs", e) < 0 ||
	    put_dir(&sink, SAVE_BLOBS, e) < 0)
		return -1;
	save_blob_path(&s->manifest, path);
	if (put_doc(&sink, path, &s->manifest_json, e) < 0)
		return -1;
	save_blob_path(&s->config, path);
	if (put_doc(&sink, path, &s->config_json, e) < 0)
		return -1;
	for (size_t i = 0; i < s->how->record->n_layers; i++)
		if (put_layer(s, &sink, i, e) < 0)
			return -1;
	return tar_put_end(&sink, e) < 0 ? -1 : flush(s, e);
}

static int lock_in(const struct img_store *store, struct err *e)
{
	const struct img_confine how = { .work = IMG_WORK_STORE,
					 .reads = &store->fd,
					 .n_reads = 1 };

	if (img_confine_ready(e) < 0 || img_sha256_ready(e) < 0 || img_confine_rights(e) < 0 ||
	    img_confine(&how, e) < 0)
		return err_prefix(e, "lock in");
	return 0;
}

static int save(struct saving *s, struct err *e)
{
	if (lock_in(s->how->store, e) < 0)
		return -1;
	for (size_t i = 0; i < s->how->record->n_layers; i++)
		if (layer(s, i, true, &s->layers[i], e) < 0)
			return -1;
	return config(s, e) < 0 || manifest(s, e) < 0 || put_all(s, e) < 0 ? -1 : 0;
}

int img_save(const struct img_save_how *how, const int *held, struct img_saved *ret, struct err *e)
{
	struct saving *s = calloc(1, sizeof(*s)); /* large */
	int r = -1;

	if (!s)
		return err_sys(e, "save the image");
	s->how = how;
	s->held = held;
	buf_init(&s->config_json, IMG_DOC_MAX);
	buf_init(&s->manifest_json, IMG_DOC_MAX);
	s->out = malloc(OUT_SIZE);
	if (!s->out)
		err_sys(e, "save the image");
	else
		r = save(s, e);
	if (r == 0) {
		memcpy(ret->id, s->config.digest, sizeof(ret->id));
		ret->bytes = s->written;
	}
	img_sha256_drop(&s->sum);
	buf_free(&s->config_json);
	buf_free(&s->manifest_json);
	free(s->out);
	free(s);
	return r;
}
