/* The rung of scopes: groups below a unit that the caller's systemd manager keeps for cloche
 * (manager.h).
 *
 * For an ordinary user who is logged in over ssh or su. Such a session's group is root's, so
 * nothing below it can be had; the user's manager has a subtree of its own, and lends a part of it.
 * There the box's group is made as on the rung `cgroup2`, by the same functions. Only the way in
 * differs: the kernel lets nobody but root move a process from the session to the manager's groups,
 * so init is cloned where cloche stands, and while it builds, the manager is asked to move it.
 * Cloche itself stays where its caller put it: whoever stops that service or session still stops
 * cloche, and the box with it.
 *
 * The unit is made by the first start and kept. It is empty between boxes; its group belongs to all
 * cloches of the user. Who uses it has a shared lock on its directory; `cloche gc` stops the unit
 * when it gets the exclusive one.
 *
 * What may go wrong: two first starts at once (the unit exists: so be it), one whose stand-in is
 * still in the unit's group when the other wants to enable controllers there (EBUSY), a unit that
 * is stopped between any two steps. All of them look again, until the time is up. */
#include "box/limits_rungs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/manager.h"

enum { SETTLE_US = 10000000, STOP_US = 10000000, NAP_MS = 1, NAP_MAX_MS = 64 };
enum { ADMIT_TRIES = 3, ODD_TRIES = 8 };
enum { SLOT_GROUP = 0 }; /* as in cgroup2.c */

/* 1, 2, 4 ... 64 ms, and so on. */
static void nap(int *ms)
{
	(void)poll(NULL, 0, *ms);
	if (*ms < NAP_MAX_MS)
		*ms *= 2;
}

/* A process that the manager can put into the unit's group, which it makes only then. */
static pid_t stand_in(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	while (getppid() == parent)
		pause();
	_exit(0);
}

/* The unit's group, once the unit is started. */
static int make_group(struct manager *m, struct err *e)
{
	pid_t pid = stand_in();
	int r;

	if (pid < 0)
		return err_sys(e, "fork");
	r = manager_attach(m, "", pid, e);
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}

/* The directory was removed. (Its count of links does not tell, in this file system.) */
static bool gone(int fd)
{
	return faccessat(fd, "cgroup.procs", F_OK, 0) < 0;
}

/* A stand-in is there. */
static bool busy(int fd)
{
	pid_t one;

	return group_pids(fd, &one, 1) > 0;
}

/* Then a group with less came of a stand-in that is gone again. */
static bool offers_both(int fd)
{
	const unsigned both = CG2_MEMORY | CG2_PIDS;
	char text[256];

	return fd_read_file_at(fd, "cgroup.controllers", text, sizeof(text)) > 0 &&
	       (cg2_parse_controllers(text) & both) == both;
}

static int place_in(struct limits *l, int fd, const char *path, const struct box_limits *want,
		    struct err *e)
{
	static struct cg2_parent parent;

	if (cg2_look_at(fd, path, cg2_wanted(want), &parent, e) < 0)
		return -1;
	if (cg2_place_at(l, &parent, want, e) < 0) {
		cg2_close(l);
		return -1;
	}
	l->into = -1; /* nobody is born there: scope_admit */
	return 0;
}

/* A group for a box, in the unit's, which is made when it is not there. */
static int settle_guarded(struct limits *l, struct manager *m, const struct box_limits *want,
			  struct err *e)
{
	uint64_t begin = limits_now_us(), spent;
	int odd = 0;

	for (int ms = NAP_MS;; nap(&ms)) {
		_cleanup_fd_ int fd =
			open(m->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

		spent = limits_now_us() - begin;
		if (fd < 0) {
			if (errno != ENOENT)
				return err_sys(e, "%.200s", m->path);
			if (manager_start(m, e) < 0)
				return -1;
			if (make_group(m, e) < 0) {
				if (m->bus.fd < 0 || spent >= SETTLE_US)
					return -1;
			} else if (spent >= SETTLE_US) {
				return err_set(e, ERR_SYS, "the user manager made no group");
			}
			continue;
		}
		/* Held as long as the box's group, whose descriptor is a copy of this one. Closed
		 * to other users, who could hold a lock against us. */
		(void)fchmod(fd, 0700);
		if (flock(fd, LOCK_SH | LOCK_NB) < 0 && spent < SETTLE_US)
			continue;
		if (place_in(l, fd, m->path, want, e) == 0) {
			if ((l->held & LIMITS_BOTH) == LIMITS_BOTH || !offers_both(fd) ||
			    ++odd > ODD_TRIES)
				return 0;
			cg2_close(l);
			continue;
		}
		if (spent >= SETTLE_US ||
		    !(gone(fd) || busy(fd) || (offers_both(fd) && ++odd <= ODD_TRIES)))
			return -1;
	}
}

/* The same while nobody stops the unit: until the box's group holds it by a lock of its own, a stop
 * would come between any two steps. */
static int settle(struct limits *l, struct manager *m, const struct box_limits *want, struct err *e)
{
	uint64_t begin = limits_now_us();
	int r;

	for (int ms = NAP_MS; m->guard >= 0 && flock(m->guard, LOCK_SH | LOCK_NB) < 0 &&
			      limits_now_us() - begin < SETTLE_US;
	     nap(&ms))
		;
	r = settle_guarded(l, m, want, e);
	if (m->guard >= 0)
		(void)flock(m->guard, LOCK_UN);
	return r;
}

/* One connection for a start, from the place to the admission: while init is cloned the manager
 * takes us for who we are. Boxes are started one after the other. */
static struct manager manager;
static bool connected;

static int link_up(struct err *e)
{
	if (!connected && manager_open(&manager, e) < 0)
		return -1;
	connected = true;
	return 0;
}

static void hang_up(void)
{
	if (connected)
		manager_close(&manager);
	connected = false;
}

static int scope_place(struct limits *l, const struct box_limits *want, struct err *e)
{
	return link_up(e) < 0 ? -1 : settle(l, &manager, want, e);
}

static void scope_close(struct limits *l)
{
	cg2_close(l);
	hang_up();
}

static bool is_in(int group, pid_t pid)
{
	pid_t in[8];
	size_t n = group_pids(group, in, sizeof(in) / sizeof(in[0]));

	for (size_t i = 0; i < n; i++)
		if (in[i] == pid)
			return true;
	return false;
}

static int admit(struct limits *l, pid_t pid, struct err *e)
{
	char group[GROUP_NAME + 1];

	snprintf(group, sizeof(group), "/%s", l->name);
	if (manager_attach(&manager, group, pid, e) < 0)
		return -1;
	if (!is_in(l->dir[SLOT_GROUP], pid)) /* asked of the kernel */
		return err_set(
			e, ERR_SYS,
			"the user manager: AttachProcessesToUnit: done, it says, and it is not");
	l->into = l->dir[SLOT_GROUP];
	return 0;
}

/* Again, when the unit was stopped meanwhile: the box's group went with it. */
static int place_anew(struct limits *l, const struct box_limits *want, struct err *e)
{
	if (manager_start(&manager, e) < 0)
		return -1;
	if (!gone(l->dir[SLOT_GROUP]))
		return 0;
	cg2_close(l);
	return settle(l, &manager, want, e) < 0 ? -1 : cg2_open(l, want, e);
}

/* A manager that has not done with the last unit yet trims what is empty below its group, which
 * the box's own is until init is in it. */
static int scope_open(struct limits *l, const struct box_limits *want, struct err *e)
{
	int r = cg2_open(l, want, e);

	for (int tries = 1, ms = NAP_MS; r < 0 && tries < ADMIT_TRIES && gone(l->dir[SLOT_GROUP]);
	     tries++) {
		nap(&ms);
		if (link_up(e) < 0)
			return -1;
		r = place_anew(l, want, e);
	}
	return r;
}

static int scope_admit(struct limits *l, pid_t pid, const struct box_limits *want, struct err *e)
{
	int r;

	if (link_up(e) < 0)
		return -1;
	r = admit(l, pid, e);
	for (int tries = 1, ms = NAP_MS; r < 0 && tries < ADMIT_TRIES; tries++) {
		nap(&ms);
		if (place_anew(l, want, e) < 0)
			break;
		r = admit(l, pid, e);
	}
	hang_up();
	return r;
}

const struct limits_rung limits_scope = {
	.id = LIMITS_RUNG_SCOPE,
	.name = "scope",
	.kernel = true,
	.place = scope_place,
	.open = scope_open,
	.admit = scope_admit,
	.check = cg2_check,
	.usage = cg2_usage,
	.close = scope_close,
	.sweep = cg2_sweep_beside,
};

unsigned scope_sweep(unsigned max)
{
	_cleanup_fd_ int fd = -1;
	struct err e;

	if (link_up(&e) < 0)
		return 0;
	fd = open(manager.path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? 0 : group_sweep(fd, max);
}

static bool empty(int fd)
{
	uint64_t populated = 1;
	char text[256];

	return fd_read_file_at(fd, "cgroup.events", text, sizeof(text)) > 0 &&
	       group_counter(text, "populated", &populated) && populated == 0;
}

bool scope_retire(void)
{
	_cleanup_fd_ int fd = -1;
	bool stopped = false;
	uint64_t begin;
	struct err e;

	if (link_up(&e) < 0)
		return false;
	if (manager.guard < 0 || flock(manager.guard, LOCK_EX | LOCK_NB) == 0)
		fd = open(manager.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && empty(fd) &&
	    manager_stop(&manager, &e) == 0) {
		/* The lock keeps new boxes away until the job is done. */
		begin = limits_now_us();
		for (int ms = NAP_MS; !stopped && limits_now_us() - begin < STOP_US; nap(&ms))
			stopped = gone(fd);
	}
	hang_up();
	return stopped;
}

bool scope_probe(char *why, size_t cap)
{
	const struct box_limits want = { .memory = 64 << 20, .pids = 64, .cpus = 1 };
	static struct limits l;
	unsigned held;
	struct err e;

	limits_clear(&l);
	if (scope_place(&l, &want, &e) < 0)
		snprintf(why, cap, "%s", e.msg);
	held = l.held & LIMITS_BOTH;
	if (held)
		snprintf(why, cap, "%s, below %s",
			 held == LIMITS_BOTH ? "memory and pids" : "memory or pids alone",
			 manager.path);
	scope_close(&l);
	return held == LIMITS_BOTH;
}
