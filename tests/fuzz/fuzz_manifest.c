/* Manifests, indexes and configs of a hostile registry. The first byte chooses the reader; what is taken keeps the promises of the headers, what
 * is refused says one printable line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void refused(const struct err *e)
{
	must(e->kind == ERR_REFUSED && e->msg[0]);
	for (const char *s = e->msg; *s; s++)
		must((unsigned char)*s >= 0x20 && *s != 0x7f);
}

static void doc(const char *text, size_t n)
{
	static struct img_doc d;
	const struct img_index_entry *entry;
	struct img_platform want = { "linux", "amd64", "" };
	struct err e = { 0 };

	if (img_doc_parse(text, n, NULL, &d, &e) < 0) {
		refused(&e);
	} else if (d.kind == IMG_DOC_MANIFEST) {
		must(d.manifest.n_layers <= IMG_LAYERS_MAX && img_digest_check(d.manifest.config.digest, &e) == 0);
		for (size_t i = 0; i < d.manifest.n_layers; i++)
			must(img_digest_check(d.manifest.layers[i].digest, &e) == 0 && d.manifest.layers[i].size <= IMG_BLOB_MAX);
	} else if (img_index_choose(&d.index, &want, &entry, &e) < 0) {
		refused(&e);
	} else {
		must(img_platform_equal(&entry->platform, &want) && img_digest_check(entry->manifest.digest, &e) == 0);
	}
}

static void config(const char *text, size_t n)
{
	static struct img_config c;
	struct err e = { 0 };

	if (img_config_parse(text, n, &c, &e) < 0) {
		refused(&e);
		return;
	}
	for (size_t i = 0; i < c.env.n; i++)
		must(strchr(c.env.v[i], '=') > c.env.v[i]);
	for (size_t i = 0; i < c.volumes.n; i++)
		must(c.volumes.v[i][0] == '/' && !strstr(c.volumes.v[i], "/../"));
	must(!c.workdir[0] || c.workdir[0] == '/');
	must(c.stop_signal >= 0 && c.stop_signal <= 64 && c.n_diff_ids <= IMG_LAYERS_MAX);
	img_config_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0 || size > 65536 || !(text = malloc(size)))
		return 0;
	memcpy(text, data + 1, size - 1);
	(data[0] & 1 ? config : doc)(text, size - 1);
	free(text);
	return 0;
}
