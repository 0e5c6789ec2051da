#include "session/result.h"

#include <string.h>
#include <sys/mman.h>

#include "box/limits.h"
#include "session/frame.h"
#include "session/options.h"

#define CHUNK 262144u	  /* of output, a frame */
#define LIST_BYTES 49152u /* of files, a frame */

/* What has to stay within a frame's line, with some room for the rest of it. */
#define LINE_ROOM (FRAME_LINE_MAX - 512)

static void unmap(struct box_stream *s)
{
	if (s->data)
		munmap(s->data, s->mapped);
	*s = (struct box_stream){ 0 };
}

void result_free(struct result *r)
{
	json_decref(r->outcome);
	json_decref(r->denied);
	json_decref(r->notes);
	unmap(&r->out);
	unmap(&r->err);
	if (r->changes)
		munmap(r->changes, r->changes_n);
	*r = (struct result){ 0 };
}

static json_t *take(json_t *o, const char *key)
{
	json_t *v = json_incref(json_object_get(o, key));

	json_object_del(o, key);
	return v;
}

/* `n` bytes of text that hold it were read; what is written is never so much longer than that. */
static bool fits(const json_t *v, size_t n)
{
	return n <= LINE_ROOM / 16 || json_dumpb(v, NULL, 0, JSON_COMPACT) <= LINE_ROOM;
}

/* An array of which each element fits into a frame; missing is empty. */
static bool is_list(const json_t *v, bool text, size_t n)
{
	const json_t *x;
	size_t i;

	if (v && !json_is_array(v))
		return false;
	json_array_foreach(v, i, x) if (!(text ? json_is_string(x) : json_is_object(x)) ||
					!fits(x, n)) return false;
	return true;
}

/* The words of a command line mean nothing to whoever has none. */
static void name_options(json_t *outcome)
{
	json_t *fault = json_object_get(outcome, "fault");
	const char *message = json_string_value(json_object_get(fault, "message"));
	char text[2048];

	if (!message)
		return;
	ses_options_say(message, text, sizeof(text));
	json_object_set_new(fault, "message", json_string(text));
}

int result_read(struct result *r, const char *text, size_t n, struct err *e)
{
	json_t *o =
		n <= RESULT_OUTCOME_MAX ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	json_t *denied, *notes;

	if (!json_is_object(o) || !json_object_get(o, "exit_code")) {
		json_decref(o);
		return err_set(e, ERR_SYS, "what came is no outcome");
	}
	name_options(o);
	denied = take(o, "denied");
	notes = take(o, "notes");
	if (!is_list(denied, false, n) || !is_list(notes, true, n) || !fits(o, n)) {
		json_decref(denied);
		json_decref(notes);
		json_decref(o);
		return err_set(e, ERR_SYS, "what came is an outcome that can't be told");
	}
	r->outcome = o;
	r->denied = denied;
	r->notes = notes;
	return 0;
}

void result_changes(struct result *r, char *changes, size_t n)
{
	r->changes = changes;
	r->changes_n = n;
}

static json_t *unknown_usage(void)
{
	return json_pack("{s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:n,s:i}", "cpu_user_us", "cpu_sys_us",
			 "memory_peak_bytes", "pids_peak", "read_bytes", "written_bytes", "wall_us",
			 "start_us", "queued_us", 0);
}

void result_fault(struct result *r, enum box_fault fault, const char *stage, const char *message)
{
	json_t *limits = json_object(), *f;

	result_free(r);
	for (int i = 0; i < LIMIT_N; i++)
		json_object_set_new(limits, limit_name((enum limit_name)i),
				    json_pack("{s:n,s:n,s:n,s:b}", "requested", "effective", "rung",
					      "enforced", 0));
	f = json_pack("{s:s,s:s}", "type", fault_name(fault), "message", message);
	if (stage)
		json_object_set_new(f, "stage", json_string(stage));
	r->outcome = json_pack("{s:n,s:n,s:o,s:i,s:o,s:o,s:n,s:{s:n,s:n,s:i,s:i}}", "exit_code",
			       "signal", "fault", f, "duration_ms", 0, "usage", unknown_usage(),
			       "limits", limits, "image", "events", "pids_max", "oom_kills",
			       "lost_denials", 0, "unlisted_denials", 0);
	if (fault != FAULT_STARTUP_FAILED)
		json_object_set_new(r->outcome, "exit_code",
				    json_integer(outcome_code(
					    &(struct box_outcome){ .fault = fault,
								   .exit_code = -1 })));
}

/* The next element of the changes' array, as text; false at its end, or where it is broken. */
static bool next_change(struct result *r, const char **ret, size_t *ret_n)
{
	static const char head[] = "{\"files\":[";
	const char *from, *p, *end = r->changes + r->changes_n;
	unsigned depth = 0;
	bool text = false;

	if (r->changes_at == 0) {
		if (r->changes_n < sizeof(head) || memcmp(r->changes, head, sizeof(head) - 1) != 0)
			return false;
		r->changes_at = sizeof(head) - 1;
	}
	from = r->changes + r->changes_at;
	if (from < end && *from == ',')
		from++;
	for (p = from; p < end; p++) {
		if (text && *p == '\\')
			p++;
		else if (*p == '"')
			text = !text;
		else if (!text && *p == '{')
			depth++;
		else if (!text && *p == '}' && depth > 0 && --depth == 0)
			break;
		else if (!text && depth == 0)
			return false;
	}
	if (p >= end)
		return false;
	*ret = from;
	*ret_n = (size_t)(p + 1 - from);
	return true;
}

/* Behind the last element: ],"cut":N} */
static void read_cut(struct result *r)
{
	static const char foot[] = "],\"cut\":";
	const char *p, *end;

	if (!r->changes)
		return;
	p = r->changes + r->changes_at;
	end = r->changes + r->changes_n;
	if ((size_t)(end - p) < sizeof(foot) || memcmp(p, foot, sizeof(foot) - 1) != 0)
		return;
	for (p += sizeof(foot) - 1; p < end && *p >= '0' && *p <= '9'; p++)
		if (r->files_cut < INT32_MAX)
			r->files_cut = r->files_cut * 10 + (uint64_t)(*p - '0');
}

/* A frame of changes; false when there are none left. */
static bool send_changes(struct result *r, struct out *o, uint64_t id)
{
	json_t *files = json_array();
	size_t total = 0, n;
	const char *text;

	while (r->changes && next_change(r, &text, &n)) {
		json_t *one;

		if (total > 0 && total + n > LIST_BYTES)
			break;
		one = n <= LIST_BYTES ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
		r->changes_at = (size_t)(text + n - r->changes);
		if (one && json_dumpb(one, NULL, 0, JSON_COMPACT) <= n) {
			json_array_append_new(files, one);
		} else {
			json_decref(one);
			r->files_cut++;
		}
		total += n;
	}
	if (json_array_size(files) == 0) {
		json_decref(files);
		read_cut(r);
		return false;
	}
	out_frame(o, json_pack("{s:I,s:s,s:o}", "id", (json_int_t)id, "event", "files", "files",
			       files));
	return true;
}

static bool send_output(struct result *r, const char *name, const struct box_stream *s,
			struct out *o, uint64_t id)
{
	size_t n = s->len - r->at < CHUNK ? s->len - r->at : CHUNK;

	if (n == 0)
		return false;
	out_frame_bytes(o,
			json_pack("{s:I,s:s,s:s}", "id", (json_int_t)id, "event", "output",
				  "stream", name),
			s->data + r->at, n);
	r->at += n;
	return true;
}

static bool send_list(struct result *r, const char *event, const char *key, json_t *list,
		      struct out *o, uint64_t id)
{
	json_t *x = json_array_get(list, r->at);

	if (!x)
		return false;
	r->at++;
	out_frame(o, json_pack("{s:I,s:s,s:O}", "id", (json_int_t)id, "event", event, key, x));
	return true;
}

static json_t *cut(const struct box_stream *s)
{
	return s->cut ? json_pack("{s:I,s:I}", "at", (json_int_t)s->head_len, "bytes",
				  (json_int_t)s->cut)
		      : json_pack("n");
}

static void send_done(struct result *r, struct out *o, uint64_t id)
{
	json_object_set_new(r->outcome, "truncated", json_boolean(r->out.cut || r->err.cut));
	json_object_set_new(r->outcome, "stdout_cut", cut(&r->out));
	json_object_set_new(r->outcome, "stderr_cut", cut(&r->err));
	json_object_set_new(r->outcome, "results", json_array());
	json_object_set_new(r->outcome, "files_cut", json_integer((json_int_t)r->files_cut));
	out_frame(o, json_pack("{s:I,s:s,s:O}", "id", (json_int_t)id, "event", "done", "outcome",
			       r->outcome));
}

/* One frame of the phase; false when the phase has no more. */
static bool send_one(struct result *r, struct out *o, uint64_t id)
{
	switch (r->phase) {
	case 0:
		return send_output(r, "stdout", &r->out, o, id);
	case 1:
		return send_output(r, "stderr", &r->err, o, id);
	case 2:
		return send_changes(r, o, id);
	case 3:
		return send_list(r, "denied", "denied", r->denied, o, id);
	case 4:
		return send_list(r, "note", "text", r->notes, o, id);
	}
	return false;
}

bool result_send(struct result *r, struct out *o, uint64_t id)
{
	while (r->phase < 5) {
		if (!out_room(o))
			return o->failed;
		if (send_one(r, o, id))
			continue;
		r->phase++;
		r->at = 0;
	}
	send_done(r, o, id);
	return true;
}
