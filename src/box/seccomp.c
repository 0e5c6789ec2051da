/* The seccomp filter's front: prebuilt programs, names, the caller's rules. The policy is in
 * seccomp_policy.c, the builder in seccomp_build.c, and the data both gave at build time in the
 * generated file. A run without rules touches only one constant program. */
#include "box/seccomp.h"

#include <stdio.h>
#include <string.h>

#include "box/seccomp_table.h"

/* Calls without which no command runs or init can't do its work: it sets itself up, starts the
 * command and waits for it behind this same filter, at first while nobody listens yet. */
static const char *const needed[] = {
	"arch_prctl",
	"brk",
	"chdir",
	"clock_gettime",
	"clone",
	"close",
	"close_range",
	"dup2",
	"dup3",
	"execve",
	"exit",
	"exit_group",
	"fcntl",
	"fstat",
	"futex",
	"getpid",
	"getrusage",
	"gettid",
	"ioctl",
	"kill",
	"lseek",
	"mmap",
	"mprotect",
	"mremap",
	"munmap",
	"newfstatat",
	"open",
	"openat",
	"pipe2",
	"poll",
	"ppoll",
	"prctl",
	"prlimit64",
	"read",
	"recvmsg",
	"restart_syscall",
	"rseq",
	"rt_sigaction",
	"rt_sigprocmask",
	"rt_sigreturn",
	"sendmsg",
	"sendto",
	"set_robust_list",
	"set_tid_address",
	"setsid",
	"signalfd4",
	"statx",
	"umask",
	"vfork",
	"wait4",
	"waitid",
	"write",
	"writev",
};

enum sc_arch sc_native(void)
{
#if defined(__x86_64__)
	return SC_X86_64;
#elif defined(__aarch64__)
	return SC_AARCH64;
#else
#error "no seccomp table for this architecture"
#endif
}

const struct sock_filter *sc_prebuilt(enum sc_arch arch, const struct sc_request *rq,
				      uint16_t *ret_len)
{
	const struct sc_prebuilt_program *p = &sc_programs[arch][sc_variant(rq)];

	if (rq->n_rules > 0)
		return NULL;
	*ret_len = p->len;
	return p->code;
}

const char *sc_name(enum sc_arch arch, int nr)
{
	if (nr < 0 || nr >= SC_NR_MAX || sc_name_at[arch][nr] == 0)
		return NULL;
	return sc_name_text + sc_name_at[arch][nr];
}

int sc_number(enum sc_arch arch, const char *name)
{
	for (int nr = 0; nr < SC_NR_MAX; nr++)
		if (sc_name_at[arch][nr] != 0 &&
		    strcmp(sc_name_text + sc_name_at[arch][nr], name) == 0)
			return nr;
	return -1;
}

enum sc_verdict sc_verdict(enum sc_arch arch, const struct sc_request *rq, int nr)
{
	uint8_t class = sc_class_of(sc_table[arch], rq, nr);

	if (class == SC_ARG_CLONE || class == SC_ARG_UNSHARE)
		return SC_DENY;
	return class < SC_VERDICT_N ? (enum sc_verdict) class : SC_ARGS;
}

bool sc_notifies_ordinary(enum sc_arch arch, const struct sc_request *rq)
{
	struct sc_request bare = *rq;

	bare.n_rules = 0;
	for (size_t i = 0; i < rq->n_rules; i++)
		if (rq->rules[i].action == BOX_RULE_DENY &&
		    sc_class_of(sc_table[arch], &bare, rq->rules[i].nr) != SC_DENY)
			return true;
	return rq->untrusted;
}

/* Calls that carry what the filter checks elsewhere behind a pointer, where it can't look: mode
 * bits, namespace flags, whole calls. */
static bool goes_round(const char *name)
{
	return strcmp(name, "openat2") == 0 || strcmp(name, "clone3") == 0 ||
	       strncmp(name, "io_uring_", 9) == 0;
}

/* The kernel keeps keys by user and by session, not by namespace: the box's user is the caller, and
 * so is the owner of the caller's keyrings. */
static bool reaches_keys(const char *name)
{
	return strcmp(name, "keyctl") == 0 || strcmp(name, "add_key") == 0 ||
	       strcmp(name, "request_key") == 0;
}

/* A rule that came past sc_rule_parse must not do what that refuses; and none may undo what the
 * same request asks for: a memfd is memory that supervised limits can't see. */
static int sc_rules_check(enum sc_arch arch, const struct sc_request *rq, struct err *e)
{
	for (size_t i = 0; i < rq->n_rules; i++) {
		int nr = rq->rules[i].nr;
		const char *name = sc_name(arch, nr);

		if (name == NULL)
			return err_set(e, ERR_REFUSED,
				       "seccomp rule: no system call has the number %d", nr);
		if (rq->rules[i].action != BOX_RULE_ALLOW)
			continue;
		if (sc_table[arch][nr] == SC_END)
			return err_set(
				e, ERR_REFUSED,
				"seccomp rule: %s is in the escape set, which no option allows",
				name);
		if (goes_round(name) || reaches_keys(name))
			return err_set(e, ERR_REFUSED,
				       "seccomp rule: %s is let through by no option", name);
		if (rq->hide_memfd &&
		    (sc_table[arch][nr] == SC_IF_MEMFD || sc_table[arch][nr] == SC_IF_MEMFD_FLAGS))
			return err_set(
				e, ERR_REFUSED,
				"seccomp rule: %s makes memory that supervised limits can't see; "
				"leave out the rule, or use a host with cgroups (see cloche doctor)",
				name);
	}
	return 0;
}

int sc_build(enum sc_arch arch, const struct sc_request *rq, struct sc_program *ret, struct err *e)
{
	if (sc_rules_check(arch, rq, e) < 0)
		return -1;
	return sc_build_table(arch, sc_table[arch], rq, ret, e);
}

static bool is_needed(const char *name)
{
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (strcmp(needed[i], name) == 0)
			return true;
	return false;
}

int sc_rule_would(enum sc_arch arch, const struct sc_request *rq, int nr, struct err *e)
{
	const char *name = sc_name(arch, nr);
	struct sc_request one = *rq;
	struct box_rule rule = { 0 };
	char text[80];

	snprintf(text, sizeof(text), "allow=%s", name ? name : "");
	if (sc_rule_parse(text, &rule, e) < 0)
		return -1;
	one.rules = &rule;
	one.n_rules = 1;
	return sc_rules_check(arch, &one, e);
}

int sc_rule_parse(const char *text, struct box_rule *ret, struct err *e)
{
	enum sc_arch arch = sc_native();
	bool allow = strncmp(text, "allow=", 6) == 0;
	const char *name;
	uint8_t class;
	int nr;

	if (!allow && strncmp(text, "deny=", 5) != 0)
		return err_set(
			e, ERR_USAGE,
			"--seccomp-rule \"%.60s\": write allow=NAME or deny=NAME, as in allow=ptrace",
			text);
	name = strchr(text, '=') + 1;
	nr = sc_number(arch, name);
	if (nr < 0)
		return err_set(
			e, ERR_USAGE,
			"--seccomp-rule \"%.60s\": no system call of this architecture has that name",
			text);
	class = sc_table[arch][nr];
	if (allow && class == SC_END)
		return err_set(
			e, ERR_USAGE,
			"--seccomp-rule allow=%s: %s is in the escape set (calls that end the box), which no "
			"option allows",
			name, name);
	if (allow && goes_round(name))
		return err_set(
			e, ERR_USAGE,
			"--seccomp-rule allow=%s: %s goes round the checks of other calls' arguments, which no option "
			"lifts; programs fall back to those calls",
			name, name);
	if (allow && reaches_keys(name))
		return err_set(
			e, ERR_USAGE,
			"--seccomp-rule allow=%s: %s reaches the keys of the user that the box is outside; no option allows it",
			name, name);
	if (allow && class >= SC_ARG_CLONE)
		return err_set(
			e, ERR_USAGE,
			"--seccomp-rule allow=%s: %s is already allowed, with argument checks that no rule lifts",
			name, name);
	if (!allow && is_needed(name))
		return err_set(e, ERR_USAGE,
			       "--seccomp-rule deny=%s: every program needs %s; leave out the rule",
			       name, name);
	ret->action = allow ? BOX_RULE_ALLOW : BOX_RULE_DENY;
	ret->nr = nr;
	return 0;
}
