/* `cloche setup`: runs a command over an image, once, and makes an image of what it left.
 *
 * What the command prints is kept, and its end shown when it fails; --verbose streams it instead.
 * The exit code is the command's own, or its fault's, as with `cloche run`; then nothing was
 * made. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "box/launch.h"
#include "box/self.h"
#include "cli/denied_text.h"
#include "cli/outcome_json.h"
#include "cli/run_image.h"
#include "cli/say.h"
#include "cli/title.h"
#include "cli/verbs.h"
#include "engine/apt_lists.h"
#include "engine/setup.h"
#include "session/spawn.h"

#define MEMORY_DEFAULT (2ULL << 30)
#define PIDS_DEFAULT 1024
#define TIMEOUT_DEFAULT 300000000ULL
#define DISK_DEFAULT (10ULL << 30)
#define OUTPUT_KEPT 65536
#define TAIL_LINES 30

enum {
	O_IMAGE,
	O_PULL,
	O_PLATFORM,
	O_PULL_TIMEOUT,
	O_NAME,
	O_BYTECODE,
	O_ENV,
	O_NO_NETWORK,
	O_MEMORY,
	O_PIDS,
	O_CPUS,
	O_TIMEOUT,
	O_DISK,
	O_APPARMOR,
	O_VERBOSE,
	O_JSON,
	O_LIVE,
	O_QUIET
};

static const struct opt_row rows[] = {
	{ "image", 0, OPT_STR, false, "IMAGE", "host", "Image",
	  "the image to start from; on `host` pip and npm install beside this machine's own programs",
	  NULL, "0.2", O_IMAGE },
	{ "pull", 0, OPT_CHOICE, false, "missing|always|never", "missing", "Image",
	  "when to download the image; `never` touches no network", NULL, "0.3", O_PULL },
	{ "platform", 0, OPT_STR, false, "OS/ARCH[/VARIANT]", NULL, "Image",
	  "the image for this platform, such as linux/arm64", NULL, "0.3", O_PLATFORM },
	{ "pull-timeout", 0, OPT_DURATION, false, "TIME", "600s", "Image",
	  "give up downloading after this long; 0: never", NULL, "0.3", O_PULL_TIMEOUT },
	{ "name", 0, OPT_STR, false, "NAME", NULL, "Image", "what to call the result: local/NAME",
	  NULL, "0.2", O_NAME },
	{ "bytecode", 0, OPT_FLAG, false, NULL, NULL, "Image",
	  "in place of a command and a name: compile the image's Python library, as the first run does",
	  "name,env,verbose,json,live", "0.2", O_BYTECODE },
	{ "env", 'e', OPT_STR, true, "NAME[=VALUE]", NULL, "Image",
	  "set a variable for the command; without =VALUE copy it from here", NULL, "0.2", O_ENV },
	{ "no-network", 0, OPT_FLAG, false, NULL, NULL, "Image",
	  "loopback alone; else the command has all of this machine's network", NULL, "0.2",
	  O_NO_NETWORK },
	{ "memory", 'm', OPT_SIZE, false, "SIZE", "2g", "Limits", "memory of the whole box", NULL,
	  "0.2", O_MEMORY },
	{ "pids", 0, OPT_NUMBER, false, "N", "1024", "Limits", "processes and threads at once",
	  NULL, "0.2", O_PIDS },
	{ "cpus", 0, OPT_CPUS, false, "N", NULL, "Limits", "cpus, such as 0.5 or 2", NULL, "0.2",
	  O_CPUS },
	{ "timeout", 0, OPT_DURATION, false, "TIME", "300", "Limits",
	  "end the command after this long; 0: never", NULL, "0.2", O_TIMEOUT },
	{ "disk", 0, OPT_SIZE, false, "SIZE", "10g", "Limits",
	  "end the command when what it writes grows beyond this", NULL, "0.2", O_DISK },
	{ "apparmor", 0, OPT_STR, false, "PROFILE", NULL, "Locks",
	  "run the command under a loaded AppArmor profile", NULL, "0.3", O_APPARMOR },
	{ "verbose", 0, OPT_FLAG, false, NULL, NULL, "Output",
	  "show what the command prints, on stderr, while it runs", "json,live", "0.2", O_VERBOSE },
	{ "json", 0, OPT_FLAG, false, NULL, NULL, "Output",
	  "print one JSON object: the image that was made, or how the command ended", NULL, "0.2",
	  O_JSON },
	{ "live", 0, OPT_FLAG, false, NULL, NULL, "Output",
	  "for programs, with --json: what the command prints, as it comes, to descriptors 3 and 4; progress, one JSON object a line, to 5",
	  NULL, "0.3", O_LIVE },
	{ "quiet", 'q', OPT_FLAG, false, NULL, NULL, "Output", "no notes on stderr", NULL, "0.2",
	  O_QUIET },
};

struct setup_options {
	struct run_options run; /* its image, its limits, and how it is told */
	const char *name;
	bool bytecode, no_network, verbose, live;
};

static struct prepared prepared; /* large; one a process */
static struct setup setup = SETUP_NONE;
static struct img_record host; /* the base, where it is the host image */

static int live_fds(int flags)
{
	for (int fd = SETUP_OUT; fd <= SETUP_PROGRESS; fd++)
		if (fcntl(fd, F_SETFD, flags) < 0)
			return -1;
	return 0;
}

extern char **environ;

static int live_env(struct request *r, struct err *e)
{
	for (char **v = environ; *v; v++)
		if (strncmp(*v, SETUP_ENV, strlen(SETUP_ENV)) == 0 &&
		    request_add(&r->env, *v + strlen(SETUP_ENV), "env", e) < 0)
			return -1;
	return 0;
}

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	struct setup_options *o = ctx;
	struct box_limits *l = &o->run.request.limits;

	switch (row->id) {
	case O_IMAGE:
		o->run.request.image = value;
		return 0;
	case O_PULL:
		o->run.pull = run_pull_of(value);
		return 0;
	case O_PLATFORM:
		o->run.request.platform = value;
		return 0;
	case O_PULL_TIMEOUT:
		o->run.pull_timeout = value;
		return 0;
	case O_NAME:
		o->name = value;
		return 0;
	case O_BYTECODE:
		o->bytecode = true;
		return 0;
	case O_ENV:
		return request_add(&o->run.request.env, value, row->name, e);
	case O_NO_NETWORK:
		o->no_network = true;
		return 0;
	case O_MEMORY:
		return parse_size(value, &l->memory, e);
	case O_PIDS:
		return parse_u64(value, 1, 4194304 - LIMIT_INIT_PIDS, &l->pids, e);
	case O_CPUS:
		return parse_cpus(value, &l->cpus, e);
	case O_TIMEOUT:
		return parse_duration(value, &l->timeout_us, e);
	case O_DISK:
		return parse_size(value, &l->workspace_max, e);
	case O_APPARMOR:
		o->run.request.apparmor = value;
		return 0;
	case O_VERBOSE:
		o->verbose = true;
		return 0;
	case O_JSON:
		o->run.json = true;
		return 0;
	case O_LIVE:
		o->live = true;
		o->run.progress = SETUP_PROGRESS;
		if (live_fds(FD_CLOEXEC) < 0)
			return err_set(e, ERR_USAGE, "descriptors %d to %d have to be open",
				       SETUP_OUT, SETUP_PROGRESS);
		return live_env(&o->run.request, e);
	default:
		o->run.quiet = true;
		return 0;
	}
}

static void defaults(struct request *r)
{
	static const char noninteractive[] = "DEBIAN_FRONTEND=noninteractive";

	request_defaults(r);
	r->limits.memory = MEMORY_DEFAULT;
	r->limits.pids = PIDS_DEFAULT;
	r->limits.timeout_us = TIMEOUT_DEFAULT;
	r->limits.workspace_max = DISK_DEFAULT;
	r->limits.output = OUTPUT_KEPT;
	r->user = "0";
	r->cwd = "/";
	r->entrypoint = ""; /* the command is the caller's alone */
	r->no_bytecode = true;
	r->setup = true; /* into a draft that setup_draft makes */
	r->draft = -1;
	/* Nobody is there to answer; -e counts for more. */
	r->env.v[r->env.n++] = noninteractive;
}

/* The last lines of what a stream printed, as they were printed. */
static void show_tail(const struct box_stream *s)
{
	size_t at = s->len, lines = 0;

	if (s->len == 0)
		return;
	if (s->data[at - 1] == '\n')
		at--;
	while (at > 0 && (s->data[at - 1] != '\n' || ++lines < TAIL_LINES))
		at--;
	(void)fd_write_all(STDERR_FILENO, s->data + at, s->len - at);
	if (s->data[s->len - 1] != '\n')
		(void)fd_write_all(STDERR_FILENO, "\n", 1);
}

static int tell_made(const struct setup_options *o, double seconds)
{
	const struct img_unpacked *done = &setup.info.done;
	_cleanup_buf_ struct buf out = { 0 };
	char name[IMG_REF_CAP];
	struct json j;

	buf_init(&out, 65536);
	if (o->bytecode)
		snprintf(name, sizeof(name), "bytecode of %.500s", prepared.image.name);
	else
		img_ref_format(&setup.name, name);
	if (!o->run.json) {
		if (setup.found)
			buf_fmt(&out, "%s: there already, made by the same command\n", name);
		else
			buf_fmt(&out, "%s: made in %.1f s, %.1f MiB in %" PRIu64 " entries\n", name,
				seconds, (double)done->bytes / (1 << 20), done->entries);
		return cli_put(STDOUT_FILENO, &out);
	}
	json_init(&j, &out);
	json_obj(&j);
	json_kstr(&j, "image", name);
	json_kstr(&j, "id", setup.made.id);
	json_kstr(&j, "base", setup.base->id);
	json_kstr(&j, "layer", setup.layer);
	json_kstr(&j, "key", setup.key);
	json_kbool(&j, "found", setup.found);
	json_ku64(&j, "bytes", done->bytes);
	json_ku64(&j, "entries", done->entries);
	json_ku64(&j, "set_ids_cleared", done->set_ids);
	json_obj_end(&j);
	buf_str(&out, "\n");
	return cli_put(STDOUT_FILENO, &out);
}

static int tell_outcome(const struct setup_options *o, const struct box_outcome *out)
{
	_cleanup_buf_ struct buf text = { 0 };

	buf_stream(&text, STDOUT_FILENO);
	outcome_json(&prepared, out, &(struct outcome_show){ .streams = !o->live }, &text);
	buf_flush(&text);
	return outcome_code(out);
}

static void tell_phase(const struct setup_options *o, const char *phase, const char *text)
{
	_cleanup_buf_ struct buf line = { 0 };
	struct json j;

	if (!o->live)
		return;
	buf_init(&line, 1024);
	json_init(&j, &line);
	json_obj(&j);
	json_kstr(&j, "phase", phase);
	json_kstr(&j, "text", text);
	json_obj_end(&j);
	buf_str(&line, "\n");
	(void)!fd_write_all(SETUP_PROGRESS, line.data, line.len);
}

/* The command did not end well: nothing is made. */
static int tell_failed(const struct setup_options *o, const struct box_outcome *out)
{
	char line[80];

	if (o->run.json)
		return tell_outcome(o, out);
	if (!o->verbose) {
		show_tail(&out->out);
		show_tail(&out->err_out);
	}
	if (!o->run.quiet)
		denied_text(&prepared.spec, out, cli_say);
	if (out->fault != FAULT_NONE) {
		cli_say(fault_name(out->fault), out->err.msg);
	} else {
		snprintf(line, sizeof(line), "the command ended with code %d: nothing was made",
			 outcome_code(out));
		cli_say("setup", line);
	}
	return outcome_code(out);
}

/* An outcome without a box, for --json. */
static int refuse(const struct setup_options *o, const struct err *e)
{
	static struct box_outcome out;

	if (e->kind == ERR_USAGE)
		return cli_fail("setup", e);
	memset(&out.usage, 0xff, sizeof(out.usage));
	out.usage.filled_by[0] = '\0';
	out.fault = FAULT_STARTUP_FAILED;
	out.exit_code = -1;
	out.err = *e;
	err_at(&out.err, STAGE_IMAGE);
	return tell_failed(o, &out);
}

static void notes(const struct setup_options *o, const struct box_outcome *out)
{
	if (o->run.quiet || o->run.json)
		return;
	for (size_t i = 0; i < prepared.n_notes; i++)
		cli_say("note", prepared.notes[i]);
	if (out->note[0])
		cli_say("note", out->note);
}

/* Runs the command; 0 when it ended well, else the exit code, told. */
static int run_command(const struct setup_options *o, enum box_fault *ret, struct err *e)
{
	static struct box_outcome out;
	struct box_io io = { .in = -1,
			     .out = o->live ? SETUP_OUT : STDERR_FILENO,
			     .err = o->live ? SETUP_ERR : STDERR_FILENO,
			     .capture = !o->verbose && !o->live,
			     .title = cli_title.start,
			     .title_len = cli_title.len };
	int rc;

	*ret = FAULT_STARTUP_FAILED;
	tell_phase(o, "setup", "running the command");
	if (box_run(&prepared.spec, &io, &out, e) < 0)
		return refuse(o, e);
	*ret = out.fault;
	notes(o, &out);
	rc = outcome_code(&out) == 0 ? 0 : tell_failed(o, &out);
	outcome_free(&out);
	return rc;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A python that can't compile its library is not asked again before each run. */
static bool is_final(const struct setup_options *o, enum box_fault fault)
{
	return o->bytecode && fault != FAULT_STARTUP_FAILED && fault != FAULT_CANCELLED;
}

/* After the layer's key was made of the words as they were given. */
static int fetch_lists(struct request *r, struct err *e)
{
	char *const *words;

	if (strcmp(r->network, "none") == 0 || !apt_lists_wanted(&prepared.image, r->argv))
		return 0;
	words = apt_lists_command(r->argv);
	if (!words)
		return err_set(e, ERR_USAGE, "the command has more than %d words",
			       APT_LISTS_WORDS_MAX - 4);
	r->argv = words;
	return 0;
}

static int make_layer(struct setup_options *o, struct err *e)
{
	enum box_fault fault;
	int rc;

	if (fetch_lists(&o->run.request, e) < 0 || setup_draft(&setup, &o->run.request, e) < 0 ||
	    request_prepare(&o->run.request, &prepared, e) < 0)
		return refuse(o, e);
	if (prepared.spec.network == BOX_NET_HOST && !o->run.quiet && !o->run.json)
		cli_say("note",
			"the command has all of this machine's network (--no-network takes it away)");
	rc = run_command(o, &fault, e);
	if (rc != 0 && !is_final(o, fault))
		return rc;
	tell_phase(o, "keep", "keeping what it installed");
	if ((rc == 0 ? setup_settle(&setup, &prepared.spec, e) : setup_settle_empty(&setup, e)) < 0)
		return refuse(o, e);
	return 0;
}

static int make(struct setup_options *o, double since)
{
	struct err e;
	int rc = setup.found ? 0 : make_layer(o, &e);

	if (rc != 0)
		return rc;
	if (!o->bytecode && setup_publish(&setup, &e) < 0)
		return refuse(o, &e);
	return tell_made(o, now() - since);
}

/* Nothing to be compiled is no failure. */
static int make_bytecode(struct setup_options *o, double since)
{
	static char *words[8];
	const struct layers all = { prepared.image.layers, prepared.image.n_layers };
	_cleanup_buf_ struct buf out = { 0 };

	buf_init(&out, 4096);
	if (!setup.found && !bytecode_lacks(&all, prepared.image.python)) {
		buf_fmt(&out, "%s: no Python library that is not compiled\n", prepared.image.name);
		return cli_put(STDOUT_FILENO, &out);
	}
	bytecode_command(prepared.image.python, words);
	o->run.request.argv = words;
	o->run.request.cap_drop.v[o->run.request.cap_drop.n++] = "ALL"; /* it needs none */
	return make(o, since);
}

/* Itself, or what setup has made of it. */
static bool on_host(const struct request *r)
{
	return !image_wanted(r) || prepared.image.record.host;
}

static int open_all(struct setup_options *o, struct err *e)
{
	if (self_limits(e) < 0)
		return err_at(e, STAGE_LIMITS);
	if (run_image(&o->run, &prepared, e) < 0)
		return -1;
	if (o->live)
		live_fds(0); /* a copy of this program would need them */
	if (self_protect(cli_title.argv, e) < 0)
		return err_at(e, STAGE_LOCKS);
	if (o->live)
		live_fds(FD_CLOEXEC);
	if (on_host(&o->run.request) && setup_host_request(&o->run.request, e) < 0)
		return -1;
	if (!image_wanted(&o->run.request) && setup_host(&host, e) < 0)
		return -1;
	return setup_open(&o->run.request, host.host ? &host : &prepared.image.record,
			  o->bytecode ? NULL : o->name, &setup, e);
}

static int check_words(const struct setup_options *o, int n_command, struct err *e)
{
	if (o->bytecode && n_command > 0)
		return err_set(e, ERR_USAGE, "--bytecode takes no command");
	if (o->bytecode && !image_wanted(&o->run.request))
		return err_set(e, ERR_USAGE, "--bytecode needs --image IMAGE");
	if (o->live && !o->run.json)
		return err_set(e, ERR_USAGE, "--live goes with --json");
	if (o->bytecode || (o->name && n_command > 0))
		return 0;
	return err_set(e, ERR_USAGE, "needs %s: cloche setup --image IMAGE --name NAME -- COMMAND",
		       !o->name ? "--name" : "a command");
}

static int run(int argc, char **argv)
{
	static struct setup_options o;
	double since = now();
	struct err e;
	int rest, rc;

	defaults(&o.run.request);
	rc = cli_parse(&cli_setup_verb, argc, argv, on_option, &o, &rest);
	if (rc >= 0)
		return rc;
	if (check_words(&o, argc - rest, &e) < 0)
		return cli_fail("setup", &e);
	o.run.request.argv = argv + rest;
	o.run.request.network = o.no_network || o.bytecode ? "none" : "host";
	rc = open_all(&o, &e) < 0 ? refuse(&o, &e)
	     : o.bytecode	  ? make_bytecode(&o, since)
				  : make(&o, since);
	setup_close(&setup);
	image_drop(&prepared.image);
	img_record_free(&host);
	return rc;
}

static const char *const examples[] = {
	"cloche setup --image python:3.12-slim --name np -- pip install numpy",
	"cloche setup --image node:22-slim --name ts -- npm install -g typescript",
	"cloche setup --name rich -- pip install rich",
	NULL,
};

const struct opt_verb cli_setup_verb = {
	.name = "setup",
	.summary = "Make an image of another one and what a command installs in it",
	.operands = "[--] COMMAND [ARG...]",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.takes_command = true,
	.examples = examples,
	.run = run,
};
