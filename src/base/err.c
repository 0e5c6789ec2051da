#include "base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const stage_names[] = {
	[STAGE_NONE] = "",
	[STAGE_SPEC] = "spec",
	[STAGE_IMAGE] = "image",
	[STAGE_WORKSPACE] = "workspace",
	[STAGE_MOUNT] = "mount",
	[STAGE_LIMITS] = "limits",
	[STAGE_NAMESPACE] = "namespace",
	[STAGE_NETWORK] = "network",
	[STAGE_LOCKS] = "locks",
	[STAGE_COMMAND] = "command",
};
static_assert(sizeof(stage_names) / sizeof(stage_names[0]) == STAGE_N, "a name for every stage");

const char *err_stage_name(enum err_stage stage)
{
	return stage >= 0 && stage < STAGE_N ? stage_names[stage] : "";
}

/* What an errno alone says about what to change: limits that the caller was started with. */
static const struct {
	int num;
	const char *fix;
} fixes[] = {
	{ EMFILE,
	  "raise the limit on open files: ulimit -n 1024, or nofile in /etc/security/limits.conf" },
	{ ENOMEM,
	  "raise the limit on memory: ulimit -v unlimited, or that of the outer container" },
	{ EFBIG, "lift the limit on the size of files: ulimit -f unlimited" },
};

const char err_fork_fix[] =
	"raise the limits on processes and memory: ulimit -u, ulimit -v, or those of the outer container";

static void add_fix(struct err *e, const char *fix)
{
	size_t n = strlen(e->msg);

	snprintf(e->msg + n, sizeof(e->msg) - n, "; fix: %s", fix);
}

int err_set(struct err *e, enum err_kind kind, const char *fmt, ...)
{
	va_list ap;

	e->kind = kind;
	e->stage = STAGE_NONE;
	e->num = 0;
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	return -1;
}

int err_sys(struct err *e, const char *fmt, ...)
{
	int num = errno;
	va_list ap;
	size_t n;

	e->kind = ERR_SYS;
	e->stage = STAGE_NONE;
	e->num = num;
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	n = strlen(e->msg);
	snprintf(e->msg + n, sizeof(e->msg) - n, ": %s", strerror(num));
	for (size_t i = 0; i < sizeof(fixes) / sizeof(fixes[0]); i++)
		if (fixes[i].num == num)
			add_fix(e, fixes[i].fix);
	return -1;
}

int err_fork(struct err *e, const char *what)
{
	int num = errno;

	err_sys(e, "%s", what);
	if (num == EAGAIN)
		add_fix(e, err_fork_fix);
	return -1;
}

int err_proc(struct err *e, const char *path)
{
	int num = errno;

	err_sys(e, "open %s", path);
	if (num == ENOENT)
		add_fix(e, "mount -t proc proc /proc");
	return -1;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	char head[sizeof(e->msg)];
	size_t cause = strlen(e->msg), room = sizeof(e->msg) - 1 - cause, n;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(head, sizeof(head), fmt, ap);
	va_end(ap);
	n = strlen(head);
	if (room < 2)
		return -1;
	if (n > room - 2)
		n = room - 2;
	memmove(e->msg + n + 2, e->msg, cause + 1);
	memcpy(e->msg, head, n);
	memcpy(e->msg + n, ": ", 2);
	return -1;
}

int err_at(struct err *e, enum err_stage stage)
{
	if (e->stage == STAGE_NONE)
		e->stage = stage;
	return -1;
}
