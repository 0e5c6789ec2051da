#include "cli/outcome_json.h"

#include <string.h>

#include "base/json.h"
#include "box/seccomp.h"

/* A phase is the time from one mark to a later one. */
static const struct {
	const char *name;
	enum box_mark from, to;
} phases[] = {
	{ "plan", MARK_BEGIN, MARK_PLANNED },  { "clone", MARK_PLANNED, MARK_CHILD },
	{ "ids", MARK_CHILD, MARK_IDS },       { "sources", MARK_IDS, MARK_SOURCES },
	{ "root", MARK_SOURCES, MARK_ROOT },   { "join", MARK_ROOT, MARK_JOINED },
	{ "locks", MARK_JOINED, MARK_LOCKED }, { "spawn", MARK_LOCKED, MARK_STARTED },
	{ "run", MARK_STARTED, MARK_ENDED },   { "teardown", MARK_ENDED, MARK_REAPED },
};

const char *outcome_phase(const struct box_outcome *o, unsigned i, uint64_t *ret_us)
{
	uint64_t from, to;

	if (i >= sizeof(phases) / sizeof(phases[0]))
		return NULL;
	from = o->marks[phases[i].from];
	to = o->marks[phases[i].to];
	*ret_us = from && to >= from ? (to - from) / 1000 : UINT64_MAX;
	return phases[i].name;
}

static void json_stream(struct json *j, const char *name, const struct box_stream *s,
			const char *b64_name)
{
	json_key(j, name);
	if (json_bytes(j, s->data, s->len))
		return;
	json_key(j, b64_name);
	json_b64(j, s->data, s->len);
}

static void json_cut(struct json *j, const char *name, const struct box_stream *s)
{
	json_key(j, name);
	if (!s->cut) {
		json_nil(j);
		return;
	}
	json_obj(j);
	json_ku64(j, "at", s->head_len);
	json_ku64(j, "bytes", s->cut);
	json_obj_end(j);
}

static void json_fault(struct json *j, const struct box_outcome *o)
{
	const struct box_denied *d = o->fault == FAULT_ESCAPE_BLOCKED ? outcome_escape(o) : NULL;

	char comm[64];

	json_key(j, "fault");
	if (o->fault == FAULT_NONE) {
		json_nil(j);
		return;
	}
	json_obj(j);
	json_kstr(j, "type", fault_name(o->fault));
	json_kstr(j, "message", o->err.msg);
	if (o->fault == FAULT_STARTUP_FAILED)
		json_kstr(j, "stage", err_stage_name(o->err.stage ? o->err.stage : STAGE_SPEC));
	if (d) {
		json_kstr(j, "syscall", d->nr >= 0 ? sc_name(sc_native(), d->nr) : NULL);
		json_kstr(j, "comm", str_printable(comm, sizeof(comm), d->comm));
	}
	if (o->fault == FAULT_OOM) {
		json_kstr(j, "filled_by", o->usage.filled_by[0] ? o->usage.filled_by : NULL);
		json_kstr(j, "limit", "memory");
	}
	if (o->fault == FAULT_WORKSPACE_FULL)
		json_kstr(j, "limit", "workspace_max");
	if (o->fault == FAULT_TIMEOUT)
		json_kstr(j, "limit", "timeout");
	json_obj_end(j);
}

static void json_usage(struct json *j, const struct box_outcome *o, uint64_t queued_us)
{
	const struct limit_usage *u = &o->usage;
	bool ran = o->start_us > 0;

	json_key(j, "usage");
	json_obj(j);
	json_ku64(j, "cpu_user_us", u->cpu_user_us);
	json_ku64(j, "cpu_sys_us", u->cpu_sys_us);
	json_ku64(j, "memory_peak_bytes", ran ? u->memory_peak : UINT64_MAX);
	json_ku64(j, "pids_peak", ran ? u->pids_peak : UINT64_MAX);
	json_ku64(j, "read_bytes", u->read_bytes);
	json_ku64(j, "written_bytes", u->written_bytes);
	json_ku64(j, "wall_us", ran ? o->wall_us : UINT64_MAX);
	json_ku64(j, "start_us", ran ? o->start_us : UINT64_MAX);
	json_ku64(j, "queued_us", queued_us);
	json_obj_end(j);
}

static void json_limits(struct json *j, const struct box_outcome *o)
{
	json_key(j, "limits");
	json_obj(j);
	for (int i = 0; i < LIMIT_N; i++) {
		const struct limit_state *s = &o->limits[i];

		json_key(j, limit_name((enum limit_name)i));
		json_obj(j);
		/* cpus are kept as thousandths; the two that are not asked for are null */
		json_key(j, "requested");
		if (i == LIMIT_CPUS && s->rung && s->requested != BOX_LIMIT_NONE)
			json_num(j, (double)s->requested / 1000);
		else
			json_u64(j, s->rung ? s->requested : BOX_LIMIT_NONE);
		json_key(j, "effective");
		if (i == LIMIT_CPUS && s->rung && s->effective != BOX_LIMIT_NONE)
			json_num(j, (double)s->effective / 1000);
		else
			json_u64(j, s->rung ? s->effective : BOX_LIMIT_NONE);
		json_kstr(j, "rung", s->rung);
		json_kbool(j, "enforced", s->enforced);
		json_obj_end(j);
	}
	json_obj_end(j);
}

static void json_denial(struct json *j, const struct denial *d)
{
	char comm[64];

	json_obj(j);
	json_kstr(j, "kind", denial_kind_name(d->kind));
	json_kstr(j, "policy", d->policy);
	json_kstr(j, "what", d->what);
	if (d->path)
		json_kstr(j, "path", d->path);
	if (d->call) {
		json_key(j, "pid");
		json_i64(j, d->call->pid);
		json_kstr(j, "comm", str_printable(comm, sizeof(comm), d->call->comm));
		json_ku64(j, "count", d->call->count);
	}
	json_kstr(j, "allow_with", d->allow_with);
	json_kstr(j, "reason", d->reason);
	json_obj_end(j);
}

static void json_denied(struct json *j, const struct box_spec *s, const struct box_outcome *o,
			const struct mount_check *m)
{
	char text[DENIAL_TEXT];
	struct denial d;

	json_key(j, "denied");
	json_arr(j);
	for (unsigned i = 0; i < o->n_denied; i++)
		for (unsigned p = 0; denied_policy(s, &o->denied[i], p, &d, text); p++)
			json_denial(j, &d);
	for (size_t i = 0; i < m->n_denied; i++)
		json_denial(j, &m->denied[i]);
	json_arr_end(j);
}

/* What ran, so that it can be run again: the very same by its manifest's digest. */
void outcome_image(struct json *j, const struct image_use *u)
{
	if (!u->asked) {
		json_nil(j);
		return;
	}
	json_obj(j);
	json_kstr(j, "name", u->name);
	json_kstr(j, "id", u->record.id);
	json_kstr(j, "manifest", u->record.manifest[0] ? u->record.manifest : NULL);
	json_obj_end(j);
}

static void json_streams(struct json *j, const struct box_outcome *o)
{
	json_stream(j, "stdout", &o->out, "stdout_b64");
	json_stream(j, "stderr", &o->err_out, "stderr_b64");
}

static void json_cuts(struct json *j, const struct box_outcome *o)
{
	json_kbool(j, "truncated", o->out.cut || o->err_out.cut);
	json_cut(j, "stdout_cut", &o->out);
	json_cut(j, "stderr_cut", &o->err_out);
}

static void json_events(struct json *j, const struct box_outcome *o)
{
	json_key(j, "events");
	json_obj(j);
	json_ku64(j, "pids_max", o->usage.pids_max_events);
	json_ku64(j, "oom_kills", o->usage.oom_kills);
	json_ku64(j, "lost_denials", o->lost_denials);
	json_ku64(j, "unlisted_denials", o->unlisted_denials);
	json_obj_end(j);
}

static void json_timing(struct json *j, const struct box_outcome *o, uint64_t pull_us)
{
	const char *name;
	uint64_t us;

	json_key(j, "timing_us");
	json_obj(j);
	json_ku64(j, "pull", pull_us);
	for (unsigned i = 0; (name = outcome_phase(o, i, &us)); i++)
		json_ku64(j, name, us);
	json_obj_end(j);
}

void outcome_json(const struct prepared *p, const struct box_outcome *o,
		  const struct outcome_show *show, struct buf *out)
{
	struct json j;

	json_init(&j, out);
	json_obj(&j);
	json_key(&j, "exit_code");
	if (o->fault == FAULT_STARTUP_FAILED)
		json_nil(&j);
	else
		json_i64(&j, outcome_code(o));
	json_key(&j, "signal");
	if (o->signal)
		json_i64(&j, o->signal);
	else
		json_nil(&j);
	if (show->streams)
		json_streams(&j, o);
	json_fault(&j, o);
	json_key(&j, "duration_ms");
	json_num(&j, (double)o->wall_us / 1000);
	if (show->streams)
		json_cuts(&j, o);
	json_usage(&j, o, show->queued_us);
	json_limits(&j, o);
	json_key(&j, "image");
	outcome_image(&j, &p->image);
	json_events(&j, o);
	json_denied(&j, &p->spec, o, &p->mounts);
	json_key(&j, "notes");
	json_arr(&j);
	for (size_t i = show->notes_from; i < p->n_notes; i++)
		json_str(&j, p->notes[i]);
	json_arr_end(&j);
	if (show->timing)
		json_timing(&j, o, p->pull_us);
	json_obj_end(&j);
	buf_str(out, "\n");
}
