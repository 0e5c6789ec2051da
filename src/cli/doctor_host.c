/* Doctor's probes of the host around: what it is, who asks, and what to know. Groups and traits are
 * tables. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/limits.h"
#include "state/dirs.h"

#define FS_9P 0x01021997L
#define KVM_GET_API_VERSION 0xAE00
#define CONNECT_MS 3000
#define FIRST_PID_NS 0xEFFFFFFCU /* the inode that the kernel keeps for it */

void doctor_kernel(const struct doctor_row *row, struct doctor_result *r)
{
	struct utsname u;
	unsigned major = 0, minor = 0, v;
	int fd;

	if (uname(&u) < 0 || sscanf(u.release, "%3u.%4u", &major, &minor) != 2) {
		doctor_say(r, DOCTOR_DEGRADED, "an unreadable version");
		return;
	}
	if (strcmp(u.machine, "x86_64") != 0 && strcmp(u.machine, "aarch64") != 0) {
		doctor_say(r, DOCTOR_MISSING,
			   "%s: the filter of system calls is for x86_64 and aarch64", u.machine);
		doctor_fix(r, "use a machine of one of these two kinds");
		return;
	}
	fd = sys_pidfd_open(getpid());
	if (fd < 0) {
		doctor_say(r, DOCTOR_MISSING,
			   "%s %s: no pidfd_open (%s): older than 5.3, or an outer filter",
			   u.release, u.machine, strerror(errno));
		return;
	}
	close(fd);
	v = major * 1000 + minor;
	if (v >= 6001) {
		doctor_say(r, DOCTOR_OK, "%s %s", u.release, u.machine);
	} else if (geteuid() == 0 && v < 5012) {
		doctor_say(r, DOCTOR_DEGRADED, "%s %s: before 5.12, no id-mapped mounts", u.release,
			   u.machine);
		doctor_cost(r, "a root caller can't share a directory with a box");
	} else if (geteuid() == 0 && v < 5019) {
		doctor_say(r, DOCTOR_DEGRADED, "%s %s: before 5.19, no id-mapped layers", u.release,
			   u.machine);
		doctor_cost(r, "a root caller can't use --rootfs");
	} else {
		doctor_say(r, DOCTOR_DEGRADED, "%s %s: cloche is tested on 6.1 and later",
			   u.release, u.machine);
	}
}

void doctor_container(const struct doctor_row *row, struct doctor_result *r)
{
	static const struct {
		const char *word, *what;
	} hints[] = {
		{ "kubepods", "a Kubernetes pod" },
		{ "docker", "Docker" },
		{ "libpod", "Podman" },
		{ "lxc", "LXC" },
		{ "containerd", "containerd" },
	};
	char text[4096], nested[64] = "";
	const char *what = NULL;
	struct stat st;
	unsigned long from = 0, to = 0, n = 0;

	if (access("/run/.containerenv", F_OK) == 0)
		what = "Podman";
	else if (access("/.dockerenv", F_OK) == 0)
		what = "Docker";
	else if (doctor_text("/run/systemd/container", text, sizeof(text))[0])
		what = "a container that systemd knows";
	doctor_text("/proc/self/cgroup", text, sizeof(text));
	for (size_t i = 0; !what && i < sizeof(hints) / sizeof(hints[0]); i++)
		if (strstr(text, hints[i].word))
			what = hints[i].what;
	if (sscanf(doctor_text("/proc/self/uid_map", text, sizeof(text)), "%lu %lu %lu", &from, &to,
		   &n) == 3 &&
	    n != 4294967295UL)
		snprintf(nested, sizeof(nested), "inside a user namespace of %lu id%s", n,
			 n == 1 ? "" : "s");
	if (!what && stat("/proc/self/ns/pid", &st) == 0 && st.st_ino != FIRST_PID_NS)
		what = "a pid namespace of its own";
	if (!what && !nested[0])
		doctor_say(r, DOCTOR_OK, "none: cloche stands on the host itself");
	else
		doctor_say(r, DOCTOR_INFO, "%s%s%s%s; its filter, masks and limits come first",
			   what ? "signs of " : "", what ? what : "", what && nested[0] ? ", " : "",
			   nested);
}

void doctor_wsl(const struct doctor_row *row, struct doctor_result *r)
{
	char release[256];
	struct statfs fs;

	doctor_text("/proc/sys/kernel/osrelease", release, sizeof(release));
	for (char *p = release; *p; p++)
		if (*p >= 'A' && *p <= 'Z')
			*p = (char)(*p + 32);
	if (!strstr(release, "microsoft")) {
		doctor_say(r, DOCTOR_OK, "not WSL");
		return;
	}
	if (!strstr(release, "wsl2") && strncmp(release, "4.4.", 4) == 0) {
		doctor_say(r, DOCTOR_MISSING,
			   "WSL 1 is no Linux kernel: no namespaces, no seccomp");
		doctor_cost(r, "no box can run");
		doctor_fix(r, "wsl --set-version DISTRIBUTION 2    # in PowerShell");
		return;
	}
	if (statfs(".", &fs) == 0 && (long)fs.f_type == FS_9P) {
		doctor_say(r, DOCTOR_DEGRADED,
			   "WSL 2, and this directory is on a Windows drive (drvfs over 9p)");
		doctor_cost(
			r,
			"a workspace there is slow, has no Unix permissions, and can't be id-mapped");
		doctor_fix(
			r,
			"keep workspaces on the Linux file system: mkdir -p ~/work && cd ~/work");
		return;
	}
	doctor_say(r, DOCTOR_INFO, "WSL 2; keep workspaces off /mnt/c");
}

/* The manager that lends groups on the rung `scope`; where limits are held without it, its absence
 * costs nothing. */
void doctor_session(const struct doctor_row *row, struct doctor_result *r)
{
	char why[200];

	if (geteuid() == 0) {
		doctor_say(r, DOCTOR_INFO, "not needed by root");
	} else if (access("/run/systemd/system", F_OK) < 0) {
		doctor_say(r, DOCTOR_INFO, "no systemd here");
	} else if (limits_rung_probe(LIMITS_RUNG_SCOPE, why, sizeof(why))) {
		doctor_say(r, DOCTOR_OK, "lends groups for boxes: %s", why);
	} else {
		doctor_say(r, DOCTOR_INFO, "%s: %s",
			   getenv("SSH_CONNECTION") ? "an ssh login" : "a login", why);
		doctor_fix(r, "sudo loginctl enable-linger %u    # once, and it stays",
			   (unsigned)geteuid());
	}
}

void doctor_dirs(const struct doctor_row *row, struct doctor_result *r)
{
	char path[STATE_PATH_MAX];
	struct err e;

	for (int i = 0; i < STATE_DIR_N; i++) {
		int fd;

		if (state_path((enum state_dir)i, path, &e) < 0) {
			doctor_say(r, DOCTOR_DEGRADED, "%s", e.msg);
			return;
		}
		fd = state_open((enum state_dir)i, false, &e);
		if (fd < 0 && e.kind != ERR_MISSING) {
			doctor_say(r, DOCTOR_DEGRADED, "%s", e.msg);
			return;
		}
		fd_close(&fd);
	}
	if (state_path(STATE_RUNTIME, path, &e) == 0)
		doctor_say(r, DOCTOR_OK, "runtime files go to %.200s when there are any", path);
}

void doctor_groups(const struct doctor_row *row, struct doctor_result *r)
{
	static const struct {
		const char *name;
		bool risky;
		const char *why;
	} known[] = {
		{ "docker", true, "its socket is root" },
		{ "lxd", true, "its socket is root" },
		{ "incus-admin", true, "its socket is root" },
		{ "libvirt", true, "its socket is root" },
		{ "disk", true, "raw disks" },
		{ "shadow", true, "password hashes" },
		{ "root", true, "files of root's group" },
		{ "kmem", true, "kernel memory" },
		{ "kvm", false, "virtual machines" },
		{ "adm", false, "system logs" },
		{ "systemd-journal", false, "system logs" },
		{ "input", false, "keyboards" },
		{ "sudo", false, "no way through it from a box" },
		{ "wheel", false, "no way through it from a box" },
	};
	gid_t groups[256];
	int n = getgroups((int)(sizeof(groups) / sizeof(groups[0])), groups);
	bool risky = false;
	size_t at = 0;

	if (geteuid() == 0) {
		doctor_say(r, DOCTOR_INFO, "a root caller's groups do not reach its boxes");
		return;
	}
	r->detail[0] = '\0';
	for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
		const struct group *g = getgrnam(known[k].name);

		for (int i = 0; g && i < n; i++) {
			if (groups[i] != g->gr_gid || at >= sizeof(r->detail))
				continue;
			at += (size_t)snprintf(r->detail + at, sizeof(r->detail) - at, "%s%s (%s)",
					       at ? ", " : "", known[k].name, known[k].why);
			risky |= known[k].risky;
			break;
		}
	}
	if (n < 0)
		doctor_say(r, DOCTOR_DEGRADED, "more groups than can be looked at");
	else if (at == 0)
		doctor_say(r, DOCTOR_OK, "none that gives power over the host");
	else
		r->status = risky ? DOCTOR_DEGRADED : DOCTOR_INFO;
}

void doctor_kvm(const struct doctor_row *row, struct doctor_result *r)
{
	_cleanup_fd_ int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int version = fd < 0 ? -1 : ioctl(fd, KVM_GET_API_VERSION, 0);

	if (version == 12)
		doctor_say(r, DOCTOR_INFO, "/dev/kvm works");
	else
		doctor_say(r, DOCTOR_INFO, "/dev/kvm: %s; boxes do not need it",
			   fd < 0 ? strerror(errno) : "an unknown version");
}

void doctor_core(const struct doctor_row *row, struct doctor_result *r)
{
	char pattern[256];

	doctor_text("/proc/sys/kernel/core_pattern", pattern, sizeof(pattern));
	if (pattern[0] == '|')
		doctor_say(r, DOCTOR_INFO,
			   "the host pipes core dumps to a program: off inside boxes");
	else
		doctor_say(r, DOCTOR_INFO, "off inside boxes");
}

void doctor_sockets(const struct doctor_row *row, struct doctor_result *r)
{
	doctor_say(r, DOCTOR_INFO,
		   "unix sockets in a read-write workspace or -v can be reached from the box");
}

/* A TCP connection and nothing more. */
static int reach(const struct addrinfo *ai)
{
	_cleanup_fd_ int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int num = 0;
	socklen_t n = sizeof(num);

	if (fd < 0)
		return errno;
	if (connect(fd, ai->ai_addr, ai->ai_addrlen) == 0)
		return 0;
	if (errno != EINPROGRESS)
		return errno;
	if (poll(&p, 1, CONNECT_MS) != 1)
		return ETIMEDOUT;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &num, &n) < 0 ? errno : num;
}

void doctor_registry(const struct doctor_row *row, struct doctor_result *r)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	int rc, num;

	doctor_say(r, DOCTOR_DEGRADED, "no answer from the resolver within the time");
	rc = getaddrinfo(row->arg, "443", &hints, &list);
	if (rc != 0) {
		doctor_say(r, DOCTOR_DEGRADED, "its name does not resolve: %s", gai_strerror(rc));
		return;
	}
	doctor_say(r, DOCTOR_DEGRADED, "no answer on port 443 within %d s", CONNECT_MS / 1000);
	num = reach(list);
	/* A host with IPv6 addresses and no IPv6 route answers at once: the next address may do. */
	for (const struct addrinfo *ai = list->ai_next; num != 0 && num != ETIMEDOUT && ai;
	     ai = ai->ai_next)
		num = reach(ai);
	freeaddrinfo(list);
	if (num == 0)
		doctor_say(r, DOCTOR_OK, "reached on port 443");
	else
		doctor_say(r, DOCTOR_DEGRADED, "port 443: %s", strerror(num));
}
