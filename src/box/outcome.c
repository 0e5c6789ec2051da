#include "box/outcome.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/str.h"
#include "box/seccomp.h"

/* Fault, name, exit code of `cloche run`; -1: the command's own. */
static const struct {
	const char *name;
	int code;
} faults[] = {
	[FAULT_NONE] = { NULL, -1 },
	[FAULT_TIMEOUT] = { "timeout", 124 },
	[FAULT_OOM] = { "oom", 137 },
	[FAULT_WORKSPACE_FULL] = { "workspace_full", 137 },
	[FAULT_ESCAPE_BLOCKED] = { "escape_blocked", 159 },
	[FAULT_KILLED] = { "killed", 137 },
	[FAULT_INIT_LOST] = { "init_lost", 125 },
	[FAULT_EXEC_FAILED] = { "exec_failed", 127 },
	[FAULT_STARTUP_FAILED] = { "startup_failed", 125 },
	[FAULT_CANCELLED] = { "cancelled", 130 },
};
static_assert(sizeof(faults) / sizeof(faults[0]) == FAULT_N, "a row for every fault");

const char *fault_name(enum box_fault f)
{
	return f >= 0 && f < FAULT_N ? faults[f].name : NULL;
}

int outcome_code(const struct box_outcome *o)
{
	return o->exit_code >= 0 ? o->exit_code : faults[o->fault].code;
}

const struct box_denied *outcome_escape(const struct box_outcome *o)
{
	for (unsigned i = 0; i < o->n_denied; i++)
		if (o->denied[i].ended)
			return &o->denied[i];
	return NULL;
}

void outcome_free(struct box_outcome *o)
{
	struct box_stream *s[] = { &o->out, &o->err_out };

	for (size_t i = 0; i < 2; i++) {
		if (s[i]->data)
			munmap(s[i]->data, s[i]->mapped);
		*s[i] = (struct box_stream){ 0 };
	}
}

static void fault_set(struct box_outcome *o, enum box_fault f)
{
	o->fault = f;
	o->exit_code = faults[f].code;
}

void outcome_refused(struct box_outcome *o, const struct err *why)
{
	memset(o, 0, sizeof(*o));
	memset(&o->usage, 0xff, sizeof(o->usage));
	o->usage.filled_by[0] = '\0';
	o->err = *why;
	fault_set(o, FAULT_STARTUP_FAILED);
}

static void judge_exec(const struct box_spec *spec, const struct err *why, struct box_outcome *o)
{
	bool missing = why->num == ENOENT || why->num == ENOTDIR;
	char safe[160], image[160];

	str_printable(safe, sizeof(safe), spec->argv[0]);
	str_printable(image, sizeof(image), spec->root.name);
	if (missing)
		err_set(&o->err, ERR_EXEC,
			"no command %s in image %s, or none that its #! line names: check the name, or mount the directory "
			"that holds it",
			safe, image);
	else if (why->num == ENOEXEC)
		err_set(&o->err, ERR_EXEC,
			"%s in image %s is no program of this machine and has no #! line", safe,
			image);
	else if (why->num == EACCES || why->num == EPERM || why->num == EISDIR)
		err_set(&o->err, ERR_EXEC,
			"%s in image %s can't be executed: is it a file with the x bit?", safe,
			image);
	else
		err_set(&o->err, ERR_EXEC, "%s in image %s can't be executed: %s", safe, image,
			strerror(why->num));
	o->err.num = why->num;
	fault_set(o, FAULT_EXEC_FAILED);
	o->exit_code = missing ? 127 : 126;
}

static void judge_escape(const struct box_denied *d, struct box_outcome *o)
{
	const char *name = d->nr >= 0 ? sc_name(sc_native(), d->nr) : NULL;
	char safe[64];

	str_printable(safe, sizeof(safe), d->comm);
	err_set(&o->err, ERR_REFUSED,
		"process %s (host pid %d) called %s, which no program in a box may; the box was ended",
		safe, d->pid, name ? name : "a system call of the ending set");
	fault_set(o, FAULT_ESCAPE_BLOCKED);
}

/* The command ended by itself, or by a signal. Only SIGKILL needs explaining: cloche and the cgroup
 * know whether they sent it. */
static void judge_end(const struct box_evidence *v, struct box_outcome *o)
{
	if (WIFEXITED(v->status)) {
		o->exit_code = WEXITSTATUS(v->status);
		return;
	}
	o->signal = WTERMSIG(v->status);
	o->exit_code = 128 + o->signal;
	if (o->signal == SIGKILL && !v->killed) {
		err_set(&o->err, ERR_SYS,
			"the command was ended by a SIGKILL that cloche did not send");
		fault_set(o, FAULT_KILLED);
	}
}

void outcome_judge(const struct box_spec *spec, const struct box_evidence *v, struct box_outcome *o)
{
	o->fault = FAULT_NONE;
	o->exit_code = -1;
	o->signal = 0;
	if (v->failed && v->err->kind == ERR_EXEC) {
		judge_exec(spec, v->err, o);
	} else if (v->failed) {
		o->err = *v->err;
		str_printable(o->err.msg, sizeof(o->err.msg),
			      v->err->msg); /* it may quote a path: one line, whatever it holds */
		fault_set(o, FAULT_STARTUP_FAILED);
	} else if (v->start_deadline) {
		err_set(&o->err, ERR_SYS,
			"the box was not built in time: a dead network mount or a machine out of memory?");
		err_at(&o->err, STAGE_MOUNT);
		fault_set(o, FAULT_STARTUP_FAILED);
	} else if (v->escape) {
		judge_escape(v->escape, o);
	} else if (v->hit == LIMIT_HIT_WORKSPACE) {
		err_set(&o->err, ERR_SYS,
			spec->setup
				? "what the command wrote grew beyond %llu bytes (--disk)"
				: "the workspace grew beyond its limit of %llu bytes (--workspace-max)",
			(unsigned long long)spec->limits.workspace_max);
		fault_set(o, FAULT_WORKSPACE_FULL);
	} else if (v->hit == LIMIT_HIT_MEMORY || (v->oom_kills != UINT64_MAX && v->oom_kills > 0)) {
		err_set(&o->err, ERR_SYS,
			"the box went beyond its memory limit of %llu MiB%s%s (--memory)",
			(unsigned long long)(spec->limits.memory >> 20),
			o->usage.filled_by[0] ? ", filled by " : "", o->usage.filled_by);
		fault_set(o, FAULT_OOM);
	} else if (v->deadline) {
		err_set(&o->err, ERR_SYS, "the deadline of %.10g s passed (--timeout)",
			(double)spec->limits.timeout_us / 1e6);
		fault_set(o, FAULT_TIMEOUT);
	} else if (v->cancelled) {
		err_set(&o->err, ERR_SYS, "the caller cancelled it");
		fault_set(o, FAULT_CANCELLED);
	} else if (v->ended) {
		judge_end(v, o);
	} else {
		err_set(&o->err, ERR_SYS,
			"the box's first process ended by what cloche did not send");
		fault_set(o, FAULT_INIT_LOST);
	}
}
