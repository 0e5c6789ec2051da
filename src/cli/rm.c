/* `cloche rm`: takes names away, and removes what no other name leads to. What a box runs on stays
 * until it has ended and the next `cloche prune` or `cloche rm` comes by. */
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/image_list.h"
#include "cli/verbs.h"
#include "engine/images.h"

#define OUT_MAX (1u << 20)

static int none(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	return 0;
}

struct removal {
	const struct img_store *s;
	const char *id;
	struct buf *out;
};

static int remove_ref(const struct img_store *s, const struct img_ref *ref, struct buf *out,
		      struct err *e)
{
	char text[IMG_REF_CAP];

	if (img_name_remove(s, ref, e) < 0)
		return -1;
	buf_fmt(out, "removed %s\n", img_ref_format(ref, text));
	return 0;
}

/* Every name of an image that is given by its id. */
static int remove_named(void *ctx, const struct img_name *name, struct err *e)
{
	struct removal *r = ctx;
	struct img_ref ref;

	if (strcmp(name->id, r->id) != 0 || img_ref_parse(name->ref, &ref, e) < 0)
		return 0;
	return remove_ref(r->s, &ref, r->out, e) < 0 && e->kind != ERR_MISSING ? -1 : 0;
}

static int remove_one(const struct img_store *s, const char *text, struct buf *out, struct err *e)
{
	struct removal r = { s, NULL, out };
	struct image_named named;
	struct img_ref ref;

	/* Even a name that can't be read is there to be removed. */
	if (img_ref_parse(text, &ref, e) == 0 && ref.kind != IMG_REF_HOST && s->fd >= 0 &&
	    remove_ref(s, &ref, out, e) == 0)
		return 0;
	if (image_named(s, text, &named, e) < 0)
		return -1;
	if (!named.by_id) /* it came between the two looks */
		return remove_ref(s, &named.ref, out, e);
	r.id = named.id;
	return img_store_each_name(s, remove_named, &r, e) < 0 ? -1 : 0;
}

static int run(int argc, char **argv)
{
	_cleanup_img_store_ struct img_store s = IMG_STORE_NONE;
	struct img_gc_done done = { 0 };
	char size[IMAGE_SIZE_TEXT];
	_cleanup_buf_ struct buf out = { 0 };
	int rest, rc, failed = 0;
	struct err e;

	buf_init(&out, OUT_MAX);
	rc = cli_parse(&cli_rm_verb, argc, argv, none, NULL, &rest);
	if (rc >= 0)
		return rc;
	if (rest == argc) {
		err_set(&e, ERR_USAGE, "which image? Write \"cloche rm IMAGE\"");
		return cli_fail("rm", &e);
	}
	if (images_open(false, &s, &e) < 0 && e.kind != ERR_MISSING)
		return cli_fail("rm", &e);
	for (int i = rest; i < argc; i++)
		if (remove_one(&s, argv[i], &out, &e) < 0)
			failed = cli_fail("rm", &e);
	if (img_store_gc(&s, IMG_GC_UNUSED, &done, &e) < 0)
		failed = cli_fail("rm", &e);
	if (done.layers > 0)
		buf_fmt(&out, "freed %u layer%s, %s\n", done.layers, done.layers == 1 ? "" : "s",
			image_size_text(done.bytes, size));
	if (done.held > 0)
		buf_fmt(&out,
			"%u layer%s in use, and stay%s until \"cloche prune\" comes after that\n",
			done.held, done.held == 1 ? " is" : "s are", done.held == 1 ? "s" : "");
	rc = cli_put(STDOUT_FILENO, &out);
	return failed ? failed : rc;
}

static const char *const examples[] = { "cloche rm python:3.12-slim debian:12", NULL };

const struct opt_verb cli_rm_verb = {
	.name = "rm",
	.summary = "Remove images from the store",
	.operands = "IMAGE...",
	.examples = examples,
	.run = run,
};
