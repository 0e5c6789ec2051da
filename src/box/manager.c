/* The systemd manager (manager.h): where it is, and the three calls.
 *
 * systemd 252 was tried for these facts; it has them documented in org.freedesktop.systemd1(5).
 *	- A service without ExecStart= is taken when it has ExecStop=; nothing is executed at its
 *start.
 *	- Its group is made when the first process is attached, not at the start, and stays when the
 *	  last one has ended. (A service that ran a command loses its group with it.)
 *	- The group's own cgroup.subtree_control is ours: neither daemon-reload nor daemon-reexec
 *	  touches it.
 *	- AttachProcessesToUnit moves what the kernel would not let us move: out of a login
 *session's group the way leads over root's. The manager asks the system's manager then.
 *	- Of a delegated service the manager does not end the rest when the kernel kills for memory.
 *
 * What may go wrong: no manager (a login over ssh or su where nothing keeps one running), a
 * variable that leads to another user's, a manager that is busy or hostile. */
#include "box/manager.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* What a start may lose to a manager that does not answer. It answers one after the other, in some
 * 10 ms each, so that hundreds of starts at once wait for seconds: to give up too soon would cost
 * them their limits. */
enum { ANSWER_MS = 20000 };

static const char name[] = "org.freedesktop.systemd1", object[] = "/org/freedesktop/systemd1",
		  interface[] = "org.freedesktop.systemd1.Manager";

/* The groups of a manager: its own process stands in init.scope, below their root. */
static const char own_scope[] = "/init.scope", unit_group[] = "/app.slice/" MANAGER_UNIT;

static void each_mount(void *ctx, const char *line, size_t n)
{
	cg2_parse_mount(line, n, ctx);
}

static bool mounted(const void *ctx)
{
	return ((const struct cg2_place *)ctx)->mounted;
}

/* Where its groups are: next to the one that it stands in itself. */
static int locate(struct manager *m, struct err *e)
{
	static struct cg2_place place;
	static char text[8192];
	char file[40];
	ssize_t n;
	size_t len;

	snprintf(file, sizeof(file), "/proc/%d/cgroup", (int)m->bus.peer);
	n = fd_read_file_at(AT_FDCWD, file, text, sizeof(text));
	if (n < 0)
		return err_sys(e, "%s", file);
	place = (struct cg2_place){ 0 };
	cg2_parse_groups(text, (size_t)n, &place);
	len = strlen(place.group);
	if (!place.found || len < sizeof(own_scope) - 1 ||
	    strcmp(place.group + len - (sizeof(own_scope) - 1), own_scope) != 0)
		return err_set(e, ERR_MISSING,
			       "the user manager has no cgroup v2 groups (it is in %.80s)",
			       place.found ? place.group : "none");
	len -= sizeof(own_scope) - 1;
	if (len + sizeof(unit_group) > sizeof(place.group))
		return err_set(e, ERR_MISSING, "the user manager's group has too long a name");
	memcpy(place.group + len, unit_group, sizeof(unit_group));
	if (cg_each_mount(each_mount, mounted, &place) < 0)
		return err_sys(e, "reading /proc/self/mountinfo");
	if (!place.mounted)
		return err_set(e, ERR_MISSING, "the user manager's groups are not mounted here");
	memcpy(m->path, place.path, sizeof(m->path));
	return 0;
}

static int connect_in(struct manager *m, const char *dir, struct err *e)
{
	char path[4096 + 32];

	snprintf(path, sizeof(path), "%s/systemd/private", dir);
	if (dbus_open(&m->bus, path, ANSWER_MS, e) < 0)
		return -1;
	*strrchr(path, '/') = '\0';
	m->guard = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return 0;
}

/* The variable may be missing (su, cron) or lead to another user's directory (sudo): the usual
 * place is tried as well. */
static int connect_to(struct manager *m, struct err *e)
{
	const char *dir = getenv("XDG_RUNTIME_DIR");
	char usual[40];
	struct err why = { .kind = ERR_MISSING };

	snprintf(usual, sizeof(usual), "/run/user/%u", (unsigned)geteuid());
	if (dir && dir[0] == '/' && strlen(dir) < 4096 && strcmp(dir, usual) != 0 &&
	    connect_in(m, dir, &why) == 0)
		return 0;
	if (connect_in(m, usual, e) == 0)
		return 0;
	if (e->kind != ERR_MISSING)
		return -1;
	if (why.kind != ERR_MISSING) {
		*e = why;
		return -1;
	}
	if (access("/run/systemd/system", F_OK) < 0)
		return err_set(e, ERR_MISSING, "no systemd runs here");
	return err_set(e, ERR_MISSING,
		       "uid %u has no systemd user manager; fix: sudo loginctl enable-linger %u",
		       (unsigned)geteuid(), (unsigned)geteuid());
}

int manager_open(struct manager *m, struct err *e)
{
	m->bus.fd = m->guard = -1;
	if (geteuid() == 0)
		return err_set(e, ERR_MISSING, "root makes its groups itself");
	if (connect_to(m, e) < 0) {
		e->kind = ERR_MISSING; /* a stranger there is this rung's trouble, no order of the
					  caller's */
		return -1;
	}
	if (locate(m, e) < 0) {
		manager_close(m);
		return -1;
	}
	return 0;
}

void manager_close(struct manager *m)
{
	struct err e;

	if (m->bus.fd >= 0)
		(void)dbus_prove(&m->bus, &e); /* else it complains in its log */
	dbus_close(&m->bus);
	fd_close(&m->guard);
}

/* Calls; an error that is called `except` is none. */
static int call(struct manager *m, const char *member, const char *signature,
		const struct dbus_out *body, const char *except, struct err *e)
{
	struct dbus_method method = { name, object, interface, member, signature };
	struct dbus_in in;

	if (dbus_call(&m->bus, &method, body, &in, e) < 0) {
		dbus_close(&m->bus);
		return err_prefix(e, "the user manager");
	}
	if (!in.error[0] || (except && strcmp(in.error, except) == 0))
		return 0;
	return err_set(e, ERR_SYS, "the user manager: %s: %s", member,
		       in.text[0] ? in.text : in.error);
}

static void property(struct dbus_out *o, const char *key, const char *type)
{
	dbus_align(o, 8);
	dbus_str(o, key);
	dbus_sig(o, type);
}

static void property_str(struct dbus_out *o, const char *key, const char *value)
{
	property(o, key, "s");
	dbus_str(o, value);
}

static void property_yes(struct dbus_out *o, const char *key)
{
	property(o, key, "b");
	dbus_u32(o, 1);
}

/* ExecStop=-/bin/true: a service must have a command, and this one may fail. */
static void property_stop(struct dbus_out *o)
{
	static const char program[] = "/bin/true";
	struct dbus_array commands, words;

	property(o, "ExecStop", "a(sasb)");
	commands = dbus_array(o, 8);
	dbus_align(o, 8);
	dbus_str(o, program);
	words = dbus_array(o, 4);
	dbus_str(o, program);
	dbus_array_end(o, words);
	dbus_u32(o, 1);
	dbus_array_end(o, commands);
}

int manager_start(struct manager *m, struct err *e)
{
	struct dbus_out body = { .len = 0 };
	struct dbus_array a;

	dbus_str(&body, MANAGER_UNIT);
	dbus_str(&body, "fail");
	a = dbus_array(&body, 8);
	property_str(&body, "Description", "Groups of cloche's boxes (kept while empty)");
	property_str(&body, "Type", "oneshot");
	property_yes(&body, "RemainAfterExit");
	property_yes(&body, "Delegate");
	property_str(&body, "Slice", "app.slice");
	property_str(&body, "CollectMode", "inactive-or-failed");
	/* A box's init ignores what can be ignored, and would be waited for. */
	property(&body, "KillSignal", "i");
	dbus_u32(&body, SIGKILL);
	property(&body, "TasksMax", "t"); /* every box has its own */
	dbus_u64(&body, UINT64_MAX);
	property_stop(&body);
	dbus_array_end(&body, a);
	a = dbus_array(&body, 8); /* no further units */
	dbus_array_end(&body, a);
	return call(m, "StartTransientUnit", "ssa(sv)a(sa(sv))", &body,
		    "org.freedesktop.systemd1.UnitExists", e);
}

int manager_attach(struct manager *m, const char *group, pid_t pid, struct err *e)
{
	struct dbus_out body = { .len = 0 };
	struct dbus_array a;

	dbus_str(&body, MANAGER_UNIT);
	dbus_str(&body, group);
	a = dbus_array(&body, 4);
	dbus_u32(&body, (uint32_t)pid);
	dbus_array_end(&body, a);
	return call(m, "AttachProcessesToUnit", "ssau", &body, NULL, e);
}

int manager_stop(struct manager *m, struct err *e)
{
	struct dbus_out body = { .len = 0 };

	dbus_str(&body, MANAGER_UNIT);
	dbus_str(&body, "fail");
	return call(m, "StopUnit", "ss", &body, "org.freedesktop.systemd1.NoSuchUnit", e);
}
