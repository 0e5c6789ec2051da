#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void fd_close(int *fd)
{
	if (*fd >= 0) {
		int keep = errno;
		close(*fd);
		errno = keep;
	}
	*fd = -1;
}

int fd_write_all(int fd, const void *buf, size_t n)
{
	const char *p = buf;

	while (n > 0) {
		ssize_t w = write(fd, p, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN) { /* the caller's own descriptor may be one that does
						   not block */
			struct pollfd room = { .fd = fd, .events = POLLOUT };

			(void)poll(&room, 1, -1);
			continue;
		}
		if (w < 0)
			return -1;
		p += w;
		n -= (size_t)w;
	}
	return 0;
}

ssize_t fd_read_full(int fd, void *buf, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t r = read(fd, (char *)buf + got, n - got);
		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (r == 0)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

ssize_t fd_read_file_at(int dirfd, const char *path, char *buf, size_t cap)
{
	_cleanup_fd_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = fd_read_full(fd, buf, cap);
	if (n < 0)
		return -1;
	if ((size_t)n == cap) {
		errno = EFBIG;
		return -1;
	}
	while (n > 0 && buf[n - 1] == '\n')
		n--;
	buf[n] = '\0';
	return n;
}

int fd_write_file_at(int dirfd, const char *path, const char *text)
{
	_cleanup_fd_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
	size_t n = strlen(text);
	ssize_t w;

	if (fd < 0)
		return -1;
	w = write(fd, text, n);
	if (w < 0)
		return -1;
	if ((size_t)w != n) {
		errno = EIO;
		return -1;
	}
	return 0;
}

int fd_read_u64_at(int dirfd, const char *path, uint64_t *ret)
{
	char buf[64], *end;
	ssize_t n = fd_read_file_at(dirfd, path, buf, sizeof(buf));
	unsigned long long v;

	if (n < 0)
		return -1;
	if (strcmp(buf, "max") == 0) {
		*ret = UINT64_MAX;
		return 0;
	}
	errno = 0;
	v = strtoull(buf, &end, 10);
	/* strtoull would take blanks and signs, and wrap -1 to the value that means "none". */
	if (buf[0] < '0' || buf[0] > '9' || errno != 0 || *end != '\0') {
		errno = EINVAL;
		return -1;
	}
	*ret = v;
	return 0;
}

union fd_control {
	struct cmsghdr align;
	char room[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
};

int fd_send(int sock, const void *buf, size_t n, const int *fds, size_t nfds)
{
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf, .iov_len = n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	union fd_control control = { 0 };
	ssize_t w;

	if (nfds > FD_PASS_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (nfds > 0) {
		struct cmsghdr *c;

		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	do
		w = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (w < 0 && errno == EINTR);
	if (w >= 0 && (size_t)w != n) {
		errno = EMSGSIZE;
		return -1;
	}
	return w < 0 ? -1 : 0;
}

ssize_t fd_recv(int sock, void *buf, size_t n, int *fds, size_t max, size_t *ret_nfds)
{
	struct iovec iov = { .iov_base = buf, .iov_len = n };
	union fd_control control;
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	size_t got = 0;
	ssize_t r;

	do
		r = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		size_t k;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < k; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (got < max)
				fds[got++] = fd;
			else
				close(fd);
		}
	}
	if (ret_nfds)
		*ret_nfds = got;
	return r;
}

int fd_pipe(int *ret_read, int *ret_write)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -1;
	*ret_read = p[0];
	*ret_write = p[1];
	return 0;
}
