/* From a refused call to the policies that refuse it. Each policy is asked by itself, whatever the
 * others say: the filter as it stands without the caller's rules, the rules, the capabilities that
 * the kernel would ask for next, the profile, and how a directory is shared.
 *
 * What may go wrong: the kernel may have reasons of its own that show only when the call is let
 * through (another process's rights, a security module outside); nothing can ask it beforehand. */
#include "box/denied.h"

#include <assert.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "box/locks.h"
#include "box/seccomp.h"

/* What the kernel asks for once a call is let through: a capability of the box's own user
 * namespace, which --cap-add keeps, or one of the host's, which no box has. */
static const struct {
	const char *call;
	int cap;
	bool hosts;
} wants[] = {
	{ "chroot", CAP_SYS_CHROOT, false },	   { "sethostname", CAP_SYS_ADMIN, false },
	{ "setdomainname", CAP_SYS_ADMIN, false }, { "settimeofday", CAP_SYS_TIME, true },
	{ "clock_settime", CAP_SYS_TIME, true },   { "iopl", CAP_SYS_RAWIO, true },
	{ "ioperm", CAP_SYS_RAWIO, true },	   { "vhangup", CAP_SYS_TTY_CONFIG, true },
};

static const char *const kinds[] = { "syscall", "mount", "read" };
static_assert(sizeof(kinds) / sizeof(kinds[0]) == DENIAL_KIND_N, "a name for every kind");

const char *denial_kind_name(enum denial_kind k)
{
	return kinds[k];
}

bool denial_word(char *buf, size_t cap, const char *word)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_./:=,@%+-";
	size_t n = strlen(buf);
	char shown[DENIAL_TEXT];
	bool quote = !*word || word[strspn(word, plain)];

	if (strlen(word) >= sizeof(shown) ||
	    strcmp(str_printable(shown, sizeof(shown), word), word) != 0)
		return false;
	if (n > 0 && n + 1 < cap)
		buf[n++] = ' ';
	if (quote && n + 1 < cap)
		buf[n++] = '\'';
	for (const char *c = word; *c && n + 5 < cap; c++) {
		if (*c == '\'') {
			memcpy(buf + n, "'\\''", 4);
			n += 4;
		} else {
			buf[n++] = *c;
		}
	}
	if (quote && n + 1 < cap)
		buf[n++] = '\'';
	buf[n < cap ? n : cap - 1] = '\0';
	return n + 5 < cap;
}

bool denial_volume(char *buf, size_t cap, const char *src, const char *dst, const char *mode)
{
	char word[DENIAL_TEXT];
	int n = snprintf(word, sizeof(word), "%s:%s:%s", src, dst, mode);

	return n > 0 && (size_t)n < sizeof(word) && !strchr(src, ':') && !strchr(dst, ':') &&
	       denial_word(buf, cap, "-v") && denial_word(buf, cap, word);
}

static struct sc_request request_of(const struct box_spec *s)
{
	return (struct sc_request){ .untrusted = s->profile == BOX_PROFILE_UNTRUSTED,
				    .rules = s->rules,
				    .n_rules = s->n_rules };
}

/* The rule that would let it through, or why none does. */
static void by_allowing(const struct box_spec *s, int nr, struct denial *ret, char buf[DENIAL_TEXT],
			const char *else_why)
{
	struct sc_request rq = request_of(s);
	struct err e;

	if (sc_rule_would(sc_native(), &rq, nr, &e) < 0) {
		ret->reason = else_why;
		return;
	}
	snprintf(buf, DENIAL_TEXT, "--seccomp-rule allow=%s", sc_name(sc_native(), nr));
	ret->allow_with = buf;
}

static bool by_filter(const struct box_spec *s, const struct box_denied *d, struct denial *ret,
		      char buf[DENIAL_TEXT])
{
	ret->policy = "filter";
	if (d->nr < 0) {
		ret->reason = "a signal took its record away";
		return true;
	}
	if (d->ended) {
		ret->reason = "it is of the escape set, which no option opens";
		return true;
	}
	if (d->alone == SC_ALLOW || d->alone == SC_MEDIATE)
		return false;
	by_allowing(s, d->nr, ret, buf,
		    d->alone == SC_DENY	    ? "no box makes namespaces of its own"
		    : d->alone == SC_ENOSYS ? "no option lets it through"
					    : "no option lifts the check of its arguments");
	return true;
}

static bool by_rule(const struct box_spec *s, const struct box_denied *d, struct denial *ret,
		    char buf[DENIAL_TEXT])
{
	size_t i = s->n_rules;

	while (i > 0 && s->rules[i - 1].nr != d->nr)
		i--;
	if (d->nr < 0 || d->ended || i == 0 || s->rules[i - 1].action != BOX_RULE_DENY)
		return false;
	ret->policy = "rule";
	by_allowing(s, d->nr, ret, buf, "leave out the --seccomp-rule that denies it");
	return true;
}

/* The capability that the call still lacks, or -1. */
static int lacks(const struct box_spec *s, const struct box_denied *d, bool *ret_hosts)
{
	const char *name = d->nr < 0 || d->ended ? NULL : sc_name(sc_native(), d->nr);

	for (size_t i = 0; name && i < sizeof(wants) / sizeof(wants[0]); i++)
		if (strcmp(wants[i].call, name) == 0 &&
		    (wants[i].hosts || !(s->cap_keep >> wants[i].cap & 1))) {
			*ret_hosts = wants[i].hosts;
			return wants[i].cap;
		}
	return -1;
}

static bool by_capability(const struct box_spec *s, const struct box_denied *d, struct denial *ret,
			  char buf[DENIAL_TEXT])
{
	bool hosts;
	int cap = lacks(s, d, &hosts);

	if (cap < 0)
		return false;
	ret->policy = "capability";
	snprintf(buf, DENIAL_TEXT,
		 hosts ? "it takes CAP_%s of the host, which no box has" : "--cap-add %s",
		 locks_cap_name(cap));
	*(hosts ? &ret->reason : &ret->allow_with) = buf;
	return true;
}

/* Sockets of the host, and capabilities at all. */
static bool by_profile(const struct box_spec *s, const struct box_denied *d, struct denial *ret,
		       char buf[DENIAL_TEXT])
{
	bool hosts;

	(void)buf;
	if (s->profile != BOX_PROFILE_UNTRUSTED ||
	    (d->mount == 0 && (lacks(s, d, &hosts) < 0 || hosts)))
		return false;
	ret->policy = "profile";
	ret->allow_with = "--security-profile default";
	return true;
}

/* A socket of the host can't be reached through what is shared read-only, in any profile. Where
 * only the profile made it so, the profile's denial says all. */
static bool by_mount(const struct box_spec *s, const struct box_denied *d, struct denial *ret,
		     char buf[DENIAL_TEXT])
{
	const struct box_mount *m = d->mount > 0 ? &s->mounts[d->mount - 1] : NULL;

	if (d->mount == 0 || (m && (m->rw || !m->ro_said)))
		return false;
	ret->policy = "mount";
	buf[0] = '\0';
	if (!m)
		ret->reason = "it lies where every box sees the host read-only";
	else if (denial_volume(buf, DENIAL_TEXT, m->src, m->dst, "rw"))
		ret->allow_with = buf;
	else
		ret->reason = "share the directory that holds it read-write";
	return true;
}

static bool (*const policies[])(const struct box_spec *s, const struct box_denied *d,
				struct denial *ret, char buf[DENIAL_TEXT]) = {
	by_filter, by_rule, by_capability, by_profile, by_mount,
};

bool denied_policy(const struct box_spec *s, const struct box_denied *d, unsigned i,
		   struct denial *ret, char buf[DENIAL_TEXT])
{
	for (size_t p = 0; p < sizeof(policies) / sizeof(policies[0]); p++) {
		struct denial one = { .kind = DENIAL_SYSCALL,
				      .call = d,
				      .what = d->nr >= 0 ? sc_name(sc_native(), d->nr) : NULL,
				      .path = d->path[0] ? d->path : NULL };

		if (!policies[p](s, d, &one, buf) || i-- > 0)
			continue;
		*ret = one;
		return true;
	}
	return false;
}
