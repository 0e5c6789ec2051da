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

#include "base/fd.h"

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

bool userns_apparmor_restricts(void)
{
	char label[256];

	if (!is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1))
		return false;
	if (fd_read_file_at(AT_FDCWD, "/proc/self/attr/apparmor/current", label, sizeof(label)) <
		    0 &&
	    fd_read_file_at(AT_FDCWD, "/proc/self/attr/current", label, sizeof(label)) < 0)
		return true;
	return strcmp(label, "unconfined") == 0;
}

/* True when "/" is not the root of the mount namespace (as far as its mounts tell): user namespaces
 * are refused there. */
static bool in_chroot(void)
{
	char line[4096];
	bool found = false;
	FILE *f = fopen("/proc/self/mountinfo", "re");

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f)) {
		char *p = line;

		for (int i = 0; p && i < 4; i++) {
			p = strchr(p, ' ');
			p = p ? p + 1 : NULL;
		}
		found = p && p[0] == '/' && p[1] == ' ';
	}
	fclose(f);
	return !found;
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

void userns_why(const char *what, int num, struct userns_why *ret)
{
	if (num == ENOSPC || num == EUSERS) {
		used_up(what, num, ret);
	} else if (is("/proc/sys/kernel/unprivileged_userns_clone", 0)) {
		cause(ret, "user namespaces are switched off: kernel.unprivileged_userns_clone=0");
		fix(ret,
		    "echo kernel.unprivileged_userns_clone=1 | sudo tee /etc/sysctl.d/90-userns.conf\nsudo sysctl --system");
	} else if (userns_apparmor_restricts()) {
		cause(ret,
		      "AppArmor refuses user namespaces (kernel.apparmor_restrict_unprivileged_userns=1), and no profile lets cloche through");
		fix(ret,
		    "sudo cloche doctor --fix    # installs an AppArmor profile for cloche only");
	} else if (num == ENOSYS || num == EINVAL) {
		cause(ret, "%s: this kernel has none (%s)", what, strerror(num));
		fix(ret,
		    "use a kernel built with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_UTS_NS and CONFIG_IPC_NS");
	} else if (num == EPERM && in_chroot()) {
		cause(ret, "user namespaces are refused inside a chroot");
		fix(ret,
		    "leave the chroot, or enter it by pivot_root (a container, systemd-nspawn) instead of chroot");
	} else if (filtered()) {
		cause(ret, "%s: refused, and a seccomp filter stands over this process (%s)", what,
		      strerror(num));
		fix(ret,
		    "docker run --security-opt seccomp=unconfined ...    # or a profile that allows clone, unshare, mount, pivot_root\n"
		    "kubernetes: securityContext.seccompProfile.type: Unconfined");
	} else {
		cause(ret, "%s: %s", what, strerror(num));
		fix(ret,
		    "look for the refusal in: sudo dmesg | tail    # a security module (SELinux, AppArmor), a chroot, or the outer container");
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
