/* A workspace as a whole: copied, and its content replaced; whole or as it was, whatever a box does meanwhile. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "session/workspace.h"

static char base[64];
static int basefd = -1, rootfd = -1, copyfd = -1;
static struct ses_workspace w, to;
static struct err e;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void put(int dir, const char *path, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, text, strlen(text)), 0);
}

static int make(const char *name)
{
	int fd;

	ck_assert_int_eq(mkdirat(basefd, name, 0755), 0);
	fd = openat(basefd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static void setup(void)
{
	umask(022);
	snprintf(base, sizeof(base), "/tmp/ct-trees-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	ck_assert_int_eq(chmod(base, 0755), 0);
	basefd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rootfd = make("root");
	copyfd = make("copy");
	close(make("outside"));
	put(basefd, "outside/f", "outside");
	ck_assert_int_eq(ses_workspace(rootfd, &w, &e), 0);
	ck_assert_int_eq(ses_workspace(copyfd, &to, &e), 0);
}

static void teardown(void)
{
	char text[16] = "";

	ck_assert_int_eq(fd_read_file_at(basefd, "outside/f", text, sizeof(text)), 7);
	fd_close(&rootfd);
	fd_close(&copyfd);
	fd_close(&basefd);
	nftw(base, remove_one, 64, FTW_DEPTH | FTW_PHYS);
}

/* Everything about a tree that is to be the same in its copy, in one text. */
static void describe(int dir, const char *path, struct buf *out)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
	struct dirent **v;

	ck_assert_int_ge(fd, 0);
	n = scandirat(fd, ".", &v, NULL, alphasort);
	ck_assert_int_ge(n, 0);
	for (int i = 0; i < n; i++) {
		const char *name = v[i]->d_name;
		char below[4096], text[4096] = "";
		struct stat st;
		ssize_t len;

		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) {
			snprintf(below, sizeof(below), "%s/%s", path, name);
			ck_assert_int_eq(fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
			buf_fmt(out, "%s %o %u:%u %ld.%09ld links %u", below, st.st_mode, st.st_uid, st.st_gid, st.st_mtim.tv_sec,
				st.st_mtim.tv_nsec, S_ISDIR(st.st_mode) ? 0 : (unsigned)st.st_nlink);
			if (S_ISLNK(st.st_mode)) {
				len = readlinkat(fd, name, text, sizeof(text) - 1);
				buf_fmt(out, " -> %.*s", (int)len, text);
			} else if (S_ISREG(st.st_mode)) {
				int f = openat(fd, name, O_RDONLY | O_CLOEXEC);

				len = pread(f, text, 20, st.st_size > 20 ? st.st_size - 20 : 0);
				buf_fmt(out, " %lld bytes, %s, ends %.*s", (long long)st.st_size,
					(long long)st.st_blocks * 512 < st.st_size ? "holes" : "whole", (int)len, text);
				len = fgetxattr(f, "user.mark", text, sizeof(text) - 1);
				if (len > 0)
					buf_fmt(out, " mark %.*s", (int)len, text);
				close(f);
			}
			buf_str(out, "\n");
			if (S_ISDIR(st.st_mode)) {
				int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

				if (sub >= 0)
					describe(sub, below, out);
				fd_close(&sub);
			}
		}
		free(v[i]);
	}
	free(v);
	close(fd);
	ck_assert(!out->failed);
}

static void age(const char *path, time_t sec, long ns)
{
	struct timespec times[2] = { { sec, ns }, { sec, ns } };

	ck_assert_int_eq(utimensat(rootfd, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void fill_root(void)
{
	_cleanup_fd_ int fd = -1;

	ck_assert_int_eq(mkdirat(rootfd, "d", 0755) | mkdirat(rootfd, "d/e", 0755) | mkdirat(rootfd, "empty", 0711), 0);
	put(rootfd, "d/e/f", "content");
	put(rootfd, "x", "");
	ck_assert_int_eq(linkat(rootfd, "d/e/f", rootfd, "second", 0), 0);
	ck_assert_int_eq(symlinkat("/nowhere/at all", rootfd, "d/l"), 0);
	fd = openat(rootfd, "big", O_RDWR | O_CREAT | O_CLOEXEC, 0640);
	ck_assert_int_eq(ftruncate(fd, (off_t)5 << 30), 0);
	ck_assert_int_eq(pwrite(fd, "in the middle", 13, 1 << 30), 13);
	if (fsetxattr(fd, "user.mark", "here", 4, 0) < 0)
		ck_assert_int_eq(errno, EOPNOTSUPP);
	ck_assert_int_eq(fchmodat(rootfd, "d/e/f", 04751, 0), 0);
	age("d/e/f", 1000000000, 123456789);
	age("d/l", 1, 0);
	age("d/e", 999999999, 1);
	ck_assert_int_eq(fchmodat(rootfd, "d/e", 0555, 0), 0);
}

START_TEST(copying)
{
	_cleanup_buf_ struct buf one, two;

	fill_root();
	ck_assert_int_eq(mkfifoat(rootfd, "fifo", 0600), 0);
	ck_assert_msg(ses_copy(&w, &to, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(unlinkat(rootfd, "fifo", 0), 0);
	ck_assert_int_eq(fchmodat(rootfd, "d/e/f", 0751, 0), 0); /* set-id bits stay behind */
	buf_init(&one, 1 << 20);
	buf_init(&two, 1 << 20);
	describe(rootfd, "", &one);
	describe(copyfd, "", &two);
	ck_assert_str_eq(one.data, two.data);
	ck_assert_ptr_nonnull(strstr(one.data, "links 2"));
	ck_assert_ptr_nonnull(strstr(one.data, "holes"));
	/* Two workspaces, not one. */
	put(copyfd, "x", "changed");
	buf_free(&two);
	buf_init(&two, 1 << 20);
	describe(rootfd, "", &two);
	ck_assert_str_eq(one.data, two.data);
	ck_assert_int_eq(fchmodat(rootfd, "d/e", 0755, 0) | fchmodat(copyfd, "d/e", 0755, 0), 0);
}
END_TEST

/* Root copies what belongs to another as that one, and gives him the copy. */
START_TEST(copying_as_owner)
{
	struct stat st;

	if (geteuid() != 0)
		return;
	ck_assert_int_eq(fchown(rootfd, 12345, 23456), 0);
	put(rootfd, "f", "x");
	ck_assert_int_eq(fchownat(rootfd, "f", 12345, 23456, 0), 0);
	ck_assert_int_eq(ses_workspace(rootfd, &w, &e), 0);
	ck_assert_msg(ses_copy(&w, &to, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(fstat(copyfd, &st), 0);
	ck_assert_uint_eq(st.st_uid, 12345);
	ck_assert_int_eq(fstatat(copyfd, "f", &st, 0), 0);
	ck_assert_uint_eq(st.st_uid, 12345);
	ck_assert_uint_eq(st.st_gid, 23456);
	ck_assert_int_eq(unlinkat(copyfd, "f", 0), 0);
	put(rootfd, "f", "root's own");
	ck_assert_int_eq(fchownat(rootfd, "f", 0, 0, 0) | fchmodat(rootfd, "f", 0600, 0), 0);
	assert_refused(ses_copy(&w, &to, &e), &e, ERR_SYS);
}
END_TEST

static pid_t exchange(const char *a, const char *b)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			syscall(SYS_renameat2, rootfd, a, rootfd, b, RENAME_EXCHANGE);
	}
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

START_TEST(copying_raced)
{
	unsigned copied = 0, led_out = 0;
	pid_t pid;

	ck_assert_int_eq(mkdirat(rootfd, "d", 0755), 0);
	put(rootfd, "d/f", "inside");
	ck_assert_int_eq(symlinkat("../outside", rootfd, "l"), 0);
	ck_assert_int_eq(mkfifoat(rootfd, "fifo", 0600), 0);
	put(rootfd, "file", "x");
	pid = _i ? exchange("file", "fifo") : exchange("d", "l");
	/* On until both were seen, on a machine that is too busy for the box; a bound for one that never runs. */
	for (int i = 0; i < 300 || (!(copied && (_i || led_out)) && i < 100000); i++) {
		char text[16] = "";
		struct ses_files left;
		struct ses_read f;

		if (ses_copy(&w, &to, &e) == 0)
			copied++;
		if (fd_read_file_at(rootfd, "d/f", text, sizeof(text)) > 0 && !strcmp(text, "outside")) /* the control */
			led_out++;
		if (ses_read_open(&to, "d/f", 0, UINT64_MAX, 99, &f, &e) == 0) {
			ck_assert_int_eq(ses_read_data(&f, text, sizeof(text), &e), 6);
			ck_assert_int_eq(memcmp(text, "inside", 6), 0);
			ses_read_close(&f);
		}
		ck_assert_int_eq(ses_list(&to, "", false, &left, &e), 0);
		for (size_t k = 0; k < left.n; k++) {
			ck_assert(left.v[k].type == SES_DIRECTORY || left.v[k].type == SES_SYMLINK || left.v[k].type == SES_FILE);
			ck_assert_int_eq(ses_remove(&to, left.v[k].path, true, &e), 0);
		}
		ses_files_free(&left);
	}
	stop(pid);
	ck_assert_uint_gt(copied, 0);
	ck_assert(_i || led_out > 0);
}
END_TEST

static void begin(struct ses_replace *r)
{
	ck_assert_msg(ses_replace_begin(&w, r, &e) == 0, "%s", e.msg);
	put(r->fresh, "f", "new");
	ck_assert_int_eq(mkdirat(r->fresh, "d", 0755), 0);
	put(r->fresh, "d/g", "new");
	ck_assert_int_eq(fchmodat(r->fresh, "d", 0500, 0), 0);
}

static const char *list(void)
{
	static char text[4096];
	struct ses_files files;
	size_t len = 0;

	ck_assert_msg(ses_list(&w, "", true, &files, &e) == 0, "%s", e.msg);
	text[0] = '\0';
	for (size_t i = 0; i < files.n && len < sizeof(text); i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", i ? " " : "", files.v[i].path);
	ses_files_free(&files);
	return text;
}

static void as_user(void)
{
	if (geteuid() != 0)
		return;
	/* All of it, as it is to be removed, too. */
	ck_assert_int_eq(fchown(rootfd, 12345, 12345) | fchown(basefd, 12345, 12345) | fchownat(basefd, "outside", 12345, 12345, 0), 0);
	ck_assert_int_eq(setresgid(12345, 12345, 12345) | setresuid(12345, 12345, 12345), 0);
	ck_assert_int_eq(ses_workspace(rootfd, &w, &e), 0);
}

START_TEST(replacing)
{
	struct ses_replace r;
	struct stat st;

	if (_i)
		as_user();
	ck_assert_int_eq(mkdirat(rootfd, "old", 0755) | mkdirat(rootfd, "d", 0755), 0);
	put(rootfd, "old/x", "old");
	put(rootfd, "f", "old");
	ck_assert_int_eq(fchmodat(rootfd, "old", 0500, 0), 0);
	begin(&r);
	/* Until the end all is as it was. */
	ck_assert_ptr_nonnull(strstr(list(), "old old/x"));
	ck_assert_msg(ses_replace_end(&r, &e) == 0, "%s", e.msg);
	ck_assert_msg(ses_replace_drop(&r, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(list(), "d d/g f");
	ck_assert_int_eq(fstatat(rootfd, "d", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0500);
	ck_assert_int_eq(ses_replace_drop(&r, &e), 0);
	/* Given up. */
	begin(&r);
	ck_assert_int_eq(ses_replace_drop(&r, &e), 0);
	ck_assert_str_eq(list(), "d d/g f");
	ck_assert_int_eq(ses_remove(&w, "d", true, &e), 0);
}
END_TEST

/* A name that can't be moved: something is mounted there. */
START_TEST(replacing_fails)
{
	struct ses_replace r;
	char path[128];

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return;
	for (char c = 'a'; c <= 'z'; c++)
		put(rootfd, (char[]){ c, 'a', '\0' }, "old");
	ck_assert_int_eq(mkdirat(rootfd, "m", 0755), 0);
	snprintf(path, sizeof(path), "%s/root/m", base);
	ck_assert_int_eq(mount("none", path, "tmpfs", 0, NULL), 0);
	begin(&r);
	assert_refused(ses_replace_end(&r, &e), &e, ERR_PATH);
	ck_assert_ptr_nonnull(strstr(e.msg, "mounted"));
	ck_assert_int_eq(ses_replace_drop(&r, &e), 0);
	ck_assert_str_eq(list(), "aa ba ca da ea fa ga ha ia ja ka la m ma na oa pa qa ra sa ta ua va wa xa ya za");
	ck_assert_int_eq(umount(path), 0);
	/* The control. */
	begin(&r);
	ck_assert_int_eq(ses_replace_end(&r, &e), 0);
	ck_assert_int_eq(ses_replace_drop(&r, &e), 0);
	ck_assert_str_eq(list(), "d d/g f");
}
END_TEST

/* A box makes files in the way meanwhile: the archive's are there in the end. */
START_TEST(replacing_raced)
{
	unsigned done = 0;
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			int fd = openat(rootfd, "f", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

			if (fd >= 0)
				close(fd);
			if (symlinkat("../outside", rootfd, "d") == 0)
				unlinkat(rootfd, "d", 0);
		}
	}
	for (int i = 0; i < 200; i++) {
		struct ses_replace r;
		char text[16];

		begin(&r);
		if (ses_replace_end(&r, &e) == 0) {
			done++;
			ck_assert_int_eq(fd_read_file_at(rootfd, "f", text, sizeof(text)), 3);
		}
		ck_assert_msg(ses_replace_drop(&r, &e) == 0, "%s", e.msg);
	}
	stop(pid);
	ck_assert_uint_gt(done, 0);
}
END_TEST

/* What stands there, or nothing yet, and then the old files in any case. */
static void old_files(void)
{
	ses_remove(&w, "d", true, &e);
	ses_remove(&w, "f", false, &e);
	ck_assert(mkdirat(rootfd, "old", 0755) == 0 || errno == EEXIST);
	put(rootfd, "old/x", "old");
	put(rootfd, "f", "old");
	put(rootfd, "x", "old");
	ck_assert_str_eq(list(), "f old old/x x");
}

/* Replaces them in a process that is killed where it begins or ends its n-th system call, counted together. False when it came to its end. */
static bool killed_at(unsigned n)
{
	struct ses_replace r;
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 || raise(SIGSTOP) != 0)
			_exit(1);
		begin(&r);
		_exit(ses_replace_end(&r, &e) == 0 && ses_replace_drop(&r, &e) == 0 ? 0 : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	while (WIFSTOPPED(status) && n-- > 0) {
		ck_assert_int_eq(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	}
	if (WIFSTOPPED(status)) {
		stop(pid);
		return true;
	}
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status 0x%x", (unsigned)status);
	return false;
}

/* Wherever it is killed, whoever comes next finds all that was or all that was to be, and nothing of the draft. */
START_TEST(replacing_killed)
{
	unsigned as_it_was = 0, replaced = 0, drafts = 0, n = 0;
	bool killed;

	do {
		char text[16] = "";
		bool is_new;

		old_files();
		killed = killed_at(n++);
		drafts += ses_replace_left(rootfd);
		ses_replace_recover(&w);
		is_new = strcmp(list(), "d d/g f") == 0;
		ck_assert_msg(is_new || strcmp(list(), "f old old/x x") == 0, "killed at %u: %s", n - 1, list());
		ck_assert_int_eq(fd_read_file_at(rootfd, "f", text, sizeof(text)), 3);
		ck_assert_str_eq(text, is_new ? "new" : "old");
		ck_assert(!ses_replace_left(rootfd));
		ck_assert_msg(is_new || !replaced, "killed at %u it is as it was again", n - 1);
		*(is_new ? &replaced : &as_it_was) += 1;
	} while (killed);
	ck_assert_uint_gt(as_it_was, 20);
	ck_assert_uint_gt(replaced, 20);
	ck_assert_uint_gt(drafts, 40);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, copying);
	tcase_add_test(tc, copying_as_owner);
	tcase_add_loop_test(tc, copying_raced, 0, 2);
	tcase_add_loop_test(tc, replacing, 0, 2);
	tcase_add_test(tc, replacing_fails);
	tcase_add_test(tc, replacing_raced);
	tcase_add_test(tc, replacing_killed);
}

int main(void)
{
	return unit_main("workspace_tree", fill);
}
