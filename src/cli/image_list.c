#include "cli/image_list.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define ID_MIN 12 /* digits of an id that name an image */

struct search {
	const char *hex;
	size_t n;
	unsigned found;
	struct image_named *ret;
};

static int match(void *ctx, const char *id, struct err *e)
{
	struct search *f = ctx;

	if (strncmp(strchr(id, ':') + 1, f->hex, f->n) != 0)
		return 0;
	f->found++;
	memcpy(f->ret->id, id, strlen(id) + 1);
	return 0;
}

static bool is_id(const char *text, const char **ret_hex)
{
	static const char sha256[] = "sha256:";
	const char *hex = strncmp(text, sha256, strlen(sha256)) ? text : text + strlen(sha256);
	size_t n = strspn(hex, "0123456789abcdef");

	*ret_hex = hex;
	return n >= ID_MIN && n <= 64 && !hex[n];
}

static int by_id(const struct img_store *s, const char *text, const char *hex,
		 struct image_named *ret, struct err *e)
{
	struct image_named named = { .by_id = true };
	struct search f = { hex, strlen(hex), 0, &named };

	if (s->fd >= 0 && img_store_each_id(s, match, &f, e) < 0)
		return -1;
	if (f.found == 0)
		return err_set(e, ERR_MISSING, "image %s is not in the store", text);
	if (f.found > 1)
		return err_set(e, ERR_USAGE,
			       "%s is the beginning of %u images' ids: write more of it", text,
			       f.found);
	*ret = named;
	return 0;
}

int image_named(const struct img_store *s, const char *text, struct image_named *ret, struct err *e)
{
	struct image_named named = { 0 };
	struct img_name name;
	const char *hex;
	bool id = is_id(text, &hex);

	if (img_ref_parse(text, &named.ref, e) < 0) {
		if (!id)
			return -1;
		return by_id(s, text, hex, ret, e);
	}
	if (named.ref.kind == IMG_REF_HOST)
		return err_set(e, ERR_USAGE,
			       "host: this is the machine's own /usr, and not in the store");
	if (s->fd < 0)
		err_set(e, ERR_MISSING, "image %s is not in the store", text);
	else if (img_name_get(s, &named.ref, &name, e) == 0) {
		memcpy(named.id, name.id, sizeof(named.id));
		memcpy(named.manifest, name.manifest, sizeof(named.manifest));
		*ret = named;
		return 0;
	}
	return e->kind == ERR_MISSING && id ? by_id(s, text, hex, ret, e) : -1;
}

const char *image_size_text(uint64_t bytes, char ret[IMAGE_SIZE_TEXT])
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	double v = (double)bytes;
	size_t i = 0;

	for (; v >= 1024 && i + 1 < sizeof(units) / sizeof(*units); i++)
		v /= 1024;
	snprintf(ret, IMAGE_SIZE_TEXT, i == 0 ? "%.0f %s" : "%.1f %s", v, units[i]);
	return ret;
}

const char *image_time_text(int64_t seconds, char ret[IMAGE_TIME_TEXT])
{
	time_t t = (time_t)seconds;
	struct tm tm;

	ret[0] = '\0';
	if (seconds > 0 && gmtime_r(&t, &tm))
		strftime(ret, IMAGE_TIME_TEXT, "%Y-%m-%dT%H:%M:%SZ", &tm);
	return ret;
}

void image_str_json(struct json *j, const char *key, const char *s)
{
	json_kstr(j, key, *s ? s : NULL);
}

void image_time_json(struct json *j, const char *key, int64_t seconds)
{
	char text[IMAGE_TIME_TEXT];

	image_str_json(j, key, image_time_text(seconds, text));
}

uint64_t image_bytes(const struct img_record *r)
{
	uint64_t all = 0;

	for (size_t i = 0; i < r->n_layers; i++)
		all += r->layers[i].bytes;
	return all;
}
