/* Why this host gave no namespace, and how to mend it: one place of knowledge for a failing start
 * and for `cloche doctor`. Reads /proc and /sys only; allocates nothing, since a box's
 * first process asks too. */
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

/* AppArmor's restriction on user namespaces is on and holds for this process: no profile lets the
 * program through. */
bool userns_apparmor_restricts(void);
