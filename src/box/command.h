/* Spawning the box's command: a child of init that shares its memory until it executes (as vfork
 * does), so that no page is copied. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "box/spec.h"

/* `stdio` as in init_args, or the terminal's slave three times with `tty`; `held` as
 * limits_inside has it. 0 with the pid, or -1: nothing runs, *e says what failed; kind ERR_EXEC
 * with num ENOENT or another errno when the command itself is the reason. */
int command_spawn(const struct box_spec *spec, const int stdio[3], bool tty, unsigned held,
		  pid_t *ret, struct err *e);
