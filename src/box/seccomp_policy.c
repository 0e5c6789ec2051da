/* The policy: every system call that has an answer of its own, by name. What is not named here
 * answers ENOSYS.
 *
 * Only the generator (seccomp_gen.c) links this file: it resolves the names for both architectures,
 * skips those that one of them lacks (open, stat and their like on aarch64), and stops the build on
 * a name that neither knows or that stands twice.
 *
 * The allowlist starts from the facts of the default profile that container engines ship, and
 * differs from it where this box does:
 * - openat2, clone3 and io_uring carry what must be checked (mode bits, namespace flags, whole
 * calls) behind a pointer, where a filter can't look: ENOSYS, and every C library, node, go and
 * java falls back;
 * - ptrace and process_vm_* are refused with a record, and allowed by rule;
 * - calls that only the superuser of the whole machine has a use for are not merely refused: they
 * end the box;
 * - in a set-up box, where package managers run as the root of a single id, what would need more
 * ids or a device answers 0 and does nothing. */
#include "box/seccomp_table.h"

const struct sc_group sc_groups[] = {
	/* Files and directories. */
	{ SC_ALLOW,
	  "read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close close_range lseek "
	  "sendfile splice tee vmsplice copy_file_range readahead fadvise64 fallocate truncate ftruncate fsync fdatasync "
	  "sync syncfs sync_file_range flock dup dup2 dup3 pipe pipe2 umask" },
	{ SC_ALLOW,
	  "stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 getcwd chdir fchdir getdents "
	  "getdents64 readlink readlinkat rename renameat link linkat unlink unlinkat symlink symlinkat rmdir "
	  "utime utimes futimesat utimensat name_to_handle_at" },
	/* The one id of a box's map owns everything already: to any other owner the kernel says
	 * EINVAL. */
	{ SC_IF_SETUP, "chown fchown lchown fchownat" },
	/* The kernel drops set-id bits from the mode of a new directory (vfs_mkdir keeps 01777):
	   nothing to check. */
	{ SC_ALLOW, "mkdir mkdirat" },
	{ SC_ALLOW,
	  "setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr removexattr "
	  "lremovexattr fremovexattr setxattrat getxattrat listxattrat removexattrat" },
	{ SC_ALLOW, "inotify_init inotify_init1 inotify_add_watch inotify_rm_watch" },
	{ SC_ALLOW, "io_destroy io_submit io_cancel io_getevents io_pgetevents" },
	{ SC_ARG_FCNTL, "fcntl" },
	{ SC_ARG_RENAME, "renameat2" },
	{ SC_ARG_OPEN1, "open" },
	{ SC_ARG_OPEN2, "openat" },
	{ SC_ARG_MODE1, "creat chmod fchmod" },
	{ SC_ARG_MODE2, "fchmodat fchmodat2" },
	/* Of devices the kernel itself lets anybody make the one that an overlay takes for a
	 * whiteout; Landlock says no to it, but not in all kernels that have it (6.1). */
	{ SC_ARG_MKNOD1, "mknod" },
	{ SC_ARG_MKNOD2, "mknodat" },
	{ SC_ARG_IOCTL, "ioctl" },

	/* Waiting. */
	{ SC_ALLOW,
	  "poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd "
	  "eventfd2 signalfd signalfd4 timerfd_create timerfd_settime timerfd_gettime pause restart_syscall" },
	{ SC_ALLOW,
	  "futex futex_waitv futex_wake futex_wait futex_requeue set_robust_list get_robust_list membarrier rseq" },

	/* Memory. process_madvise and process_mrelease reach other processes and nothing needs
	   them: ENOSYS. */
	{ SC_ALLOW,
	  "mprotect munmap mremap brk msync mincore madvise mlock mlock2 munlock mlockall munlockall "
	  "remap_file_pages pkey_mprotect pkey_alloc pkey_free mseal map_shadow_stack" },
	{ SC_ALLOW,
	  "get_mempolicy set_mempolicy mbind" }, /* the caller's own memory only; NUMA-aware
						    libraries complain without */
	{ SC_ARG_MMAP, "mmap" },
	{ SC_IF_MEMFD_FLAGS, "memfd_create" },
	{ SC_IF_MEMFD, "memfd_secret" },
	{ SC_ALLOW,
	  "shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl mq_open mq_unlink "
	  "mq_timedsend mq_timedreceive mq_notify mq_getsetattr" },

	/* Processes, signals, identity. Signals to init do nothing: it has no handlers. */
	{ SC_ALLOW,
	  "fork vfork execve execveat exit exit_group wait4 waitid set_tid_address gettid getpid getppid getpgid getpgrp "
	  "setpgid getsid setsid prctl arch_prctl seccomp landlock_create_ruleset landlock_add_rule "
	  "landlock_restrict_self pidfd_open pidfd_send_signal getrusage times getrlimit setrlimit" },
	{ SC_ALLOW,
	  "kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo "
	  "rt_tgsigqueueinfo rt_sigsuspend sigaltstack alarm getitimer setitimer" },
	{ SC_ALLOW, "getuid geteuid getgid getegid getresuid getresgid getgroups capget" },
	{ SC_IF_SETUP,
	  "setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset" },
	{ SC_ALLOW,
	  "sched_yield sched_getparam sched_getscheduler sched_getattr sched_getaffinity sched_get_priority_max "
	  "sched_get_priority_min sched_rr_get_interval getpriority ioprio_get getcpu" },
	/* Called by the kernel's own trampolines when the host's owner traces a program; from
	   anywhere else they are SIGILL. */
	{ SC_ALLOW, "uretprobe uprobe" },
	{ SC_ARG_CLONE, "clone" },
	{ SC_ARG_UNSHARE, "unshare" },
	{ SC_ARG_PERSONALITY, "personality" },
	/* Aimed at another process these work on init too, which a limit on cpu time then kills. A
	 * thread that names itself by its number (pthread_setaffinity_np, pthread_setschedparam)
	 * gets EPERM, which is advice lost, not a failure. */
	{ SC_ARG_SELF, "sched_setparam sched_setscheduler sched_setattr sched_setaffinity" },
	{ SC_ARG_PRLIMIT, "prlimit64" },
	{ SC_ARG_SETPRIORITY, "setpriority" },
	{ SC_ARG_IOPRIO, "ioprio_set" },

	/* Time and the machine. */
	{ SC_ALLOW,
	  "time gettimeofday clock_gettime clock_getres nanosleep clock_nanosleep timer_create timer_settime "
	  "timer_gettime timer_getoverrun timer_delete adjtimex clock_adjtime uname sysinfo getrandom" },

	/* Sockets. */
	{ SC_ARG_SOCKET, "socket" },
	{ SC_ARG_SOCKETPAIR, "socketpair" },
	{ SC_IF_CONNECT, "connect" },
	{ SC_ARG_SETSOCKOPT, "setsockopt" },
	{ SC_ALLOW,
	  "bind listen accept accept4 getsockname getpeername getsockopt shutdown sendto recvfrom sendmsg recvmsg "
	  "sendmmsg recvmmsg" },

	/* Programs probe these at start and fall back; they must look as on a kernel without them,
	   and never end a box. The room of io_setup is one for the whole machine (fs.aio-max-nr):
	   a box could leave the host's databases without. */
	{ SC_ENOSYS,
	  "clone3 openat2 io_uring_setup io_uring_enter io_uring_register io_setup userfaultfd perf_event_open "
	  "add_key request_key keyctl syslog open_by_handle_at" },

	/* Refused as an unprivileged user expects, and not recorded: graphics and NUMA libraries
	   probe these. */
	{ SC_EPERM, "kcmp move_pages migrate_pages" },

	/* Refused and recorded: no ordinary program makes them, whoever does wants to know why.
	   pidfd_getfd takes a descriptor out of another process: the same right as ptrace. */
	{ SC_DENY, "ptrace process_vm_readv process_vm_writev pidfd_getfd" },
	{ SC_DENY,
	  "chroot iopl ioperm settimeofday clock_settime sethostname setdomainname vhangup" },

	/* The ending set. */
	{ SC_END,
	  "mount umount2 open_tree open_tree_attr move_mount fsopen fsconfig fsmount fspick mount_setattr pivot_root setns" },
	{ SC_END,
	  "bpf kexec_load kexec_file_load init_module finit_module delete_module reboot swapon swapoff quotactl quotactl_fd "
	  "acct" },
};
const size_t sc_n_groups = sizeof(sc_groups) / sizeof(sc_groups[0]);
