/* `cloche images`: what the store has, a line a name. An image without a name, which the next
 * `cloche prune` removes, is shown as well, and so is one of which a part is gone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/image_list.h"
#include "cli/verbs.h"
#include "engine/images.h"

#define OUT_MAX (64u << 20)

enum images_opt { IMAGES_JSON };

/* A line of the list. */
struct row {
	struct img_name name; /* ref "": an image without a name */
	struct img_platform platform;
	int64_t created;
	uint64_t bytes;
	size_t layers;
	char missing[sizeof(((struct err *)0)->msg)]; /* "" when it is whole */
};

struct list {
	const struct img_store *s;
	struct row *v;
	size_t n, cap;
};

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	*(bool *)ctx = true;
	return 0;
}

static int add(struct list *l, const struct img_name *name, struct err *e)
{
	struct img_record r = { 0 };
	struct row *row;

	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 32;
		struct row *v = reallocarray(l->v, cap, sizeof(*v));

		if (!v)
			return err_sys(e, "the list of images");
		l->v = v;
		l->cap = cap;
	}
	row = &l->v[l->n];
	*row = (struct row){ .name = *name };
	if (!*name->id) {
		snprintf(row->missing, sizeof(row->missing), "%s",
			 name->newer ? "of a later version of cloche"
				     : "incomplete: its name can't be read");
	} else if (img_store_find_id(l->s, name->id, &r, e) == 0) {
		row->platform = r.platform;
		row->created = r.created;
		row->layers = r.n_layers;
		row->bytes = image_bytes(&r);
		img_record_free(&r);
	} else if (e->kind == ERR_MISSING) {
		memcpy(row->missing, e->msg, sizeof(row->missing));
	} else {
		return -1;
	}
	l->n++;
	return 0;
}

static int on_name(void *ctx, const struct img_name *name, struct err *e)
{
	return add(ctx, name, e);
}

static int on_id(void *ctx, const char *id, struct err *e)
{
	struct img_name name = { 0 };
	struct list *l = ctx;

	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->v[i].name.id, id))
			return 0;
	snprintf(name.id, sizeof(name.id), "%s", id);
	return add(l, &name, e);
}

static void text(const struct list *l, struct buf *out)
{
	size_t width = strlen("IMAGE");

	for (size_t i = 0; i < l->n; i++)
		if (strlen(l->v[i].name.ref) > width)
			width = strlen(l->v[i].name.ref);
	if (l->n == 0)
		buf_str(out, "no images: get one with \"cloche pull IMAGE\"\n");
	else
		buf_fmt(out, "%-*s  %-12s  %-10s  %6s  %10s\n", (int)width, "IMAGE", "ID",
			"CREATED", "LAYERS", "SIZE");
	for (size_t i = 0; i < l->n; i++) {
		const struct row *r = &l->v[i];
		char size[IMAGE_SIZE_TEXT], when[IMAGE_TIME_TEXT];
		const char *hex = strchr(r->name.id, ':');

		buf_fmt(out, "%-*s  %-12.12s  ", (int)width, *r->name.ref ? r->name.ref : "-",
			hex ? hex + 1 : "-");
		if (*r->missing)
			buf_fmt(out, "%s\n", r->missing);
		else
			buf_fmt(out, "%-10.10s  %6zu  %10s\n",
				r->created > 0 ? image_time_text(r->created, when) : "-", r->layers,
				image_size_text(r->bytes, size));
	}
}

static void platform(struct json *j, const struct img_platform *p)
{
	char all[IMG_PLATFORM_TEXT];

	json_kstr(j, "platform", *p->os ? img_platform_text(p, all) : NULL);
}

static void as_json(const struct list *l, struct buf *out)
{
	struct json j;

	json_init(&j, out);
	json_arr(&j);
	for (size_t i = 0; i < l->n; i++) {
		const struct row *r = &l->v[i];
		bool whole = !*r->missing;

		json_obj(&j);
		image_str_json(&j, "name", r->name.ref);
		image_str_json(&j, "id", r->name.id);
		image_str_json(&j, "manifest", r->name.manifest);
		platform(&j, &r->platform);
		image_time_json(&j, "created", r->created);
		image_time_json(&j, "added", r->name.when);
		json_ku64(&j, "layers", whole ? r->layers : UINT64_MAX);
		json_ku64(&j, "bytes", whole ? r->bytes : UINT64_MAX);
		json_kbool(&j, "complete", whole);
		image_str_json(&j, "missing", r->missing);
		json_obj_end(&j);
	}
	json_arr_end(&j);
	buf_str(out, "\n");
}

static int run(int argc, char **argv)
{
	_cleanup_img_store_ struct img_store s = IMG_STORE_NONE;
	_cleanup_buf_ struct buf out = { 0 };
	struct list l = { .s = &s };
	bool json = false;
	struct err e;
	int rest, rc;

	buf_init(&out, OUT_MAX);
	rc = cli_parse(&cli_images_verb, argc, argv, on_option, &json, &rest);
	if (rc >= 0)
		return rc;
	if (rest < argc) {
		err_set(&e, ERR_USAGE, "takes no operand, and \"%.100s\" was given", argv[rest]);
		return cli_fail("images", &e);
	}
	if (images_open(false, &s, &e) < 0 && e.kind != ERR_MISSING)
		return cli_fail("images", &e);
	if (s.fd >= 0 && (img_store_each_name(&s, on_name, &l, &e) < 0 ||
			  img_store_each_id(&s, on_id, &l, &e) < 0))
		rc = cli_fail("images", &e);
	if (rc < 0) {
		json ? as_json(&l, &out) : text(&l, &out);
		rc = cli_put(1, &out);
	}
	free(l.v);
	return rc;
}

static const struct opt_row rows[] = {
	{ .name = "json",
	  .type = OPT_FLAG,
	  .group = "Output",
	  .help = "print a JSON array",
	  .since = "0.2.0",
	  .id = IMAGES_JSON },
};

static const char *const examples[] = { "cloche images", "cloche images --json", NULL };

const struct opt_verb cli_images_verb = {
	.name = "images",
	.summary = "List the images of the store",
	.operands = "",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.examples = examples,
	.run = run,
};
