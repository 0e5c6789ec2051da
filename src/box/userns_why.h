/* Why this host gave no namespace, and how to mend it: one place of knowledge for a failing start
 * and for `cloche doctor`. Reads /proc and /sys only, where the start was asked
 * for: inside a box's new namespaces they say something else. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct userns_why {
	char cause[200]; /* one line */
	char fix[360];	 /* commands, one a line */
};

/* `what` names the step that failed ("user namespace", "host name"), `num` is its errno. */
void userns_why(const char *what, int num, struct userns_why *ret);
/* The same as an error of one line (kind ERR_MISSING): cause and fix. Returns -1. */
int userns_refused(const char *what, int num, struct err *e);
/* In the child, which sees the settings of its own new namespaces: an error (kind ERR_NAMESPACE) of
 * the step and the current errno. Returns -1. */
int userns_step(const char *what, struct err *e);
/* In the parent: puts the reason in the place of such an error; any other stays as it is. */
void userns_explain(struct err *e);

/* AppArmor's restriction on user namespaces is on and holds for this process: no profile lets the
 * program through. */
bool userns_apparmor_restricts(void);
