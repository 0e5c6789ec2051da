/* Denials: what was refused to a box, and the option that would have allowed it.
 *
 * An action may be refused by several policies at once, each of which would do alone. Each is a
 * denial of its own with an option of its own, and the action is allowed once all these options are
 * given; where one of them has none, no options allow it. Options are literal: words for a shell,
 * put behind those that were given, or in the place of one that can be given only once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "box/spec.h"

#define BOX_DENIED_MAX 64
#define BOX_DENIED_PATHS 16 /* records of them that differ in their path only */
#define DENIAL_TEXT 1024

/* A refused system call as the listener saw it, counted with all others like it. `comm` and `path`
 * are the attacker's text. */
struct box_denied {
	int nr;	       /* system call, -1 when the notification was lost */
	int pid;       /* of the first caller, as seen from the host */
	bool ended;    /* of the ending set */
	uint8_t alone; /* enum sc_verdict: what the filter says without the caller's rules */
	int mount; /* connect to a socket of the host: 1 + index of the spec's mount that it lies
		      below, -1 for elsewhere; 0 for any other call */
	uint64_t count;
	char comm[16];	/* of the first caller */
	char path[109]; /* connect: as the box named it; else "" */
};

enum denial_kind { DENIAL_SYSCALL, DENIAL_MOUNT, DENIAL_READ, DENIAL_KIND_N };
const char *denial_kind_name(enum denial_kind k); /* "syscall", as in JSON */

/* One action refused by one policy. Owns nothing. */
struct denial {
	enum denial_kind kind;
	const char *policy;	/* who refused: "filter", "capability", or the rule's name */
	const char *what;	/* the call, the option, or the word of the command; NULL if lost */
	const char *path;	/* NULL when there is none */
	const char *allow_with; /* the option; NULL when there is none, and then `reason` says why
				 */
	const char *reason;
	const struct box_denied *call; /* DENIAL_SYSCALL */
};

/* The `i`-th policy that refuses a recorded call, with buf for its texts; false behind the last
 * one. There is one at least. */
bool denied_policy(const struct box_spec *s, const struct box_denied *d, unsigned i,
		   struct denial *ret, char buf[DENIAL_TEXT]);

/* Appends `word` to an option's text, quoted for a shell where it needs that, behind a blank unless
 * buf is empty. False, and nothing is to be used, when it does not fit or holds what no line of
 * text can. */
bool denial_word(char *buf, size_t cap, const char *word);
/* The option that shares src, "-v SRC:DST:MODE"; false where it can't be written. */
bool denial_volume(char *buf, size_t cap, const char *src, const char *dst, const char *mode);
