/* The documents of a saved image. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "image/manifest.h"
#include "image/save_impl.h"

#define MEDIA_CONFIG "application/vnd.oci.image.config.v1+json"
#define MEDIA_LAYER "application/vnd.oci.image.layer.v1.tar"

static void words(struct json *j, const char *key, const struct img_words *w)
{
	if (!w->v)
		return;
	json_key(j, key);
	json_arr(j);
	for (size_t i = 0; i < w->n; i++)
		json_bytes(j, w->v[i], strlen(w->v[i]));
	json_arr_end(j);
}

static void volumes(struct json *j, const struct img_words *w)
{
	if (!w->v)
		return;
	json_key(j, "Volumes");
	json_obj(j);
	for (size_t i = 0; i < w->n; i++) {
		json_key(j, w->v[i]);
		json_obj(j);
		json_obj_end(j);
	}
	json_obj_end(j);
}

static void config_of_record(const struct img_record *r, struct json *j)
{
	char number[16];

	json_kstr(j, "architecture", r->platform.arch);
	if (*r->platform.variant)
		json_kstr(j, "variant", r->platform.variant);
	json_kstr(j, "os", r->platform.os);
	json_key(j, "config");
	json_obj(j);
	words(j, "Env", &r->env);
	words(j, "Entrypoint", &r->entrypoint);
	words(j, "Cmd", &r->cmd);
	volumes(j, &r->volumes);
	if (*r->workdir)
		json_kstr(j, "WorkingDir", r->workdir);
	if (*r->user)
		json_kstr(j, "User", r->user);
	snprintf(number, sizeof(number), "%d", r->stop_signal);
	if (r->stop_signal)
		json_kstr(j, "StopSignal", number);
	json_obj_end(j);
}

/* An image that was made here and has no document. */
int save_config_new(struct saving *s, struct err *e)
{
	struct json j;

	json_init(&j, &s->config_json);
	json_obj(&j);
	config_of_record(s->how->record, &j);
	json_key(&j, "rootfs");
	json_obj(&j);
	json_kstr(&j, "type", "layers");
	json_key(&j, "diff_ids");
	json_arr(&j);
	for (size_t i = 0; i < s->how->record->n_layers; i++)
		json_str(&j, s->layers[i].digest);
	json_arr_end(&j);
	json_obj_end(&j);
	json_obj_end(&j);
	return s->config_json.failed ? err_set(e, ERR_REFUSED, "the image's config is too large")
				     : 0;
}

static void descriptor(struct json *j, const char *media, const struct save_blob *b)
{
	json_kstr(j, "mediaType", media);
	json_kstr(j, "digest", b->digest);
	json_ku64(j, "size", b->size);
}

void save_manifest(struct saving *s)
{
	struct json j;

	json_init(&j, &s->manifest_json);
	json_obj(&j);
	json_ku64(&j, "schemaVersion", 2);
	json_kstr(&j, "mediaType", IMG_MEDIA_OCI_MANIFEST);
	json_key(&j, "config");
	json_obj(&j);
	descriptor(&j, MEDIA_CONFIG, &s->config);
	json_obj_end(&j);
	json_key(&j, "layers");
	json_arr(&j);
	for (size_t i = 0; i < s->how->record->n_layers; i++) {
		json_obj(&j);
		descriptor(&j, MEDIA_LAYER, &s->layers[i]);
		json_obj_end(&j);
	}
	json_arr_end(&j);
	json_obj_end(&j);
}

/* An entry a name: that is how a layout gives an image several. */
void save_index_json(const struct saving *s, struct buf *out)
{
	const struct img_platform *p = &s->how->record->platform;
	size_t n = s->how->n_names;
	char name[IMG_REF_CAP];
	struct json j;

	json_init(&j, out);
	json_obj(&j);
	json_ku64(&j, "schemaVersion", 2);
	json_kstr(&j, "mediaType", IMG_MEDIA_OCI_INDEX);
	json_key(&j, "manifests");
	json_arr(&j);
	for (size_t i = 0; i < (n ? n : 1); i++) {
		json_obj(&j);
		descriptor(&j, IMG_MEDIA_OCI_MANIFEST, &s->manifest);
		json_key(&j, "platform");
		json_obj(&j);
		json_kstr(&j, "architecture", p->arch);
		json_kstr(&j, "os", p->os);
		if (*p->variant)
			json_kstr(&j, "variant", p->variant);
		json_obj_end(&j);
		if (n > 0) {
			json_key(&j, "annotations");
			json_obj(&j);
			img_ref_format(&s->how->names[i], name);
			json_kstr(&j, "io.containerd.image.name", name);
			json_kstr(&j, "org.opencontainers.image.ref.name", name);
			json_obj_end(&j);
		}
		json_obj_end(&j);
	}
	json_arr_end(&j);
	json_obj_end(&j);
}

void save_blob_path(const struct save_blob *b, char ret[128])
{
	snprintf(ret, 128, SAVE_BLOBS "/%s", strchr(b->digest, ':') + 1);
}

void save_docker_json(const struct saving *s, struct buf *out)
{
	char path[128], name[IMG_REF_CAP];
	struct json j;

	json_init(&j, out);
	json_arr(&j);
	json_obj(&j);
	save_blob_path(&s->config, path);
	json_kstr(&j, "Config", path);
	json_key(&j, "RepoTags");
	json_arr(&j);
	for (size_t i = 0; i < s->how->n_names; i++)
		json_str(&j, img_ref_format(&s->how->names[i], name));
	json_arr_end(&j);
	json_key(&j, "Layers");
	json_arr(&j);
	for (size_t i = 0; i < s->how->record->n_layers; i++) {
		save_blob_path(&s->layers[i], path);
		json_str(&j, path);
	}
	json_arr_end(&j);
	json_obj_end(&j);
	json_arr_end(&j);
}
