/* Manifests and indexes.
 *
 * How: one parse into jansson's tree, then each field that is used is taken out by a getter with
 * its bound. The kind is told by the media type; where there is none (OCI allows that) by the one
 * field that only one kind has.
 *
 * What may go wrong: a document that is a manifest to one reader and an index to another, so that
 * what was scanned is not what runs. Such a document has both "manifests" and "layers" or "config";
 * it is refused. */
#include "image/manifest.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "image/json_read.h"

enum media {
	MEDIA_NONE,
	MEDIA_MANIFEST,
	MEDIA_INDEX,
	MEDIA_CONFIG,
	MEDIA_LAYER,
	MEDIA_FOREIGN,
	MEDIA_OLD
};

static const struct {
	const char *type;
	enum media media;
} medias[] = {
	{ "", MEDIA_NONE },
	{ IMG_MEDIA_OCI_INDEX, MEDIA_INDEX },
	{ IMG_MEDIA_DOCKER_LIST, MEDIA_INDEX },
	{ IMG_MEDIA_OCI_MANIFEST, MEDIA_MANIFEST },
	{ IMG_MEDIA_DOCKER_MANIFEST, MEDIA_MANIFEST },
	{ "application/vnd.docker.distribution.manifest.v1+json", MEDIA_OLD },
	{ "application/vnd.docker.distribution.manifest.v1+prettyjws", MEDIA_OLD },
	{ "application/vnd.oci.image.config.v1+json", MEDIA_CONFIG },
	{ "application/vnd.docker.container.image.v1+json", MEDIA_CONFIG },
	{ "application/vnd.oci.image.layer.v1.tar", MEDIA_LAYER },
	{ "application/vnd.oci.image.layer.v1.tar+gzip", MEDIA_LAYER },
	{ "application/vnd.oci.image.layer.v1.tar+zstd", MEDIA_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar", MEDIA_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar.gzip", MEDIA_LAYER },
	{ "application/vnd.docker.image.rootfs.diff.tar.zstd", MEDIA_LAYER },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar", MEDIA_FOREIGN },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", MEDIA_FOREIGN },
	{ "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", MEDIA_FOREIGN },
	{ "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", MEDIA_FOREIGN },
};

/* What a media type is; its parameters ("; charset=utf-8") are not part of it. */
static int take_media(const char *where, const char *type, enum media *ret, struct err *e)
{
	char shown[120];
	size_t n = strcspn(type, "; ");

	for (size_t i = 0; i < sizeof(medias) / sizeof(*medias); i++) {
		if (strlen(medias[i].type) == n && !strncmp(medias[i].type, type, n)) {
			*ret = medias[i].media;
			return 0;
		}
	}
	return err_set(e, ERR_REFUSED, "%s is %s, which is no part of a container image", where,
		       str_printable(shown, sizeof(shown), type));
}

/* {mediaType, digest, size} at `where`. */
static int take_descriptor(const json_t *o, const char *where, uint64_t max, enum media *ret_media,
			   struct img_descriptor *ret, struct err *e)
{
	char type[160], digest[160], field[96];

	if (!json_is_object(o))
		return err_set(e, ERR_REFUSED, "%s is %s", where, o ? "no object" : "missing");
	snprintf(field, sizeof(field), "%s.mediaType", where);
	if (img_json_str(o, where, "mediaType", type, sizeof(type), e) < 0 ||
	    take_media(field, type, ret_media, e) < 0 ||
	    img_json_str(o, where, "digest", digest, sizeof(digest), e) < 0 ||
	    img_json_size(o, where, "size", max, &ret->size, e) < 0)
		return -1;
	if (img_digest_check(digest, e) < 0) {
		e->kind = ERR_REFUSED; /* not the user's words */
		return err_prefix(e, "%s", where);
	}
	memcpy(ret->digest, digest, sizeof(ret->digest));
	return 0;
}

static int take_layers(const json_t *doc, struct img_manifest *m, struct err *e)
{
	json_t *layers;

	if (img_json_array(doc, "", "layers", IMG_LAYERS_MAX, &layers, e) < 0)
		return -1;
	m->n_layers = json_array_size(layers);
	for (size_t i = 0; i < m->n_layers; i++) {
		enum media media = MEDIA_NONE;
		char where[32];

		snprintf(where, sizeof(where), "layers[%zu]", i);
		if (take_descriptor(json_array_get(layers, i), where, IMG_BLOB_MAX, &media,
				    &m->layers[i], e) < 0)
			return -1;
		if (media == MEDIA_FOREIGN)
			return err_set(
				e, ERR_REFUSED,
				"%s is kept outside of the registry (a foreign layer), which is not supported",
				where);
		if (media != MEDIA_LAYER)
			return err_set(e, ERR_REFUSED, "%s.mediaType is not that of a layer",
				       where);
	}
	return 0;
}

static int take_manifest(const json_t *doc, struct img_manifest *m, struct err *e)
{
	enum media media = MEDIA_NONE;

	if (take_descriptor(json_object_get(doc, "config"), "config", IMG_DOC_MAX, &media,
			    &m->config, e) < 0)
		return -1;
	if (media != MEDIA_CONFIG)
		return err_set(e, ERR_REFUSED, "config.mediaType is not that of a container image");
	return take_layers(doc, m, e);
}

static int take_platform(const json_t *entry, const char *where, struct img_platform *p,
			 struct err *e)
{
	char at[64];
	json_t *o;

	snprintf(at, sizeof(at), "%s.platform", where);
	if (img_json_object(entry, where, "platform", &o, e) < 0)
		return -1;
	if (o && (img_json_str(o, at, "os", p->os, sizeof(p->os), e) < 0 ||
		  img_json_str(o, at, "architecture", p->arch, sizeof(p->arch), e) < 0 ||
		  img_json_str(o, at, "variant", p->variant, sizeof(p->variant), e) < 0))
		return -1;
	img_platform_normalise(p);
	return 0;
}

static int take_index(const json_t *doc, struct img_index *index, struct err *e)
{
	json_t *list;

	if (img_json_array(doc, "", "manifests", IMG_INDEX_MAX, &list, e) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		struct img_index_entry *entry = &index->entries[index->n];
		const json_t *o = json_array_get(list, i);
		char where[32], type[160];
		enum media media = MEDIA_NONE;

		snprintf(where, sizeof(where), "manifests[%zu]", i);
		if (!json_is_object(o))
			return err_set(e, ERR_REFUSED, "%s is no object", where);
		/* An index may hold what is no image (signatures, charts): that is not ours to
		 * judge.
		 */
		if (img_json_str(o, where, "mediaType", type, sizeof(type), e) < 0)
			return -1;
		if (strcmp(type, IMG_MEDIA_OCI_MANIFEST) != 0 &&
		    strcmp(type, IMG_MEDIA_DOCKER_MANIFEST) != 0)
			continue;
		memset(entry, 0, sizeof(*entry));
		if (take_descriptor(o, where, IMG_DOC_MAX, &media, &entry->manifest, e) < 0 ||
		    take_platform(o, where, &entry->platform, e) < 0)
			return -1;
		index->n++;
	}
	return 0;
}

/* Which of the two kinds it is, by all that says so. */
static int take_kind(const json_t *doc, const char *content_type, enum media *ret, struct err *e)
{
	bool index = json_object_get(doc, "manifests") != NULL;
	bool manifest = json_object_get(doc, "layers") || json_object_get(doc, "config");
	enum media said = MEDIA_NONE, own = MEDIA_NONE, shape;
	char type[160];
	uint64_t version;

	if (json_object_get(doc, "fsLayers"))
		return err_set(
			e, ERR_REFUSED,
			"is of docker's schema 1, which current tools no longer read: push the image again with a current one");
	if (img_json_size(doc, "", "schemaVersion", UINT32_MAX, &version, e) < 0)
		return -1;
	if (version != 2)
		return err_set(e, ERR_REFUSED, "schemaVersion is %u, only 2 is known",
			       (unsigned)version);
	if (index == manifest)
		return err_set(
			e, ERR_REFUSED,
			index ? "has manifests as well as layers or config: it can be read in two ways"
			      : "has neither layers nor manifests");
	shape = index ? MEDIA_INDEX : MEDIA_MANIFEST;
	if (img_json_str(doc, "", "mediaType", type, sizeof(type), e) < 0 ||
	    take_media("mediaType", type, &own, e) < 0)
		return -1;
	/* Other types than the four (text/plain, from a plain file server) say nothing. */
	if (content_type && take_media("the content type", content_type, &said, e) < 0)
		said = MEDIA_NONE;
	if ((own != MEDIA_NONE && own != shape) || (said != MEDIA_NONE && said != shape))
		return err_set(e, ERR_REFUSED, "%s is not that of what the document holds",
			       own != MEDIA_NONE && own != shape ? "mediaType"
								 : "the content type");
	*ret = shape;
	return 0;
}

int img_doc_parse(const char *data, size_t n, const char *content_type, struct img_doc *ret,
		  struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	struct img_doc out = { 0 };
	enum media media = MEDIA_NONE;

	if (img_json_load(data, n, IMG_DOC_MAX, &doc, e) < 0 ||
	    take_kind(doc, content_type, &media, e) < 0)
		return err_prefix(e, "manifest");
	out.kind = media == MEDIA_INDEX ? IMG_DOC_INDEX : IMG_DOC_MANIFEST;
	if (out.kind == IMG_DOC_INDEX ? take_index(doc, &out.index, e)
				      : take_manifest(doc, &out.manifest, e))
		return err_prefix(e, out.kind == IMG_DOC_INDEX ? "index" : "manifest");
	*ret = out;
	return 0;
}

/* Platforms of an index as one line, each once. */
static void list_platforms(const struct img_index *index, char *dst, size_t cap)
{
	char text[IMG_PLATFORM_TEXT], shown[IMG_PLATFORM_TEXT];
	size_t len = 0;

	dst[0] = '\0';
	for (size_t i = 0; i < index->n; i++) {
		const struct img_platform *p = &index->entries[i].platform;
		bool seen = !*p->os || !strcmp(p->os, "unknown"); /* attestations */

		for (size_t k = 0; k < i && !seen; k++)
			seen = img_platform_equal(&index->entries[k].platform, p);
		if (seen)
			continue;
		str_printable(shown, sizeof(shown), img_platform_text(p, text));
		if (len + strlen(shown) + sizeof(", , ...") > cap) {
			snprintf(dst + len, cap - len, ", ...");
			return;
		}
		len += (size_t)snprintf(dst + len, cap - len, "%s%s", len ? ", " : "", shown);
	}
	if (len == 0)
		snprintf(dst, cap, "no image at all");
}

int img_index_choose(const struct img_index *index, const struct img_platform *want,
		     const struct img_index_entry **ret, struct err *e)
{
	char have[300], text[IMG_PLATFORM_TEXT];

	for (size_t i = 0; i < index->n; i++) {
		if (img_platform_equal(&index->entries[i].platform, want)) {
			*ret = &index->entries[i];
			return 0;
		}
	}
	list_platforms(index, have, sizeof(have));
	return err_set(e, ERR_REFUSED, "there is no image for %s: the index has %s",
		       img_platform_text(want, text), have);
}
