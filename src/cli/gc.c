/* `cloche gc`: removes what cloches that were killed have left, empty cgroups and runtime
 * directories, and what is kept ready and nobody uses now: roots of the host image, the unit of the
 * systemd user manager. Of the store of images it removes what killed cloches were making. The next
 * start of any cloche of the same user does the same within bounds; this does all of it and says
 * what went. What belongs to a living cloche is never touched. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "box/limits.h"
#include "box/skeleton.h"
#include "cli/verbs.h"
#include "engine/images.h"
#include "state/dirs.h"
#include "state/owner.h"

#define GC_ROUND 1024
#define GC_ROUNDS 1024
#define GC_OUT_MAX (4u << 20)

enum gc_opt { GC_JSON };

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	*(bool *)ctx = true;
	return 0;
}

/* In rounds: a sweep is bounded by its caller. */
static unsigned sweep_groups(void)
{
	unsigned all = 0, n;

	for (unsigned i = 0; i < GC_ROUNDS; i++) {
		n = limits_sweep(GC_ROUND);
		all += n;
		if (n < GC_ROUND)
			break;
	}
	return all;
}

/* A store that can't be swept keeps nothing else from it. */
static int sweep_images(struct img_gc_done *ret)
{
	_cleanup_img_store_ struct img_store s = IMG_STORE_NONE;
	struct err e;

	if ((images_open(false, &s, &e) < 0 && e.kind != ERR_MISSING) ||
	    img_store_gc(&s, IMG_GC_LEFT, ret, &e) < 0)
		return cli_fail("gc", &e);
	return 0;
}

static void name_text(void *ctx, const char *name)
{
	buf_fmt(ctx, "removed runtime directory %s\n", name);
}

static void name_json(void *ctx, const char *name)
{
	json_str(ctx, name);
}

static int run(int argc, char **argv)
{
	bool as_json = false;
	char path[STATE_PATH_MAX];
	bool store;
	unsigned groups, skeletons, dirs;
	struct img_gc_done left = { 0 };
	bool unit;
	_cleanup_buf_ struct buf out = { 0 };
	struct json j;
	struct err e;
	int rest, rc;

	buf_init(&out, GC_OUT_MAX);
	rc = cli_parse(&cli_gc_verb, argc, argv, on_option, &as_json, &rest);
	if (rc >= 0)
		return rc;
	if (rest < argc) {
		err_set(&e, ERR_USAGE, "takes no operand, and \"%.100s\" was given", argv[rest]);
		return cli_fail("gc", &e);
	}
	if (state_path(STATE_RUNTIME, path, &e) < 0)
		return cli_fail("gc", &e);
	store = state_path(STATE_STORE, path, &e) == 0;
	if (!store && e.kind != ERR_MISSING)
		return cli_fail("gc", &e);
	rc = store ? sweep_images(&left) : 0;
	groups = sweep_groups();
	unit = limits_retire();
	skeletons = store ? skeleton_sweep(path) : 0;
	if (as_json) {
		json_init(&j, &out);
		json_obj(&j);
		json_ku64(&j, "cgroups", groups);
		json_ku64(&j, "skeletons", skeletons);
		json_ku64(&j, "units", unit);
		json_ku64(&j, "drafts", left.drafts);
		json_ku64(&j, "downloads", left.parts);
		json_key(&j, "runtime_dirs");
		json_arr(&j);
		state_sweep_each(GC_ROUND, name_json, &j);
		json_arr_end(&j);
		json_obj_end(&j);
		buf_str(&out, "\n");
		return cli_put(1, &out) ? 1 : rc;
	}
	if (groups > 0)
		buf_fmt(&out, "removed %u cgroup%s\n", groups, groups == 1 ? "" : "s");
	if (skeletons > 0)
		buf_fmt(&out, "removed %u prepared root%s of the host image\n", skeletons,
			skeletons == 1 ? "" : "s");
	if (left.drafts > 0)
		buf_fmt(&out, "removed %u image%s that %s being made\n", left.drafts,
			left.drafts == 1 ? "" : "s", left.drafts == 1 ? "was" : "were");
	if (left.parts > 0)
		buf_fmt(&out, "removed %u unfinished download%s\n", left.parts,
			left.parts == 1 ? "" : "s");
	if (unit)
		buf_str(&out,
			"stopped the empty unit cloche-boxes.service of your systemd manager\n");
	dirs = state_sweep_each(GC_ROUND, name_text, &out);
	if (groups == 0 && skeletons == 0 && dirs == 0 && !unit && left.drafts == 0 &&
	    left.parts == 0)
		buf_str(&out, "nothing to remove\n");
	return cli_put(1, &out) ? 1 : rc;
}

static const struct opt_row rows[] = {
	{ .name = "json",
	  .type = OPT_FLAG,
	  .group = "Output",
	  .help = "print one JSON object",
	  .since = "0.1.0",
	  .id = GC_JSON },
};

static const char *const examples[] = { "cloche gc", "cloche gc --json", NULL };

const struct opt_verb cli_gc_verb = {
	.name = "gc",
	.summary = "Remove what killed cloches left behind, and what is kept ready",
	.operands = "",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.examples = examples,
	.run = run,
};
