/* The caller's own systemd manager (`systemd --user`), asked over its private D-Bus socket for one
 * thing: a delegated group to make boxes' groups in.
 *
 * The group is that of a transient service, MANAGER_UNIT, which has no process: RemainAfterExit=yes
 * lets it stay active when it is empty, so that it is made once and kept, and Delegate=yes makes
 * its group ours below. A scope would be the unit for foreign processes, but it ends with its last
 * process, so every start on a quiet machine would make it anew.
 *
 * The private socket, not the bus: the manager itself listens there, so that the kernel tells who
 * it is and where it stands; no daemon is between with a queue and a policy of its own; and it is
 * there also where no bus is installed. systemctl --user talks to the same socket.
 *
 * Every call has a deadline, and all together. Nothing is taken from an answer but whether it is an
 * error, and its text for the message; what came of a call, the kernel is asked. */
#pragma once

#include <sys/types.h>

#include "base/dbus.h"
#include "base/err.h"
#include "box/limits_rungs.h"

#define MANAGER_UNIT "cloche-boxes.service"

struct manager {
	struct dbus bus;
	char path[CG_PATH_MAX]; /* where the unit's group is, or will be */
	int guard; /* the directory of its socket, to be locked: shared while the unit is
		      looked for or made, exclusive while it is stopped; or -1 */
};

/* Finds the manager and where its groups are; calls nothing. ERR_MISSING with the fix when there is
 * none. *m is large: keep it static. */
int manager_open(struct manager *m, struct err *e);
/* The three calls: -1 with *e, and m->bus.fd is -1 when no further one makes sense. Starts the
 * unit; 0 also when it is there already. The job is queued when this returns, not done.
 */
int manager_start(struct manager *m, struct err *e);
/* Moves a process of the caller's into the unit's group ("") or one below it ("/name"). */
int manager_attach(struct manager *m, const char *group, pid_t pid, struct err *e);
/* Stops the unit, with everything in it. The job is queued when this returns. */
int manager_stop(struct manager *m, struct err *e);
void manager_close(struct manager *m);
