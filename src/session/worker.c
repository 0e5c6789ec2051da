#include "session/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "session/worker_impl.h"

#define WRITES_MAX 64 /* files that are written at once */
#define CHUNK 262144
#define LINE_ROOM (FRAME_LINE_MAX - 256)

/* A file whose parts are still coming. */
struct writing {
	struct writing *next;
	uint64_t id, op;
	struct ses_write file;
};

/* ---- answers ---- */

/* The socket blocks; when the loop has gone, there is nobody to work for. */
static void put(struct worker *w)
{
	out_flush(&w->out);
	if (w->out.failed)
		_exit(0);
}

void worker_done(struct worker *w, uint64_t id, json_t *fields)
{
	json_t *head = json_pack("{s:I,s:s}", "id", (json_int_t)id, "event", "done");

	if (fields)
		json_object_update(head, fields);
	json_decref(fields);
	out_frame(&w->out, head);
	put(w);
}

void worker_refuse(struct worker *w, uint64_t id, const struct ses_error *e)
{
	worker_done(w, id, json_pack("{s:o}", "error", ses_error_json(e)));
}

void worker_fail(struct worker *w, uint64_t id, const struct err *why)
{
	struct ses_error e;

	ses_error_err(&e, why);
	worker_refuse(w, id, &e);
}

/* Is that path of a request the one that an error is about? It begins with it: as it was read, or,
 * where that failed, as it was given. */
static bool about(const struct err *why, const char *path)
{
	char read[SES_PATH_CAP];
	struct err e;
	const char *said = ses_path(path, read, &e) == 0 ? read : path;
	size_t n = strlen(said);

	return strncmp(why->msg, said, n) == 0 && why->msg[n] == ':';
}

/* Which paths there are for an operation that found no use for this one. */
static const char *allowed_path(enum ses_op_id op, enum ses_error_type type, bool to)
{
	switch (type) {
	case SES_PATH:
		return "a path relative to the workspace, without \"..\" and symbolic links, to what the "
		       "operation is for";
	case SES_NOT_FOUND:
		return op == OP_MAKE_DIR ? "a path whose directory is there, or parents"
		       : to		 ? "a path whose directory is there"
					 : "a path of the workspace that is there";
	case SES_EXISTS:
		return op == OP_REMOVE ? "a file, an empty directory, or recursive"
		       : op == OP_RENAME
			       ? "a path where nothing is, or, with replace, what can be replaced"
			       : "a path where nothing is";
	case SES_TOO_LARGE:
		return "a directory in which there is less";
	default:
		return NULL;
	}
}

/* Of an operation on a path, or on two. */
static void fail_path(struct worker *w, const struct request *r, const struct err *why)
{
	const char *path = request_str(r, "path"), *to = request_str(r, "to"), *allowed;
	bool is_to = to && about(why, to) && !about(why, path);
	struct ses_error e;

	ses_error_err(&e, why);
	allowed = allowed_path(r->op, e.type, is_to);
	if (e.type == SES_TOO_LARGE && r->op == OP_READ_FILE)
		ses_error_about(&e, "max_bytes",
				"as much as there is to read, or a smaller length");
	else if (allowed)
		ses_error_about(&e, is_to ? "to" : "path", "%s", allowed);
	worker_refuse(w, r->id, &e);
}

/* Refuses the operation when the loop wants it given up. */
static bool given_up(struct worker *w, uint64_t op, uint64_t id)
{
	struct ses_error e;

	if (!w->cancels || atomic_load(&w->cancels->v[op % WORKER_OPS_MAX]) != op)
		return false;
	ses_error_set(&e, SES_CANCELLED, "cancelled");
	worker_refuse(w, id, &e);
	return true;
}

/* An object of base/json's writer as one of jansson's. */
static json_t *file_json(const struct ses_file *f)
{
	_cleanup_buf_ struct buf text = { 0 };
	struct json j;

	buf_init(&text, FRAME_LINE_MAX);
	json_init(&j, &text);
	ses_file_json(&j, f);
	return text.failed ? NULL : json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
}

/* ---- writing ---- */

static struct writing *find_writing(struct worker *w, uint64_t id)
{
	struct writing *f = w->writes;

	while (f && f->id != id)
		f = f->next;
	return f;
}

static void drop_writing(struct worker *w, struct writing *f)
{
	for (struct writing **p = &w->writes; *p; p = &(*p)->next)
		if (*p == f) {
			*p = f->next;
			break;
		}
	ses_write_drop(&f->file);
	free(f);
	w->n_writes--;
}

static void write_part(struct worker *w, struct writing *f, const struct request *r)
{
	struct err e;

	if (given_up(w, f->op, f->id)) {
		drop_writing(w, f);
		return;
	}
	if ((r->n > 0 && ses_write_data(&f->file, r->bytes, r->n, &e) < 0) ||
	    (!r->more && ses_write_end(&f->file, &e) < 0)) {
		worker_fail(w, f->id, &e);
		drop_writing(w, f);
	} else if (!r->more) {
		worker_done(w, f->id, json_pack("{s:I}", "size", (json_int_t)f->file.size));
		drop_writing(w, f);
	}
}

static void op_write(struct worker *w, const struct request *r)
{
	struct writing *f = w->n_writes < WRITES_MAX ? calloc(1, sizeof(*f)) : NULL;
	struct ses_error busy;
	struct err e;

	if (!f) {
		ses_error_set(&busy, SES_BUSY, "%d files are being written: no more can be",
			      WRITES_MAX);
		worker_refuse(w, r->id, &busy);
		return;
	}
	f->id = r->id;
	f->op = w->op;
	f->file = SES_WRITE_NONE;
	f->next = w->writes;
	w->writes = f;
	w->n_writes++;
	if (ses_write_open(&w->place, request_str(r, "path"),
			   (mode_t)request_int(r, "mode", SES_MODE_FILE), &f->file, &e) < 0) {
		fail_path(w, r, &e);
		drop_writing(w, f);
		return;
	}
	write_part(w, f, r);
}

/* ---- the others ---- */

static void op_read(struct worker *w, const struct request *r)
{
	static char chunk[CHUNK];
	_cleanup_ses_read_ struct ses_read f = SES_READ_NONE;
	int64_t length = request_int(r, "length", -1);
	struct err e;
	ssize_t n;

	if (ses_read_open(&w->place, request_str(r, "path"), (uint64_t)request_int(r, "offset", 0),
			  length < 0 ? UINT64_MAX : (uint64_t)length,
			  (uint64_t)request_int(r, "max_bytes", SES_READ_MAX), &f, &e) < 0) {
		fail_path(w, r, &e);
		return;
	}
	while ((n = ses_read_data(&f, chunk, sizeof(chunk), &e)) > 0) {
		out_frame_bytes(&w->out,
				json_pack("{s:I,s:s}", "id", (json_int_t)r->id, "event", "data"),
				chunk, (size_t)n);
		put(w);
		if (given_up(w, w->op, r->id))
			return;
	}
	if (n < 0)
		fail_path(w, r, &e);
	else
		worker_done(w, r->id, json_pack("{s:I}", "size", (json_int_t)f.size));
}

static void put_files(struct worker *w, uint64_t id, json_t **files)
{
	if (json_array_size(*files) > 0) {
		out_frame(&w->out, json_pack("{s:I,s:s,s:O}", "id", (json_int_t)id, "event",
					     "files", "files", *files));
		put(w);
	}
	json_array_clear(*files);
}

static void op_list(struct worker *w, const struct request *r)
{
	const char *path = request_str(r, "path");
	struct ses_files list = { 0 };
	json_t *files = json_array();
	bool given = false;
	size_t line = 0;
	struct err e;

	if (ses_list(&w->place, path ? path : "", request_bool(r, "recursive", true), &list, &e) <
	    0) {
		fail_path(w, r, &e);
		json_decref(files);
		return;
	}
	for (size_t i = 0; i < list.n && !(given = given_up(w, w->op, r->id)); i++) {
		json_t *one = file_json(&list.v[i]);
		size_t n = one ? json_dumpb(one, NULL, 0, JSON_COMPACT) + 1 : 0;

		if (line + n > LINE_ROOM) {
			put_files(w, r->id, &files);
			line = 0;
		}
		if (n > 0 && n <= LINE_ROOM)
			json_array_append(files, one);
		json_decref(one);
		line += n;
	}
	if (!given) {
		put_files(w, r->id, &files);
		worker_done(w, r->id, json_pack("{s:I}", "count", (json_int_t)list.n));
	}
	json_decref(files);
	ses_files_free(&list);
}

static void op_stat(struct worker *w, const struct request *r)
{
	struct ses_file f = { 0 };
	struct err e;
	json_t *file;

	if (ses_stat(&w->place, request_str(r, "path"), &f, &e) < 0) {
		fail_path(w, r, &e);
		return;
	}
	file = file_json(&f);
	ses_file_free(&f);
	worker_done(w, r->id, json_pack("{s:o}", "file", file ? file : json_object()));
}

static void op_change(struct worker *w, const struct request *r)
{
	const char *path = request_str(r, "path");
	struct err e;
	int rc;

	if (r->op == OP_REMOVE)
		rc = ses_remove(&w->place, path, request_bool(r, "recursive", false), &e);
	else if (r->op == OP_MAKE_DIR)
		rc = ses_make_dir(&w->place, path, request_bool(r, "parents", true), &e);
	else
		rc = ses_rename(&w->place, path, request_str(r, "to"),
				request_bool(r, "replace", true), &e);
	if (rc < 0)
		fail_path(w, r, &e);
	else
		worker_done(w, r->id, NULL);
}

static void take(struct worker *w, const struct request *r)
{
	struct writing *f;

	if (r->op == OP_MORE || r->op == OP_CANCEL) {
		f = find_writing(w, r->id);
		if (f && r->op == OP_MORE) /* else it was answered already */
			write_part(w, f, r);
		else if (f && given_up(w, f->op, f->id))
			drop_writing(w, f);
		return;
	}
	w->op++;
	if (given_up(w, w->op, r->id))
		return;
	if (w->refused.message[0]) {
		worker_refuse(w, r->id, &w->refused);
		return;
	}
	switch (r->op) {
	case OP_WRITE_FILE:
		op_write(w, r);
		break;
	case OP_READ_FILE:
		op_read(w, r);
		break;
	case OP_LIST_FILES:
		op_list(w, r);
		break;
	case OP_STAT:
		op_stat(w, r);
		break;
	case OP_SNAPSHOT:
		worker_snapshot(w, r);
		break;
	case OP_RESTORE:
		worker_restore(w, r);
		break;
	case OP_FORK:
		worker_fork(w, r);
		break;
	default:
		op_change(w, r);
	}
}

/* ---- the process ---- */

static struct worker_cancels *map_cancels(void)
{
	void *at =
		mmap(NULL, sizeof(struct worker_cancels), PROT_READ, MAP_SHARED, WORKER_CANCELS, 0);

	fcntl(WORKER_CANCELS, F_SETFD, FD_CLOEXEC);
	return at == MAP_FAILED ? NULL : at;
}

/* Opens the workspace: what a box would be given, by the same rules. */
static int open_place(struct worker *w, const struct worker_options *o)
{
	static struct mount_check check;
	char place[SES_PLACE_TEXT];
	struct box_mount m;
	struct err e;
	int fd;

	if (o->held) {
		fd = openat(WORKER_DIR, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	} else if (!o->place) {
		fd = path_open_nolinks(o->dir, O_DIRECTORY);
	} else if (mount_check_init(&check, &e) < 0 ||
		   mount_check_workspace(&check, o->dir, &m, &e) < 0) {
		ses_error_set(&w->refused, e.kind == ERR_REFUSED ? SES_MOUNT_REFUSED : SES_SYSTEM,
			      "%s", e.msg);
		return -1;
	} else {
		ses_place_text(m.dev, m.ino, place);
		if (strcmp(place, o->place) != 0)
			return ses_error_set(&w->refused, SES_MOUNT_REFUSED, SES_ELSEWHERE);
		fd = mount_open_checked(&m);
	}
	if (fd < 0)
		err_sys(&e, "the workspace");
	if (fd < 0 || ses_workspace(fd, &w->place, &e) < 0) {
		ses_error_set(&w->refused, SES_SYSTEM, "%s", e.msg);
		fd_close(&fd);
		return -1;
	}
	ses_replace_recover(&w->place);
	return 0;
}

/* Whatever it is doing, and whoever does it for it: without the loop there is nobody to do it for.
 * (A death signal of the kernel's would not do: ses_become makes the kernel forget it.) */
static void die_with_loop(void)
{
	setpgid(0, 0);
	signal(SIGTERM, SIG_DFL);
	if (fcntl(WORKER_LIFE, F_SETOWN, -getpgrp()) < 0 ||
	    fcntl(WORKER_LIFE, F_SETSIG, SIGTERM) < 0 ||
	    fcntl(WORKER_LIFE, F_SETFL, O_ASYNC | O_NONBLOCK) < 0)
		_exit(1);
	/* It may have gone before that. */
	if (read(WORKER_LIFE, &(char){ 0 }, 1) == 0)
		_exit(0);
	fcntl(WORKER_LIFE, F_SETFD, FD_CLOEXEC);
}

int worker_run(const struct worker_options *o)
{
	static struct worker w;
	struct frame_reader in;
	struct ses_error e;
	struct request r;
	uint64_t id;
	size_t room;
	ssize_t n = 1;

	die_with_loop();
	signal(SIGPIPE, SIG_IGN);
	if (frame_reader_open(&in) < 0)
		return 1;
	for (int fd = WORKER_SOCKET; fd < WORKER_FDS; fd++)
		if (fd != STDERR_FILENO)
			fcntl(fd, F_SETFD, FD_CLOEXEC);
	out_open(&w.out, WORKER_SOCKET);
	w.dir = o->dir;
	w.image = o->image;
	w.to = o->to;
	w.to_held = o->to_held;
	w.max = o->max;
	w.cancels = map_cancels();
	open_place(&w, o);
	while (n > 0) {
		_cleanup_frame_ struct frame f = { 0 };
		int rc = frame_next(&in, &f, &e);
		char *to;

		if (rc < 0)
			return 1;
		if (rc == 1 && request_read(&f, &r, &id, &e) < 0)
			worker_refuse(&w, id, &e);
		else if (rc == 1)
			take(&w, &r);
		if (rc == 1)
			continue;
		to = frame_room(&in, &room);
		n = read(WORKER_SOCKET, to, room);
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n > 0)
			frame_fed(&in, (size_t)n);
	}
	while (w.writes)
		drop_writing(&w, w.writes);
	return 0;
}

int worker_remove(const char *name)
{
	struct ses_workspace place;
	struct err e;

	return ses_workspace(WORKER_SOCKET, &place, &e) < 0 ||
	       ses_remove(&place, name, true, &e) < 0;
}
