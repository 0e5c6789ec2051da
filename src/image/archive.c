/* Reading an archive's documents: which images there are, and where their parts lie.
 *
 * What may go wrong: a path leads out of the directory, or to something that is no file (walked
 * inside, opened without waiting); two documents contradict each other (what has a digest is
 * compared with it; layers are, by their diff ids, when they are unpacked); names that are none. */
#include "image/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "image/json_read.h"
#include "image/sha256.h"

#define IMAGES_MAX 256
#define BLOBS "blobs/sha256/"
#define CONTAINERD_NAME "io.containerd.image.name"
#define OCI_NAME "org.opencontainers.image.ref.name"

struct reader {
	int dir;
	const struct img_platform *want;
	int (*each)(void *ctx, const struct img_archive_image *image, struct err *e);
	void *ctx;
	struct img_archive_image image;
};

/* Opens a file of the archive, for reading. */
static int open_file(int dir, const char *path, struct stat *st, struct err *e)
{
	char where[4096], shown[200];
	_cleanup_fd_ int fd = -1;

	str_printable(shown, sizeof(shown), path);
	if (path_resolve_in_root(dir, path, where) < 0)
		return err_sys(e, "%s", shown);
	if (!where[1])
		return err_set(e, ERR_REFUSED, "%s is no file", *shown ? shown : "a path");
	fd = openat(dir, where + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_REFUSED, "the archive has no %s", shown);
	if (fd < 0 || fstat(fd, st) < 0)
		return err_sys(e, "%s", shown);
	if (!S_ISREG(st->st_mode))
		return err_set(e, ERR_REFUSED, "%s is no file", shown);
	return fd_steal(&fd);
}

/* Reads a document. *ret is to be freed. */
static int load(int dir, const char *path, char **ret, size_t *ret_n, struct err *e)
{
	struct stat st = { 0 };
	_cleanup_fd_ int fd = open_file(dir, path, &st, e);
	char shown[200], *text;
	ssize_t n;

	if (fd < 0)
		return -1;
	str_printable(shown, sizeof(shown), path);
	if ((uint64_t)st.st_size > IMG_DOC_MAX)
		return err_set(e, ERR_REFUSED, "%s has more than %u bytes", shown, IMG_DOC_MAX);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return err_sys(e, "%s", shown);
	n = fd_read_full(fd, text, (size_t)st.st_size);
	if (n < 0) {
		free(text);
		return err_sys(e, "%s", shown);
	}
	text[n] = '\0';
	*ret = text;
	*ret_n = (size_t)n;
	return 0;
}

static void blob_path(const char *digest, char ret[IMG_ARCHIVE_PATH_CAP])
{
	snprintf(ret, IMG_ARCHIVE_PATH_CAP, BLOBS "%s", strchr(digest, ':') + 1);
}

/* Reads a document by its descriptor. */
static int load_blob(int dir, const struct img_descriptor *d, char **ret, size_t *ret_n,
		     struct err *e)
{
	char path[IMG_ARCHIVE_PATH_CAP], digest[IMG_DIGEST_LEN + 1], *text = NULL;
	size_t n = 0;

	blob_path(d->digest, path);
	if (load(dir, path, &text, &n, e) < 0)
		return -1;
	if (img_sha256_of(text, n, digest, e) < 0) {
		free(text);
		return -1;
	}
	if (n != d->size || strcmp(digest, d->digest) != 0) {
		free(text);
		return err_set(e, ERR_REFUSED, "%s: its digest or size is not what was announced",
			       path);
	}
	*ret = text;
	*ret_n = n;
	return 0;
}

int img_archive_has(int dir, const struct img_archive_layer *layer, struct err *e)
{
	struct stat st = { 0 };
	_cleanup_fd_ int fd = open_file(dir, layer->path, &st, e);

	return fd < 0 ? -1 : 0;
}

int img_archive_layer(int dir, const struct img_archive_layer *layer, uint64_t *ret_size,
		      struct err *e)
{
	_cleanup_sha256_ struct img_sha256 sum = { 0 };
	struct stat st = { 0 };
	_cleanup_fd_ int fd = open_file(dir, layer->path, &st, e);
	char digest[IMG_DIGEST_LEN + 1], buf[65536];
	ssize_t n = 1;

	if (fd < 0)
		return -1;
	*ret_size = (uint64_t)st.st_size;
	if (!*layer->blob.digest)
		return fd_steal(&fd);
	if (*ret_size != layer->blob.size)
		return err_set(e, ERR_REFUSED, "%s has %llu bytes, and the manifest says %llu",
			       layer->path, (unsigned long long)*ret_size,
			       (unsigned long long)layer->blob.size);
	if (img_sha256_begin(&sum, e) < 0)
		return -1;
	while (n > 0) {
		n = fd_read_full(fd, buf, sizeof(buf));
		if (n < 0)
			return err_sys(e, "%s", layer->path);
		if (n > 0 && img_sha256_add(&sum, buf, (size_t)n, e) < 0)
			return -1;
	}
	if (img_sha256_end(&sum, digest, e) < 0)
		return -1;
	if (strcmp(digest, layer->blob.digest) != 0)
		return err_set(e, ERR_REFUSED,
			       "%s: its digest is %s, which is not what its name says", layer->path,
			       digest);
	return lseek(fd, 0, SEEK_SET) < 0 ? err_sys(e, "%s", layer->path) : fd_steal(&fd);
}

static int add_name(struct img_archive_image *image, const char *text, struct err *e)
{
	struct img_ref *ref = &image->names[image->n_names];
	char shown[200];

	if (image->n_names == IMG_ARCHIVE_NAMES_MAX)
		return err_set(e, ERR_REFUSED, "an image has more than %d names",
			       IMG_ARCHIVE_NAMES_MAX);
	if (img_ref_parse(text, ref, e) < 0 || ref->kind == IMG_REF_HOST)
		return err_set(e, ERR_REFUSED, "it calls an image %s, which is no name of one",
			       str_printable(shown, sizeof(shown), text));
	image->n_names++;
	return 0;
}

/* The config is here: the rest of the image fits it, or not. */
static int show(struct reader *r, size_t n_layers, struct err *e)
{
	static struct img_manifest m; /* large; only the count is looked at */
	struct img_archive_image *image = &r->image;

	if (img_sha256_of(image->json, image->json_n, image->id, e) < 0 ||
	    img_config_parse(image->json, image->json_n, &image->config, e) < 0)
		return -1;
	m.n_layers = n_layers;
	if (img_config_fits(&image->config, &m, r->want, e) < 0)
		return -1;
	return r->each(r->ctx, image, e);
}

static void forget(struct img_archive_image *image)
{
	img_config_free(&image->config);
	free(image->json);
	memset(image, 0, sizeof(*image));
}

/* OCI */

static int take_manifest(struct reader *r, const struct img_manifest *m, struct err *e)
{
	struct img_archive_image *image = &r->image;

	if (load_blob(r->dir, &m->config, &image->json, &image->json_n, e) < 0)
		return -1;
	for (size_t i = 0; i < m->n_layers; i++) {
		image->layers[i].blob = m->layers[i];
		blob_path(m->layers[i].digest, image->layers[i].path);
	}
	return show(r, m->n_layers, e);
}

static int load_doc(struct reader *r, const struct img_descriptor *d, struct img_doc *ret,
		    struct err *e)
{
	char *text = NULL;
	size_t n = 0;
	int rc;

	if (load_blob(r->dir, d, &text, &n, e) < 0)
		return -1;
	rc = img_doc_parse(text, n, NULL, ret, e);
	free(text);
	return rc;
}

/* An entry of index.json: a manifest, or an index of one image for several platforms. */
static int take_entry(struct reader *r, const struct img_descriptor *d, struct err *e)
{
	static struct img_doc doc; /* large */
	const struct img_index_entry *chosen;
	struct img_descriptor manifest = *d;

	memcpy(r->image.top, d->digest, sizeof(r->image.top));
	if (load_doc(r, d, &doc, e) < 0)
		return -1;
	if (doc.kind == IMG_DOC_INDEX) {
		if (img_index_choose(&doc.index, r->want, &chosen, e) < 0)
			return -1;
		manifest = chosen->manifest;
		if (load_doc(r, &manifest, &doc, e) < 0)
			return -1;
		if (doc.kind == IMG_DOC_INDEX)
			return err_set(e, ERR_REFUSED, "an index of indexes is nested too deep");
	}
	memcpy(r->image.manifest, manifest.digest, sizeof(r->image.manifest));
	return take_manifest(r, &doc.manifest, e);
}

struct oci_entry {
	struct img_descriptor d;
	struct img_platform platform; /* os "": it does not say */
	char name[512];		      /* or "" */
	bool taken;
};

/* A bare word is a tag, whose image only the one who wrote it knows. */
static int take_annotations(const json_t *o, struct oci_entry *en, struct err *e)
{
	json_t *notes;

	if (img_json_object(o, "manifests", "annotations", &notes, e) < 0)
		return -1;
	if (notes &&
	    img_json_str(notes, "annotations", CONTAINERD_NAME, en->name, sizeof(en->name), e) < 0)
		return -1;
	if (notes && !*en->name &&
	    img_json_str(notes, "annotations", OCI_NAME, en->name, sizeof(en->name), e) < 0)
		return -1;
	if (!strpbrk(en->name, ":/"))
		en->name[0] = '\0';
	return 0;
}

static int parse_entry(const json_t *o, struct oci_entry *en, struct err *e)
{
	char digest[160];
	json_t *platform;

	if (!json_is_object(o))
		return err_set(e, ERR_REFUSED, "manifests has an element that is no object");
	if (img_json_str(o, "manifests", "digest", digest, sizeof(digest), e) < 0 ||
	    img_json_size(o, "manifests", "size", IMG_DOC_MAX, &en->d.size, e) < 0 ||
	    img_json_object(o, "manifests", "platform", &platform, e) < 0)
		return -1;
	if (img_digest_check(digest, e) < 0) {
		e->kind = ERR_REFUSED;
		return -1;
	}
	memcpy(en->d.digest, digest, sizeof(en->d.digest));
	if (platform) {
		struct img_platform *p = &en->platform;

		if (img_json_str(platform, "platform", "os", p->os, sizeof(p->os), e) < 0 ||
		    img_json_str(platform, "platform", "architecture", p->arch, sizeof(p->arch),
				 e) < 0 ||
		    img_json_str(platform, "platform", "variant", p->variant, sizeof(p->variant),
				 e) < 0)
			return -1;
		img_platform_normalise(p);
	}
	return take_annotations(o, en, e);
}

/* Of several entries of one name, the one for the platform. */
static size_t best(const struct reader *r, const struct oci_entry *v, size_t n, size_t first)
{
	for (size_t i = first; i < n; i++)
		if (!strcmp(v[i].name, v[first].name) && *v[i].platform.os &&
		    img_platform_equal(&v[i].platform, r->want))
			return i;
	return first;
}

static int take_entries(struct reader *r, struct oci_entry *v, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		size_t k = best(r, v, n, i);
		int rc = 0;

		/* Signatures and attestations are for no machine. */
		if (v[i].taken || !strcmp(v[i].platform.os, "unknown"))
			continue;
		if (*v[k].name)
			rc = add_name(&r->image, v[k].name, e);
		if (rc == 0)
			rc = take_entry(r, &v[k].d, e);
		forget(&r->image);
		if (rc < 0)
			return -1;
		for (size_t other = i; other < n; other++)
			v[other].taken |= !strcmp(v[other].name, v[i].name);
	}
	return 0;
}

static int read_oci(struct reader *r, const json_t *doc, struct err *e)
{
	struct oci_entry *v;
	json_t *list;
	size_t n;
	int rc = 0;

	if (img_json_array(doc, "", "manifests", IMAGES_MAX, &list, e) < 0)
		return -1;
	n = json_array_size(list);
	if (n == 0)
		return err_set(e, ERR_REFUSED, "index.json has no image");
	v = calloc(n, sizeof(*v));
	if (!v)
		return err_sys(e, "the images of the archive");
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = parse_entry(json_array_get(list, i), &v[i], e);
	if (rc == 0)
		rc = take_entries(r, v, n, e);
	free(v);
	return rc;
}

/* docker save */

static int take_tags(struct reader *r, const json_t *o, struct err *e)
{
	json_t *tags;

	if (img_json_array(o, "", "RepoTags", IMG_ARCHIVE_NAMES_MAX, &tags, e) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(tags); i++) {
		const char *tag = json_string_value(json_array_get(tags, i));

		if (!tag)
			return err_set(e, ERR_REFUSED, "RepoTags has an element that is no string");
		if (add_name(&r->image, tag, e) < 0)
			return -1;
	}
	return 0;
}

static int take_paths(struct reader *r, const json_t *o, size_t *ret_n, struct err *e)
{
	json_t *list;

	if (img_json_array(o, "", "Layers", IMG_LAYERS_MAX, &list, e) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *path = json_string_value(json_array_get(list, i));

		if (!path || !*path || strlen(path) >= IMG_ARCHIVE_PATH_CAP)
			return err_set(e, ERR_REFUSED, "Layers has an element that is no path");
		memcpy(r->image.layers[i].path, path, strlen(path) + 1);
	}
	*ret_n = json_array_size(list);
	return 0;
}

/* A config that is called by a digest has to be it. */
static int check_called(const char *path, const char *json, size_t n, struct err *e)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	size_t hex = strspn(name, "0123456789abcdef");
	char digest[IMG_DIGEST_LEN + 1];

	if (hex != 64 || (name[hex] && strcmp(name + hex, ".json") != 0))
		return 0;
	if (img_sha256_of(json, n, digest, e) < 0)
		return -1;
	return strncmp(strchr(digest, ':') + 1, name, 64) != 0
		       ? err_set(e, ERR_REFUSED, "%s: its digest is not what its name says", path)
		       : 0;
}

static int take_docker(struct reader *r, const json_t *o, struct err *e)
{
	struct img_archive_image *image = &r->image;
	char path[IMG_ARCHIVE_PATH_CAP];
	size_t n = 0;

	if (!json_is_object(o))
		return err_set(e, ERR_REFUSED, "an element is no object");
	if (img_json_str(o, "", "Config", path, sizeof(path), e) < 0 || take_tags(r, o, e) < 0 ||
	    take_paths(r, o, &n, e) < 0 ||
	    load(r->dir, path, &image->json, &image->json_n, e) < 0 ||
	    check_called(path, image->json, image->json_n, e) < 0)
		return -1;
	return show(r, n, e);
}

static int read_docker(struct reader *r, const json_t *list, struct err *e)
{
	size_t n = json_array_size(list);

	if (n == 0 || n > IMAGES_MAX)
		return err_set(e, ERR_REFUSED, "manifest.json has %zu images", n);
	for (size_t i = 0; i < n; i++) {
		int rc = take_docker(r, json_array_get(list, i), e);

		forget(&r->image);
		if (rc < 0)
			return -1;
	}
	return 0;
}

static bool has(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int read_any(struct reader *r, bool docker, struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	const char *name = docker ? "manifest.json" : "index.json";
	char *text = NULL;
	size_t n = 0;
	int rc;

	if (load(r->dir, name, &text, &n, e) < 0)
		return -1;
	rc = docker ? img_json_load_array(text, n, IMG_DOC_MAX, &doc, e)
		    : img_json_load(text, n, IMG_DOC_MAX, &doc, e);
	free(text);
	if (rc < 0)
		return err_prefix(e, "%s", name);
	return docker ? read_docker(r, doc, e) : read_oci(r, doc, e);
}

int img_archive_each(int dir, const struct img_platform *want,
		     int (*each)(void *ctx, const struct img_archive_image *image, struct err *e),
		     void *ctx, struct err *e)
{
	struct reader *r;
	int rc;

	if (!has(dir, "manifest.json") && !has(dir, "index.json"))
		return err_set(
			e, ERR_REFUSED,
			has(dir, "repositories")
				? "it is of docker's first format, from before 2016: save the image again with a current tool"
				: "it is no image archive: it has neither index.json nor manifest.json; a root file system is taken by \"cloche import\"");
	r = calloc(1, sizeof(*r)); /* large */
	if (!r)
		return err_sys(e, "the images of the archive");
	*r = (struct reader){ .dir = dir, .want = want, .each = each, .ctx = ctx };
	rc = read_any(r, has(dir, "manifest.json"), e);
	forget(&r->image);
	free(r);
	return rc;
}
