/* A payload that is larger than a frame: its parts go into a memory file, and when the last one is
 * there the request is as if it had come whole. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/serve.h"
#include "session/spawn.h"

struct upload {
	struct session *s;
	struct upload *next;
	struct pending pending;
	json_t *head;
	enum ses_op_id op;
	int memfd;
	size_t n;
};

static void upload_free(struct upload *u)
{
	struct session *s = u->s;

	for (struct upload **p = &s->uploads; *p; p = &(*p)->next)
		if (*p == u) {
			*p = u->next;
			break;
		}
	s->n_uploads--;
	s->held_bytes -= u->n;
	pending_drop(s, &u->pending);
	fd_close(&u->memfd);
	json_decref(u->head);
	free(u);
}

void upload_drop_all(struct session *s)
{
	while (s->uploads)
		upload_free(s->uploads);
}

static void upload_cancel(struct session *s, void *owner, uint64_t by)
{
	struct upload *u = owner;

	reply_refuse(s, u->pending.id, SES_CANCELLED, "cancelled before it began");
	upload_free(u);
	reply_done(s, by, NULL);
}

static void fail(struct upload *u, enum ses_error_type type, const char *message)
{
	reply_refuse(u->s, u->pending.id, type, "%s", message);
	upload_free(u);
}

static void too_large(struct upload *u)
{
	struct ses_error e;

	ses_error_set(&e, SES_TOO_LARGE, "the payload is larger than %u bytes", SPAWN_CODE_MAX);
	ses_error_about(&e, u->op == OP_RUN_CODE ? "code" : "argv", "at most %u bytes",
			SPAWN_CODE_MAX);
	reply_fail(u->s, u->pending.id, &e);
	upload_free(u);
}

static void finish(struct upload *u)
{
	struct session *s = u->s;
	struct request r = { .id = u->pending.id,
			     .op = u->op,
			     .head = json_incref(u->head),
			     .n = u->n,
			     .with_bytes = true };
	char *map = u->n > 0 ? mmap(NULL, u->n, PROT_READ, MAP_PRIVATE, u->memfd, 0) : NULL;

	if (map == MAP_FAILED) {
		fail(u, SES_SYSTEM, "can't map the payload");
		json_decref(r.head);
		return;
	}
	upload_free(u);
	r.bytes = map ? map : "";
	serve_operation(s, &r);
	if (map)
		munmap(map, r.n);
	json_decref(r.head);
}

static void upload_more(struct session *s, void *owner, const struct request *r)
{
	struct upload *u = owner;

	if (u->n + r->n > SPAWN_CODE_MAX) {
		too_large(u);
		return;
	}
	if (s->held_bytes + r->n > SES_HELD_BYTES) {
		fail(u, SES_BUSY, "other payloads take all the room");
		return;
	}
	if (fd_write_all(u->memfd, r->bytes, r->n) < 0) {
		fail(u, SES_SYSTEM, "no memory for the payload");
		return;
	}
	u->n += r->n;
	s->held_bytes += r->n;
	if (!r->more)
		finish(u);
}

void upload_begin(struct session *s, const struct request *r)
{
	struct upload *u;

	if (s->n_uploads >= SES_UPLOADS_MAX) {
		reply_refuse(s, r->id, SES_BUSY, "%d payloads are not whole yet: no more can be",
			     SES_UPLOADS_MAX);
		return;
	}
	u = calloc(1, sizeof(*u));
	if (!u || (u->memfd = memfd_create("payload", MFD_CLOEXEC)) < 0) {
		free(u);
		reply_refuse(s, r->id, SES_SYSTEM, "no memory for the payload");
		return;
	}
	u->s = s;
	u->op = r->op;
	u->head = json_incref(r->head);
	u->pending.cancel = upload_cancel;
	u->pending.more = upload_more;
	u->next = s->uploads;
	s->uploads = u;
	s->n_uploads++;
	pending_add(s, &u->pending, r->id, u);
	upload_more(s, u, r);
}
