/* `cloche load` and `cloche import`, the part that does it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/load.h"
#include "cli/verbs.h"
#include "engine/images.h"
#include "image/load.h"
#include "prog/image_verbs.h"

#define OUT_MAX (1u << 20)

/* One image is in the store. */
static int show(void *ctx, const struct img_loaded *image, struct err *e)
{
	const struct load_options *o = ctx;
	char text[IMG_REF_CAP];
	_cleanup_buf_ struct buf out = { 0 };
	struct json j;

	buf_init(&out, OUT_MAX);
	if (o->quiet) {
		buf_fmt(&out, "%s\n", image->id);
	} else if (o->json) {
		json_init(&j, &out);
		json_obj(&j);
		json_kstr(&j, "event", "image");
		json_kstr(&j, "phase", "done");
		json_key(&j, "names");
		json_arr(&j);
		for (size_t i = 0; i < image->n_names; i++)
			json_str(&j, img_ref_format(&image->names[i], text));
		json_arr_end(&j);
		json_kstr(&j, "id", image->id);
		json_ku64(&j, "layers", image->layers);
		json_ku64(&j, "shared", image->shared);
		json_obj_end(&j);
		buf_str(&out, "\n");
	} else {
		for (size_t i = 0; i < image->n_names; i++)
			buf_fmt(&out, "%s\n", img_ref_format(&image->names[i], text));
	}
	if (out.failed || fd_write_all(STDOUT_FILENO, out.data, out.len) < 0)
		return err_sys(e, "can't write the output");
	return 0;
}

static int work(const struct load_options *o, const char *verb, struct err *e)
{
	_cleanup_img_store_ struct img_store s = IMG_STORE_NONE;
	_cleanup_fd_ int file = -1;
	bool standard = !strcmp(o->file, "-");
	struct img_progress progress;
	struct img_load_how how = { .platform = o->platform,
				    .name = o->named ? &o->name : NULL,
				    .store = &s,
				    .progress = &progress };

	img_progress_init(&progress,
			  o->json    ? IMG_SHOW_JSON
			  : o->quiet ? IMG_SHOW_NOTHING
				     : IMG_SHOW_TEXT,
			  strcmp(verb, "load") ? "cloche import" : "cloche load");
	if (!*how.platform.os && img_platform_host(&how.platform, e) < 0)
		return -1;
	if (!standard) {
		file = open(o->file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
		if (file < 0)
			return err_sys(e, "%s", o->file);
	}
	how.in = standard ? STDIN_FILENO : file;
	if (images_open(true, &s, e) < 0)
		return -1;
	if (strcmp(verb, "load") ? img_import(&how, show, (void *)(uintptr_t)o, e)
				 : img_load(&how, show, (void *)(uintptr_t)o, e))
		return err_prefix(e, "%s", standard ? "standard input" : o->file);
	return 0;
}

int image_load(int argc, char **argv)
{
	static struct load_options o;
	int rc = load_parse(argc, argv, &o);
	struct err e;

	if (rc >= 0)
		return rc;
	signal(SIGPIPE, SIG_IGN);
	return work(&o, "load", &e) < 0 ? image_fail("load", o.json, &e) : 0;
}

int image_import(int argc, char **argv)
{
	static struct load_options o;
	int rc = import_parse(argc, argv, &o);
	struct err e;

	if (rc >= 0)
		return rc;
	signal(SIGPIPE, SIG_IGN);
	return work(&o, "import", &e) < 0 ? image_fail("import", o.json, &e) : 0;
}
