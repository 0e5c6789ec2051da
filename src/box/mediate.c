/* The address is copied out of the caller once; what was copied is judged and used. A path is
 * opened as the caller would (its root, its working directory), which pins the socket; the mount
 * that it lies on decides, by the box's own mountinfo: nothing at or below the target of a
 * read-write host directory is connected to. Then the connect goes to /proc/self/fd/N of the pinned
 * socket, on a duplicate of the caller's.
 *
 * A side effect, stated in the docs: the server sees cloche's pid as its peer. */
#include "box/mediate.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mountinfo.h"
#include "base/path.h"
#include "base/sys.h"
#include "box/init.h"

#define PATIENCE_MS 20

union address {
	struct sockaddr any;
	struct sockaddr_un un;
	struct sockaddr_storage room;
};

/* The number behind `key` in a file of lines "key:\tNUMBER", or -1. */
static long proc_number(const char *path, const char *key)
{
	char text[4096], *at;

	if (fd_read_file_at(AT_FDCWD, path, text, sizeof(text)) < 0)
		return -1;
	at = strstr(text, key);
	return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

/* A thread's descriptors are its process's here: at worst another socket of the same attacker is
 * connected. */
static int caller_socket(pid_t tid, int fd)
{
	_cleanup_fd_ int pidfd = -1;
	char path[48];
	long tgid;

	snprintf(path, sizeof(path), "/proc/%d/status", tid);
	tgid = proc_number(path, "\nTgid:");
	if (tgid <= 0)
		return -1;
	pidfd = sys_pidfd_open((pid_t)tgid);
	return pidfd < 0 ? -1 : sys_pidfd_getfd(pidfd, fd);
}

static int caller_address(const struct seccomp_notif *req, union address *a, socklen_t *ret_len)
{
	size_t len = (uint32_t)req->data.args[2];
	struct iovec to = { .iov_base = a, .iov_len = len };
	struct iovec from = { .iov_base = (void *)(uintptr_t)req->data.args[1], .iov_len = len };

	memset(a, 0, sizeof(*a));
	if (len > sizeof(a->room) || len < sizeof(sa_family_t)) {
		errno = EINVAL;
		return -1;
	}
	if (process_vm_readv((pid_t)req->pid, &to, 1, &from, 1, 0) != (ssize_t)len)
		return -1;
	if (a->any.sa_family == AF_UNIX && len > sizeof(a->un)) { /* as the kernel says it */
		errno = EINVAL;
		return -1;
	}
	*ret_len = (socklen_t)len;
	return 0;
}

/* Opens a socket's path as the caller sees it, O_PATH. */
static int caller_path(pid_t tid, const char *path)
{
	char root[48], cwd[48], dir[2048], full[2048 + 128];
	_cleanup_fd_ int fd = -1;
	ssize_t n = 1;

	snprintf(root, sizeof(root), "/proc/%d/root", tid);
	snprintf(cwd, sizeof(cwd), "/proc/%d/cwd", tid);
	fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	dir[0] = '/';
	if (path[0] != '/')
		n = readlink(cwd, dir, sizeof(dir) - 1);
	if (n <= 0 || (size_t)n >= sizeof(dir) - 1) {
		errno = ENAMETOOLONG;
		return -1;
	}
	dir[n] = '\0';
	if (path_join(full, sizeof(full), path[0] == '/' ? "" : dir,
		      path[0] == '/' ? path + 1 : path) < 0)
		return -1;
	return path_open_in_root(fd, full[0] == '/' ? full + 1 : full, O_CLOEXEC);
}

/* The target of the mount with this id, in the box's own namespace. */
static int mount_target(pid_t init, long id, char ret[4096])
{
	_cleanup_mountinfo_ struct mountinfo m;
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/mountinfo", init);
	if (mountinfo_open(&m, path) < 0)
		return -1;
	while (mountinfo_next(&m))
		if (m.id == id) {
			memcpy(ret, m.target, sizeof(m.target));
			return 0;
		}
	return -1;
}

/* Whose the file system with this target is, as box_denied.mount has it; 0 for one of the box's
 * own. Those are named one by one: a target that is spelt otherwise than expected is the host's. */
static int owner_of(const struct box_spec *spec, const char *target)
{
	const char *own[] = { "/", "/tmp", "/run", "/dev/shm", spec->home };

	for (size_t i = 0; i < spec->n_mounts; i++)
		if (strcmp(target, spec->mounts[i].dst) == 0)
			return spec->mounts[i].src ? (int)i + 1 : 0;
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (strcmp(target, own[i]) == 0)
			return 0;
	return -1;
}

/* Does what is open here belong to a directory of the host? What can't be told does. */
static int hosts_mount(pid_t init, const struct box_spec *spec, int fd)
{
	char path[48], target[4096];
	long id;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	id = proc_number(path, "\nmnt_id:");
	return id < 0 || mount_target(init, id, target) < 0 ? -1 : owner_of(spec, target);
}

/* How long the caller's own connect would wait at most (SO_SNDTIMEO); no end when it set none. */
static uint64_t patience_end(int sock)
{
	struct timeval t = { 0 };
	socklen_t room = sizeof(t);

	if (getsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &t, &room) < 0 ||
	    (t.tv_sec == 0 && t.tv_usec == 0))
		return UINT64_MAX;
	return box_now() + (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_usec * 1000;
}

/* connect(2) that waits as long as the caller does: a caller who is gone, or was interrupted, must
 * not leave a thread waiting for a server that never answers. The socket does not block meanwhile;
 * it is one that the caller gave up until this returns. The last word is connect's own: SO_ERROR
 * would leave the socket half way, and the caller's next connect would answer what this one should
 * have. */
static int connect_patiently(int listener, const struct seccomp_notif *req, int sock,
			     const struct sockaddr *to, socklen_t len)
{
	int flags = fcntl(sock, F_GETFL), num, r;
	uint64_t until;

	if (flags < 0 || flags & O_NONBLOCK)
		return connect(sock, to, len);
	until = patience_end(sock);
	fcntl(sock, F_SETFL, flags | O_NONBLOCK);
	r = connect(sock, to, len);
	num = errno;
	while (r < 0 && (errno == EAGAIN || errno == EINPROGRESS || errno == EALREADY)) {
		/* A unix server with a full backlog says "again", and its socket tells nothing to
		 * wait for; a TCP one answers by and by. */
		struct pollfd p = { .fd = errno == EAGAIN ? -1 : sock, .events = POLLOUT };

		if (box_now() >= until)
			break;
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &req->id) < 0) {
			num = EINTR;
			break;
		}
		poll(&p, 1, PATIENCE_MS);
		r = connect(sock, to, len);
		if (errno != EALREADY)
			num = errno;
	}
	fcntl(sock, F_SETFL, flags);
	errno = num;
	return r;
}

/* Opens the socket that a path names, or says in *ret_refused that it is the host's. */
static int socket_by_path(pid_t init, const struct box_spec *spec, const struct seccomp_notif *req,
			  const union address *a, socklen_t len, struct box_denied *ret_refused)
{
	char path[sizeof(a->un.sun_path) + 1];
	size_t n = len - offsetof(struct sockaddr_un, sun_path);
	_cleanup_fd_ int at = -1;

	memcpy(path, a->un.sun_path, n < sizeof(a->un.sun_path) ? n : sizeof(a->un.sun_path));
	path[n < sizeof(path) ? n : sizeof(path) - 1] = '\0';
	at = caller_path((pid_t)req->pid, path);
	if (at < 0)
		return -1;
	ret_refused->mount = hosts_mount(init, spec, at);
	if (ret_refused->mount == 0)
		return fd_steal(&at);
	snprintf(ret_refused->path, sizeof(ret_refused->path), "%s", path);
	errno = EPERM;
	return -1;
}

bool mediate_connect(int listener, pid_t init, const struct box_spec *spec,
		     const struct seccomp_notif *req, bool refuse, struct seccomp_notif_resp *resp,
		     struct box_denied *ret_refused)
{
	struct sockaddr_un pinned = { .sun_family = AF_UNIX };
	_cleanup_fd_ int sock = -1, at = -1;
	union address a;
	socklen_t len;
	int r;

	resp->error = -EPERM;
	if (caller_address(req, &a, &len) < 0) {
		if (!refuse && (errno == EINVAL || errno == EFAULT))
			resp->error = -errno;
		return refuse;
	}
	/* Netlink asks for a right in the box's network namespace, which cloche has as its owner
	 * and the box has not. */
	if (a.any.sa_family != AF_UNIX && a.any.sa_family != AF_INET &&
	    a.any.sa_family != AF_INET6 && a.any.sa_family != AF_UNSPEC)
		return refuse;
	sock = caller_socket((pid_t)req->pid, (int)req->data.args[0]);
	if (sock < 0) {
		if (!refuse && errno == EBADF)
			resp->error = -EBADF;
		return refuse;
	}
	/* What was read may have come from a pid that is somebody else's by now. */
	if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &req->id) < 0)
		return false;
	if (a.any.sa_family == AF_UNIX && len > offsetof(struct sockaddr_un, sun_path) &&
	    a.un.sun_path[0] != '\0') {
		at = socket_by_path(init, spec, req, &a, len, ret_refused);
		if (at < 0) {
			resp->error = refuse ? -EPERM : -errno;
			return refuse || ret_refused->mount != 0;
		}
		snprintf(pinned.sun_path, sizeof(pinned.sun_path), "/proc/self/fd/%d", at);
	}
	if (refuse)
		return true;
	r = at < 0 ? connect_patiently(listener, req, sock, &a.any, len)
		   : connect_patiently(listener, req, sock, (struct sockaddr *)&pinned,
				       sizeof(pinned));
	resp->error = r < 0 ? -errno : 0;
	return false;
}
