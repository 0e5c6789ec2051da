#include "session/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/str.h"
#include "session/child.h"
#include "session/output.h"
#include "session/progress.h"
#include "session/result.h"
#include "session/spawn.h"

#define SAID_MAX (4u << 20)	/* an outcome, without what the command printed */
#define COMPLAINT_MAX 65536	/* of what it says on standard error, the end */
#define TAIL_MAX 4096		/* of each of the command's streams, in the fault */
#define KEPT_MAX (2 * TAIL_MAX) /* the first half of which is kept, too, when there is more */

extern char **environ;

struct reader {
	int fd;
	struct source src;
	struct buf text;
};

struct setup {
	struct sandbox *sb;
	struct pending pending; /* of the operation; of an `open`, none */
	uint64_t by;		/* who has cancelled it */
	bool own_deadline;	/* not the option's */
	int pidfd, code;
	struct source pid_src;
	struct reader out, err; /* of cloche itself */
	struct output output;	/* of the command */
	struct progress progress;
	char *name;   /* of the image that it makes */
	char *before; /* what the sandbox's image was, while the new one is tried */
	json_t *made;
};

static void finish(struct setup *u);

/* ---- the end ---- */

/* The request that its output and progress go to: 0 when it was answered already. */
static uint64_t request_of(const struct setup *u)
{
	return u->sb->open.id ? u->sb->open.id : u->pending.id;
}

static void close_reader(struct setup *u, struct reader *r)
{
	if (r->fd >= 0)
		loop_remove(&u->sb->s->loop, &r->src);
	fd_close(&r->fd);
}

static void setup_free(struct setup *u)
{
	struct sandbox *sb = u->sb;

	close_reader(u, &u->out);
	close_reader(u, &u->err);
	output_close(&u->output);
	progress_close(&u->progress);
	buf_free(&u->out.text);
	buf_free(&u->err.text);
	pending_drop(sb->s, &u->pending);
	free(u->name);
	free(u->before);
	json_decref(u->made);
	sb->setup = NULL;
	loop_free(&sb->s->loop, u);
}

static void answer(struct setup *u, json_t *fault)
{
	struct sandbox *sb = u->sb;
	uint64_t id = u->pending.id, by = u->by;
	json_t *layer = json_object_get(u->made, "layer"),
	       *found = json_object_get(u->made, "found");

	if (id)
		reply_done(sb->s, id,
			   json_pack("{s:o,s:o,s:o}", "layer",
				     layer && !fault ? json_incref(layer) : json_pack("n"), "found",
				     json_boolean(json_is_true(found) && !fault), "fault",
				     fault ? json_incref(fault) : json_pack("n")));
	setup_free(u);
	reply_done(sb->s, by, NULL);
}

static void refuse(struct setup *u, const struct ses_error *e)
{
	struct sandbox *sb = u->sb;
	uint64_t id = u->pending.id, by = u->by;
	bool of_open = sb->open.id != 0;

	setup_free(u);
	if (of_open)
		sandbox_refused(sb, e);
	else
		reply_fail(sb->s, id, e);
	reply_done(sb->s, by, NULL);
}

/* With its id in the loop, it is gone when that says so. */
void setup_end(struct sandbox *sb)
{
	struct setup *u = sb->setup;
	uint64_t id = u ? u->pending.id : 0;

	if (!u)
		return;
	child_kill(u->pidfd);
	pending_drop(sb->s, &u->pending);
	if (id && u->by)
		reply_refuse(sb->s, id, SES_CANCELLED, "cancelled");
	else
		reply_refuse(sb->s, id, SES_CLOSED, "the sandbox was closed");
	if (u->pidfd < 0)
		setup_free(u);
}

/* ---- what came of it ---- */

static const char *last_line(const char *text, size_t n, size_t *ret_n)
{
	size_t at;

	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ' '))
		n--;
	for (at = n; at > 0 && text[at - 1] != '\n'; at--)
		;
	*ret_n = n - at;
	return text + at;
}

/* The end of what a stream of the command printed, at a character's beginning; freed by the caller.
 */
static char *tail(struct stream *of)
{
	_cleanup_buf_ struct buf quoted = { 0 };
	struct box_stream kept = { 0 };
	struct json j;
	json_t *text;
	size_t at;
	char *ret;

	output_take(of, &kept);
	at = kept.len > TAIL_MAX ? kept.len - TAIL_MAX : 0;
	while (at > 0 && at < kept.len && ((unsigned char)kept.data[at] & 0xc0) == 0x80)
		at++;
	/* What is no UTF-8, or a NUL, is made text. */
	for (size_t i = at; i < kept.len; i++)
		if (!kept.data[i])
			kept.data[i] = '?';
	buf_init(&quoted, 8 * TAIL_MAX);
	json_init(&j, &quoted);
	json_bytes(&j, kept.data + at, kept.len - at);
	if (kept.data)
		munmap(kept.data, kept.mapped);
	text = json_loadb(quoted.data ? quoted.data : "", quoted.len, JSON_DECODE_ANY, NULL);
	ret = strdup(json_is_string(text) ? json_string_value(text) : "");
	json_decref(text);
	return ret;
}

/* An outcome of `cloche setup`, in which nothing was made, as that of every call. */
static json_t *failed(struct setup *u, const json_t *outcome)
{
	const json_t *fault = json_object_get(outcome, "fault");
	const char *why = json_string_value(json_object_get(fault, "message")), *line;
	char *err = tail(&u->output.err), *out = tail(&u->output.out);
	const char *said = err && *err ? err : out ? out : "";
	char text[600], safe[600], message[700];
	json_t *all;
	size_t n;

	line = last_line(said, strlen(said), &n);
	snprintf(text, sizeof(text), "%.*s", n < 300 ? (int)n : 300, line);
	str_printable(safe, sizeof(safe), text);
	if (why)
		ses_options_say_setup(why, u->own_deadline, message, sizeof(message));
	else
		snprintf(message, sizeof(message), "setup: the command ended with code %lld%s%s",
			 (long long)json_integer_value(json_object_get(outcome, "exit_code")),
			 *safe ? ": " : "", safe);
	all = sandbox_no_start("setup", message);
	if (out && err)
		json_object_set_new(json_object_get(all, "fault"), "output",
				    json_sprintf("%s%s%s", out, *out && *err ? "\n" : "", err));
	free(out);
	free(err);
	return all;
}

static void made(struct setup *u, json_t *said)
{
	struct sandbox *sb = u->sb;
	struct ses_error e;

	u->made = json_incref(said);
	u->before = sb->image;
	sb->image = u->name;
	u->name = NULL;
	if (sb->open.id)
		setup_free(u);
	if (sandbox_spawn(sb, &e) == 0)
		return;
	if (sb->open.id) {
		sandbox_refused(sb, &e);
		return;
	}
	setup_spawned(sb, sandbox_no_start("setup", e.message));
}

void setup_spawned(struct sandbox *sb, json_t *outcome)
{
	struct setup *u = sb->setup;

	if (u && outcome) {
		free(sb->image);
		sb->image = u->before;
		u->before = NULL;
	}
	if (u)
		answer(u, json_object_get(outcome, "fault"));
	json_decref(outcome);
}

static void finish(struct setup *u)
{
	struct sandbox *sb = u->sb;
	json_t *said = json_loadb(u->out.text.data ? u->out.text.data : "", u->out.text.len,
				  JSON_REJECT_DUPLICATES, NULL),
	       *outcome;
	struct ses_error e;
	const char *line;
	size_t n;

	if (json_is_string(json_object_get(said, "layer"))) {
		made(u, said);
	} else if (json_object_get(said, "exit_code")) {
		outcome = failed(u, said);
		if (sb->open.id) {
			setup_free(u);
			sandbox_failed(sb, outcome);
		} else {
			answer(u, json_object_get(outcome, "fault"));
			json_decref(outcome);
		}
	} else {
		line = last_line(u->err.text.data ? u->err.text.data : "", u->err.text.len, &n);
		ses_options_blame_setup(line, n, &e);
		refuse(u, &e);
	}
	json_decref(said);
}

/* Its process has ended, and so has what it said. */
static void maybe_finished(struct setup *u)
{
	struct sandbox *sb = u->sb;
	struct ses_error e;

	if (u->pidfd >= 0 || u->out.fd >= 0 || u->err.fd >= 0 || u->made)
		return;
	/* Nobody is waited for who does not take the rest of the output of what was given up. */
	if (!output_finished(&u->output) && sb->state != SANDBOX_CLOSING && !u->by)
		return;
	if (sb->state == SANDBOX_CLOSING) {
		setup_free(u);
		sandbox_part_gone(sb);
	} else if (u->by) {
		ses_error_set(&e, SES_CANCELLED, "cancelled");
		refuse(u, &e);
	} else {
		finish(u);
	}
}

/* ---- the process ---- */

static void take_text(struct setup *u, struct reader *r)
{
	char chunk[16384];
	ssize_t n = read(r->fd, chunk, sizeof(chunk));

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		buf_add(&r->text, chunk, (size_t)n);
		return;
	}
	close_reader(u, r);
	maybe_finished(u);
}

static void on_out(void *ctx, unsigned events)
{
	struct setup *u = ctx;

	take_text(u, &u->out);
}

static void on_err(void *ctx, unsigned events)
{
	struct setup *u = ctx;

	take_text(u, &u->err);
}

static void on_pid(void *ctx, unsigned events)
{
	struct setup *u = ctx;

	loop_remove(&u->sb->s->loop, &u->pid_src);
	u->code = child_reap(u->pidfd);
	fd_close(&u->pidfd);
	progress_drain(&u->progress);
	output_finish(&u->output);
	maybe_finished(u);
}

static json_t *output_event(void *ctx, const char *name)
{
	const struct setup *u = ctx;

	return json_pack("{s:I,s:s}", "id", (json_int_t)request_of(u), "event", name);
}

static void output_moved(void *ctx)
{
	maybe_finished(ctx);
}

/* The loop's environment, and the sandbox's variables for the command alone: what CLOCHE_HOME, HOME
 * or LD_PRELOAD is in the box is nothing to the programs that make the layer. */
static char **environment(const struct ses_options *o, char **ret_text)
{
	size_t n = 0, k = 0, room = 1;
	char **v, *at;

	while (environ[n])
		n++;
	for (size_t i = 0; i < o->n_env; i++)
		room += strlen(SETUP_ENV) + strlen(o->env[i]) + 1;
	v = calloc(n + o->n_env + 1, sizeof(*v));
	*ret_text = at = malloc(room);
	if (!v || !at) {
		free(v);
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		if (strncmp(environ[i], SETUP_ENV, strlen(SETUP_ENV)) != 0)
			v[k++] = environ[i];
	for (size_t i = 0; i < o->n_env; i++) {
		v[k++] = at;
		at = stpcpy(stpcpy(at, SETUP_ENV), o->env[i]) + 1;
	}
	return v;
}

static int open_reader(struct setup *u, struct reader *r, size_t max, int *theirs,
		       void (*ready)(void *, unsigned), struct err *e)
{
	buf_init(&r->text, max);
	if (fd_pipe(&r->fd, theirs) < 0)
		return err_sys(e, "a pipe");
	if (fcntl(r->fd, F_SETFL, O_NONBLOCK) == 0 &&
	    loop_add(&u->sb->s->loop, &r->src, r->fd, EPOLLIN, ready, u, e) == 0)
		return 0;
	fd_close(&r->fd);
	return -1;
}

static int open_output(struct setup *u, struct stream *t, const char *name, int *theirs,
		       struct err *e)
{
	_cleanup_fd_ int ours = -1;

	if (fd_pipe(&ours, theirs) < 0)
		return err_sys(e, "a pipe");
	if (output_open(&u->output, t, name, ours, KEPT_MAX, e) < 0)
		return -1;
	ours = -1;
	return 0;
}

static int run(struct setup *u, const struct ses_words *words, struct err *e)
{
	_cleanup_fd_ int out = -1, err = -1, their_out = -1, their_err = -1, progress = -1;
	char **argv = calloc(words->n + 2, sizeof(*argv)), *text = NULL,
	     **env = environment(&u->sb->options, &text);
	struct child_how how = { .path = u->sb->s->cloche, .n_fds = 6, .die_with_us = true };
	int rc = -1;

	if (!argv || !env) {
		err_set(e, ERR_SYS, "out of memory");
	} else if (open_reader(u, &u->out, SAID_MAX, &out, on_out, e) == 0 &&
		   open_reader(u, &u->err, COMPLAINT_MAX, &err, on_err, e) == 0 &&
		   open_output(u, &u->output.out, "stdout", &their_out, e) == 0 &&
		   open_output(u, &u->output.err, "stderr", &their_err, e) == 0 &&
		   progress_open(&u->progress, u->sb, &progress, e) == 0) {
		argv[0] = (char *)(uintptr_t) "cloche";
		memcpy(argv + 1, words->v, words->n * sizeof(*argv));
		how.argv = argv;
		how.env = env;
		memcpy(how.fds, (int[]){ -1, out, err }, 3 * sizeof(int));
		how.fds[SETUP_OUT] = their_out;
		how.fds[SETUP_ERR] = their_err;
		how.fds[SETUP_PROGRESS] = progress;
		rc = child_start(&how, &u->pidfd, e);
	}
	free(argv);
	free(env);
	free(text);
	if (rc < 0)
		return -1;
	rc = loop_add(&u->sb->s->loop, &u->pid_src, u->pidfd, EPOLLIN, on_pid, u, e);
	if (rc == 0) {
		output_run(&u->output);
		return 0;
	}
	child_kill(u->pidfd);
	child_reap(u->pidfd);
	fd_close(&u->pidfd);
	return -1;
}

/* ---- beginning ---- */

static void cancel(struct session *s, void *owner, uint64_t by)
{
	struct setup *u = owner;

	if (u->by || u->made) { /* it is ending already, or has made what it was to make */
		reply_done(s, by, NULL);
		return;
	}
	u->by = by;
	child_end(u->pidfd); /* whoever hears that it is cancelled may trust that the box is gone */
	maybe_finished(u);
}

static void ack(struct session *s, void *owner, size_t n)
{
	struct setup *u = owner;

	output_ack(&u->output, n);
}

uint64_t setup_id(const struct sandbox *sb)
{
	return sb->setup ? sb->setup->pending.id : 0;
}

void setup_ack(struct sandbox *sb, size_t n)
{
	if (sb->setup)
		output_ack(&sb->setup->output, n);
}

static int begin(struct sandbox *sb, const char *command, uint64_t timeout_us, bool live,
		 struct ses_error *e)
{
	_cleanup_words_ struct ses_words words = { 0 };
	struct setup *u;
	char *name;
	struct err why;

	if (ses_options_setup(&sb->options, sb->image, command, timeout_us, &words, &name, e) < 0)
		return -1;
	u = calloc(1, sizeof(*u));
	if (!u) {
		free(name);
		return ses_error_set(e, SES_SYSTEM, "out of memory");
	}
	u->sb = sb;
	u->name = name;
	u->own_deadline = timeout_us != 0;
	u->pidfd = u->out.fd = u->err.fd = u->progress.fd = -1;
	u->progress.sb = sb;
	output_init(&u->output, sb->s, u, output_event, output_moved);
	u->output.live = live;
	u->pending.cancel = cancel;
	u->pending.ack = ack;
	sb->setup = u;
	if (run(u, &words, &why) == 0)
		return 0;
	setup_free(u);
	return ses_error_err(e, &why);
}

void setup_of_open(struct sandbox *sb)
{
	struct ses_error e;

	if (begin(sb, sb->options.setup, 0, sb->live, &e) < 0)
		sandbox_refused(sb, &e);
}

void setup_operation(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_of(s, r);
	struct ses_error e;

	if (!sb)
		return;
	if (sb->setup) {
		reply_refuse(s, r->id, SES_BUSY, "a setup of this sandbox is on its way");
		return;
	}
	if (begin(sb, request_str(r, "command"), request_us(r, "timeout_s", 0),
		  request_bool(r, "stream", false), &e) < 0)
		reply_fail(s, r->id, &e);
	else
		pending_add(s, &sb->setup->pending, r->id, sb->setup);
}
