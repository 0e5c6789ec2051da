/* The session itself: reading requests, answering, and its end. */
#include "session/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/call.h"
#include "session/files.h"
#include "session/sandbox.h"
#include "session/setup.h"

#define FILES_MAX 65536 /* descriptors are asked for, at most */
#define FILES_OF_CALL 8 /* that a call needs while it starts */
#define FILES_OF_OURS 64
#define FILES_OF_CONN 2
#define FILES_OF_CONNS 64     /* that connections have, however few there are */
#define END_GRACE_US 10000000 /* how long the end waits for what it has ended */

static const char *const features[] = { "run",	"run_code", "background", "pty",
					"ack",	"files",    "changes",	  "snapshot",
					"fork", "setup",    "port" };

/* ---- answers ---- */

static json_t *answer(uint64_t id, const char *event, json_t *fields)
{
	json_t *head = json_pack("{s:I,s:s}", "id", (json_int_t)id, "event", event);

	if (fields) {
		json_object_update(head, fields);
		json_decref(fields);
	}
	return head;
}

void reply_event(struct session *s, uint64_t id, const char *event, json_t *fields)
{
	out_frame(&s->out, answer(id, event, fields));
}

void reply_bytes(struct session *s, uint64_t id, const char *event, const void *bytes, size_t n)
{
	out_frame_bytes(&s->out, answer(id, event, NULL), bytes, n);
}

void reply_done(struct session *s, uint64_t id, json_t *fields)
{
	if (id)
		reply_event(s, id, "done", fields);
	else
		json_decref(fields);
}

void reply_fail(struct session *s, uint64_t id, const struct ses_error *e)
{
	if (id)
		reply_event(s, id, "done", json_pack("{s:o}", "error", ses_error_json(e)));
}

void reply_refuse(struct session *s, uint64_t id, enum ses_error_type type, const char *fmt, ...)
{
	struct ses_error e;
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ses_error_set(&e, type, "%s", text);
	reply_fail(s, id, &e);
}

void reply_err(struct session *s, uint64_t id, const struct err *e)
{
	reply_refuse(s, id, SES_SYSTEM, "%s", e->msg);
}

/* ---- requests without an answer ---- */

void pending_add(struct session *s, struct pending *p, uint64_t id, void *owner)
{
	struct pending **at = &s->pending[id % SES_BUCKETS];

	p->id = id;
	p->owner = owner;
	p->next = *at;
	*at = p;
	s->n_pending++;
}

void pending_drop(struct session *s, struct pending *p)
{
	if (!p->id)
		return;
	for (struct pending **at = &s->pending[p->id % SES_BUCKETS]; *at; at = &(*at)->next)
		if (*at == p) {
			*at = p->next;
			s->n_pending--;
			break;
		}
	p->id = 0;
}

struct pending *pending_find(struct session *s, uint64_t id)
{
	struct pending *p = s->pending[id % SES_BUCKETS];

	while (p && p->id != id)
		p = p->next;
	return p;
}

/* ---- room ---- */

void pump_wait(struct session *s, struct pump *p, void (*go)(void *ctx), void *ctx)
{
	if (p->waits)
		return;
	*p = (struct pump){ .waits = true,
			    .prev = s->room.prev,
			    .next = &s->room,
			    .go = go,
			    .ctx = ctx };
	p->prev->next = p;
	p->next->prev = p;
}

void pump_drop(struct pump *p)
{
	if (!p->waits)
		return;
	p->prev->next = p->next;
	p->next->prev = p->prev;
	p->waits = false;
}

/* Each in turn, so that none holds up the others; and none twice in a round. */
static void pump_all(struct session *s)
{
	struct pump *last = s->room.prev, *p;

	while (out_room(&s->out) && (p = s->room.next) != &s->room) {
		pump_drop(p);
		p->go(p->ctx);
		if (p == last)
			break;
	}
}

/* ---- operations ---- */

static void op_hello(struct session *s, const struct request *r)
{
	json_t *list = json_array();

	if (s->greeted) {
		json_decref(list);
		reply_refuse(s, r->id, SES_PROTOCOL, "hello was said already");
		return;
	}
	s->greeted = true;
	s->acks = request_bool(r, "ack", false);
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		json_array_append_new(list, json_string(features[i]));
	reply_done(s, r->id,
		   json_pack("{s:i,s:s,s:o}", "protocol", SES_PROTOCOL_VERSION, "version",
			     CLOCHE_VERSION, "features", list));
}

/* Options that just fit into a line do not with what is told beside them. */
static void answer_info(struct session *s, uint64_t id, json_t *info)
{
	if (json_dumpb(info, NULL, 0, JSON_COMPACT) < FRAME_LINE_MAX - 128) {
		reply_done(s, id, info);
		return;
	}
	json_decref(info);
	reply_refuse(s, id, SES_TOO_LARGE, "the sandbox's options are larger than an answer");
}

static void op_info(struct session *s, const struct request *r)
{
	struct sandbox *sb;
	int open = 0;

	if (request_json(r, "sandbox")) {
		sb = sandbox_of(s, r);
		if (sb)
			answer_info(s, r->id, sandbox_info(sb));
		return;
	}
	for (sb = s->sandboxes; sb; sb = sb->next)
		open += sb->state != SANDBOX_CLOSING;
	reply_done(s, r->id,
		   json_pack("{s:s,s:i,s:i,s:i,s:i}", "version", CLOCHE_VERSION, "boxes",
			     (int)s->boxes, "queued", (int)s->queued, "calls", (int)s->calls,
			     "sandboxes", open));
}

/* The id of any request that has no answer yet. */
static void op_cancel(struct session *s, const struct request *r)
{
	struct pending *p = pending_find(s, (uint64_t)request_int(r, "call", 0));

	if (!p)
		reply_refuse(s, r->id, SES_NOT_FOUND, "there is no request %lld without an answer",
			     (long long)request_int(r, "call", 0));
	else if (!p->cancel)
		reply_refuse(s, r->id, SES_UNSUPPORTED, "request %lld can't be cancelled",
			     (long long)p->id);
	else
		p->cancel(s, p->owner, r->id);
}

/* One that comes late, of what has ended, is passed over. */
static void op_ack(struct session *s, const struct request *r)
{
	struct pending *p = pending_find(s, (uint64_t)request_int(r, "call", 0));

	if (p && p->ack)
		p->ack(s, p->owner, (size_t)request_int(r, "size", 0));
}

void serve_operation(struct session *s, struct request *r)
{
	switch (r->op) {
	case OP_HELLO:
		op_hello(s, r);
		break;
	case OP_OPEN:
		sandbox_open(s, r);
		break;
	case OP_CLOSE:
		sandbox_close(s, r);
		break;
	case OP_INFO:
		op_info(s, r);
		break;
	case OP_RUN:
	case OP_RUN_CODE:
	case OP_START:
		call_begin(s, r);
		break;
	case OP_WRITE_FILE:
	case OP_READ_FILE:
	case OP_LIST_FILES:
	case OP_STAT:
	case OP_REMOVE:
	case OP_MAKE_DIR:
	case OP_RENAME:
	case OP_SNAPSHOT:
	case OP_RESTORE:
		files_operation(s, r);
		break;
	case OP_SETUP:
		setup_operation(s, r);
		break;
	case OP_FORK:
		sandbox_fork(s, r);
		break;
	case OP_CANCEL:
		op_cancel(s, r);
		break;
	case OP_ACK:
		op_ack(s, r);
		break;
	case OP_WAIT:
	case OP_SIGNAL:
	case OP_STDIN:
	case OP_RESIZE:
	case OP_PORT:
		call_operation(s, r);
		break;
	default:
		reply_refuse(s, r->id, SES_UNSUPPORTED, "%s: this version does not have it yet",
			     ses_ops[r->op].name);
	}
}

static void take_more(struct session *s, const struct request *r)
{
	struct pending *p = pending_find(s, r->id);

	/* Of a request that was answered already, the rest is passed over. */
	if (p && p->more)
		p->more(s, p->owner, r);
}

static bool admit(struct session *s, const struct request *r, struct ses_error *e)
{
	if (!s->greeted && r->op != OP_HELLO)
		return ses_error_set(e, SES_PROTOCOL, "the first request is hello") == 0;
	if (s->n_pending >= SES_PENDING_MAX)
		return ses_error_set(e, SES_BUSY, "more than %d requests wait for an answer",
				     SES_PENDING_MAX) == 0;
	return true;
}

static void take(struct session *s, const struct frame *f)
{
	struct ses_error e;
	struct request r;
	uint64_t id;

	if (request_read(f, &r, &id, &e) < 0) {
		/* A request that has no id can't be answered: the event goes to nobody. */
		if (id && !pending_find(s, id))
			reply_fail(s, id, &e);
		else
			out_frame(&s->out, json_pack("{s:s,s:o}", "event", "error", "error",
						     ses_error_json(&e)));
		return;
	}
	if (r.op == OP_MORE) {
		take_more(s, &r);
		return;
	}
	if (pending_find(s, r.id)) {
		ses_error_set(&e, SES_PROTOCOL, "the id %llu is in use", (unsigned long long)r.id);
		out_frame(&s->out,
			  json_pack("{s:s,s:o}", "event", "error", "error", ses_error_json(&e)));
		return;
	}
	if (!admit(s, &r, &e))
		reply_fail(s, r.id, &e);
	else if (r.more && r.op != OP_WRITE_FILE) /* which needs not be gathered */
		upload_begin(s, &r);
	else
		serve_operation(s, &r);
}

/* ---- the loop ---- */

static void end_session(struct session *s, int code)
{
	if (s->ending)
		return;
	s->ending = true;
	s->code = code;
	loop_remove(&s->loop, &s->in_src);
}

static void fatal(struct session *s, const struct ses_error *e)
{
	out_frame(&s->out, json_pack("{s:s,s:o}", "event", "fatal", "error", ses_error_json(e)));
	end_session(s, 1);
}

/* Reading stops when there is no room for answers; what was read is worked off first. */
static void take_frames(struct session *s)
{
	struct ses_error e;
	int rc;

	s->unread = true;
	while (!s->ending && out_room(&s->out) && !s->stalled) {
		_cleanup_frame_ struct frame f = { 0 };

		rc = frame_next(&s->in, &f, &e);
		s->unread = rc != 0;
		if (rc == 0)
			return;
		if (rc < 0)
			fatal(s, &e);
		else
			take(s, &f);
	}
}

static void on_in(void *ctx, unsigned events)
{
	struct session *s = ctx;
	struct ses_error e;
	size_t room;
	char *to = frame_room(&s->in, &room);
	ssize_t n = events & EPOLLIN ? read(s->in_fd, to, room) : 0;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		/* Of a client that is gone with answers on their way, not all was read. */
		if (frame_begun(&s->in) && !s->unread && s->in_src.events & EPOLLIN) {
			ses_error_set(&e, SES_PROTOCOL, "the input ended within a frame");
			fatal(s, &e);
		}
		end_session(s, 0);
		return;
	}
	frame_fed(&s->in, (size_t)n);
	take_frames(s);
}

static void on_out(void *ctx, unsigned events)
{
	struct session *s = ctx;

	if (events & EPOLLERR)
		s->out.failed = true;
}

static void on_stop(void *ctx, unsigned events)
{
	struct session *s = ctx;
	struct signalfd_siginfo info;

	if (read(s->stop_src.fd, &info, sizeof(info)) == sizeof(info))
		end_session(s, 128 + (int)info.ssi_signo);
}

/* Between two rounds: what can be sent is, and what waited for room gets it. */
static void settle(struct session *s)
{
	bool on;

	for (int i = 0; i < 8; i++) {
		out_flush(&s->out);
		if (!out_room(&s->out) || (s->room.next == &s->room && i > 0))
			break;
		pump_all(s);
		take_frames(s);
	}
	out_flush(&s->out);
	if (s->out.failed)
		end_session(s, 0);
	/* Whoever still waits for room after so many turns goes on in the next round, and so do
	 * frames that were read, which the client's pipe tells of no more. */
	on = out_waiting(&s->out) > 0 || s->room.next != &s->room || (s->unread && !s->stalled);
	loop_want(&s->loop, &s->out_src, on ? EPOLLOUT : 0);
	/* A client that is gone is noticed even while nothing is read of it. */
	loop_want(&s->loop, &s->in_src,
		  out_room(&s->out) && !s->stalled ? EPOLLIN | EPOLLRDHUP : EPOLLRDHUP);
}

/* Everything that was started ends; then all that is left of it on the disk goes. */
static void end_all(struct session *s)
{
	uint64_t until = loop_now() + END_GRACE_US;
	struct err e;

	for (struct sandbox *sb = s->sandboxes, *next; sb; sb = next) {
		next = sb->next;
		sandbox_end(sb);
	}
	while (s->sandboxes && loop_now() < until) {
		out_flush(&s->out);
		loop_want(&s->loop, &s->out_src, 0);
		if (loop_round(&s->loop, 100, &e) < 0)
			break;
	}
	out_flush(&s->out);
}

/* ---- start ---- */

/* Only pipes and sockets are made not to block: the description of a terminal or a file is shared
 * with others. */
static void unblock(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* As many boxes, and connections beside them, as there are descriptors for. */
static void count_boxes(struct session *s, const struct serve_options *o)
{
	struct rlimit files;
	rlim_t left = 0;

	s->conns_max = SES_CONNS;
	s->boxes_max = o->boxes_max ? o->boxes_max : SES_BOXES;
	s->queue_max = o->queue_max ? o->queue_max : SES_QUEUE;
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return;
	files.rlim_cur = files.rlim_max < FILES_MAX ? files.rlim_max : FILES_MAX;
	setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_cur > FILES_OF_OURS + FILES_OF_CONNS)
		left = files.rlim_cur - FILES_OF_OURS - FILES_OF_CONNS;
	if (s->boxes_max > left / FILES_OF_CALL)
		s->boxes_max = left < FILES_OF_CALL ? 1 : (unsigned)(left / FILES_OF_CALL);
	left = left > s->boxes_max * FILES_OF_CALL ? left - s->boxes_max * FILES_OF_CALL : 0;
	left = (left + FILES_OF_CONNS) / FILES_OF_CONN;
	s->conns_max = left < SES_CONNS ? (unsigned)left : SES_CONNS;
}

static int open_session(struct session *s, const struct serve_options *o, struct err *e)
{
	sigset_t stop;
	int fd;

	s->in_fd = o->in;
	s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	s->cloche = o->cloche;
	s->room.prev = s->room.next = &s->room;
	s->queue_end = &s->queue;
	out_open(&s->out, o->out);
	count_boxes(s, o);
	if (isatty(o->in))
		fputs("cloche serve: reads a program's requests from standard input, such as a "
		      "Python or Node package's (docs/PROTOCOL.md); Ctrl-D ends it\n",
		      stderr);
	else
		setsid(); /* the terminal's signals are the client's business */
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&stop);
	sigaddset(&stop, SIGTERM);
	sigaddset(&stop, SIGHUP);
	sigaddset(&stop, SIGINT);
	sigprocmask(SIG_BLOCK, &stop, NULL);
	fd = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0 || frame_reader_open(&s->in) < 0)
		return err_sys(e, "begin a session");
	unblock(o->in);
	unblock(o->out);
	if (loop_open(&s->loop, e) < 0 ||
	    loop_add(&s->loop, &s->stop_src, fd, EPOLLIN, on_stop, s, e) < 0 ||
	    loop_add(&s->loop, &s->in_src, o->in, EPOLLIN | EPOLLRDHUP, on_in, s, e) < 0 ||
	    loop_add(&s->loop, &s->out_src, o->out, 0, on_out, s, e) < 0)
		return -1;
	return 0;
}

int serve(const struct serve_options *o)
{
	static struct session session;
	struct session *s = &session;
	struct err e;

	state_sweep(16); /* what was left by one that was killed */
	if (open_session(s, o, &e) < 0) {
		fprintf(stderr, "cloche serve: %s\n", e.msg);
		return 1;
	}
	while (!s->ending) {
		if (loop_round(&s->loop, -1, &e) < 0)
			end_session(s, 1);
		settle(s);
	}
	end_all(s);
	upload_drop_all(s);
	frame_reader_close(&s->in);
	out_close(&s->out);
	if (s->owned)
		state_owner_close(&s->owner);
	fd_close(&s->stop_src.fd);
	fd_close(&s->spare);
	loop_close(&s->loop);
	return s->code;
}
