/* File descriptors: owning them, reading and writing whole, passing them. Nothing here allocates
 * unless it says so. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* Closes *fd when it is not negative, sets it to -1, keeps errno. */
void fd_close(int *fd);
#define _cleanup_fd_ __attribute__((cleanup(fd_close)))

/* Gives up ownership: returns *fd and leaves -1 behind. */
static inline int fd_steal(int *fd)
{
	int v = *fd;
	*fd = -1;
	return v;
}

/* Writes all of it, retrying EINTR and short writes. 0, or -1 with errno. */
int fd_write_all(int fd, const void *buf, size_t n);
/* Reads until `n` bytes or end of file; returns the count, or -1 with errno. */
ssize_t fd_read_full(int fd, void *buf, size_t n);

/* Reads a small file (procfs, cgroupfs, sysctl) into buf, NUL-terminated, trailing newline removed.
 * The path is relative to dirfd (AT_FDCWD allowed). Returns the length, or -1 with errno; a file
 * that does not fit is EFBIG. */
ssize_t fd_read_file_at(int dirfd, const char *path, char *buf, size_t cap);
/* Writes a string to an existing file in one write. 0, or -1 with errno. */
int fd_write_file_at(int dirfd, const char *path, const char *text);
/* Reads an unsigned decimal from a small file; "max" gives UINT64_MAX. 0, or -1 with errno. */
int fd_read_u64_at(int dirfd, const char *path, uint64_t *ret);

/* One message with up to `nfds` descriptors (at most FD_PASS_MAX) over a SOCK_SEQPACKET or
 * SOCK_STREAM unix socket. Never raises SIGPIPE. 0, or -1 with errno. */
#define FD_PASS_MAX 8
int fd_send(int sock, const void *buf, size_t n, const int *fds, size_t nfds);
/* Receives one message. Descriptors arrive close-on-exec; those beyond `max` are closed. *ret_nfds
 * may be NULL when max is 0. Returns the length (0 at end), or -1 with errno. */
ssize_t fd_recv(int sock, void *buf, size_t n, int *fds, size_t max, size_t *ret_nfds);

/* A pipe whose both ends are close-on-exec. 0, or -1 with errno. */
int fd_pipe(int *ret_read, int *ret_write);
