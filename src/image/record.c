/* The record as text: a table of its plain fields, and the lists.
 *
 * What is written is read again before it counts: a record that could not be read would be found
 * out by the run that needs it. */
#include "image/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/sha256.h"
#include "image/text.h"

void img_record_free(struct img_record *r)
{
	img_words_free(&r->env);
	img_words_free(&r->entrypoint);
	img_words_free(&r->cmd);
	img_words_free(&r->volumes);
	*r = (struct img_record){ 0 };
}

int img_layer_name(char kind, const char *id, char ret[IMG_LAYER_NAME], struct err *e)
{
	if (!kind || !strchr(IMG_LAYER_KINDS, kind))
		return err_set(e, ERR_REFUSED, "there is no such kind of layer");
	if (img_digest_check(id, e) < 0) {
		e->kind = ERR_REFUSED;
		return -1;
	}
	snprintf(ret, IMG_LAYER_NAME, "%c%.20s", kind, strchr(id, ':') + 1);
	return 0;
}

/* Plain fields: key, place, room, and whether they have to be there. */
#define FIELD(k, member, must)                                                                     \
	{                                                                                          \
		k, offsetof(struct img_record, member), sizeof(((struct img_record *)0)->member),  \
			must                                                                       \
	}
static const struct {
	const char *key;
	size_t at, cap;
	bool must;
} fields[] = {
	FIELD("id", id, true),
	FIELD("manifest", manifest, false),
	FIELD("os", platform.os, true),
	FIELD("arch", platform.arch, true),
	FIELD("variant", platform.variant, false),
	FIELD("workdir", workdir, false),
	FIELD("user", user, false),
};
#define N_FIELDS (sizeof(fields) / sizeof(*fields))

static const struct {
	const char *key;
	size_t at;
} lists[] = {
	{ "env", offsetof(struct img_record, env) },
	{ "entrypoint", offsetof(struct img_record, entrypoint) },
	{ "cmd", offsetof(struct img_record, cmd) },
	{ "volume", offsetof(struct img_record, volumes) },
};
#define N_LISTS (sizeof(lists) / sizeof(*lists))

static void write_lists(const struct img_record *r, struct buf *out)
{
	for (size_t i = 0; i < N_LISTS; i++) {
		const struct img_words *w =
			(const struct img_words *)(const void *)((const char *)r + lists[i].at);

		if (w->v)
			img_line(out, lists[i].key, NULL);
		for (size_t k = 0; w->v && k < w->n; k++)
			img_line(out, lists[i].key, w->v[k]);
	}
}

int img_record_write(const struct img_record *r, struct buf *out, struct err *e)
{
	struct img_record again = { 0 };
	size_t from = out->len;

	img_line(out, "format", "1");
	for (size_t i = 0; i < N_FIELDS; i++)
		if (*((const char *)r + fields[i].at))
			img_line(out, fields[i].key, (const char *)r + fields[i].at);
	if (r->created > 0)
		img_line_u64(out, "created", (uint64_t)r->created);
	if (r->stop_signal > 0)
		img_line_u64(out, "stop_signal", (uint64_t)r->stop_signal);
	if (r->host)
		img_line(out, "root", "host");
	for (size_t i = 0; i < r->n_layers && i < IMG_STACK_MAX; i++)
		buf_fmt(out, "layer %s %s %llu\n", r->layers[i].name, r->layers[i].id,
			(unsigned long long)r->layers[i].bytes);
	write_lists(r, out);
	if (out->failed)
		return err_set(e, ERR_REFUSED, "the image's record has more than %u bytes",
			       IMG_RECORD_MAX);
	if (img_record_read(out->data + from, out->len - from, &again, e) < 0)
		return -1;
	img_record_free(&again);
	return 0;
}

static int read_layer(struct img_record *r, char *value, struct err *e)
{
	struct img_record_layer *l;
	char name[IMG_LAYER_NAME];
	char *id = value ? strchr(value, ' ') : NULL, *bytes = id ? strchr(id + 1, ' ') : NULL;

	if (!bytes)
		return err_set(e, ERR_REFUSED, "layer: it lacks a part");
	*id++ = '\0';
	*bytes++ = '\0';
	if (r->n_layers >= IMG_STACK_MAX)
		return err_set(e, ERR_REFUSED, "it has more than %d layers", IMG_STACK_MAX);
	if (img_layer_name(*value, id, name, e) < 0)
		return err_prefix(e, "layer");
	if (strcmp(name, value) != 0)
		return err_set(e, ERR_REFUSED, "layer: its name and its id differ");
	l = &r->layers[r->n_layers];
	if (img_line_number("layer", bytes, UINT64_MAX, &l->bytes, e) < 0)
		return -1;
	memcpy(l->name, name, sizeof(l->name));
	memcpy(l->id, id, sizeof(l->id));
	r->n_layers++;
	return 0;
}

/* A key that is no plain field. */
static int read_other(struct img_record *r, const char *key, char *value, struct err *e)
{
	uint64_t n;

	for (size_t i = 0; i < N_LISTS; i++) {
		struct img_words *w = (struct img_words *)(void *)((char *)r + lists[i].at);

		if (strcmp(key, lists[i].key) != 0)
			continue;
		if (value ? img_words_add(w, value, strlen(value), e) < 0 : img_words_be(w, e) < 0)
			return err_prefix(e, "%s", key);
		return 0;
	}
	if (!strcmp(key, "layer"))
		return read_layer(r, value, e);
	if (!strcmp(key, "root")) { /* nothing else than what is known may be run by mistake */
		if (!value || strcmp(value, "host") != 0)
			return err_set(e, ERR_REFUSED, "root: there is none but host");
		r->host = true;
	}
	if (!strcmp(key, "created")) {
		if (img_line_number(key, value, INT64_MAX, &n, e) < 0)
			return -1;
		r->created = (int64_t)n;
	}
	if (!strcmp(key, "stop_signal")) {
		if (img_line_number(key, value, 64, &n, e) < 0)
			return -1;
		r->stop_signal = (int)n;
	}
	return 0;
}

static int read_line(struct img_record *r, const char *key, char *value, struct err *e)
{
	for (size_t i = 0; i < N_FIELDS; i++) {
		char *field = (char *)r + fields[i].at;

		if (strcmp(key, fields[i].key) != 0)
			continue;
		if (*field)
			return err_set(e, ERR_REFUSED, "%s: it stands there twice", key);
		return img_line_copy(key, value, field, fields[i].cap, e);
	}
	return read_other(r, key, value, e);
}

static bool normalised(const char *path)
{
	char same[4096];
	struct err e;

	return path_normalise(path, same, &e) == 0 && !strcmp(path, same);
}

static int check(const struct img_record *r, struct err *e)
{
	for (size_t i = 0; i < N_FIELDS; i++)
		if (fields[i].must && !*((const char *)r + fields[i].at))
			return err_set(e, ERR_REFUSED, "%s: it is missing", fields[i].key);
	if (img_digest_check(r->id, e) < 0 ||
	    (*r->manifest && img_digest_check(r->manifest, e) < 0)) {
		e->kind = ERR_REFUSED;
		return -1;
	}
	if (*r->workdir && !normalised(r->workdir))
		return err_set(e, ERR_REFUSED, "workdir: it is not absolute and normalised");
	for (size_t i = 0; i < r->env.n; i++)
		if (!strchr(r->env.v[i], '=') || *r->env.v[i] == '=')
			return err_set(e, ERR_REFUSED, "env: one is not NAME=VALUE");
	for (size_t i = 0; i < r->volumes.n; i++)
		if (!normalised(r->volumes.v[i]))
			return err_set(e, ERR_REFUSED,
				       "volume: one is not absolute and normalised");
	return 0;
}

static int read_text(char *at, char *end, struct img_record *r, struct err *e)
{
	const char *key;
	char *value;
	int n;

	if (img_line_format(&at, end, e) < 0)
		return -1;
	while ((n = img_line_next(&at, end, &key, &value, e)) > 0)
		if (read_line(r, key, value, e) < 0)
			return -1;
	return n < 0 ? -1 : check(r, e);
}

int img_record_read(const char *text, size_t n, struct img_record *ret, struct err *e)
{
	struct img_record r = { 0 };
	char *copy;
	int rc;

	if (n > IMG_RECORD_MAX)
		return err_set(e, ERR_REFUSED, "the image's record has more than %u bytes",
			       IMG_RECORD_MAX);
	copy = malloc(n + 1);
	if (!copy)
		return err_sys(e, "the image's record");
	memcpy(copy, text, n);
	copy[n] = '\0';
	rc = read_text(copy, copy + n, &r, e);
	free(copy);
	if (rc < 0) {
		img_record_free(&r);
		return err_prefix(e, "the image's record");
	}
	*ret = r;
	return 0;
}

void img_bytecode_key(const struct img_record *r, char ret[IMG_DIGEST_LEN + 1])
{
	char hex[SHA256_HEX + 1], text[128 + IMG_DIGEST_LEN];
	int n = snprintf(text, sizeof(text), "cloche bytecode 1%c%s%c", 0, r->id, 0);

	sha256_hex(text, (size_t)n, hex);
	snprintf(ret, IMG_DIGEST_LEN + 1, "sha256:%s", hex);
}
