/* Doctor's probes of namespaces and mounts: each does in a child what a box does at its start.
 * Every mount is made in a mount namespace of the probe's own and goes with it. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/idrange.h"
#include "engine/range.h"

/* In fn: reports a failed step and gives fn's exit code. */
static int failed(struct doctor_result *r, const char *step)
{
	doctor_say(r, DOCTOR_MISSING, "%s: %s", step, strerror(errno));
	return 1;
}

void doctor_userns(const struct doctor_row *row, struct doctor_result *r)
{
	unsigned uid, gid;

	if (!doctor_in_userns(0, NULL, NULL, r))
		return;
	if (doctor_outer_ids(&uid, &gid))
		doctor_say(r, DOCTOR_OK,
			   "one id mapped: uid 1000 inside is an unprivileged uid outside");
	else
		doctor_say(r, DOCTOR_OK, "one id mapped: uid 1000 inside is uid %u outside", uid);
}

static int give_name(void *ctx, struct doctor_result *r)
{
	if (sethostname("cloche", 6) < 0) {
		doctor_why(r, "host name", errno);
		return 1;
	}
	doctor_say(r, DOCTOR_OK, "mount, pid, network, ipc, uts, cgroup");
	return 0;
}

void doctor_namespaces(const struct doctor_row *row, struct doctor_result *r)
{
	doctor_in_userns(CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
				 CLONE_NEWCGROUP,
			 give_name, NULL, r);
}

static int loopback(void *ctx, struct doctor_result *r)
{
	_cleanup_fd_ int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	_cleanup_fd_ int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(sa);
	struct ifreq ifr = { 0 };

	memcpy(ifr.ifr_name, "lo", 3);
	if (listener < 0 || client < 0)
		return failed(r, "a TCP socket in a network namespace");
	if (ioctl(listener, SIOCGIFFLAGS, &ifr) < 0)
		return failed(r, "no loopback in a new network namespace");
	ifr.ifr_flags |= IFF_UP | IFF_RUNNING;
	if (ioctl(listener, SIOCSIFFLAGS, &ifr) < 0)
		return failed(r, "bringing loopback up");
	if (bind(listener, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&sa, &n) < 0 ||
	    connect(client, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return failed(r, "a connection over loopback");
	doctor_say(r, DOCTOR_OK, "empty, and a connection over its own loopback works");
	return 0;
}

void doctor_netns(const struct doctor_row *row, struct doctor_result *r)
{
	doctor_in_userns(CLONE_NEWNET, loopback, NULL, r);
}

static int fresh_proc(void *ctx, struct doctor_result *r)
{
	pid_t pid = doctor_fork();
	int rc;

	if (pid < 0) {
		doctor_cost(r, "no box can run");
		doctor_why(r, "the first process of a pid namespace", errno);
		return 1;
	}
	if (pid == 0) {
		if (getpid() != 1)
			_exit(200);
		_exit(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0
			      ? 0
			      : errno);
	}
	rc = doctor_wait(pid);
	if (rc == 0) {
		doctor_say(r, DOCTOR_OK, "process 1, with a /proc of its own");
	} else if (rc == EPERM || rc == EACCES) {
		/* The kernel gives no /proc that shows more than the one at hand. */
		doctor_say(
			r, DOCTOR_DEGRADED,
			"no fresh /proc: the one here is masked or missing, so cloche is nested in a container");
	} else {
		errno = rc < 200 ? rc : ECHILD;
		doctor_say(r, DOCTOR_MISSING, "a new pid namespace: %s", strerror(errno));
	}
	return 0;
}

void doctor_proc(const struct doctor_row *row, struct doctor_result *r)
{
	doctor_in_userns(CLONE_NEWPID, fresh_proc, NULL, r);
}

static int furnish(void *ctx, struct doctor_result *r)
{
	struct sys_mount_attr attr = { .attr_set = SYS_MOUNT_ATTR_RDONLY | SYS_MOUNT_ATTR_NOSUID };
	_cleanup_fd_ int tree = -1, file = -1;

	if (doctor_tmpfs() < 0)
		return failed(r, "tmpfs");
	if (mkdir("pts", 0755) < 0 || mount("devpts", "pts", "devpts", MS_NOSUID | MS_NOEXEC,
					    "newinstance,ptmxmode=0666,mode=0620") < 0)
		return failed(r, "devpts");
	file = open("null", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	if (file < 0 || mount("/dev/null", "null", NULL, MS_BIND, NULL) < 0) {
		if (errno == ENOENT)
			doctor_fix(r, "sudo mount -t devtmpfs dev /dev");
		return failed(r, "a bind of /dev/null");
	}
	tree = sys_open_tree(AT_FDCWD, "/dev/zero", SYS_OPEN_TREE_CLONE | O_CLOEXEC);
	if (tree < 0)
		return failed(r, "open_tree");
	if (sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0)
		return failed(r, "mount_setattr");
	if (sys_move_mount(tree, "", AT_FDCWD, "null", SYS_MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return failed(r, "move_mount");
	if (mkdir("new", 0755) < 0 || mount("tmpfs", "new", "tmpfs", 0, "size=64k") < 0 ||
	    chdir("new") < 0 || sys_pivot_root(".", ".") < 0)
		return failed(r, "pivot_root");
	doctor_say(r, DOCTOR_OK, "tmpfs, devpts, binds, detached mounts, pivot_root");
	return 0;
}

void doctor_mounts(const struct doctor_row *row, struct doctor_result *r)
{
	if (doctor_in_userns(CLONE_NEWPID, furnish, NULL, r) && r->status == DOCTOR_MISSING &&
	    geteuid() == 0)
		doctor_fix(
			r,
			"a security module (AppArmor, SELinux) may refuse mounts: sudo dmesg | tail");
}

/* Removes a directory of the lower layer and makes it anew: needs xattrs on the upper one. */
static bool can_replace_directory(void)
{
	return unlink("m/sub/file") == 0 && rmdir("m/sub") == 0 && mkdir("m/sub", 0755) == 0 &&
	       access("m/sub/file", F_OK) < 0;
}

static int lay(void *ctx, struct doctor_result *r)
{
	_cleanup_fd_ int file = -1;

	if (doctor_tmpfs() < 0)
		return failed(r, "tmpfs");
	for (const char *const *d =
		     (const char *const[]){ "a", "a/sub", "b", "u", "w", "m", "v", NULL };
	     *d; d++)
		if (mkdir(*d, 0755) < 0)
			return failed(r, "a directory on tmpfs");
	file = open("a/sub/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	if (file < 0)
		return failed(r, "a file on tmpfs");
	if (mount("overlay", "v", "overlay", MS_RDONLY, "lowerdir=a:b") < 0)
		return failed(r, errno == ENODEV ? "no overlay in this kernel"
						 : "an overlay of two read-only directories");
	umount2("v", MNT_DETACH);
	if (mount("overlay", "m", "overlay", 0, "lowerdir=a,upperdir=u,workdir=w,userxattr") < 0)
		return failed(r, "a writable overlay on tmpfs");
	if (!can_replace_directory()) {
		doctor_say(r, DOCTOR_DEGRADED, "tmpfs has no user xattrs here (kernel before 6.6)");
		doctor_cost(
			r,
			"with --rootfs, a directory of the image that was removed can't be made again");
		doctor_fix(
			r,
			"use kernel 6.6 or later, or the host image, which needs no writable overlay");
		return 0;
	}
	if (mount("overlay", "v", "overlay", MS_RDONLY, "lowerdir=/usr:b") < 0) {
		doctor_say(
			r, DOCTOR_DEGRADED,
			"not over /usr: %s (its file system is itself an overlay, or can't be a lower layer)",
			strerror(errno));
		doctor_cost(
			r,
			"read-only host directories are binds, through which unix sockets of the host stay reachable; "
			"refused under untrusted");
		doctor_fix(
			r,
			"keep /usr on ext4, xfs or btrfs: in a container, mount it from a volume");
		return 0;
	}
	doctor_say(r, DOCTOR_OK, "over /usr read-only, and writable on tmpfs");
	return 0;
}

void doctor_overlay(const struct doctor_row *row, struct doctor_result *r)
{
	doctor_in_userns(0, lay, NULL, r);
}

/* Sends a descriptor of its namespace, which only a root with CAP_SYS_PTRACE could open from
 * outside. */
static int send_ns(void *ctx, struct doctor_result *r)
{
	_cleanup_fd_ int ns = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);

	if (ns < 0 || fd_send(*(const int *)ctx, "n", 1, &ns, 1) < 0)
		return failed(r, "a user namespace's descriptor");
	return 0;
}

/* Id-maps a detached copy of `path`. */
static int idmap_one(const char *path, int ns)
{
	struct sys_mount_attr attr = { .attr_set = SYS_MOUNT_ATTR_IDMAP,
				       .userns_fd = (uint64_t)ns };
	_cleanup_fd_ int tree = sys_open_tree(AT_FDCWD, path, SYS_OPEN_TREE_CLONE | O_CLOEXEC);

	return tree < 0 ? -1 : sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr);
}

static void idmap_both(int ns, struct doctor_result *r)
{
	char cwd[512];

	if (!getcwd(cwd, sizeof(cwd)))
		memcpy(cwd, ".", 2);
	if (idmap_one(".", ns) < 0) {
		int num = errno;

		if (unshare(CLONE_NEWNS) < 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || doctor_tmpfs() < 0 ||
		    idmap_one(".", ns) < 0) {
			doctor_say(r, DOCTOR_MISSING, "%s", strerror(errno));
			return;
		}
		doctor_say(r, DOCTOR_DEGRADED, "not on the file system of %.200s: %s", cwd,
			   strerror(num));
		doctor_cost(r, "a root caller can't share a --workspace or -v from there");
		doctor_fix(
			r,
			"put the workspace on ext4, xfs, btrfs or tmpfs, or run cloche as an ordinary user");
		return;
	}
	doctor_say(r, DOCTOR_OK, "work on the file system of %.200s", cwd);
}

/* Of whatever file system "." is on. */
static bool may_copy_mounts(void)
{
	_cleanup_fd_ int tree = sys_open_tree(AT_FDCWD, ".", SYS_OPEN_TREE_CLONE | O_CLOEXEC);

	return tree >= 0 || errno != EPERM;
}

void doctor_idmap(const struct doctor_row *row, struct doctor_result *r)
{
	_cleanup_fd_ int ns = -1;
	unsigned uid, gid;
	int socks[2];
	size_t n = 0;
	char c;

	if (!doctor_outer_ids(&uid, &gid)) {
		doctor_say(r, DOCTOR_INFO,
			   "not needed: only a root caller's workspace is id-mapped");
		return;
	}
	if (!may_copy_mounts()) {
		doctor_say(r, DOCTOR_MISSING, "root lacks CAP_SYS_ADMIN here, which they need: %s",
			   strerror(errno));
		doctor_fix(r,
			   "docker run --cap-add SYS_ADMIN ...\nor run cloche as an ordinary user");
		return;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return;
	if (doctor_in_userns(0, send_ns, &socks[1], r)) {
		close(socks[1]); /* so that a child which sent nothing is not waited for */
		if (fd_recv(socks[0], &c, 1, &ns, 1, &n) == 1 && n == 1)
			idmap_both(ns, r);
	}
}

static int spawn_wait(const char *program, char *const argv[])
{
	char *const env[] = { (char *)(uintptr_t) "PATH=/usr/bin:/bin:/usr/sbin:/sbin", NULL };
	pid_t pid;

	return posix_spawn(&pid, program, NULL, NULL, argv, env) == 0 ? doctor_wait(pid) : 255;
}

/* Two ids for a namespace, by the helper: as --uid-range would have it. */
static bool map_by_helper(const char *helper, pid_t pid, uint32_t start)
{
	char who[16], from[24], zero[] = "0", count[] = "2", name[] = "newuidmap";
	char *argv[] = { name, who, zero, from, count, NULL };

	snprintf(who, sizeof(who), "%d", (int)pid);
	snprintf(from, sizeof(from), "%u", start);
	return spawn_wait(helper, argv) == 0;
}

void doctor_uid_range(const struct doctor_row *row, struct doctor_result *r)
{
	const struct passwd *pw = getpwuid(geteuid());
	const char *name = pw ? pw->pw_name : NULL;
	uint32_t uid0 = 0, gid0 = 0, n_uids = 0, n_gids = 0;
	bool helpers = access(IDRANGE_UIDS, X_OK) == 0 && access(IDRANGE_GIDS, X_OK) == 0;
	bool ranges = range_of_file("/etc/subuid", name, geteuid(), &uid0, &n_uids) &&
		      range_of_file("/etc/subgid", name, geteuid(), &gid0, &n_gids) && n_uids > 1 &&
		      n_gids > 1;
	int ready_r, ready_w;
	char c;
	pid_t pid;

	if (geteuid() == 0) {
		doctor_say(r, DOCTOR_INFO, "not needed by root");
		return;
	}
	if (!helpers || !ranges) {
		doctor_say(r, DOCTOR_INFO, "%s%s%s", helpers ? "" : "no newuidmap and newgidmap",
			   !helpers && !ranges ? "; " : "",
			   ranges ? "" : "no rows in /etc/subuid and /etc/subgid");
		doctor_cost(r, "images that need many user ids; one id is enough for all others");
		doctor_fix(
			r,
			"sudo apt install uidmap    # shadow-utils elsewhere\n"
			"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s",
			name ? name : "$USER");
		return;
	}
	if (fd_pipe(&ready_r, &ready_w) < 0)
		return;
	pid = doctor_fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWUSER) < 0 || fd_write_all(ready_w, "r", 1) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready_w);
	if (pid > 0 && fd_read_full(ready_r, &c, 1) == 1 &&
	    map_by_helper(IDRANGE_UIDS, pid, uid0) && map_by_helper(IDRANGE_GIDS, pid, gid0))
		doctor_say(r, DOCTOR_OK, "newuidmap and newgidmap map ids from %u on", uid0);
	else
		doctor_say(r, DOCTOR_INFO, "newuidmap is there, and failed to map ids from %u on",
			   uid0);
	if (r->status != DOCTOR_OK) {
		doctor_cost(r, "images that need many user ids; one id is enough for all others");
		doctor_fix(r, "sudo chmod u+s /usr/bin/newuidmap /usr/bin/newgidmap");
	}
	close(ready_r);
	if (pid > 0) {
		kill(pid, SIGKILL);
		doctor_wait(pid);
	}
}
