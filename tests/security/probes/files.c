/* Attacks by files: reading what is masked, writing what is the host's, set-id bits, device nodes, descriptors, swapped links. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "probe.h"

/* The old calls, where the architecture has them. */
#ifdef SYS_open
#define OLD_OPEN(path, flags, mode) syscall(SYS_open, path, flags, mode)
#define OLD_CREAT(path, mode) syscall(SYS_creat, path, mode)
#define OLD_CHMOD(path, mode) syscall(SYS_chmod, path, mode)
#define OLD_MKNOD(path, mode) syscall(SYS_mknod, path, mode, 0)
#define OLD_MKDIR(path, mode) syscall(SYS_mkdir, path, mode)
#else
#define OLD_OPEN(path, flags, mode) syscall(SYS_openat, AT_FDCWD, path, flags, mode)
#define OLD_CREAT(path, mode) syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode)
#define OLD_CHMOD(path, mode) syscall(SYS_fchmodat, AT_FDCWD, path, mode)
#define OLD_MKNOD(path, mode) syscall(SYS_mknodat, AT_FDCWD, path, mode, 0)
#define OLD_MKDIR(path, mode) syscall(SYS_mkdirat, AT_FDCWD, path, mode)
#endif

/* read PATH...: prints PATH RESULT BYTES (of the first 64 KiB) */
int cmd_read(int argc, char **argv)
{
	static char buf[65536];

	for (int i = 1; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY | O_NONBLOCK);
		ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
		int err = errno;

		printf("%s %s %zd\n", argv[i], n < 0 ? errname(err) : "ok", n);
		if (fd >= 0)
			close(fd);
	}
	return 0;
}

/* write PATH...: can it be opened for writing? Nothing is written, nothing is cut. */
int cmd_write(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		int fd = open(argv[i], O_WRONLY | O_NONBLOCK | O_NOCTTY);
		report(argv[i], fd < 0 ? errno : 0);
		if (fd >= 0)
			close(fd);
	}
	return 0;
}

static const char *dir;
static char path_buf[4096];

static const char *at(const char *name)
{
	snprintf(path_buf, sizeof(path_buf), "%s/%s", dir, name);
	return path_buf;
}

static const char *plain(const char *name)
{
	int fd = open(at(name), O_CREAT | O_WRONLY, 0755);
	if (fd >= 0)
		close(fd);
	return path_buf;
}

static int raise_mode(int fd, const char *name, mode_t mode)
{
	/* The attack succeeded only when the bit stands there afterwards: some file systems drop it and say nothing. */
	struct stat st;
	if (fd < 0 ? stat(name, &st) < 0 : fstat(fd, &st) < 0)
		return errno;
	return (st.st_mode & mode & 06000) ? 0 : ENOTSUP;
}

#define SETID(name, mode) \
	static int s_chmod_##name(void) \
	{ \
		const char *p = plain("chmod-" #name); \
		return OLD_CHMOD(p, mode) < 0 ? errno : raise_mode(-1, p, mode); \
	} \
	static int s_fchmod_##name(void) \
	{ \
		int fd = open(plain("fchmod-" #name), O_RDONLY); \
		return syscall(SYS_fchmod, fd, mode) < 0 ? errno : raise_mode(fd, NULL, mode); \
	} \
	static int s_fchmodat_##name(void) \
	{ \
		const char *p = plain("fchmodat-" #name); \
		return syscall(SYS_fchmodat, AT_FDCWD, p, mode) < 0 ? errno : raise_mode(-1, p, mode); \
	} \
	static int s_fchmodat2_##name(void) \
	{ \
		const char *p = plain("fchmodat2-" #name); \
		return syscall(452, AT_FDCWD, p, mode, 0) < 0 ? errno : raise_mode(-1, p, mode); \
	} \
	static int s_open_##name(void) \
	{ \
		int fd = (int)OLD_OPEN(at("open-" #name), O_CREAT | O_WRONLY, mode); \
		return fd < 0 ? errno : raise_mode(fd, NULL, mode); \
	} \
	static int s_openat_##name(void) \
	{ \
		int fd = (int)syscall(SYS_openat, AT_FDCWD, at("openat-" #name), O_CREAT | O_WRONLY, mode); \
		return fd < 0 ? errno : raise_mode(fd, NULL, mode); \
	} \
	static int s_tmpfile_##name(void) \
	{ \
		int fd = (int)syscall(SYS_openat, AT_FDCWD, dir, O_TMPFILE | O_RDWR, mode); \
		char link[64]; \
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd); \
		if (fd < 0 || linkat(AT_FDCWD, link, AT_FDCWD, at("tmpfile-" #name), AT_SYMLINK_FOLLOW) < 0) \
			return errno; \
		return raise_mode(fd, NULL, mode); \
	} \
	static int s_openat2_##name(void) \
	{ \
		uint64_t how[3] = { O_CREAT | O_WRONLY, mode, 0 }; \
		int fd = (int)syscall(SYS_openat2, AT_FDCWD, at("openat2-" #name), how, sizeof(how)); \
		return fd < 0 ? errno : raise_mode(fd, NULL, mode); \
	} \
	static int s_creat_##name(void) \
	{ \
		int fd = (int)OLD_CREAT(at("creat-" #name), mode); \
		return fd < 0 ? errno : raise_mode(fd, NULL, mode); \
	} \
	static int s_mknod_##name(void) \
	{ \
		const char *p = at("mknod-" #name); \
		return OLD_MKNOD(p, S_IFREG | (mode)) < 0 ? errno : raise_mode(-1, p, mode); \
	} \
	static int s_mknodat_##name(void) \
	{ \
		const char *p = at("mknodat-" #name); \
		return syscall(SYS_mknodat, AT_FDCWD, p, S_IFREG | (mode), 0) < 0 ? errno : raise_mode(-1, p, mode); \
	} \
	static int s_mkdir_##name(void) \
	{ \
		const char *p = at("mkdir-" #name); \
		return OLD_MKDIR(p, mode) < 0 ? errno : raise_mode(-1, p, mode); \
	} \
	static int s_mkdirat_##name(void) \
	{ \
		const char *p = at("mkdirat-" #name); \
		return syscall(SYS_mkdirat, AT_FDCWD, p, mode) < 0 ? errno : raise_mode(-1, p, mode); \
	} \
	static int s_chmod_dir_##name(void) \
	{ \
		const char *p = at("dir-" #name); \
		mkdir(p, 0755); \
		return OLD_CHMOD(p, mode) < 0 ? errno : raise_mode(-1, p, mode); \
	} \
	static int s_high_##name(void) \
	{ \
		/* the kernel takes 16 bits of the mode; a filter that compares the whole word is dodged */ \
		const char *p = plain("high-" #name); \
		return OLD_CHMOD(p, (1ul << 32) | 0x10000ul | (mode)) < 0 ? errno : raise_mode(-1, p, mode); \
	}
SETID(suid, 04755)
SETID(sgid, 02755)
SETID(both, 06755)

static int s_filecap(void)
{
	/* cap_setuid+ep, revision 2: a capability is as good as a set-id bit */
	uint32_t cap[5] = { 0x02000001, 1u << 7, 0, 0, 0 };
	return ERR(syscall(SYS_setxattr, plain("filecap"), "security.capability", cap, sizeof(cap), 0));
}
static int s_sticky(void) { return ERR(chmod(plain("sticky"), 01755)); }
static int s_plain(void) { return ERR(chmod(plain("plain"), 0750)); }

#define SETID_ROWS(n) \
	{ "chmod:" #n, s_chmod_##n }, { "fchmod:" #n, s_fchmod_##n }, { "fchmodat:" #n, s_fchmodat_##n }, \
	{ "fchmodat2:" #n, s_fchmodat2_##n }, { "open:" #n, s_open_##n }, { "openat:" #n, s_openat_##n }, \
	{ "tmpfile:" #n, s_tmpfile_##n }, { "openat2:" #n, s_openat2_##n }, { "creat:" #n, s_creat_##n }, \
	{ "mknod:" #n, s_mknod_##n }, { "mknodat:" #n, s_mknodat_##n }, { "mkdir:" #n, s_mkdir_##n }, \
	{ "mkdirat:" #n, s_mkdirat_##n }, { "chmod-dir:" #n, s_chmod_dir_##n }, { "high:" #n, s_high_##n }
static const struct attack setid_table[] = {
	SETID_ROWS(suid), SETID_ROWS(sgid), SETID_ROWS(both),
	{ "filecap", s_filecap }, { "plain", s_plain }, { "sticky", s_sticky },
};

/* setid DIR: tries to leave set-id files there, by every call that takes a mode */
int cmd_setid(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	dir = argv[1];
	umask(0);
	return attempt_table(setid_table, COUNT(setid_table), argc - 1, argv + 1);
}

static int d_char(void) { return ERR(mknod(at("null"), S_IFCHR | 0666, makedev(1, 3))); }
static int d_mem(void) { return ERR(mknod(at("mem"), S_IFCHR | 0666, makedev(1, 1))); }
static int d_block(void) { return ERR(mknod(at("disk"), S_IFBLK | 0666, makedev(254, 0))); }
static int d_loop(void) { return ERR(mknod(at("loop"), S_IFBLK | 0666, makedev(7, 0))); }
static int d_whiteout(void) { return ERR(mknod(at("whiteout"), S_IFCHR | 0666, makedev(0, 0))); }
static int d_fifo(void) { return ERR(mknod(at("fifo"), S_IFIFO | 0666, 0)); }
static const struct attack device_table[] = {
	{ "char", d_char }, { "mem", d_mem }, { "block", d_block }, { "loop", d_loop }, { "whiteout", d_whiteout },
	{ "fifo", d_fifo },
};

int cmd_devices(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	dir = argv[1];
	return attempt_table(device_table, COUNT(device_table), 1, argv);
}

/* fds: the open descriptors, by asking the kernel for each number, then the targets of /proc/self/fd */
int cmd_fds(int argc, char **argv)
{
	static int open_fds[65536];
	size_t n = 0;

	(void)argc;
	(void)argv;
	for (int fd = 0; fd < 65536; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			open_fds[n++] = fd;
	for (size_t i = 0; i < n; i++) {
		char link[64], target[512];
		snprintf(link, sizeof(link), "/proc/self/fd/%d", open_fds[i]);
		ssize_t len = readlink(link, target, sizeof(target) - 1);
		target[len < 0 ? 0 : len] = 0;
		printf("%d %s\n", open_fds[i], target);
	}
	return 0;
}

/* swap A B: exchanges two names for ever, atomically; the host side of a race */
int cmd_swap(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	puts("swapping");
	fflush(stdout);
	for (;;)
		if (syscall(SYS_renameat2, AT_FDCWD, argv[1], AT_FDCWD, argv[2], 2 /* exchange */) < 0) {
			report("swap", errno);
			return 1;
		}
}
