#include "session/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "session/call.h"
#include "session/child.h"
#include "session/files.h"
#include "session/spawn.h"
#include "state/dirs.h"

#define FACTS_MAX (1u << 20)

extern char **environ;

static void maybe_gone(struct sandbox *sb);

struct sandbox *sandbox_of(struct session *s, const struct request *r)
{
	int64_t number = request_int(r, "sandbox", 0);
	struct sandbox *sb = s->sandboxes;

	while (sb && sb->number != number)
		sb = sb->next;
	if (sb && !sb->closing && sb->state != SANDBOX_OPENING)
		return sb;
	if (number <= s->last_sandbox)
		reply_refuse(s, r->id, SES_CLOSED, "sandbox %lld is closed", (long long)number);
	else
		reply_refuse(s, r->id, SES_NOT_FOUND, "there is no sandbox %lld",
			     (long long)number);
	return NULL;
}

/* ---- the spawner's words ---- */

static void close_sock(struct sandbox *sb)
{
	if (sb->sock >= 0)
		loop_remove(&sb->s->loop, &sb->sock_src);
	fd_close(&sb->sock);
}

static void close_progress(struct sandbox *sb)
{
	if (sb->progress >= 0)
		loop_remove(&sb->s->loop, &sb->progress_src);
	fd_close(&sb->progress);
}

/* One object of a memfd. */
static int read_object(int fd, json_t **ret, struct err *e)
{
	char *text = NULL;
	size_t n = 0;
	json_t *o;

	if (spawn_map(fd, FACTS_MAX, &text, &n, e) < 0)
		return -1;
	o = json_loadb(text ? text : "", n, JSON_REJECT_DUPLICATES, NULL);
	if (text)
		munmap(text, n);
	if (!json_is_object(o)) {
		json_decref(o);
		return err_set(e, ERR_SYS, "what came is no object");
	}
	*ret = o;
	return 0;
}

static json_t *member(const json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	return v ? json_incref(v) : json_pack("n");
}

/* What `open` is answered with. */
static json_t *opened(const struct sandbox *sb)
{
	json_t *notes = json_object_get(sb->facts, "notes");

	return json_pack("{s:i,s:o,s:o,s:o,s:o,s:I}", "sandbox", (int)sb->number, "fault",
			 member(sb->outcome, "fault"), "image",
			 member(sb->outcome ? sb->outcome : sb->facts, "image"), "workspace",
			 sb->options.workspace ? json_string(sb->options.workspace)
					       : json_pack("n"),
			 "notes", notes ? json_incref(notes) : json_array(), "max_output_bytes",
			 (json_int_t)sb->options.output);
}

static void answer_open(struct sandbox *sb)
{
	uint64_t id = sb->open.id;

	pending_drop(sb->s, &sb->open);
	reply_done(sb->s, id, opened(sb));
	call_pump_queue(sb->s);
}

static void fail_open(struct sandbox *sb, const struct ses_error *e)
{
	uint64_t id = sb->open.id;

	pending_drop(sb->s, &sb->open);
	reply_fail(sb->s, id, e);
	sandbox_end(sb);
}

/* No box can be had from now on. */
static void set_fault(struct sandbox *sb, const char *message)
{
	struct result r = { 0 };

	result_fault(&r, FAULT_STARTUP_FAILED, "spec", message);
	json_decref(sb->outcome);
	sb->outcome = json_incref(r.outcome);
	result_free(&r);
}

static void on_failed(struct sandbox *sb, const struct spawn_hello *hello, int fd)
{
	struct ses_error error;
	struct err e;

	if (hello->err.kind == ERR_USAGE || *hello->rule) {
		ses_options_blame(&hello->err, *hello->rule ? hello->rule : NULL, &error);
		fail_open(sb, &error);
		return;
	}
	if (fd < 0 || read_object(fd, &sb->outcome, &e) < 0)
		set_fault(sb, hello->err.msg);
	sb->state = SANDBOX_FAILED;
	answer_open(sb);
}

static void on_hello(struct sandbox *sb, const struct spawn_hello *hello, int fd)
{
	struct err e;

	if (sb->state != SANDBOX_OPENING)
		return;
	if (hello->kind == SPAWN_FAILED) {
		on_failed(sb, hello, fd);
		return;
	}
	if (hello->kind != SPAWN_READY || read_object(fd, &sb->facts, &e) < 0) {
		set_fault(sb, "what makes the sandbox's boxes said nothing that can be read");
		sb->state = SANDBOX_FAILED;
	} else {
		sb->state = SANDBOX_READY;
	}
	answer_open(sb);
}

static void on_sock(void *ctx, unsigned events)
{
	struct sandbox *sb = ctx;
	struct spawn_hello hello;
	int fd = -1, rc = spawn_recv_hello(sb->sock, &hello, &fd);

	if (rc < 0 && errno == EAGAIN)
		return;
	if (rc == 1) {
		on_hello(sb, &hello, fd);
		fd_close(&fd);
		return;
	}
	close_sock(sb);
	if (sb->state == SANDBOX_CLOSING || sb->outcome)
		return;
	set_fault(sb, "what makes the sandbox's boxes has ended");
	if (sb->state == SANDBOX_OPENING) {
		sb->state = SANDBOX_FAILED;
		answer_open(sb);
	}
}

/* ---- progress ---- */

static void tell_progress(struct sandbox *sb, const char *line, size_t n)
{
	json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL), *v;
	static const char *const keys[] = { "phase", "text", "size", "total" };
	json_t *said;

	if (!json_is_object(o) || !sb->open.id || !out_room(&sb->s->out)) {
		json_decref(o);
		return;
	}
	said = json_object();
	if ((v = json_object_get(o, "bytes")))
		json_object_set(o, "size", v);
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if ((v = json_object_get(o, keys[i])) && (json_is_string(v) || json_is_integer(v)))
			json_object_set(said, keys[i], v);
	reply_event(sb->s, sb->open.id, "progress", said);
	json_decref(o);
}

static void on_progress(void *ctx, unsigned events)
{
	struct sandbox *sb = ctx;
	ssize_t n = read(sb->progress, sb->line + sb->line_n, sizeof(sb->line) - sb->line_n);
	char *from = sb->line, *nl;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		close_progress(sb);
		return;
	}
	sb->line_n += (size_t)n;
	while ((nl = memchr(from, '\n', sb->line_n - (size_t)(from - sb->line)))) {
		tell_progress(sb, from, (size_t)(nl - from));
		from = nl + 1;
	}
	sb->line_n -= (size_t)(from - sb->line);
	memmove(sb->line, from, sb->line_n);
	if (sb->line_n == sizeof(sb->line)) /* no line of ours */
		sb->line_n = 0;
}

/* ---- open ---- */

static void on_pid(void *ctx, unsigned events)
{
	struct sandbox *sb = ctx;

	loop_remove(&sb->s->loop, &sb->pid_src);
	child_reap(sb->pidfd);
	fd_close(&sb->pidfd);
	maybe_gone(sb);
}

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

static int start_spawner(struct sandbox *sb, char *const *words, size_t n, struct err *e)
{
	_cleanup_fd_ int theirs = -1, progress = -1;
	struct loop *l = &sb->s->loop;
	char **argv = calloc(n + 2, sizeof(*argv));
	struct child_how how = { .path = sb->s->cloche, .env = environ, .n_fds = 5 };
	int pair[2], rc;

	if (!argv)
		return err_sys(e, "start a sandbox");
	argv[0] = (char *)(uintptr_t) "cloche";
	memcpy(argv + 1, words, n * sizeof(*argv));
	how.argv = argv;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		free(argv);
		return err_sys(e, "a socket");
	}
	sb->sock = pair[0];
	theirs = pair[1];
	rc = fd_pipe(&sb->progress, &progress) < 0 ? err_sys(e, "a pipe") : 0;
	if (rc == 0) {
		fcntl(sb->sock, F_SETFL, O_NONBLOCK);
		fcntl(sb->progress, F_SETFL, O_NONBLOCK);
		how.fds[0] = how.fds[1] = -1;
		how.fds[2] = STDERR_FILENO;
		how.fds[SPAWN_SOCKET] = theirs;
		how.fds[SPAWN_PROGRESS] = progress;
		rc = child_start(&how, &sb->pidfd, e);
	}
	free(argv);
	if (rc < 0 || loop_add(l, &sb->sock_src, sb->sock, EPOLLIN, on_sock, sb, e) < 0 ||
	    loop_add(l, &sb->progress_src, sb->progress, EPOLLIN, on_progress, sb, e) < 0 ||
	    loop_add(l, &sb->pid_src, sb->pidfd, EPOLLIN, on_pid, sb, e) < 0)
		return -1;
	return 0;
}

static int begin(struct sandbox *sb, struct ses_error *error)
{
	_cleanup_words_ struct ses_words words = { 0 };
	struct ses_place at = { 0 };
	struct err e;

	at.workspace = *sb->own ? sb->workspace : sb->options.workspace;
	if (ses_options_spawn(&sb->options, &at, &words, error) < 0)
		return -1;
	return start_spawner(sb, words.v, words.n, &e) < 0
		       ? ses_error_set(error, SES_SYSTEM, "%s", e.msg)
		       : 0;
}

static void cancel_open(struct session *s, void *owner, uint64_t by)
{
	struct ses_error e;

	ses_error_set(&e, SES_CANCELLED, "cancelled before the sandbox was open");
	fail_open(owner, &e);
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
	sb->number = ++s->last_sandbox;
	sb->sock = sb->pidfd = sb->progress = -1;
	sb->next = s->sandboxes;
	s->sandboxes = sb;
	s->n_sandboxes++;
	sb->open.cancel = cancel_open;
	pending_add(s, &sb->open, id, sb);
	return sb;
}

static void fail_open_err(struct sandbox *sb, const struct err *why)
{
	struct ses_error e;

	ses_error_err(&e, why);
	fail_open(sb, &e);
}

void sandbox_open(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_new(s, r->id, request_json(r, "options"));
	struct ses_error error;
	struct err e;

	if (!sb)
		return;
	if (!sb->options.workspace && make_workspace(sb, &e) < 0)
		fail_open_err(sb, &e);
	else if (begin(sb, &error) < 0)
		fail_open(sb, &error);
}

/* The copy is there. */
static void forked(struct sandbox *to, json_t *error)
{
	uint64_t id = to->open.id;
	struct ses_error e;

	if (error) {
		pending_drop(to->s, &to->open);
		reply_done(to->s, id, json_pack("{s:o}", "error", error));
		sandbox_end(to);
	} else if (begin(to, &e) < 0) {
		fail_open(to, &e);
	}
}

void sandbox_fork(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_of(s, r), *to;
	struct err e;

	to = sb ? sandbox_new(s, r->id, sb->given) : NULL;
	if (!to)
		return;
	if (make_workspace(to, &e) < 0)
		fail_open_err(to, &e);
	else
		files_fork(sb, to, r->id, forked);
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
	loop_free(&s->loop, sb);
}

/* Its calls, then its processes, then its workspace. */
static void maybe_gone(struct sandbox *sb)
{
	if (sb->state != SANDBOX_CLOSING || sb->calls || sb->pidfd >= 0 || sb->files)
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

/* Without calls the spawner is told to go; it is waited for. */
static void end_processes(struct sandbox *sb)
{
	if (sb->state == SANDBOX_CLOSING && !sb->calls) {
		close_sock(sb);
		close_progress(sb);
	}
	maybe_gone(sb);
}

void sandbox_part_gone(struct sandbox *sb)
{
	end_processes(sb);
}

void sandbox_close(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_of(s, r);

	if (!sb)
		return;
	sb->closing = r->id;
	for (struct call *c = sb->calls, *next; c; c = next) {
		next = c->next_of_sandbox;
		if (c->state == CALL_KEPT && c->background && !c->wait.id)
			call_drop(c);
		else
			call_cancel(c);
	}
	files_end(sb);
	sb->state = SANDBOX_CLOSING;
	end_processes(sb);
}

void sandbox_end(struct sandbox *sb)
{
	if (sb->open.id)
		pending_drop(sb->s, &sb->open);
	sb->closing = 0;
	sb->state = SANDBOX_FAILED; /* while its calls go, it stays */
	while (sb->calls)
		call_drop(sb->calls);
	files_fork_drop(sb);
	files_end(sb);
	sb->state = SANDBOX_CLOSING;
	end_processes(sb);
}

json_t *sandbox_info(const struct sandbox *sb)
{
	return json_pack("{s:O,s:o}", "options", sb->options.effective, "image",
			 member(sb->outcome ? sb->outcome : sb->facts, "image"));
}
