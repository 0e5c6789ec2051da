/* The box's seccomp filter: which system call gets which answer, and the program that says so.
 *
 * One table of verdicts by call number, one builder that turns it into a balanced tree of classic
 * BPF (a long linear filter costs milliseconds to load; a tree 0.07-0.15 ms). The default programs
 * are built when cloche is built, by a generator that resolves names with libseccomp and calls the
 * same builder; `--seccomp-rule` and profiles build at run time. Facts: seccomp(2),
 * seccomp_unotify(2), the kernel's include/uapi/linux/seccomp.h. */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum sc_verdict {
	SC_ENOSYS, /* anything not named: as on a kernel without it. Zero, so that a table starts
		      closed */
	SC_ALLOW,
	SC_EPERM,
	SC_EAFNOSUPPORT,
	SC_ZERO,    /* answered 0, and nothing happens: what root may do and a set-up box may not */
	SC_DENY,    /* listener: answered EPERM, recorded as a denial (ptrace, chroot, namespace
		       requests; what the caller's rules deny) */
	SC_END,	    /* listener: refused, recorded, and the box ends (the escape set) */
	SC_MEDIATE, /* listener: cloche does the call itself (connect, under the untrusted profile)
		     */
	SC_KILL, /* an x32 call number: the process dies by SIGSYS, as with a foreign architecture.
		    Never in a table */
	SC_ARGS, /* the verdict depends on arguments: see enum sc_class in seccomp_table.h */
	SC_VERDICT_N
};

#define SC_NR_MAX 512	 /* call numbers of one architecture are below this */
#define SC_PROG_MAX 2048 /* instructions of one program */

enum sc_arch { SC_X86_64, SC_AARCH64, SC_ARCH_N };

/* The architecture that this program was compiled for. */
enum sc_arch sc_native(void);

struct sc_program {
	struct sock_filter code[SC_PROG_MAX];
	uint16_t len;
};

struct sc_request {
	bool untrusted;	 /* connect is mediated; unix datagram sockets are refused */
	bool setup;	 /* a set-up box: owners, ids and devices are lied about, set-id
			    mode bits pass */
	bool hide_memfd; /* supervised limits: memfd_create answers ENOSYS */
	const struct box_rule *rules; /* caller's, applied last; checked by sc_rule_parse */
	size_t n_rules;
};

/* The shared, prebuilt program when the request has no rules of the caller's; else NULL. Read-only
 * data, no work. */
const struct sock_filter *sc_prebuilt(enum sc_arch arch, const struct sc_request *rq,
				      uint16_t *ret_len);
/* Builds the program for a request. Always equal to the prebuilt one for a request without rules (a
 * test holds that). Refuses (ERR_REFUSED) a rule that would undo another promise of the same
 * request: see sc_rules_check in seccomp.c. */
int sc_build(enum sc_arch arch, const struct sc_request *rq, struct sc_program *ret, struct err *e);
/* The verdict of call `nr` with these six arguments as the table means it, computed without BPF:
 * the tests' reference, and what a record of a denial is told by. */
enum sc_verdict sc_expect(enum sc_arch arch, const struct sc_request *rq, int nr,
			  const uint64_t args[6]);
/* What the listener does with a notified call: SC_DENY, SC_END or SC_MEDIATE. For a call that is
 * never notified, its verdict, or SC_ARGS when only its arguments tell. clone and unshare are
 * notified when they ask for namespaces: SC_DENY. */
enum sc_verdict sc_verdict(enum sc_arch arch, const struct sc_request *rq, int nr);
/* May an ordinary program make calls that are notified? Connect where it is mediated, and what the
 * caller's rules deny. Else hardly any notified call is one, and one that a signal took away is
 * taken for an escape attempt. */
bool sc_notifies_ordinary(enum sc_arch arch, const struct sc_request *rq);
/* Would allow=NAME for this call be taken, behind the request's other rules? -1 with the reason. */
int sc_rule_would(enum sc_arch arch, const struct sc_request *rq, int nr, struct err *e);

/* Call name for a number, or NULL; number for a name, or -1. */
const char *sc_name(enum sc_arch arch, int nr);
int sc_number(enum sc_arch arch, const char *name);

/* Parses "allow=NAME" or "deny=NAME" for the native architecture. Allowing a call of the ending set
 * is refused, allowing one that is already allowed with argument checks too (a rule can't lift the
 * checks), and so is denying one that every program or the box's own init needs (execve,
 * exit_group, ...). Of two rules for one call the last counts. */
int sc_rule_parse(const char *text, struct box_rule *ret, struct err *e);
