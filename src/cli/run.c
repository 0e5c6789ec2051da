/* The front door of a box: options to a request, a request to a spec, a spec to a box, an outcome
 * to an exit code. */
#include "cli/run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/launch.h"
#include "box/self.h"
#include "cli/denied_text.h"
#include "cli/outcome_json.h"
#include "cli/outcome_notes.h"
#include "cli/run_image.h"
#include "cli/run_opts.h"
#include "cli/run_plan.h"
#include "cli/say.h"
#include "cli/title.h"
#include "cli/verbs.h"

static struct prepared prepared; /* large; one a process */

/* A caller who pipes something in and forgot -i should hear of it; an idle pipe of a harness is no
 * mistake. */
static void note_stdin(const struct run_options *o)
{
	struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
	struct stat st;

	if (o->request.interactive || fstat(STDIN_FILENO, &st) < 0 ||
	    !(S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
		return;
	if (poll(&p, 1, 0) > 0 && p.revents & POLLIN)
		outcome_note(
			&prepared,
			"standard input holds data, which the box does not see: add -i to forward it");
}

static int put(const struct buf *b)
{
	return cli_put(STDOUT_FILENO, b);
}

static int show_plan(void)
{
	static struct plan plan;
	_cleanup_buf_ struct buf out = { 0 };
	struct err e;

	buf_init(&out, 1 << 20);
	if (plan_build(&prepared.spec, &plan, &e) < 0)
		return cli_fail("run", &e);
	run_plan_header(&prepared.spec, &out);
	plan_print(&plan, &prepared.spec, &out);
	run_plan_locks(&prepared.spec, &out);
	return put(&out);
}

/* What is not whole is never a success. */
static int code_of(const struct box_outcome *out)
{
	return outcome_code(out) == 0 && out->stream_errno ? 125 : outcome_code(out);
}

/* Written on the way, not gathered: a hostile box prints what grows sixfold when it is escaped. */
static int tell_json(const struct run_options *o, const struct box_outcome *out)
{
	_cleanup_buf_ struct buf text = { 0 };

	buf_stream(&text, STDOUT_FILENO);
	outcome_json(&prepared, out, &(struct outcome_show){ .streams = true, .timing = o->timing },
		     &text);
	buf_flush(&text);
	if (!text.failed)
		return code_of(out);
	if (errno != EPIPE)
		cli_say("error", "can't write the outcome to standard output");
	return 125;
}

static int tell_text(const struct run_options *o, const struct box_outcome *out)
{
	const char *name;
	char line[80];
	uint64_t us;

	/* A box that never ran has one line: the cause. */
	for (size_t i = 0; i < prepared.n_notes && !o->quiet && out->fault != FAULT_STARTUP_FAILED;
	     i++)
		cli_say("note", prepared.notes[i]);
	if (!o->quiet)
		denied_text(&prepared.spec, out, cli_say);
	if (out->fault != FAULT_NONE)
		cli_say(fault_name(out->fault), out->err.msg);
	if (o->timing && prepared.pull_us != UINT64_MAX) {
		snprintf(line, sizeof(line), "%-10s %6llu us", "pull",
			 (unsigned long long)prepared.pull_us);
		cli_say("timing", line);
	}
	for (unsigned i = 0; o->timing && (name = outcome_phase(out, i, &us)); i++) {
		snprintf(line, sizeof(line), us == UINT64_MAX ? "%-10s      -" : "%-10s %6llu us",
			 name, (unsigned long long)us);
		cli_say("timing", line);
	}
	if (out->stream_errno) {
		snprintf(line, sizeof(line), "can't deliver the command's input or output: %s",
			 strerror(out->stream_errno));
		cli_say("error", line);
	}
	return code_of(out);
}

/* What can't be run is still an outcome; what can't even be read is a usage error. */
static int refuse(const struct run_options *o, const struct err *e)
{
	static struct box_outcome out;

	if (e->kind == ERR_USAGE)
		return cli_fail("run", e);
	outcome_refused(&out, e);
	return o->json ? tell_json(o, &out) : tell_text(o, &out);
}

int cli_run(int argc, char **argv)
{
	static struct run_options o;
	static struct box_outcome out;
	struct box_io io = { .in = STDIN_FILENO, .out = STDOUT_FILENO, .err = STDERR_FILENO };
	struct err e;
	int rest, rc;

	request_defaults(&o.request);
	rc = cli_parse(&cli_run_verb, argc, argv, run_option, &o, &rest);
	if (rc >= 0)
		return rc;
	if (rest >= argc && !image_wanted(&o.request)) {
		err_set(&e, ERR_USAGE, "no command: cloche run [OPTIONS] -- COMMAND [ARG...]");
		return cli_fail("run", &e);
	}
	o.request.argv = argv + rest;
	if (self_limits(&e) < 0) {
		err_at(&e, STAGE_LIMITS);
		return refuse(&o, &e);
	}
	if (run_image(&o, &prepared, &e) < 0 || run_bytecode(&o, &prepared.image, &e) < 0 ||
	    request_prepare(&o.request, &prepared, &e) < 0)
		return refuse(&o, &e);
	if (o.plan)
		return show_plan();
	if (self_protect(cli_title.argv, &e) < 0) {
		err_at(&e, STAGE_LOCKS);
		return refuse(&o, &e);
	}
	note_stdin(&o);
	io.capture = o.json;
	io.title = cli_title.start;
	io.title_len = cli_title.len;
	if (box_run(&prepared.spec, &io, &out, &e) < 0)
		return refuse(&o, &e);
	outcome_notes(&prepared, &out, o.json);
	rc = o.json ? tell_json(&o, &out) : tell_text(&o, &out);
	outcome_free(&out);
	return rc;
}
