/* `cloche inspect`: one image of the store as a JSON object: what it is, what it runs, and the
 * layers that it is made of with what was left out of them. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/image_list.h"
#include "cli/verbs.h"
#include "engine/images.h"

#define OUT_MAX (64u << 20)

struct inspected {
	const struct img_store *s;
	struct image_named named;
	struct img_record r;
	struct json j;
};

static int none(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	return 0;
}

static int name_of(void *ctx, const struct img_name *name, struct err *e)
{
	struct inspected *i = ctx;

	if (!strcmp(name->id, i->named.id))
		json_str(&i->j, name->ref);
	return 0;
}

static void words(struct json *j, const char *key, const struct img_words *w)
{
	json_key(j, key);
	if (!w->v) {
		json_nil(j);
		return;
	}
	json_arr(j);
	for (size_t i = 0; i < w->n; i++)
		json_bytes(j, w->v[i], strlen(w->v[i]));
	json_arr_end(j);
}

static void config(struct json *j, const struct img_record *r)
{
	json_key(j, "config");
	json_obj(j);
	words(j, "env", &r->env);
	words(j, "entrypoint", &r->entrypoint);
	words(j, "cmd", &r->cmd);
	image_str_json(j, "working_dir", r->workdir);
	image_str_json(j, "user", r->user);
	json_ku64(j, "stop_signal", r->stop_signal ? (uint64_t)r->stop_signal : UINT64_MAX);
	words(j, "volumes", &r->volumes);
	json_obj_end(j);
}

static const char *kind(char letter)
{
	switch (letter) {
	case 'd':
		return "diff_id";
	case 'c':
		return "chain_id";
	case 's':
		return "setup";
	}
	return "merged";
}

static int layer(struct inspected *i, const struct img_record_layer *l, struct err *e)
{
	struct img_layer_info info = { 0 };
	const struct img_unpacked *d = &info.done;
	struct json *j = &i->j;

	if (img_layer_info(i->s, l->name, &info, e) < 0)
		return -1;
	json_obj(j);
	json_kstr(j, "name", l->name);
	json_kstr(j, kind(l->name[0]), l->id);
	json_ku64(j, "bytes", d->bytes);
	json_ku64(j, "entries", d->entries);
	json_ku64(j, "whiteouts", d->whiteouts);
	json_key(j, "left_out");
	json_obj(j);
	json_ku64(j, "devices", d->devices);
	json_ku64(j, "set_ids", d->set_ids);
	json_ku64(j, "xattrs", d->xattrs);
	json_obj_end(j);
	json_obj_end(j);
	return 0;
}

static int show(struct inspected *i, struct buf *out, struct err *e)
{
	const struct img_record *r = &i->r;
	struct json *j = &i->j;

	json_init(j, out);
	json_obj(j);
	json_kstr(j, "id", r->id);
	json_key(j, "names");
	json_arr(j);
	if (img_store_each_name(i->s, name_of, i, e) < 0)
		return -1;
	json_arr_end(j);
	image_str_json(j, "manifest", *i->named.manifest ? i->named.manifest : r->manifest);
	json_kstr(j, "os", r->platform.os);
	json_kstr(j, "architecture", r->platform.arch);
	image_str_json(j, "variant", r->platform.variant);
	image_time_json(j, "created", r->created);
	json_ku64(j, "bytes", image_bytes(r));
	json_key(j, "layers"); /* lowest first */
	json_arr(j);
	for (size_t n = 0; n < r->n_layers; n++)
		if (layer(i, &r->layers[n], e) < 0)
			return -1;
	json_arr_end(j);
	config(j, r);
	json_obj_end(j);
	buf_str(out, "\n");
	return 0;
}

static int run(int argc, char **argv)
{
	_cleanup_img_store_ struct img_store s = IMG_STORE_NONE;
	struct inspected i = { .s = &s };
	_cleanup_buf_ struct buf out = { 0 };
	struct err e;
	int rest, rc;

	buf_init(&out, OUT_MAX);
	rc = cli_parse(&cli_inspect_verb, argc, argv, none, NULL, &rest);
	if (rc >= 0)
		return rc;
	if (rest + 1 != argc) {
		err_set(&e, ERR_USAGE, "takes one image, and %d are given", argc - rest);
		return cli_fail("inspect", &e);
	}
	if (images_open(false, &s, &e) < 0 && e.kind != ERR_MISSING)
		return cli_fail("inspect", &e);
	if (image_named(&s, argv[rest], &i.named, &e) < 0)
		return cli_fail("inspect", &e);
	if (img_store_find_id(&s, i.named.id, &i.r, &e) < 0) {
		err_prefix(&e, "image %s", argv[rest]);
		return cli_fail("inspect", &e);
	}
	rc = show(&i, &out, &e) < 0 ? cli_fail("inspect", &e) : cli_put(STDOUT_FILENO, &out);
	img_record_free(&i.r);
	return rc;
}

static const char *const examples[] = { "cloche inspect python:3.12-slim", NULL };

const struct opt_verb cli_inspect_verb = {
	.name = "inspect",
	.summary = "Show an image of the store as JSON",
	.operands = "IMAGE",
	.examples = examples,
	.run = run,
};
