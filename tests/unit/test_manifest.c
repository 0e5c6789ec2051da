/* Manifests, indexes and the choice of a platform: what tools write is read, what is wrong is refused by name. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "image/manifest.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
#define D(n) "sha256:" HEX #n
#define OCI "application/vnd.oci.image."
#define CONF "\"config\":{\"mediaType\":\"" OCI "config.v1+json\",\"digest\":\"" D(1) "\",\"size\":7}"
#define LAYER(type, digest, size) "{\"mediaType\":\"" type "\",\"digest\":\"" digest "\",\"size\":" size "}"
#define GZ OCI "layer.v1.tar+gzip"
#define V "{\"schemaVersion\":2,"
#define MANIFEST(layers) V CONF ",\"layers\":[" layers "]}"
#define PLATFORM(digest, platform) \
	"{\"mediaType\":\"" OCI "manifest.v1+json\",\"digest\":\"" digest "\",\"size\":9,\"platform\":{" platform "}}"
#define P(arch) "\"os\":\"linux\",\"architecture\":\"" arch "\""
#define PV(arch, variant) P(arch) ",\"variant\":\"" variant "\""

static struct img_doc doc;
static struct err e;

static void read_doc(const char *text, const char *type)
{
	ck_assert_msg(img_doc_parse(text, strlen(text), type, &doc, &e) == 0, "%s", e.msg);
}

START_TEST(test_manifests)
{
	read_doc(MANIFEST(LAYER(GZ, D(2), "10") "," LAYER(OCI "layer.v1.tar+zstd", D(3), "34359738368")), IMG_MEDIA_OCI_MANIFEST);
	ck_assert_int_eq(doc.kind, IMG_DOC_MANIFEST);
	ck_assert_str_eq(doc.manifest.config.digest, D(1));
	ck_assert_uint_eq(doc.manifest.config.size, 7);
	ck_assert_uint_eq(doc.manifest.n_layers, 2);
	ck_assert_str_eq(doc.manifest.layers[1].digest, D(3));
	ck_assert_uint_eq(doc.manifest.layers[1].size, IMG_BLOB_MAX);
	/* docker's, with its media types, and fields nobody knows */
	read_doc(V "\"mediaType\":\"" IMG_MEDIA_DOCKER_MANIFEST "\",\"x\":[{}],"
		   "\"config\":{\"mediaType\":\"application/vnd.docker.container.image.v1+json\",\"digest\":\"" D(1) "\",\"size\":0},"
		   "\"layers\":[" LAYER("application/vnd.docker.image.rootfs.diff.tar.gzip", D(2), "1") "]}",
		 IMG_MEDIA_DOCKER_MANIFEST "; charset=utf-8");
	ck_assert_uint_eq(doc.manifest.n_layers, 1);
	/* no layers at all; a server that does not know the type */
	read_doc(V CONF "}", "text/plain");
	ck_assert_uint_eq(doc.manifest.n_layers, 0);
	read_doc(MANIFEST(""), NULL);
}
END_TEST

static const struct {
	const char *text, *says;
} bad[] = {
	{ "", "no valid JSON" },
	{ "[]", "no JSON object" },
	{ "{\"schemaVersion\":2", "no valid JSON" },
	{ MANIFEST("") "x", "no valid JSON" },
	{ V "\"schemaVersion\":2," CONF "}", "no valid JSON: line 1: duplicate" },
	{ V CONF ",\"a\":\"\\u0000\"}", "no valid JSON" },
	{ V CONF ",\"a\":\"\xff\"}", "no valid JSON" },
	{ V CONF ",\"a\":99999999999999999999}", "no valid JSON" },
	{ V CONF ",\"a\":1e999}", "no valid JSON" },
	{ "{" CONF "}", "schemaVersion is missing" },
	{ "{\"schemaVersion\":\"2\"," CONF "}", "schemaVersion is no integer" },
	{ "{\"schemaVersion\":3," CONF "}", "schemaVersion is 3" },
	{ "{\"schemaVersion\":1,\"fsLayers\":[]}", "schema 1" },
	{ V "\"a\":1}", "neither" },
	{ V CONF ",\"manifests\":[]}", "two ways" },
	{ V "\"layers\":[],\"manifests\":[]}", "two ways" },
	{ V "\"mediaType\":\"" IMG_MEDIA_OCI_INDEX "\"," CONF "}", "mediaType is not that" },
	{ V "\"mediaType\":\"" IMG_MEDIA_OCI_MANIFEST "\",\"manifests\":[]}", "mediaType is not that" },
	{ V "\"mediaType\":\"text/html\"," CONF "}", "text/html" },
	{ V "\"mediaType\":7," CONF "}", "mediaType is no string" },
	{ V "\"layers\":[]}", "config is missing" },
	{ V "\"config\":[]}", "config is no object" },
	{ V "\"config\":{\"mediaType\":\"application/vnd.cncf.helm.config.v1+json\",\"digest\":\"" D(1) "\",\"size\":1}}", "helm" },
	{ V "\"config\":" LAYER(GZ, D(1), "1") "}", "config.mediaType" },
	{ V "\"config\":" LAYER(OCI "config.v1+json", D(1), "4194305") "}", "config.size is out of range" },
	{ V CONF ",\"layers\":{}}", "layers is no array" },
	{ MANIFEST("7"), "layers[0] is no object" },
	{ MANIFEST(LAYER(GZ, D(1), "1") ",{}"), "layers[1].size is missing" },
	{ MANIFEST(LAYER(GZ, D(1), "-1")), "layers[0].size is out of range" },
	{ MANIFEST(LAYER(GZ, D(1), "1.0")), "layers[0].size is no integer" },
	{ MANIFEST(LAYER(GZ, D(1), "34359738369")), "layers[0].size is out of range" },
	{ MANIFEST(LAYER(GZ, "sha256:12", "1")), "64 digits" },
	{ MANIFEST(LAYER(GZ, "sha512:" HEX HEX "00", "1")), "only sha256" },
	{ MANIFEST(LAYER(GZ, "../../x", "1")), "only sha256" },
	{ MANIFEST(LAYER(GZ, "", "1")), "only sha256" },
	{ MANIFEST(LAYER(OCI "config.v1+json", D(1), "1")), "layers[0].mediaType is not that of a layer" },
	{ MANIFEST(LAYER("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", D(1), "1")), "foreign" },
	{ MANIFEST(LAYER("application/x\\u001b[2J", D(1), "1")), "control" },
	{ V "\"manifests\":[7]}", "manifests[0] is no object" },
	{ V "\"manifests\":{}}", "manifests is no array" },
	{ V "\"manifests\":[" PLATFORM(D(1), "\"os\":7") "]}", "manifests[0].platform.os is no string" },
	{ V "\"manifests\":[" PLATFORM(D(1), "\"os\":\"abcdefghijklmnopqrstuvwxyz0123456789\"") "]}", "too long" },
};

START_TEST(test_bad)
{
	memset(&doc, 0x5a, sizeof(doc));
	assert_refused(img_doc_parse(bad[_i].text, strlen(bad[_i].text), NULL, &doc, &e), &e, ERR_REFUSED);
	ck_assert_msg(strstr(e.msg, bad[_i].says) != NULL, "%s: %s", bad[_i].text, e.msg);
	ck_assert_ptr_null(strchr(e.msg, '\033'));
	for (size_t i = 0; i < sizeof(doc); i++)
		ck_assert_int_eq(((unsigned char *)&doc)[i], 0x5a);
}
END_TEST

START_TEST(test_content_type_of_the_other_kind)
{
	assert_refused(img_doc_parse(MANIFEST(""), strlen(MANIFEST("")), IMG_MEDIA_OCI_INDEX, &doc, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "the content type is not"));
}
END_TEST

/* Depth, size and number of layers: the bound is met, one more is refused. */
START_TEST(test_bounds)
{
	size_t cap = IMG_DOC_MAX + 4096, n = 0;
	char *text = malloc(cap);

	for (int more = 0; more < 2; more++) {
		n = (size_t)snprintf(text, cap, "%s%s,\"layers\":[", V, CONF);
		for (int i = 0; i < IMG_LAYERS_MAX + more; i++)
			n += (size_t)snprintf(text + n, cap - n, "%s" LAYER(GZ, D(2), "1"), i ? "," : "");
		n += (size_t)snprintf(text + n, cap - n, "]}");
		ck_assert_int_eq(img_doc_parse(text, n, NULL, &doc, &e), -more);
	}
	ck_assert_ptr_nonnull(strstr(e.msg, "513 elements"));
	n = (size_t)snprintf(text, cap, "%s", MANIFEST(""));
	memset(text + n, ' ', cap - n);
	ck_assert_int_eq(img_doc_parse(text, IMG_DOC_MAX, NULL, &doc, &e), 0);
	assert_refused(img_doc_parse(text, IMG_DOC_MAX + 1, NULL, &doc, &e), &e, ERR_REFUSED);
	n = (size_t)snprintf(text, cap, "%s%s,\"a\":", V, CONF);
	memset(text + n, '[', 1 << 20);
	assert_refused(img_doc_parse(text, n + (1 << 20), NULL, &doc, &e), &e, ERR_REFUSED);
	free(text);
}
END_TEST

static const char *const many = V "\"mediaType\":\"" IMG_MEDIA_OCI_INDEX "\",\"manifests\":["
	PLATFORM(D(1), P("amd64")) "," PLATFORM(D(2), PV("amd64", "v3")) "," PLATFORM(D(3), PV("arm64", "v8")) ","
	PLATFORM(D(4), PV("arm", "v6")) "," PLATFORM(D(5), PV("arm", "v7")) "," PLATFORM(D(6), "\"os\":\"windows\",\"architecture\":\"amd64\"") ","
	PLATFORM(D(7), "\"os\":\"unknown\",\"architecture\":\"unknown\"") "," PLATFORM(D(8), P("amd64")) ","
	"{\"mediaType\":\"application/x-signature\",\"digest\":\"odd\",\"size\":-1},"
	"{\"mediaType\":\"" IMG_MEDIA_DOCKER_MANIFEST "\",\"digest\":\"" D(9) "\",\"size\":9}]}";

static const struct {
	const char *want, *digest;
} choices[] = {
	{ "linux/amd64", D(1) }, { "x86_64", D(1) }, { "amd64/v1", NULL }, { "linux/amd64/v1", D(1) }, { "linux/amd64/v3", D(2) },
	{ "linux/amd64/v2", "" }, { "arm64", D(3) }, { "aarch64", D(3) }, { "linux/arm64/v8", D(3) }, { "linux/arm64/v9", "" },
	{ "linux/arm/v6", D(4) }, { "linux/arm", D(5) }, { "linux/arm/v5", "" }, { "linux/s390x", "" },
	{ "windows/amd64", NULL }, { "", NULL }, { "linux/", NULL }, { "/amd64", NULL }, { "linux/amd64/v1/x", NULL }, { "linux/AMD64", NULL },
	{ "linux/amd64\033[1m", NULL }, { "linux//v1", NULL }, { "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", NULL },
};

START_TEST(test_choice)
{
	const struct img_index_entry *entry = NULL;
	struct img_platform want;

	read_doc(many, NULL);
	ck_assert_uint_eq(doc.index.n, 9);
	if (!choices[_i].digest) {
		assert_refused(img_platform_parse(choices[_i].want, &want, &e), &e, ERR_USAGE);
		ck_assert_ptr_null(strchr(e.msg, '\033'));
		return;
	}
	ck_assert_int_eq(img_platform_parse(choices[_i].want, &want, &e), 0);
	if (*choices[_i].digest) {
		ck_assert_msg(img_index_choose(&doc.index, &want, &entry, &e) == 0, "%s", e.msg);
		ck_assert_str_eq(entry->manifest.digest, choices[_i].digest);
		return;
	}
	assert_refused(img_index_choose(&doc.index, &want, &entry, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "the index has linux/amd64, linux/amd64/v3, linux/arm64, linux/arm/v6, linux/arm/v7, windows/amd64"));
	ck_assert_ptr_null(strstr(e.msg, "unknown"));
	ck_assert_ptr_null(entry);
}
END_TEST

/* A long list is cut, an empty one is said, hostile text is made printable. */
START_TEST(test_lists)
{
	const struct img_index_entry *entry;
	struct img_platform want;
	char text[65536];
	size_t n = (size_t)snprintf(text, sizeof(text), V "\"manifests\":[");

	ck_assert_int_eq(img_platform_host(&want, &e), 0);
	for (int i = 0; i < 100; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
				       "%s" PLATFORM(D(1), "\"os\":\"linux\",\"architecture\":\"cpu-%d-abcdefgh\""), i ? "," : "", i);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "]}");
	read_doc(text, NULL);
	assert_refused(img_index_choose(&doc.index, &want, &entry, &e), &e, ERR_REFUSED);
	ck_assert_str_eq(e.msg + strlen(e.msg) - 5, ", ...");
	read_doc(V "\"manifests\":[]}", NULL);
	assert_refused(img_index_choose(&doc.index, &want, &entry, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "no image at all"));
	read_doc(V "\"manifests\":[" PLATFORM(D(1), P("\\u202e\\u009b2J")) "]}", NULL);
	assert_refused(img_index_choose(&doc.index, &want, &entry, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "linux/??2J"));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, test_manifests);
	tcase_add_loop_test(tc, test_bad, 0, sizeof(bad) / sizeof(*bad));
	tcase_add_test(tc, test_content_type_of_the_other_kind);
	tcase_add_test(tc, test_bounds);
	tcase_add_loop_test(tc, test_choice, 0, sizeof(choices) / sizeof(*choices));
	tcase_add_test(tc, test_lists);
}

int main(void)
{
	return unit_main("manifest", fill);
}
