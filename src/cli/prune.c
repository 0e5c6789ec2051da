/* `cloche prune`: removes what nobody needs from the store of images: images without a name, layers
 * without an image, what killed cloches were making, and downloads that were not finished. */
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"
#include "cli/image_list.h"
#include "cli/verbs.h"
#include "engine/images.h"

#define OUT_MAX (1u << 20)

enum prune_opt { PRUNE_JSON };

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	*(bool *)ctx = true;
	return 0;
}

static void as_json(const struct img_gc_done *d, struct buf *out)
{
	struct json j;

	json_init(&j, out);
	json_obj(&j);
	json_ku64(&j, "images", d->images);
	json_ku64(&j, "layers", d->layers);
	json_ku64(&j, "drafts", d->drafts);
	json_ku64(&j, "downloads", d->parts);
	json_ku64(&j, "bytes", d->bytes);
	json_ku64(&j, "layers_in_use", d->held);
	json_obj_end(&j);
	buf_str(out, "\n");
}

static void text(const struct img_gc_done *d, struct buf *out)
{
	const struct {
		unsigned n;
		const char *one, *many;
	} rows[] = {
		{ d->images, "image without a name", "images without a name" },
		{ d->layers, "layer", "layers" },
		{ d->drafts, "draft of a cloche that is gone", "drafts of cloches that are gone" },
		{ d->parts, "unfinished download", "unfinished downloads" },
	};
	char size[IMAGE_SIZE_TEXT];
	bool any = false;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		any |= rows[i].n > 0;
		if (rows[i].n > 0)
			buf_fmt(out, "removed %u %s\n", rows[i].n,
				rows[i].n == 1 ? rows[i].one : rows[i].many);
	}
	if (any)
		buf_fmt(out, "freed %s\n", image_size_text(d->bytes, size));
	else
		buf_str(out, "nothing to remove\n");
	if (d->held > 0)
		buf_fmt(out, "%u unused layer%s still held by a running cloche\n", d->held,
			d->held == 1 ? " is" : "s are");
}

static int run(int argc, char **argv)
{
	_cleanup_img_store_ struct img_store s = IMG_STORE_NONE;
	struct img_gc_done done = { 0 };
	_cleanup_buf_ struct buf out = { 0 };
	bool json = false;
	struct err e;
	int rest, rc;

	buf_init(&out, OUT_MAX);
	rc = cli_parse(&cli_prune_verb, argc, argv, on_option, &json, &rest);
	if (rc >= 0)
		return rc;
	if (rest < argc) {
		err_set(&e, ERR_USAGE, "takes no operand, and \"%.100s\" was given", argv[rest]);
		return cli_fail("prune", &e);
	}
	if ((images_open(false, &s, &e) < 0 && e.kind != ERR_MISSING) ||
	    img_store_gc(&s, IMG_GC_ALL, &done, &e) < 0)
		return cli_fail("prune", &e);
	json ? as_json(&done, &out) : text(&done, &out);
	return cli_put(STDOUT_FILENO, &out);
}

static const struct opt_row rows[] = {
	{ .name = "json",
	  .type = OPT_FLAG,
	  .group = "Output",
	  .help = "print one JSON object",
	  .since = "0.2.0",
	  .id = PRUNE_JSON },
};

static const char *const examples[] = { "cloche prune", NULL };

const struct opt_verb cli_prune_verb = {
	.name = "prune",
	.summary = "Remove from the store what no image needs",
	.operands = "",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.examples = examples,
	.run = run,
};
