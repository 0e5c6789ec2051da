/* Paths from outside. Each walk is tried three times: by openat2, with openat2 refused (EPERM, an outer sandbox) and missing (ENOSYS, an old
 * kernel); the verdicts must be the same. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#define MODES 3

static char dir[64], root[96];
static int rootfd = -1;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void put(const char *rel, const char *text)
{
	_cleanup_fd_ int fd = openat(rootfd, rel, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, text, strlen(text)), 0);
}

static void setup(void)
{
	umask(022);
	strcpy(dir, "/tmp/unit-path-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(root, sizeof(root), "%s/root", dir);
	ck_assert_int_eq(mkdir(root, 0755), 0);
	rootfd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(mkdirat(rootfd, "a", 0755), 0);
	ck_assert_int_eq(mkdirat(rootfd, "a/b", 0755), 0);
	put("a/b/file", "inside");
	put("../secret", "outside");
	ck_assert_int_eq(symlinkat("a", rootfd, "link"), 0);
	ck_assert_int_eq(symlinkat("/a/b", rootfd, "abs"), 0);
	ck_assert_int_eq(symlinkat("../../../../../../secret", rootfd, "up"), 0);
	ck_assert_int_eq(symlinkat("../../a/b/file", rootfd, "a/b/hop"), 0);
	ck_assert_int_eq(symlinkat("loop", rootfd, "loop"), 0);
	ck_assert_int_eq(symlinkat("/new/place", rootfd, "dangling"), 0);
}

static void teardown(void)
{
	fd_close(&rootfd);
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Mode 0: as it is. 1: openat2 is EPERM. 2: ENOSYS. */
static void mode(int i)
{
	static const int answers[MODES] = { 0, EPERM, ENOSYS };
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)answers[i]),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(code[0]), code };

	if (!i)
		return;
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
	ck_assert_int_eq((int)syscall(SYS_openat2, -1, "", NULL, 0), -1);
	ck_assert_int_eq(errno, answers[i]);
}

/* The descriptor is open on root/rel (or on dir/rel with "../rel"). */
static void assert_is(int fd, const char *rel)
{
	struct stat a, b;

	ck_assert_msg(fd >= 0, "%s: %s", rel, strerror(errno));
	ck_assert_int_eq(fstat(fd, &a), 0);
	ck_assert_int_eq(fstatat(rootfd, rel, &b, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert(a.st_dev == b.st_dev && a.st_ino == b.st_ino);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_PATH, O_PATH);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	close(fd);
}

#define assert_errno(call, want)                                                                     \
	do {                                                                                         \
		errno = 0;                                                                           \
		ck_assert_int_eq((call), -1);                                                        \
		ck_assert_msg(errno == (want), "%s: %s, not %s", #call, strerror(errno), strerror(want)); \
	} while (0)

START_TEST(beneath)
{
	mode(_i);
	assert_is(path_open_beneath(rootfd, "a/b/file", 0), "a/b/file");
	assert_is(path_open_beneath(rootfd, "a//b/./file", 0), "a/b/file");
	assert_is(path_open_beneath(rootfd, "", 0), ".");
	assert_is(path_open_beneath(rootfd, ".", O_DIRECTORY), ".");
	assert_is(path_open_beneath(rootfd, "a/b/", 0), "a/b");
	assert_errno(path_open_beneath(rootfd, "a/none", 0), ENOENT);
	assert_errno(path_open_beneath(rootfd, "a/b/file", O_DIRECTORY), ENOTDIR);
	assert_errno(path_open_beneath(rootfd, "a/b/file/", 0), ENOTDIR);
	assert_errno(path_open_beneath(rootfd, "a/b/file/x", 0), ENOTDIR);
	assert_errno(path_open_beneath(rootfd, "link", 0), ELOOP);
	assert_errno(path_open_beneath(rootfd, "link/b/file", 0), ELOOP);
	assert_errno(path_open_beneath(rootfd, "up", 0), ELOOP);
	assert_errno(path_open_beneath(rootfd, "..", 0), EXDEV);
	assert_errno(path_open_beneath(rootfd, "../secret", 0), EXDEV);
	assert_errno(path_open_beneath(rootfd, "a/../a", 0), EXDEV);
	assert_errno(path_open_beneath(rootfd, "/etc", 0), EXDEV);
}
END_TEST

START_TEST(nolinks)
{
	char path[256];

	mode(_i);
	snprintf(path, sizeof(path), "%s/a/b/file", root);
	assert_is(path_open_nolinks(path, 0), "a/b/file");
	snprintf(path, sizeof(path), "%s/link/b/file", root);
	assert_errno(path_open_nolinks(path, 0), ELOOP);
	snprintf(path, sizeof(path), "%s/link", root);
	assert_errno(path_open_nolinks(path, 0), ELOOP);
	snprintf(path, sizeof(path), "%s/a/../a", root);
	assert_errno(path_open_nolinks(path, 0), EXDEV);
	assert_errno(path_open_nolinks("relative", 0), EXDEV);
	assert_errno(path_open_nolinks("/proc/self/cwd", 0), ELOOP);
}
END_TEST

START_TEST(in_root)
{
	mode(_i);
	assert_is(path_open_in_root(rootfd, "a/b/file", 0), "a/b/file");
	assert_is(path_open_in_root(rootfd, "/a/b/file", 0), "a/b/file");
	assert_is(path_open_in_root(rootfd, "link/b/file", 0), "a/b/file");
	assert_is(path_open_in_root(rootfd, "abs/file", 0), "a/b/file");
	assert_is(path_open_in_root(rootfd, "a/b/hop", 0), "a/b/file");
	assert_is(path_open_in_root(rootfd, "abs/..", 0), "a");
	assert_is(path_open_in_root(rootfd, "../../a", 0), "a");
	assert_is(path_open_in_root(rootfd, "..", 0), ".");
	assert_is(path_open_in_root(rootfd, "", 0), ".");
	assert_is(path_open_in_root(rootfd, "/", 0), ".");
	/* The link names a file outside by name; inside there is none. */
	assert_errno(path_open_in_root(rootfd, "up", 0), ENOENT);
	assert_errno(path_open_in_root(rootfd, "loop", 0), ELOOP);
	assert_errno(path_open_in_root(rootfd, "dangling", 0), ENOENT);
	assert_errno(path_open_in_root(rootfd, "a/b/file/", 0), ENOTDIR);
	assert_errno(path_open_in_root(rootfd, "a/b/file/..", 0), ENOTDIR);
	assert_errno(path_open_in_root(rootfd, "abs/file", O_DIRECTORY), ENOTDIR);
	put("secret", "decoy");
	assert_is(path_open_in_root(rootfd, "up", 0), "secret");
}
END_TEST

START_TEST(link_chains_are_bounded)
{
	char from[16], to[16];

	mode(_i);
	put("l0", "end");
	for (int i = 1; i <= 60; i++) {
		snprintf(from, sizeof(from), "l%d", i);
		snprintf(to, sizeof(to), "l%d", i - 1);
		ck_assert_int_eq(symlinkat(to, rootfd, from), 0);
	}
	assert_is(path_open_in_root(rootfd, "l40", 0), "l0");
	assert_errno(path_open_in_root(rootfd, "l41", 0), ELOOP);
	assert_errno(path_open_in_root(rootfd, "l60", 0), ELOOP);
}
END_TEST

START_TEST(making)
{
	struct stat st;

	mode(_i);
	assert_is(path_make_dir(rootfd, "x/y/z"), "x/y/z");
	ck_assert_int_eq(fstatat(rootfd, "x/y", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	assert_is(path_make_dir(rootfd, "x/y/z"), "x/y/z");
	assert_is(path_make_file(rootfd, "abs/made/file"), "a/b/made/file");
	ck_assert_int_eq(fstatat(rootfd, "a/b/made/file", &st, 0), 0);
	ck_assert(S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0644 && st.st_size == 0);
	assert_is(path_make_file(rootfd, "a/b/file"), "a/b/file");
	ck_assert_int_eq(fstatat(rootfd, "a/b/file", &st, 0), 0);
	ck_assert_int_eq((int)st.st_size, 6);
	/* A dangling link is filled where it leads inside the root, and nowhere else. */
	assert_is(path_make_dir(rootfd, "dangling/deep"), "new/place/deep");
	assert_is(path_make_dir(rootfd, "up"), "secret");
	ck_assert_int_eq(fstatat(rootfd, "../secret", &st, 0), 0);
	ck_assert(S_ISREG(st.st_mode) && st.st_size == 7);
	assert_errno(path_make_dir(rootfd, "a/b/file"), ENOTDIR);
	assert_errno(path_make_dir(rootfd, "a/b/file/x"), ENOTDIR);
	assert_errno(path_make_file(rootfd, "a/b"), EISDIR);
	assert_errno(path_make_dir(rootfd, "loop/x"), ELOOP);
}
END_TEST

START_TEST(resolving)
{
	char out[4096];

	mode(_i);
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "/", "/" }, { "", "/" }, { "/a/b", "/a/b" }, { "abs/file", "/a/b/file" }, { "/link/none/deep", "/a/none/deep" },
		{ "/dangling/x", "/new/place/x" }, { "up", "/secret" }, { "/none/../a", "/a" }, { "/../..", "/" },
		{ "/none/../../..", "/" }, { "a/b/hop", "/a/b/file" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ck_assert_msg(path_resolve_in_root(rootfd, rows[i].in, out) == 0, "%s: %s", rows[i].in, strerror(errno));
		ck_assert_str_eq(out, rows[i].out);
	}
	assert_errno(path_resolve_in_root(rootfd, "loop", out), ELOOP);
	assert_errno(path_resolve_in_root(rootfd, "a/b/file/x", out), ENOTDIR);
}
END_TEST

/* One process swaps a directory for a link out, as fast as it can; no walk may ever return what is outside. */
START_TEST(races_never_leave)
{
	struct stat outside, st;
	pid_t pid;

	mode(_i);
	ck_assert_int_eq(fstatat(rootfd, "../secret", &outside, 0), 0);
	ck_assert_int_eq(mkdirat(rootfd, "t", 0755), 0);
	put("t/secret", "inside");
	ck_assert_int_eq(symlinkat("..", rootfd, "s"), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, 9);
		for (;;)
			renameat2(rootfd, "t", rootfd, "s", RENAME_EXCHANGE);
	}
	for (int i = 0; i < 4000; i++) {
		const int fds[] = { path_open_beneath(rootfd, "t/secret", 0), path_open_in_root(rootfd, "t/../t/secret", 0),
				    path_open_in_root(rootfd, "a/../t/secret", 0), path_make_file(rootfd, "t/../t/secret") };

		for (size_t j = 0; j < sizeof(fds) / sizeof(fds[0]); j++) {
			if (fds[j] < 0)
				continue;
			ck_assert_int_eq(fstat(fds[j], &st), 0);
			ck_assert(st.st_ino != outside.st_ino || st.st_dev != outside.st_dev);
			close(fds[j]);
		}
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
END_TEST

START_TEST(canonical)
{
	char path[256], want[256], out[4096];

	snprintf(path, sizeof(path), "%s/link/../link/./b//file", root);
	snprintf(want, sizeof(want), "%s/a/b/file", root);
	ck_assert_int_eq(path_canonical(path, out), 0);
	ck_assert_str_eq(out, want);
	ck_assert_int_eq(chdir(root), 0);
	ck_assert_int_eq(path_canonical("link/b/file", out), 0);
	ck_assert_str_eq(out, want);
	assert_errno(path_canonical("none", out), ENOENT);
	assert_errno(path_canonical("loop", out), ELOOP);
	assert_errno(path_canonical("", out), ENOENT);
}
END_TEST

START_TEST(normalising)
{
	static const struct {
		const char *in, *out;
	} good[] = { { "/", "/" }, { "//", "/" }, { "/a", "/a" }, { "/a/", "/a" }, { "//a//./b///", "/a/b" }, { "/.", "/" },
		     { "/..a/...", "/..a/..." }, { "/a b/ü", "/a b/ü" } };
	static const char *const bad[] = { "", "a", "./a", "/..", "/a/..", "/a/../b", "/a\nb", "/a\x1b[1m", "/\x7f" };
	char out[4096], *lengthy = malloc(5000);
	struct err e;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_int_eq(path_normalise(good[i].in, out, &e), 0);
		ck_assert_str_eq(out, good[i].out);
	}
	strcpy(out, "untouched");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_refused(path_normalise(bad[i], out, &e), &e, ERR_USAGE);
	for (size_t i = 0; i < 4096; i++)
		lengthy[i] = i % 2 ? 'a' : '/';
	lengthy[4096] = '\0';
	assert_refused(path_normalise(lengthy, out, &e), &e, ERR_USAGE);
	ck_assert_str_eq(out, "untouched");
	lengthy[4095] = '\0';
	ck_assert_int_eq(path_normalise(lengthy, out, &e), 0);
	memset(lengthy, 'a', 300);
	lengthy[0] = '/';
	lengthy[300] = '\0';
	assert_refused(path_normalise(lengthy, out, &e), &e, ERR_USAGE);
	free(lengthy);
}
END_TEST

START_TEST(within_and_join)
{
	char buf[8];

	ck_assert(path_within("/a/b", "/a"));
	ck_assert(path_within("/a", "/a"));
	ck_assert(path_within("/a", "/"));
	ck_assert(path_within("/", "/"));
	ck_assert(!path_within("/ab", "/a"));
	ck_assert(!path_within("/", "/a"));
	ck_assert(!path_within("/a", "/a/b"));
	ck_assert_int_eq(path_join(buf, sizeof(buf), "/a", "b"), 0);
	ck_assert_str_eq(buf, "/a/b");
	ck_assert_int_eq(path_join(buf, sizeof(buf), "/", "b"), 0);
	ck_assert_str_eq(buf, "/b");
	ck_assert_int_eq(path_join(buf, sizeof(buf), "/abc", "de"), 0);
	assert_errno(path_join(buf, sizeof(buf), "/abc", "def"), ENAMETOOLONG);
	ck_assert_int_eq(path_join(buf, sizeof(buf), "/a", "b"), 0);
	ck_assert_int_eq(path_join(buf, sizeof(buf), buf, "c"), 0);
	ck_assert_str_eq(buf, "/a/b/c");
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, beneath, 0, MODES);
	tcase_add_loop_test(tc, nolinks, 0, MODES);
	tcase_add_loop_test(tc, in_root, 0, MODES);
	tcase_add_loop_test(tc, link_chains_are_bounded, 0, MODES);
	tcase_add_loop_test(tc, making, 0, MODES);
	tcase_add_loop_test(tc, resolving, 0, MODES);
	tcase_add_loop_test(tc, races_never_leave, 0, MODES);
	tcase_add_test(tc, canonical);
	tcase_add_test(tc, normalising);
	tcase_add_test(tc, within_and_join);
}

int main(void)
{
	return unit_main("path", fill);
}
