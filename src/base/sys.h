/* System calls that the C libraries we build with (musl 1.2.3, glibc 2.36) do not wrap alike, and
 * the constants that their headers lack. Thin: same arguments, -1 and errno. Numbers of calls >=
 * 424 are common to all architectures. */
#pragma once

#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#define SYS_move_mount 429
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule 445
#define SYS_landlock_restrict_self 446
#endif

/* clone3(2) */
struct sys_clone_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
		set_tid_size, cgroup;
};
#define SYS_CLONE_NEWTIME 0x00000080ULL
#define SYS_CLONE_CLEAR_SIGHAND 0x100000000ULL
#define SYS_CLONE_INTO_CGROUP 0x200000000ULL

static inline pid_t sys_clone3(struct sys_clone_args *a)
{
	return (pid_t)syscall(SYS_clone3, a, sizeof(*a));
}

static inline int sys_close_range(unsigned first, unsigned last)
{
	return (int)syscall(SYS_close_range, first, last, 0);
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
	return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_pidfd_open(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

static inline int sys_pidfd_send_signal(int pidfd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, pidfd, sig, (void *)0, 0);
}

static inline int sys_pidfd_getfd(int pidfd, int fd)
{
	return (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

/* statx(2), of which only the attributes are looked at here. */
struct sys_statx {
	uint64_t head, attributes, ids[5], attributes_mask, rest[24];
};
#define SYS_STATX_ATTR_MOUNT_ROOT 0x2000ULL

static inline int sys_statx(int dirfd, const char *path, int flags, struct sys_statx *ret)
{
	return (int)syscall(SYS_statx, dirfd, path, flags, 0, ret);
}

/* open_tree(2), move_mount(2), mount_setattr(2) */
#define SYS_OPEN_TREE_CLONE 1U
#define SYS_AT_RECURSIVE 0x8000U
#define SYS_MOVE_MOUNT_F_EMPTY_PATH 0x04U
#define SYS_MOVE_MOUNT_T_EMPTY_PATH 0x40U
#define SYS_MOUNT_ATTR_RDONLY 0x01U
#define SYS_MOUNT_ATTR_NOSUID 0x02U
#define SYS_MOUNT_ATTR_NODEV 0x04U
#define SYS_MOUNT_ATTR_NOEXEC 0x08U
#define SYS_MOUNT_ATTR_IDMAP 0x00100000U

struct sys_mount_attr {
	uint64_t attr_set, attr_clr, propagation, userns_fd;
};

static inline int sys_open_tree(int dirfd, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dirfd, path, flags);
}

static inline int sys_move_mount(int from_dir, const char *from, int to_dir, const char *to,
				 unsigned flags)
{
	return (int)syscall(SYS_move_mount, from_dir, from, to_dir, to, flags);
}

static inline int sys_mount_setattr(int dirfd, const char *path, unsigned flags,
				    const struct sys_mount_attr *attr)
{
	return (int)syscall(SYS_mount_setattr, dirfd, path, flags, attr, sizeof(*attr));
}

/* landlock(7): the structures up to ABI 6; an older kernel takes a shorter size. */
struct sys_landlock_ruleset {
	uint64_t handled_access_fs, handled_access_net, scoped;
};
struct sys_landlock_path {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));
#define SYS_LANDLOCK_CREATE_VERSION 1U
#define SYS_LANDLOCK_RULE_PATH_BENEATH 1
#define SYS_LANDLOCK_FS_EXECUTE (1ULL << 0)
#define SYS_LANDLOCK_FS_WRITE_FILE (1ULL << 1)
#define SYS_LANDLOCK_FS_READ_FILE (1ULL << 2)
#define SYS_LANDLOCK_FS_READ_DIR (1ULL << 3)
#define SYS_LANDLOCK_FS_MAKE_CHAR (1ULL << 6)
#define SYS_LANDLOCK_FS_MAKE_BLOCK (1ULL << 11)
#define SYS_LANDLOCK_FS_REFER (1ULL << 13)
#define SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX 1ULL
#define SYS_LANDLOCK_SCOPE_SIGNAL 2ULL
