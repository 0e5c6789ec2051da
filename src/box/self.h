/* Keeping cloche's own file out of a box's reach where Landlock can't.
 *
 * Until the command has executed, /proc/self/exe in its process is cloche's file on the host, and a
 * command or an interpreter line may name it (the class of CVE-2019-5736). Landlock (locks.c)
 * forbids to execute or write what is not below the box's root. On a kernel without it cloche runs
 * from a sealed copy of itself in memory: then what is named there can be overwritten by nobody. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Returns when nothing needs to be done; else executes the copy (the same argv and environment), or
 * fails. Call before anything is opened. */
int self_protect(char **argv, struct err *e);
/* Is this the copy? Then all that came before self_protect was done once already. */
bool self_is_copy(void);

/* What cloche itself takes of its caller's resource limits: enough descriptors, so that a start
 * neither fails half way nor takes a lower rung for want of one. The box's own limits are set in
 * the box. */
int self_limits(struct err *e);
