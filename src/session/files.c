#include "session/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/child.h"
#include "session/worker.h"

#define STALL (4u << 20) /* with more on the way to a worker, no further request is read */

/* A request that a worker has. */
struct file_op {
	struct files *files;
	struct file_op *next;
	struct pending pending;
	uint64_t number; /* of the worker's */
	uint64_t by;	 /* the cancel that ended it; 0: none */
};

/* A worker; or the process that removes a workspace, which is only waited for. */
struct files {
	struct session *s;
	struct sandbox *sb;
	struct files *next;
	bool once; /* for one request */
	int fd, life, pidfd;
	struct source src, pid_src;
	struct out to;
	struct frame_reader from;
	bool stalls, held;
	struct pump pump;
	struct file_op *ops;
	unsigned n_ops;
	uint64_t handed; /* operations, so far */
	struct worker_cancels *cancels;
	struct sandbox *fork;
	void (*forked)(struct sandbox *to, json_t *error);
};

extern char **environ;

static void files_read(struct files *f);

/* ---- the end of one ---- */

static void op_free(struct file_op *op)
{
	struct files *f = op->files;

	for (struct file_op **p = &f->ops; *p; p = &(*p)->next)
		if (*p == op) {
			*p = op->next;
			break;
		}
	f->n_ops--;
	pending_drop(f->s, &op->pending);
	reply_done(f->s, op->by, NULL);
	free(op);
}

static void fail_all(struct files *f, enum ses_error_type type, const char *message)
{
	struct sandbox *to = f->fork;
	struct ses_error e;

	while (f->ops) {
		struct file_op *op = f->ops;

		f->ops = op->next;
		if (op->by)
			reply_refuse(f->s, op->pending.id, SES_CANCELLED, "cancelled");
		else
			reply_refuse(f->s, op->pending.id, type, "%s", message);
		op_free(op);
	}
	f->fork = NULL;
	if (!to)
		return;
	to->forking = NULL;
	ses_error_set(&e, type, "%s", message);
	f->forked(to, ses_error_json(&e));
}

static void unstall(struct files *f)
{
	if (f->stalls)
		f->s->stalled--;
	f->stalls = false;
}

static void hang_up(struct files *f)
{
	if (f->fd >= 0)
		loop_remove(&f->s->loop, &f->src);
	fd_close(&f->fd);
	fd_close(&f->life);
	f->to.failed = true; /* its descriptor may be another's by now */
	pump_drop(&f->pump);
	unstall(f);
}

static void maybe_free(struct files *f)
{
	struct sandbox *sb = f->sb;

	if (f->fd >= 0 || f->pidfd >= 0)
		return;
	fail_all(f, SES_SYSTEM, "the process that works with the files has ended");
	for (struct files **p = &sb->files; *p; p = &(*p)->next)
		if (*p == f) {
			*p = f->next;
			break;
		}
	frame_reader_close(&f->from);
	out_close(&f->to);
	if (f->cancels)
		munmap(f->cancels, sizeof(*f->cancels));
	loop_free(&f->s->loop, f);
	sandbox_part_gone(sb);
}

static void on_pid(void *ctx, unsigned events)
{
	struct files *f = ctx;

	loop_remove(&f->s->loop, &f->pid_src);
	child_reap(f->pidfd);
	fd_close(&f->pidfd);
	maybe_free(f);
}

void files_end(struct sandbox *sb)
{
	for (struct files *f = sb->files, *next; f; f = next) {
		next = f->next;
		if (f->fd < 0 && sb->s->ending) /* what it removes goes with the session */
			child_kill(f->pidfd);
		hang_up(f);
		fail_all(f, SES_CLOSED, "the sandbox was closed");
	}
}

/* ---- both ways ---- */

static void files_write(struct files *f)
{
	out_flush(&f->to);
	if (f->to.failed) { /* its end will be seen where it is read */
		unstall(f);
		return;
	}
	if (out_waiting(&f->to) > STALL && !f->stalls) {
		f->stalls = true;
		f->s->stalled++;
	} else if (out_waiting(&f->to) <= STALL) {
		unstall(f);
	}
	if (!f->held)
		loop_want(&f->s->loop, &f->src, EPOLLIN | (out_waiting(&f->to) > 0 ? EPOLLOUT : 0));
}

static void on_socket(void *ctx, unsigned events)
{
	struct files *f = ctx;

	if (events & EPOLLOUT)
		files_write(f);
	if (f->fd >= 0 && events & ~(unsigned)EPOLLOUT)
		files_read(f);
}

static void resume(void *ctx)
{
	struct files *f = ctx;
	struct err e;

	f->held = false;
	if (loop_add(&f->s->loop, &f->src, f->fd, EPOLLIN, on_socket, f, &e) < 0) {
		child_kill(f->pidfd);
		return;
	}
	files_write(f);
	files_read(f);
}

static struct file_op *find_op(struct files *f, uint64_t id)
{
	struct file_op *op = f->ops;

	while (op && op->pending.id != id)
		op = op->next;
	return op;
}

static bool is_event(const json_t *head, const char *event)
{
	const char *said = json_string_value(json_object_get(head, "event"));

	return said && strcmp(said, event) == 0;
}

static void fork_answered(struct files *f, json_t *head)
{
	struct sandbox *to = f->fork;
	json_t *error = json_object_get(head, "error");

	f->fork = NULL;
	if (!to)
		return;
	to->forking = NULL;
	f->forked(to, error ? json_incref(error) : NULL);
}

/* A frame of the worker's. False when it is none that a worker sends. */
static bool answered(struct files *f, struct frame *frame)
{
	uint64_t id = (uint64_t)json_integer_value(json_object_get(frame->head, "id"));
	struct file_op *op = find_op(f, id);
	bool done = is_event(frame->head, "done");

	if (!done && !is_event(frame->head, "data") && !is_event(frame->head, "files"))
		return false;
	if (op && op->by && json_object_get(frame->head, "error"))
		reply_refuse(f->s, id, SES_CANCELLED, "cancelled");
	else if (op && frame->with_bytes)
		out_frame_bytes(&f->s->out, json_incref(frame->head), frame->bytes, frame->n);
	else if (op)
		out_frame(&f->s->out, json_incref(frame->head));
	else if (done)
		fork_answered(f, frame->head);
	if (op && done)
		op_free(op);
	if (done && f->once)
		shutdown(f->fd, SHUT_WR);
	return true;
}

/* What is there; false at the end. */
static bool files_fill(struct files *f)
{
	size_t room;
	char *to = frame_room(&f->from, &room);
	ssize_t n = read(f->fd, to, room);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) {
		hang_up(f);
		maybe_free(f);
		return false;
	}
	frame_fed(&f->from, (size_t)n);
	return true;
}

static void files_read(struct files *f)
{
	struct ses_error e;
	int rc = 0;

	do {
		while (out_room(&f->s->out)) {
			_cleanup_frame_ struct frame frame = { 0 };

			rc = frame_next(&f->from, &frame, &e);
			if (rc == 0)
				break;
			if (rc < 0 || !answered(f, &frame)) {
				child_kill(f->pidfd);
				hang_up(f);
				maybe_free(f);
				return;
			}
		}
		if (!out_room(&f->s->out)) {
			f->held = true;
			loop_remove(&f->s->loop, &f->src);
			pump_wait(f->s, &f->pump, resume, f);
			return;
		}
	} while (files_fill(f));
}

/* ---- starting one ---- */

static struct files *files_new(struct sandbox *sb, bool once)
{
	struct files *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->s = sb->s;
	f->sb = sb;
	f->once = once;
	f->fd = f->life = f->pidfd = -1;
	f->next = sb->files;
	sb->files = f;
	return f;
}

/* *ret is the memfd. */
static int share_cancels(struct files *f, int *ret, struct err *e)
{
	void *at;

	*ret = memfd_create("cancels", MFD_CLOEXEC);
	if (*ret < 0 || ftruncate(*ret, sizeof(*f->cancels)) < 0)
		return err_sys(e, "work with files");
	at = mmap(NULL, sizeof(*f->cancels), PROT_READ | PROT_WRITE, MAP_SHARED, *ret, 0);
	if (at == MAP_FAILED)
		return err_sys(e, "work with files");
	f->cancels = at;
	return 0;
}

static int files_start(struct files *f, char *const *argv, const struct sandbox *to, struct err *e)
{
	_cleanup_fd_ int theirs = -1, life = -1, cancels = -1;
	struct child_how how = { .path = "/proc/self/exe",
				 .argv = argv,
				 .env = environ,
				 .n_fds = WORKER_FDS,
				 .die_with_us = true };
	struct loop *l = &f->s->loop;
	int pair[2];

	if (frame_reader_open(&f->from) < 0)
		return err_sys(e, "work with files");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_sys(e, "a socket");
	f->fd = pair[0];
	theirs = pair[1];
	if (fcntl(f->fd, F_SETFL, O_NONBLOCK) < 0 || fd_pipe(&life, &f->life) < 0)
		return err_sys(e, "a pipe");
	how.fds[WORKER_SOCKET] = theirs;
	how.fds[1] = -1;
	how.fds[2] = STDERR_FILENO;
	how.fds[WORKER_LIFE] = life;
	how.fds[WORKER_DIR] = f->sb->dir;
	how.fds[WORKER_TO] = to ? to->dir : -1;
	how.fds[WORKER_CANCELS] = -1;
	if (!f->once) {
		if (share_cancels(f, &cancels, e) < 0)
			return -1;
		how.fds[WORKER_CANCELS] = cancels;
	}
	out_open(&f->to, f->fd);
	if (child_start(&how, &f->pidfd, e) < 0 ||
	    loop_add(l, &f->src, f->fd, EPOLLIN, on_socket, f, e) < 0 ||
	    loop_add(l, &f->pid_src, f->pidfd, EPOLLIN, on_pid, f, e) < 0)
		return -1;
	return 0;
}

/* A worker of the sandbox; `to`: who is forked off it, or NULL. NULL with *e. */
static struct files *worker(struct sandbox *sb, bool once, const struct sandbox *to, struct err *e)
{
	bool own = *sb->own != '\0';
	char max[24] = "none";
	const char *const argv[] = { "cloche-serve",
				     "files",
				     own ? sb->workspace : sb->options.workspace,
				     sb->dir >= 0 ? "held"
				     : own	  ? "own"
						  : sb->place,
				     max,
				     !to	    ? NULL
				     : to->dir >= 0 ? "held"
						    : to->workspace,
				     NULL };
	struct files *f = once ? NULL : sb->files;

	while (f && (f->once || f->fd < 0))
		f = f->next;
	if (f)
		return f;
	if (sb->options.workspace_max != UINT64_MAX)
		snprintf(max, sizeof(max), "%llu", (unsigned long long)sb->options.workspace_max);
	f = files_new(sb, once);
	if (!f) {
		err_sys(e, "work with files");
		return NULL;
	}
	if (files_start(f, (char *const *)(uintptr_t)argv, to, e) == 0)
		return f;
	child_kill(f->pidfd);
	hang_up(f);
	if (f->pidfd >= 0 && !f->pid_src.ready) /* it can't be waited for in the loop */
		child_reap(f->pidfd);
	if (f->pidfd >= 0 && !f->pid_src.ready)
		fd_close(&f->pidfd);
	maybe_free(f);
	return NULL;
}

/* ---- requests ---- */

static void hand_on(struct files *f, const struct request *r)
{
	if (r->with_bytes)
		out_frame_bytes(&f->to, json_incref(r->head), r->bytes, r->n);
	else
		out_frame(&f->to, json_incref(r->head));
	files_write(f);
}

static void more(struct session *s, void *owner, const struct request *r)
{
	struct file_op *op = owner;

	hand_on(op->files, r);
}

/* What the worker has not carried out yet, it does not; it answers in any case. */
static void give_up(struct file_op *op)
{
	struct files *f = op->files;

	atomic_store(&f->cancels->v[op->number % WORKER_OPS_MAX], op->number);
	out_frame(&f->to, json_pack("{s:I,s:s,s:I}", "id", (json_int_t)op->pending.id, "op",
				    "cancel", "call", (json_int_t)op->pending.id));
	files_write(f);
}

static void cancel(struct session *s, void *owner, uint64_t by)
{
	struct file_op *op = owner;

	if (op->by) {
		reply_done(s, by, NULL);
		return;
	}
	op->by = by;
	if (op->files->once)
		fd_close(&op->files->life);
	else
		give_up(op);
}

static bool takes_long(enum ses_op_id op)
{
	return op == OP_SNAPSHOT || op == OP_RESTORE;
}

void files_operation(struct session *s, const struct request *r)
{
	struct sandbox *sb = sandbox_of(s, r);
	struct file_op *op;
	struct files *f;
	struct err e;

	if (!sb)
		return;
	op = calloc(1, sizeof(*op));
	f = op ? worker(sb, takes_long(r->op), NULL, &e) : NULL;
	if (!op)
		err_sys(&e, "work with files");
	if (!f) {
		free(op);
		reply_err(s, r->id, &e);
		return;
	}
	if (f->n_ops >= WORKER_OPS_MAX) {
		free(op);
		reply_refuse(s, r->id, SES_BUSY, "%d operations on files of sandbox %u wait",
			     WORKER_OPS_MAX, sb->number);
		return;
	}
	op->number = ++f->handed;
	f->n_ops++;
	op->files = f;
	op->next = f->ops;
	f->ops = op;
	op->pending.cancel = cancel;
	op->pending.more = r->op == OP_WRITE_FILE ? more : NULL;
	pending_add(s, &op->pending, r->id, op);
	hand_on(f, r);
}

void files_fork(struct sandbox *sb, struct sandbox *to, uint64_t id,
		void (*done)(struct sandbox *to, json_t *error))
{
	struct ses_error error;
	struct err e;
	struct files *f = worker(sb, true, to, &e);

	if (!f) {
		ses_error_err(&error, &e);
		done(to, ses_error_json(&error));
		return;
	}
	f->fork = to;
	f->forked = done;
	to->forking = f;
	out_frame(&f->to, json_pack("{s:I,s:s,s:i}", "id", (json_int_t)id, "op", "fork", "sandbox",
				    (int)sb->number));
	files_write(f);
}

void files_fork_drop(struct sandbox *to)
{
	if (!to->forking)
		return;
	fd_close(&to->forking->life);
	to->forking->fork = NULL;
	to->forking = NULL;
}

void files_remove(struct sandbox *sb)
{
	const char *const argv[] = { "cloche-serve", "files", "--remove", sb->own, NULL };
	struct child_how how = { .path = "/proc/self/exe",
				 .argv = (char *const *)(uintptr_t)argv,
				 .env = environ,
				 .fds = { sb->s->owner.fd, -1, STDERR_FILENO },
				 .n_fds = 3,
				 .die_with_us = true };
	struct files *f;
	struct err e;

	if (unlinkat(sb->s->owner.fd, sb->own, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return;
	f = files_new(sb, true);
	if (!f)
		return;
	/* What it leaves goes with the session's own directory. */
	if (child_start(&how, &f->pidfd, &e) < 0 ||
	    loop_add(&sb->s->loop, &f->pid_src, f->pidfd, EPOLLIN, on_pid, f, &e) < 0) {
		fd_close(&f->pidfd);
		sb->files = f->next;
		free(f);
	}
}
