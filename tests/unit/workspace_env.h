/* What the tests of a workspace's files share: a workspace beside a directory that nothing may touch, and short words for the calls. */
#pragma once

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/workspace.h"

#ifndef SYS_openat2
#define SYS_openat2 437
#endif

static char base[64], root[96];
static int basefd = -1, rootfd = -1;
static struct ses_workspace w;
static struct err e;

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline void put_at(int dir, const char *path, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, text, strlen(text)), 0);
}

/* base/root is the workspace; base/outside has a file that nothing may read, write or remove. */
static inline void setup(void)
{
	umask(022);
	snprintf(base, sizeof(base), "/tmp/ct-files-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	ck_assert_int_eq(chmod(base, 0755), 0);
	snprintf(root, sizeof(root), "%s/root", base);
	ck_assert_int_eq(mkdir(root, 0755), 0);
	basefd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(mkdirat(basefd, "outside", 0755), 0);
	put_at(basefd, "outside/f", "outside");
	ck_assert_int_eq(ses_workspace(rootfd, &w, &e), 0);
}

static inline void teardown(void)
{
	char text[16] = "";

	ck_assert_int_eq(fd_read_file_at(basefd, "outside/f", text, sizeof(text)), 7);
	ck_assert_str_eq(text, "outside");
	fd_close(&rootfd);
	fd_close(&basefd);
	nftw(base, remove_one, 64, FTW_DEPTH | FTW_PHYS);
}

/* Odd: without openat2. */
static inline void mode(int i)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	if (i % 2 == 0)
		return;
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0), 0);
}

static inline int write_file(const char *path, const char *text)
{
	struct ses_write f;

	if (ses_write_open(&w, path, 0644, &f, &e) < 0)
		return -1;
	if (ses_write_data(&f, text, strlen(text), &e) == 0)
		return ses_write_end(&f, &e);
	ses_write_drop(&f);
	return -1;
}

/* The file's first bytes. */
static inline const char *read_file(const char *path)
{
	static char text[4096];
	struct ses_read f;
	size_t len = 0;
	ssize_t n;

	if (ses_read_open(&w, path, 0, UINT64_MAX, SES_READ_MAX, &f, &e) < 0)
		return NULL;
	while (len < sizeof(text) - 1 && (n = ses_read_data(&f, text + len, sizeof(text) - 1 - len, &e)) > 0)
		len += (size_t)n;
	ses_read_close(&f);
	text[len] = '\0';
	return text;
}

static inline int try_read(const char *path)
{
	return read_file(path) ? 0 : -1;
}

static inline const char *list(const char *path, bool recursive)
{
	static char text[4096];
	struct ses_files files;
	size_t len = 0;

	ck_assert_msg(ses_list(&w, path, recursive, &files, &e) == 0, "%s", e.msg);
	text[0] = '\0';
	for (size_t i = 0; i < files.n && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", i ? " " : "", files.v[i].path);
	ses_files_free(&files);
	return text;
}

static inline int try_list(const char *path)
{
	struct ses_files files;
	int r = ses_list(&w, path, true, &files, &e);

	if (r == 0)
		ses_files_free(&files);
	return r;
}

static inline int try_stat(const char *path)
{
	struct ses_file f;
	int r = ses_stat(&w, path, &f, &e);

	if (r == 0)
		ses_file_free(&f);
	return r;
}
