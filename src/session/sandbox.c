#include "session/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "session/call.h"
#include "session/files.h"
#include "session/setup.h"
#include "session/spawn.h"
#include "state/dirs.h"

#define FACTS_MAX (4u << 20)

static void maybe_gone(struct sandbox *sb);

struct sandbox *sandbox_of(struct session *s, const struct request *r)
{
	int64_t number = request_int(r, "sandbox", 0);
	struct sandbox *sb = s->sandboxes;

	while (sb && sb->number != number)
		sb = sb->next;
	if (sb && sb->state == SANDBOX_OPEN && !sb->closing)
		return sb;
	if (sb && sb->open.id)
		reply_refuse(s, r->id, SES_NOT_FOUND, "sandbox %lld is not open yet",
			     (long long)number);
	else if (number <= s->last_sandbox)
		reply_refuse(s, r->id, SES_CLOSED, "sandbox %lld is closed", (long long)number);
	else
		reply_refuse(s, r->id, SES_NOT_FOUND, "there is no sandbox %lld",
			     (long long)number);
	return NULL;
}

static json_t *member(const json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	return v ? json_incref(v) : json_pack("n");
}

json_t *sandbox_info(const struct sandbox *sb)
{
	return json_pack("{s:O,s:o,s:o,s:i}", "options", sb->options.effective, "image",
			 member(sb->outcome ? sb->outcome : sb->facts, "image"), "fault",
			 member(sb->outcome, "fault"), "calls", (int)sb->n_calls);
}

/* ---- what `open` is answered with ---- */

static void answer_open(struct sandbox *sb)
{
	json_t *notes = json_object_get(sb->facts, "notes");
	uint64_t id = sb->open.id;

	sb->state = SANDBOX_OPEN;
	pending_drop(sb->s, &sb->open);
	reply_done(sb->s, id,
		   json_pack("{s:i,s:o,s:o,s:o,s:o,s:I}", "sandbox", (int)sb->number, "fault",
			     member(sb->outcome, "fault"), "image",
			     member(sb->outcome ? sb->outcome : sb->facts, "image"), "workspace",
			     *sb->own ? json_pack("n") : json_string(sb->options.workspace),
			     "notes", json_is_array(notes) ? json_incref(notes) : json_array(),
			     "max_output_bytes", (json_int_t)sb->options.output));
}

/* The copy is there, or why it is not. */
static void forked(struct sandbox *to, json_t *error)
{
	uint64_t id = to->open.id;

	if (!error) {
		answer_open(to);
		return;
	}
	pending_drop(to->s, &to->open);
	reply_done(to->s, id, json_pack("{s:o}", "error", error));
	sandbox_end(to);
}

/* Its spawner has spoken: where its workspace is, is known. */
static void opened(struct sandbox *sb)
{
	struct sandbox *from = sb->from;

	sb->from = NULL;
	if (from)
		files_fork(from, sb, sb->open.id, forked);
	else
		answer_open(sb);
}

void sandbox_refused(struct sandbox *sb, const struct ses_error *e)
{
	uint64_t id = sb->open.id;

	if (sb->made) /* for nothing */
		rmdir(sb->options.workspace);
	pending_drop(sb->s, &sb->open);
	reply_fail(sb->s, id, e);
	sandbox_end(sb);
}

static void refused_err(struct sandbox *sb, const struct err *why)
{
	struct ses_error e;

	ses_error_err(&e, why);
	sandbox_refused(sb, &e);
}

json_t *sandbox_no_start(const char *stage, const char *message)
{
	struct result r = { 0 };
	json_t *outcome;

	result_fault(&r, FAULT_STARTUP_FAILED, stage, message);
	outcome = json_incref(r.outcome);
	result_free(&r);
	return outcome;
}

void sandbox_fault(struct sandbox *sb, json_t *outcome)
{
	json_decref(sb->outcome);
	sb->outcome = outcome;
	call_pump_queue(sb->s);
}

void sandbox_failed(struct sandbox *sb, json_t *outcome)
{
	sb->outcome = outcome;
	opened(sb);
}

/* ---- the spawner ---- */

/* One object of a memfd. */
static json_t *read_object(int fd)
{
	char *text = NULL;
	size_t n = 0;
	struct err ignored;
	json_t *o;

	if (fd < 0 || spawn_map(fd, FACTS_MAX, &text, &n, &ignored) < 0)
		return NULL;
	o = json_loadb(text ? text : "", n, JSON_REJECT_DUPLICATES, NULL);
	if (text)
		munmap(text, n);
	if (json_is_object(o))
		return o;
	json_decref(o);
	return NULL;
}

int sandbox_spawn(struct sandbox *sb, struct ses_error *e)
{
	_cleanup_words_ struct ses_words words = { 0 };
	const struct ses_place at = { .workspace = *sb->own ? sb->workspace : sb->options.workspace,
				      /* Not in place of a directory that it already has. */
				      .in_memory = *sb->own && (sb->open.id || sb->holder >= 0),
				      .image = sb->image };
	struct err why;

	if (ses_options_spawn(&sb->options, &at, &words, e) < 0)
		return -1;
	sb->coming = spawner_start(sb, words.v, words.n, &why);
	return sb->coming ? 0 : ses_error_err(e, &why);
}

/* A path that leads through what other boxes may change can lead elsewhere by now. */
static bool is_elsewhere(const struct sandbox *sb, const json_t *facts)
{
	const char *place = json_string_value(json_object_get(facts, "place"));

	return *sb->place && (!place || strcmp(place, sb->place) != 0);
}

static void take_ready(struct sandbox *sb, struct spawner *p, json_t *facts,
		       int fds[SPAWN_HELLO_FDS])
{
	if (*sb->own && sb->holder < 0 && fds[2] >= 0) {
		sb->dir = fd_steal(&fds[1]);
		sb->holder = fd_steal(&fds[2]);
		p->holds = true;
	}
	if (sb->current)
		spawner_retire(sb->current);
	sb->current = p;
	json_decref(sb->facts);
	sb->facts = facts;
	json_decref(sb->outcome);
	sb->outcome = NULL;
	if (sb->open.id)
		opened(sb);
	else
		setup_spawned(sb, NULL);
	call_pump_queue(sb->s);
}

static void take_failed(struct sandbox *sb, json_t *outcome)
{
	if (sb->open.id)
		sandbox_failed(sb, outcome);
	else
		setup_spawned(sb, outcome);
}

/* An outcome that a call can have. */
static json_t *sound_outcome(json_t *o)
{
	struct result r = { 0 };
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	struct err ignored;
	bool sound = text && result_read(&r, text, strlen(text), &ignored) == 0 &&
		     json_is_object(json_object_get(r.outcome, "fault"));
	json_t *ret = sound ? json_incref(r.outcome) : NULL;

	result_free(&r);
	free(text);
	json_decref(o);
	return ret;
}

void sandbox_hello(struct sandbox *sb, struct spawner *p, const struct spawn_hello *hello,
		   int fds[SPAWN_HELLO_FDS])
{
	json_t *said = read_object(fds[0]);
	struct ses_error error;

	if (sb->coming != p) { /* it was given up */
		json_decref(said);
		return;
	}
	sb->coming = NULL;
	if (hello->kind == SPAWN_READY && said && !is_elsewhere(sb, said)) {
		take_ready(sb, p, said, fds);
		return;
	}
	spawner_end(p);
	if (hello->kind == SPAWN_READY && said) {
		json_decref(said);
		take_failed(sb, sandbox_no_start("workspace", SES_ELSEWHERE));
		return;
	}
	if (sb->open.id && hello->kind == SPAWN_FAILED &&
	    (hello->err.kind == ERR_USAGE || hello->err.kind == ERR_REFUSED) &&
	    ses_options_blame(&hello->err, *hello->rule ? hello->rule : NULL, &error)) {
		json_decref(said);
		sandbox_refused(sb, &error);
		return;
	}
	said = hello->kind == SPAWN_FAILED ? sound_outcome(said) : NULL;
	if (!said)
		said = sandbox_no_start(
			"spec", hello->kind == SPAWN_FAILED
					? hello->err.msg
					: "the sandbox's spawner said nothing that can be read");
	take_failed(sb, said);
}

void sandbox_spawner_gone(struct sandbox *sb, struct spawner *p)
{
	bool coming = sb->coming == p, current = sb->current == p;

	if (coming)
		sb->coming = NULL;
	if (current)
		sb->current = NULL;
	if (sb->state == SANDBOX_CLOSING || (!coming && !current))
		return;
	if (coming)
		take_failed(sb, sandbox_no_start("spec", "the sandbox's spawner has ended"));
	else
		sandbox_fault(sb, sandbox_no_start("spec", "the sandbox's spawner has ended"));
}

/* Who waits for what is told: an `open`, or a `setup`. */
static uint64_t waiting(const struct sandbox *sb)
{
	return sb->open.id ? sb->open.id : setup_id(sb);
}

void sandbox_progress(struct sandbox *sb, const char *line, size_t n)
{
	static const struct {
		const char *theirs, *ours;
	} keys[] = { { "message", "text" },
		     { "text", "text" },
		     { "bytes", "size" },
		     { "total", "total" } };
	json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL), *said, *v;
	uint64_t id = waiting(sb);

	if (!json_is_string(json_object_get(o, "phase")) || !id || !out_room(&sb->s->out)) {
		json_decref(o);
		return;
	}
	said = json_pack("{s:O}", "phase", json_object_get(o, "phase"));
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if ((v = json_object_get(o, keys[i].theirs)) &&
		    (json_is_string(v) || json_is_integer(v)))
			json_object_set(said, keys[i].ours, v);
	reply_event(sb->s, id, "progress", said);
	json_decref(o);
}

/* ---- open and fork ---- */

/* A directory for as long as the sandbox lives. */
static int make_workspace(struct sandbox *sb, struct err *e)
{
	struct session *s = sb->s;
	char runtime[STATE_PATH_MAX], mine[STATE_PATH_MAX];

	if (!s->owned && state_owner_open(&s->owner, e) < 0)
		return -1;
	s->owned = true;
	snprintf(sb->own, sizeof(sb->own), "workspace-%u", sb->number);
	if (mkdirat(s->owner.fd, sb->own, 0700) < 0)
		return err_sys(e, "make a workspace");
	if (state_path(STATE_RUNTIME, runtime, e) < 0)
		return -1;
	if (path_join(mine, sizeof(mine), runtime, s->owner.name) < 0 ||
	    path_join(sb->workspace, sizeof(sb->workspace), mine, sb->own) < 0)
		return err_sys(e, "the workspace's path");
	return 0;
}

static void ack_open(struct session *s, void *owner, size_t n)
{
	setup_ack(owner, n);
}

static void cancel_open(struct session *s, void *owner, uint64_t by)
{
	struct ses_error e;

	ses_error_set(&e, SES_CANCELLED, "cancelled before the sandbox was open");
	sandbox_refused(owner, &e);
	reply_done(s, by, NULL);
}

/* A sandbox with these options, in the list; its `open` is request `id`. NULL: that is answered. */
static struct sandbox *sandbox_new(struct session *s, uint64_t id, json_t *given)
{
	struct sandbox *sb = NULL;
	struct ses_options options = { 0 };
	struct ses_error e;

	if (s->n_sandboxes >= SES_SANDBOXES_MAX)
		reply_refuse(s, id, SES_BUSY, "%d sandboxes are open: no more can be",
			     SES_SANDBOXES_MAX);
	else if (ses_options_parse(given, &options, &e) < 0)
		reply_fail(s, id, &e);
	else if (!(sb = calloc(1, sizeof(*sb))))
		reply_refuse(s, id, SES_SYSTEM, "out of memory");
	if (!sb) {
		ses_options_free(&options);
		return NULL;
	}
	sb->s = s;
	sb->options = options;
	sb->given = json_incref(given);
	sb->dir = sb->holder = -1;
	sb->number = ++s->last_sandbox;
	sb->next = s->sandboxes;
	s->sandboxes = sb;
	s->n_sandboxes++;
	sb->open.cancel = cancel_open;
	sb->open.ack = ack_open;
	pending_add(s, &sb->open, id, sb);
	return sb;
}

static int workspace_ready(struct sandbox *sb, struct ses_error *e)
{
	const char *named = sb->options.workspace;
	struct stat st;
	struct err why;

	if (named) {
		sb->made = access(named, F_OK) < 0;
		if (ses_workspace_make(named, &st, e) < 0)
			return -1;
		ses_place_text((uint64_t)st.st_dev, (uint64_t)st.st_ino, sb->place);
		return 0;
	}
	return make_workspace(sb, &why) < 0 ? ses_error_err(e, &why) : 0;
}

/* Its workspace is there. */
static void begin(struct sandbox *sb)
{
	struct ses_error e;

	if (sb->options.setup && !sb->image)
		setup_of_open(sb);
	else if (sandbox_spawn(sb, &e) < 0)
		sandbox_refused(sb, &e);
}

void sandbox_open(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_new(s, r->id, request_json(r, "options"));
	struct ses_error e;

	if (!sb)
		return;
	sb->live = request_bool(r, "stream", false);
	if (workspace_ready(sb, &e) < 0)
		sandbox_refused(sb, &e);
	else
		begin(sb);
}

void sandbox_fork(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_of(s, r), *to;
	struct err e;

	to = sb ? sandbox_new(s, r->id, sb->given) : NULL;
	if (!to)
		return;
	to->image = sb->image ? strdup(sb->image) : NULL;
	to->from = sb;
	if (make_workspace(to, &e) < 0)
		refused_err(to, &e);
	else
		begin(to);
}

/* One whose files were to be had goes. */
static void from_is_gone(const struct sandbox *sb)
{
	struct sandbox *next;
	struct ses_error e;

	ses_error_set(&e, SES_CLOSED, "sandbox %u is closed", sb->number);
	for (struct sandbox *to = sb->s->sandboxes; to; to = next) {
		next = to->next;
		if (to->from == sb)
			sandbox_refused(to, &e);
	}
}

/* ---- close ---- */

static void sandbox_free(struct sandbox *sb)
{
	struct session *s = sb->s;

	for (struct sandbox **p = &s->sandboxes; *p; p = &(*p)->next)
		if (*p == sb) {
			*p = sb->next;
			break;
		}
	s->n_sandboxes--;
	ses_options_free(&sb->options);
	json_decref(sb->given);
	json_decref(sb->facts);
	json_decref(sb->outcome);
	free(sb->image);
	fd_close(&sb->dir);
	fd_close(&sb->holder);
	loop_free(&s->loop, sb);
}

/* Its calls, then its processes, then its workspace. */
static void maybe_gone(struct sandbox *sb)
{
	if (sb->state != SANDBOX_CLOSING || sb->ending || sb->calls || sb->spawners || sb->files ||
	    sb->setup)
		return;
	if (*sb->own && !sb->swept && !sb->s->ending) {
		sb->swept = true;
		files_remove(sb);
	}
	if (sb->files)
		return;
	reply_done(sb->s, sb->closing, NULL);
	sandbox_free(sb);
}

/* Without calls the spawners are told to go; they are waited for. */
static void end_spawners(struct sandbox *sb)
{
	sb->coming = sb->current = NULL;
	for (struct spawner *p = sb->spawners, *next; p; p = next) {
		next = p->next;
		spawner_end(p);
	}
}

void sandbox_part_gone(struct sandbox *sb)
{
	if (sb->state != SANDBOX_CLOSING || sb->ending)
		return;
	sb->ending = true;
	if (!sb->calls)
		end_spawners(sb);
	sb->ending = false;
	maybe_gone(sb);
}

/* From here on it only goes. `ending` keeps it until all has been told to go. */
static void begin_end(struct sandbox *sb)
{
	sb->ending = true;
	sb->state = SANDBOX_CLOSING;
	sb->from = NULL;
	if (!sb->s->ending) /* else all of them go */
		from_is_gone(sb);
	setup_end(sb);
	files_fork_drop(sb);
	files_end(sb);
}

void sandbox_close(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_of(s, r);

	if (!sb)
		return;
	sb->closing = r->id;
	begin_end(sb);
	for (struct call *c = sb->calls, *next; c; c = next) {
		next = c->next_of_sandbox;
		call_close(c);
	}
	sb->ending = false;
	sandbox_part_gone(sb);
}

void sandbox_end(struct sandbox *sb)
{
	sb->closing = 0;
	pending_drop(sb->s, &sb->open);
	begin_end(sb);
	while (sb->calls)
		call_drop(sb->calls);
	sb->ending = false;
	sandbox_part_gone(sb);
}
