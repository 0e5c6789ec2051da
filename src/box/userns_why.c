/* From an errno and what the host says about itself to a cause and a fix. The order matters: a
 * setting that forbids by name is the cause even where something else would forbid it too. Facts:
 * user_namespaces(7), namespaces(7), seccomp(2), AppArmor's userns mediation. */
#include "box/userns_why.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define SOURCE "cloche" /* of all mounts that a box makes */

static void cause(struct userns_why *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void cause(struct userns_why *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->cause, sizeof(w->cause), fmt, ap);
	va_end(ap);
}

static void fix(struct userns_why *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fix(struct userns_why *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->fix, sizeof(w->fix), fmt, ap);
	va_end(ap);
}

static bool is(const char *path, uint64_t value)
{
	uint64_t v;

	return fd_read_u64_at(AT_FDCWD, path, &v) == 0 && v == value;
}

/* The AppArmor profile that this program runs under, without its mode; "" when it can't be told. */
static const char *apparmor_profile(char *buf, size_t size)
{
	if (fd_read_file_at(AT_FDCWD, "/proc/self/attr/apparmor/current", buf, size) < 0 &&
	    fd_read_file_at(AT_FDCWD, "/proc/self/attr/current", buf, size) < 0)
		buf[0] = '\0';
	buf[strcspn(buf, " \n")] = '\0';
	return buf;
}

bool userns_apparmor_restricts(void)
{
	char label[256];

	if (!is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1))
		return false;
	apparmor_profile(label, sizeof(label));
	return !label[0] || strcmp(label, "unconfined") == 0;
}

/* The mediation that every kernel since 6.7 has: a profile without the rule "userns" refuses by
 * EACCES, which nothing else does. */
static bool apparmor_confines(char *label, size_t size)
{
	apparmor_profile(label, size);
	return label[0] && strcmp(label, "unconfined") != 0;
}

/* True when "/" is not the root of the mount namespace, as far as its mounts tell: user namespaces
 * are refused there. A chroot into what is itself a mount looks like none. Field 5 of a line of
 * mountinfo is where its mount stands. */
static bool in_chroot(void)
{
	_cleanup_fd_ int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	unsigned field = 1;
	char buf[4096], last = '\0';
	bool root = false;
	ssize_t n = 0;

	while (fd >= 0 && (n = read(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < n; i++) {
			if (buf[i] == ' ' && field == 5 && root && last == '/')
				return false;
			if (buf[i] == '\n')
				field = 1;
			else if (buf[i] == ' ')
				field++;
			root = buf[i] == '/' && last == ' ' && field == 5;
			last = buf[i];
		}
	}
	return fd >= 0 && n == 0;
}

/* The kind of namespace that this kernel was built without, or NULL. An outer filter may say the
 * same errno. */
static const char *kind_missing(void)
{
	static const char *const kinds[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
	char path[64];

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(path, sizeof(path), "/proc/self/ns/%s", kinds[i]);
		if (access(path, F_OK) < 0)
			return kinds[i];
	}
	return NULL;
}

/* Whoever's own ids stand for nobody here may make no user namespace. */
static bool unmapped(void)
{
	char map[64];

	return fd_read_file_at(AT_FDCWD, "/proc/self/uid_map", map, sizeof(map)) == 0 ||
	       fd_read_file_at(AT_FDCWD, "/proc/self/gid_map", map, sizeof(map)) == 0;
}

/* The root of a box names its source. */
static bool in_a_box(void)
{
	static const char first[] = SOURCE " / ";
	_cleanup_fd_ int fd = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
	char got[sizeof(first)];

	return fd >= 0 && read(fd, got, sizeof(first) - 1) == (ssize_t)sizeof(first) - 1 &&
	       memcmp(got, first, sizeof(first) - 1) == 0;
}

static bool filtered(void)
{
	char text[8192];
	const char *p;

	if (fd_read_file_at(AT_FDCWD, "/proc/self/status", text, sizeof(text)) < 0)
		return false;
	p = strstr(text, "\nSeccomp:");
	return p && strtol(p + 9, NULL, 10) == 2;
}

/* ENOSPC, EUSERS: a count is used up, or is none. */
static void used_up(const char *what, int num, struct userns_why *ret)
{
	static const struct {
		const char *sysctl, *what;
	} counts[] = {
		{ "user", "user" },	{ "mnt", "mount" }, { "pid", "pid" },
		{ "net", "network" },	{ "ipc", "ipc" },   { "uts", "uts" },
		{ "cgroup", "cgroup" },
	};
	char path[96];

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		snprintf(path, sizeof(path), "/proc/sys/user/max_%s_namespaces", counts[i].sysctl);
		if (!is(path, 0))
			continue;
		cause(ret, "%s namespaces are switched off: user.max_%s_namespaces=0",
		      counts[i].what, counts[i].sysctl);
		fix(ret,
		    "echo user.max_%s_namespaces=15000 | sudo tee /etc/sysctl.d/90-namespaces.conf\nsudo sysctl --system",
		    counts[i].sysctl);
		return;
	}
	cause(ret, "%s: the limit on namespaces is used up, or they are nested 32 deep (%s)", what,
	      strerror(num));
	fix(ret, "sysctl user    # shows the limits; raise the one that is reached");
}

/* A call was refused, and nothing names itself as the cause. */
static void refused(const char *what, int num, struct userns_why *ret)
{
	const char *none = num == ENOSYS || num == EINVAL ? kind_missing() : NULL;

	if (none) {
		cause(ret, "%s: this kernel has no %s namespaces (%s)", what, none, strerror(num));
		fix(ret,
		    "use a kernel built with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_UTS_NS and CONFIG_IPC_NS");
	} else if (in_a_box()) {
		cause(ret, "%s: this is a box of cloche, and no box makes boxes (%s)", what,
		      strerror(num));
		fix(ret, "start the inner box from outside, beside this one");
	} else if (num == EPERM && in_chroot()) {
		cause(ret, "user namespaces are refused inside a chroot");
		fix(ret,
		    "leave the chroot, or enter it by pivot_root (a container, systemd-nspawn) instead of chroot");
	} else if (num == EPERM && unmapped()) {
		cause(ret, "%s: the ids of this process are not mapped here (%s)", what,
		      strerror(num));
		fix(ret,
		    "map an id when the outer user namespace is made: unshare --map-current-user ...");
	} else if (filtered()) {
		cause(ret, "%s: refused, and a seccomp filter stands over this process (%s)", what,
		      strerror(num));
		fix(ret,
		    "docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined ...\n"
		    "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL ...\n"
		    "kubernetes: securityContext.seccompProfile.type: Unconfined, procMount: Unmasked");
	} else {
		cause(ret, "%s: refused as in a chroot, or by a security module (%s)", what,
		      strerror(num));
		fix(ret,
		    "leave the chroot, or look for the refusal in: sudo dmesg | tail    # SELinux, AppArmor, or the outer container");
	}
}

void userns_why(const char *what, int num, struct userns_why *ret)
{
	char label[256];

	if (num == ENOSPC || num == EUSERS) {
		used_up(what, num, ret);
	} else if (num == EAGAIN || num == ENOMEM) {
		cause(ret, "%s: no more processes may be started, or no memory is left (%s)", what,
		      strerror(num));
		fix(ret, "%s", err_fork_fix);
	} else if (access("/proc/self/status", F_OK) < 0) {
		cause(ret, "%s: %s, and no /proc is mounted that could say why", what,
		      strerror(num));
		fix(ret, "mount -t proc proc /proc");
	} else if (is("/proc/sys/kernel/unprivileged_userns_clone", 0)) {
		cause(ret, "user namespaces are switched off: kernel.unprivileged_userns_clone=0");
		fix(ret,
		    "echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/90-userns.conf\nsudo sysctl --system");
	} else if (userns_apparmor_restricts()) {
		cause(ret,
		      "AppArmor refuses user namespaces (kernel.apparmor_restrict_unprivileged_userns=1), and no profile lets cloche through");
		fix(ret,
		    "sudo cloche doctor --fix    # installs an AppArmor profile for cloche only");
	} else if (num == EACCES && apparmor_confines(label, sizeof(label))) {
		cause(ret,
		      "AppArmor refuses user namespaces to the profile \"%.90s\", which cloche runs under",
		      label);
		fix(ret,
		    "sudo cloche doctor --fix    # installs an AppArmor profile for cloche only; "
		    "where \"%.90s\" lets no program change profile, add \"userns,\" to it",
		    label);
	} else {
		refused(what, num, ret);
	}
}

int userns_refused(const char *what, int num, struct err *e)
{
	struct userns_why why;

	userns_why(what, num, &why);
	/* One line: a second command goes behind the first, a remark goes. */
	for (char *p = why.fix; *p; p++) {
		if (*p == '#')
			*p = '\0';
		else if (*p == '\n')
			*p = ';';
		if (*p == '\0')
			break;
	}
	for (size_t n = strlen(why.fix); n > 0 && why.fix[n - 1] == ' '; n--)
		why.fix[n - 1] = '\0';
	return err_set(e, ERR_MISSING, "this host gives no namespace for a box: %s; fix: %s",
		       why.cause, why.fix);
}

int userns_step(const char *what, struct err *e)
{
	int num = errno;

	err_set(e, ERR_NAMESPACE, "%s", what);
	e->num = num;
	return -1;
}

void userns_explain(struct err *e)
{
	struct err step = *e;

	if (e->kind != ERR_NAMESPACE)
		return;
	userns_refused(step.msg, step.num, e);
	e->stage = step.stage;
}
