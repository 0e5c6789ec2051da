/* `cloche pull`, the part that does it. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/path.h"
#include "cli/pull.h"
#include "cli/verbs.h"
#include "image/pull.h"
#include "prog/image_verbs.h"
#include "state/dirs.h"

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	stop = sig;
}

static void heed(int sig)
{
	struct sigaction now, sa = { .sa_handler = on_signal };

	/* Who was started with it ignored (nohup) goes on. */
	if (sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
		sigaction(sig, &sa, NULL);
}

/* The store of images and the directory of the configuration. */
static int places(char store[STATE_PATH_MAX], char config[STATE_PATH_MAX], struct err *e)
{
	char dir[STATE_PATH_MAX];
	int fd = state_open(STATE_STORE, true, e);

	if (fd < 0)
		return -1;
	close(fd);
	if (state_path(STATE_STORE, dir, e) < 0 || state_path(STATE_CONFIG, config, e) < 0)
		return -1;
	return path_join(store, STATE_PATH_MAX, dir, "images") < 0 ? err_sys(e, "the store's path")
								   : 0;
}

static int show(const struct pull_options *o, const struct img_pulled *p)
{
	char ref[IMG_REF_CAP];
	struct img_ref bare = o->ref;
	_cleanup_buf_ struct buf out = { 0 };
	struct json j;

	buf_init(&out, 65536);
	if (o->quiet) {
		buf_fmt(&out, "%s\n", p->id);
	} else if (o->json) {
		json_init(&j, &out);
		json_obj(&j);
		json_kstr(&j, "event", "image");
		json_kstr(&j, "phase", "done");
		json_kstr(&j, "image", img_ref_format(&o->ref, ref));
		json_kstr(&j, "id", p->id);
		json_kstr(&j, "manifest", p->manifest);
		json_kbool(&j, "was_there", p->was_there);
		json_ku64(&j, "layers", p->layers);
		json_ku64(&j, "shared", p->shared);
		json_ku64(&j, "downloaded_bytes", p->downloaded);
		json_obj_end(&j);
		buf_str(&out, "\n");
	} else {
		memcpy(bare.digest, p->manifest, sizeof(bare.digest));
		buf_fmt(&out, "%s\n", img_ref_format(&bare, ref));
	}
	return cli_put(STDOUT_FILENO, &out);
}

static int fail(const struct pull_options *o, const struct err *e)
{
	int rc = image_fail("pull", o->json, e);

	return stop ? 128 + stop : rc;
}

int image_pull(int argc, char **argv)
{
	static struct pull_options o;
	char store[STATE_PATH_MAX], config[STATE_PATH_MAX];
	struct img_progress progress;
	struct img_pull_how how;
	struct img_pulled done;
	int rc = pull_parse(argc, argv, &o);
	struct err e;

	if (rc >= 0)
		return rc;
	img_progress_init(&progress,
			  o.json    ? IMG_SHOW_JSON
			  : o.quiet ? IMG_SHOW_NOTHING
				    : IMG_SHOW_TEXT,
			  "cloche pull");
	how = (struct img_pull_how){ .ref = o.ref,
				     .platform = o.platform,
				     .ca_file = o.ca_file,
				     .mirrors = o.mirrors,
				     .n_mirrors = o.n_mirrors,
				     .insecure = o.insecure,
				     .timeout_us = o.timeout_us,
				     .store = store,
				     .config = config,
				     .progress = &progress,
				     .stop = &stop };
	if ((!*how.platform.os && img_platform_host(&how.platform, &e) < 0) ||
	    places(store, config, &e) < 0)
		return fail(&o, &e);
	heed(SIGINT);
	heed(SIGTERM);
	signal(SIGCHLD, SIG_DFL); /* a caller may have left it ignored */
	signal(SIGPIPE, SIG_IGN);
	return img_pull(&how, &done, &e) < 0 ? fail(&o, &e) : show(&o, &done);
}
