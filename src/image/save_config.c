/* The config document of an image whose layers may have other digests now. */
#include <stdlib.h>
#include <string.h>

#include "image/json_read.h"
#include "image/manifest.h"
#include "image/save_impl.h"

/* Whether the document names these layers already. */
static bool same_layers(const struct saving *s, const json_t *diff_ids)
{
	if (json_array_size(diff_ids) != s->how->record->n_layers)
		return false;
	for (size_t i = 0; i < json_array_size(diff_ids); i++) {
		const char *id = json_string_value(json_array_get(diff_ids, i));

		if (!id || strcmp(id, s->layers[i].digest) != 0)
			return false;
	}
	return true;
}

/* Layers that are now one have no history of their own. */
static int set_layers(struct saving *s, json_t *doc, size_t before, struct err *e)
{
	json_t *ids = json_array();

	for (size_t i = 0; ids && i < s->how->record->n_layers; i++)
		json_array_append_new(ids, json_string(s->layers[i].digest));
	if (!ids || json_object_set_new(json_object_get(doc, "rootfs"), "diff_ids", ids) < 0)
		return err_set(e, ERR_SYS, "the image's config does not fit in memory");
	if (before != s->how->record->n_layers)
		json_object_del(doc, "history");
	return 0;
}

int save_config_of_json(struct saving *s, const char *text, size_t n, struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	json_t *rootfs, *ids;
	char *made;

	if (img_json_load(text, n, IMG_DOC_MAX, &doc, e) < 0 ||
	    img_json_object(doc, "", "rootfs", &rootfs, e) < 0)
		return -1;
	if (!rootfs)
		return err_set(e, ERR_REFUSED, "rootfs is missing");
	if (img_json_array(rootfs, "rootfs", "diff_ids", IMG_LAYERS_MAX, &ids, e) < 0)
		return -1;
	if (same_layers(s, ids)) {
		buf_add(&s->config_json, text, n);
	} else {
		if (set_layers(s, doc, json_array_size(ids), e) < 0)
			return -1;
		made = json_dumps(doc, JSON_COMPACT);
		buf_str(&s->config_json, made ? made : "");
		free(made);
		if (!made)
			return err_set(e, ERR_SYS, "the image's config does not fit in memory");
	}
	return s->config_json.failed ? err_set(e, ERR_REFUSED, "it is too large") : 0;
}
