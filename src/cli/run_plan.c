/* The parts of `cloche run --plan` that are no mounts: who, what, and the locks. */
#include "cli/run_plan.h"

#include "box/locks.h"
#include "box/seccomp.h"
#include "cli/title.h"

struct cli_title cli_title;

void run_plan_header(const struct box_spec *s, struct buf *out)
{
	char safe[256];

	buf_fmt(out, "user       %u:%u inside, %u:%u outside\n", s->uid, s->gid, s->outer_uid,
		s->outer_gid);
	if (s->range.n > 0)
		buf_fmt(out, "ids        0 to %u inside, from %u:%u on outside\n", s->range.n - 1,
			s->range.uid, s->range.gid);
	buf_fmt(out, "namespaces user mount pid ipc uts cgroup%s\n",
		s->network == BOX_NET_NONE ? " network" : "");
	buf_fmt(out, "workdir    %s\n", str_printable(safe, sizeof(safe), s->cwd));
}

void run_plan_locks(const struct box_spec *s, struct buf *out)
{
	struct sc_request rq = { .untrusted = s->profile == BOX_PROFILE_UNTRUSTED,
				 .rules = s->rules,
				 .n_rules = s->n_rules };
	struct sc_program prog;
	struct err e;
	char safe[160];

	buf_str(out, "limits     memory, pids, cpus, rlimits\n");
	buf_str(out, "caps       all dropped");
	for (int i = 0; i < 64; i++)
		if (s->cap_keep >> i & 1 && locks_cap_name(i))
			buf_fmt(out, ", kept %s", locks_cap_name(i));
	buf_str(out, "\nlocks      no_new_privs, Landlock where the kernel has it\n");
	if (sc_build(sc_native(), &rq, &prog, &e) == 0)
		buf_fmt(out, "seccomp    %u instructions, listener held by cloche%s\n", prog.len,
			rq.untrusted ? ", connect mediated" : "");
	if (s->apparmor)
		buf_fmt(out, "apparmor   %s\n", str_printable(safe, sizeof(safe), s->apparmor));
	buf_str(out, "command   ");
	for (char *const *a = s->argv; *a; a++)
		buf_fmt(out, " %s", str_printable(safe, sizeof(safe), *a));
	buf_str(out, "\n");
}
