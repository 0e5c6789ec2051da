/* Who refuses a call, and with what it would be allowed: every policy by itself, all combinations of them, and that each option is one that the
 * parsers take. */
#include "unit.h"

#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

#include "box/denied.h"
#include "box/locks.h"
#include "box/seccomp.h"

static struct box_spec spec;
static struct box_denied d;
static char told[512];

/* All policies of a refused call as "filter=OPTION capability=!REASON ...". */
static const char *policies(void)
{
	char text[DENIAL_TEXT];
	struct denial one;
	size_t n = 0;

	told[0] = '\0';
	for (unsigned i = 0; denied_policy(&spec, &d, i, &one, text); i++) {
		ck_assert(!one.allow_with != !one.reason);
		ck_assert_ptr_eq(one.call, &d);
		ck_assert_int_eq(one.kind, DENIAL_SYSCALL);
		n += (size_t)snprintf(told + n, sizeof(told) - n, "%s%s=%s%s", n ? "; " : "", one.policy, one.reason ? "!" : "",
				      one.reason ? one.reason : one.allow_with);
	}
	ck_assert_uint_lt(n, sizeof(told));
	return told;
}

static void call(const char *name, enum sc_verdict alone)
{
	spec = (struct box_spec){ .profile = BOX_PROFILE_DEFAULT };
	d = (struct box_denied){ .nr = sc_number(sc_native(), name), .alone = (uint8_t)alone, .pid = 3, .count = 1 };
	ck_assert_msg(d.nr >= 0, "%s", name);
}

static void rule(const char *text)
{
	struct err e;

	ck_assert_msg(sc_rule_parse(text, &spec.rules[spec.n_rules++], &e) == 0, "%s", e.msg);
}

START_TEST(the_filter)
{
	static const char *const by_rule[] = { "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd" };
	static const char *const never[] = { "clone", "unshare" };
	char want[96];

	for (size_t i = 0; i < sizeof(by_rule) / sizeof(by_rule[0]); i++) {
		call(by_rule[i], SC_DENY);
		snprintf(want, sizeof(want), "filter=--seccomp-rule allow=%s", by_rule[i]);
		ck_assert_str_eq(policies(), want);
	}
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
		call(never[i], SC_DENY);
		ck_assert_str_eq(policies(), "filter=!no box makes namespaces of its own");
	}
	call("mount", SC_END);
	d.ended = true;
	ck_assert_str_eq(policies(), "filter=!it is of the escape set, which no option opens");
	spec.profile = BOX_PROFILE_UNTRUSTED;
	ck_assert_str_eq(policies(), "filter=!it is of the escape set, which no option opens");
	d.nr = -1;
	ck_assert_str_eq(policies(), "filter=!a signal took its record away");
}
END_TEST

START_TEST(rules_of_the_caller)
{
	call("mkdir", SC_ALLOW);
	rule("deny=mkdir");
	ck_assert_str_eq(policies(), "rule=--seccomp-rule allow=mkdir");
	rule("allow=mkdir");
	rule("deny=mkdir");
	ck_assert_str_eq(policies(), "rule=--seccomp-rule allow=mkdir");
	call("ptrace", SC_DENY);
	rule("deny=ptrace");
	ck_assert_str_eq(policies(), "filter=--seccomp-rule allow=ptrace; rule=--seccomp-rule allow=ptrace");
	call("socket", SC_ALLOW); /* an allow rule for it is refused: it is allowed already, with checks */
	rule("deny=socket");
	ck_assert_str_eq(policies(), "rule=!leave out the --seccomp-rule that denies it");
	d.alone = SC_EAFNOSUPPORT;
	ck_assert_str_eq(policies(), "filter=!no option lifts the check of its arguments; rule=!leave out the --seccomp-rule that denies it");
	call("keyctl", SC_ENOSYS);
	rule("deny=keyctl");
	ck_assert_str_eq(policies(), "filter=!no option lets it through; rule=!leave out the --seccomp-rule that denies it");
	rule("deny=mkdir"); /* another call's rule changes nothing */
	ck_assert_str_eq(policies(), "filter=!no option lets it through; rule=!leave out the --seccomp-rule that denies it");
}
END_TEST

START_TEST(capabilities)
{
	call("chroot", SC_DENY);
	ck_assert_str_eq(policies(), "filter=--seccomp-rule allow=chroot; capability=--cap-add SYS_CHROOT");
	spec.profile = BOX_PROFILE_UNTRUSTED;
	ck_assert_str_eq(policies(), "filter=--seccomp-rule allow=chroot; capability=--cap-add SYS_CHROOT; profile=--security-profile default");
	spec.profile = BOX_PROFILE_DEFAULT;
	spec.cap_keep = 1ULL << CAP_SYS_CHROOT;
	ck_assert_str_eq(policies(), "filter=--seccomp-rule allow=chroot");
	call("sethostname", SC_DENY);
	spec.cap_keep = locks_cap_defaults();
	ck_assert_str_eq(policies(), "filter=--seccomp-rule allow=sethostname; capability=--cap-add SYS_ADMIN");
	call("settimeofday", SC_DENY);
	spec.cap_keep = ~0ULL;
	spec.profile = BOX_PROFILE_UNTRUSTED;
	ck_assert_str_eq(policies(),
			 "filter=--seccomp-rule allow=settimeofday; capability=!it takes CAP_SYS_TIME of the host, which no box has");
}
END_TEST

START_TEST(sockets_of_the_host)
{
	call("connect", SC_MEDIATE);
	spec.profile = BOX_PROFILE_UNTRUSTED;
	snprintf(d.path, sizeof(d.path), "/w/s");
	spec.mounts[0] = (struct box_mount){ .src = "/host dir", .dst = "/w", .rw = true };
	spec.n_mounts = 1;
	d.mount = 1;
	ck_assert_str_eq(policies(), "profile=--security-profile default");
	spec.mounts[0].rw = false; /* the profile's doing */
	ck_assert_str_eq(policies(), "profile=--security-profile default");
	spec.mounts[0].ro_said = true;
	ck_assert_str_eq(policies(), "profile=--security-profile default; mount=-v '/host dir:/w:rw'");
	rule("deny=connect");
	ck_assert_str_eq(policies(),
			 "rule=--seccomp-rule allow=connect; profile=--security-profile default; mount=-v '/host dir:/w:rw'");
	spec.mounts[0].src = "/with:colon";
	spec.n_rules = 0;
	ck_assert_str_eq(policies(), "profile=--security-profile default; mount=!share the directory that holds it read-write");
	d.mount = -1;
	ck_assert_str_eq(policies(), "profile=--security-profile default; mount=!it lies where every box sees the host read-only");
}
END_TEST

/* sh(1) on words that hold nothing but plain characters, '...' and \', written apart from what quotes them: the second word of `text`. */
static const char *second_word(const char *text)
{
	static char word[64];
	size_t n = 0;

	text = strchr(text, ' ') + 1;
	for (bool quoted = false; *text; text++) {
		if (*text == '\'')
			quoted = !quoted;
		else if (quoted)
			word[n++] = *text;
		else if (*text == '\\')
			word[n++] = *++text;
		else if (strchr(" $`\"*?~#&;|<>(){}[]!", *text))
			ck_abort_msg("bare %c in %s", *text, text);
		else
			word[n++] = *text;
	}
	word[n] = '\0';
	return word;
}

/* Whatever a path holds, a shell reads the option back as it was, or it is not written at all. */
START_TEST(words_for_a_shell)
{
	static const char bytes[] = "ab/.$`\"'\\ *?~#&;|<>(){}[]!=:%\xc3\xa4";
	unsigned seed = 7, quoted = 0;
	char buf[64];

	for (int round = 0; round < 3000; round++) {
		char word[24] = "";
		size_t n = (size_t)rand_r(&seed) % 10;

		for (size_t i = 0; i < n; i++)
			word[i] = bytes[(size_t)rand_r(&seed) % (sizeof(bytes) - 1)];
		snprintf(buf, sizeof(buf), "-v");
		if (!denial_word(buf, sizeof(buf), word))
			continue; /* half a character */
		ck_assert_str_eq(second_word(buf), word);
		quoted += strchr(buf, '\'') != NULL;
	}
	ck_assert_uint_gt(quoted, 500);
	for (size_t cap = 1; cap < sizeof(buf); cap++) {
		char tight[64] = "";

		if (denial_word(tight, cap, "it's a 'long' word"))
			ck_assert_str_eq(tight, "'it'\\''s a '\\''long'\\'' word'");
		ck_assert_uint_lt(strlen(tight), cap);
	}
	buf[0] = '\0';
	ck_assert(!denial_word(buf, sizeof(buf), "a\nb"));
	ck_assert(!denial_word(buf, sizeof(buf), "a\x1b[2J"));
	ck_assert(!denial_word(buf, sizeof(buf), "\xff"));
	ck_assert(!denial_volume(buf, sizeof(buf), "/a:b", "/c", "ro"));
	buf[0] = '\0';
	ck_assert(denial_volume(buf, sizeof(buf), "/a", "/c", "ro"));
	ck_assert_str_eq(buf, "-v /a:/c:ro");
}
END_TEST

/* Which rules would be taken, and whether ordinary calls go to the listener: a lost notification is an escape attempt only where they do not. */
START_TEST(rules_and_the_listener)
{
	enum sc_arch arch = sc_native();
	static const char *const taken[] = { "process_vm_writev", "chroot", "memfd_create", "mkdir" };
	static const char *const not_taken[] = { "socket", "mount", "clone3", "keyctl", "unshare" };
	struct sc_request rq = { .rules = spec.rules };
	struct err e;

	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
		ck_assert_int_eq(sc_rule_would(arch, &rq, sc_number(arch, taken[i]), &e), 0);
	for (size_t i = 0; i < sizeof(not_taken) / sizeof(not_taken[0]); i++)
		ck_assert_int_eq(sc_rule_would(arch, &rq, sc_number(arch, not_taken[i]), &e), -1);
	ck_assert_int_eq(sc_rule_would(arch, &rq, 9999, &e), -1);
	rq.hide_memfd = true;
	ck_assert_int_eq(sc_rule_would(arch, &rq, sc_number(arch, "memfd_create"), &e), -1);

	spec.n_rules = 0;
	ck_assert(!sc_notifies_ordinary(arch, &rq));
	rule("deny=ptrace"); /* notified anyway */
	rule("allow=mkdir");
	rq.n_rules = spec.n_rules;
	ck_assert(!sc_notifies_ordinary(arch, &rq));
	rule("deny=mkdir");
	rq.n_rules = spec.n_rules;
	ck_assert(sc_notifies_ordinary(arch, &rq));
	rq.n_rules = 0;
	rq.untrusted = true;
	ck_assert(sc_notifies_ordinary(arch, &rq));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, the_filter);
	tcase_add_test(tc, rules_of_the_caller);
	tcase_add_test(tc, capabilities);
	tcase_add_test(tc, sockets_of_the_host);
	tcase_add_test(tc, words_for_a_shell);
	tcase_add_test(tc, rules_and_the_listener);
}

int main(void)
{
	return unit_main("denied", fill);
}
