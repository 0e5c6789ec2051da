/* Files of a workspace, as whoever is outside the box works with them: what they do, each thing that a box can plant there, and a box that exchanges
 * files and directories for links while they are worked with. The walk is tried with openat2 and without. */
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

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void put_at(int dir, const char *path, const char *text)
{
	_cleanup_fd_ int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, text, strlen(text)), 0);
}

/* base/root is the workspace; base/outside has a file that nothing may read, write or remove. */
static void setup(void)
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

static void teardown(void)
{
	char text[16] = "";

	ck_assert_int_eq(fd_read_file_at(basefd, "outside/f", text, sizeof(text)), 7);
	ck_assert_str_eq(text, "outside");
	fd_close(&rootfd);
	fd_close(&basefd);
	nftw(base, remove_one, 64, FTW_DEPTH | FTW_PHYS);
}

/* Odd: without openat2. */
static void mode(int i)
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

static int write_file(const char *path, const char *text)
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
static const char *read_file(const char *path)
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

static int try_read(const char *path)
{
	return read_file(path) ? 0 : -1;
}

static const char *list(const char *path, bool recursive)
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

static int try_list(const char *path)
{
	struct ses_files files;
	int r = ses_list(&w, path, true, &files, &e);

	if (r == 0)
		ses_files_free(&files);
	return r;
}

static int try_stat(const char *path)
{
	struct ses_file f;
	int r = ses_stat(&w, path, &f, &e);

	if (r == 0)
		ses_file_free(&f);
	return r;
}

START_TEST(writing)
{
	struct ses_write f;
	struct stat st;

	mode(_i);
	ck_assert_int_eq(write_file("a/b/c.txt", "first"), 0);
	ck_assert_str_eq(read_file("./a//b/c.txt"), "first");
	ck_assert_int_eq(fstatat(rootfd, "a/b/c.txt", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0644);
	ck_assert_int_eq(fstatat(rootfd, "a", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0755);

	/* In parts; until the end there is the old one. What has no end changes nothing. */
	umask(077);
	ck_assert_int_eq(ses_write_open(&w, "a/b/c.txt", 0755, &f, &e), 0);
	ck_assert_int_eq(ses_write_data(&f, "sec", 3, &e), 0);
	ck_assert_str_eq(read_file("a/b/c.txt"), "first");
	ck_assert_str_eq(list("", true), "a a/b a/b/c.txt");
	ck_assert_int_eq(ses_write_data(&f, "ond", 3, &e), 0);
	ck_assert_int_eq(ses_write_end(&f, &e), 0);
	ck_assert_uint_eq(f.size, 6);
	ck_assert_str_eq(read_file("a/b/c.txt"), "second");
	ck_assert_int_eq(fstatat(rootfd, "a/b/c.txt", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0755);
	ck_assert_int_eq(ses_write_open(&w, "a/b/c.txt", 0644, &f, &e), 0);
	ck_assert_int_eq(ses_write_data(&f, "x", 1, &e), 0);
	ses_write_drop(&f);
	ses_write_drop(&f);
	ck_assert_str_eq(read_file("a/b/c.txt"), "second");
	ck_assert_str_eq(list("", true), "a a/b a/b/c.txt");

	/* A machine that can't take it: as it was, and no draft. */
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 2, 2 }), 0);
	assert_refused(write_file("a/b/c.txt", "third"), &e, ERR_SYS);
	ck_assert_str_eq(read_file("a/b/c.txt"), "second");
	ck_assert_str_eq(list("", true), "a a/b a/b/c.txt");
}
END_TEST

START_TEST(reading)
{
	struct ses_read f;
	char buf[16];

	mode(_i);
	ck_assert_int_eq(write_file("f", "0123456789"), 0);
	ck_assert_int_eq(ses_read_open(&w, "f", 3, 4, 4, &f, &e), 0);
	ck_assert_uint_eq(f.size, 10);
	ck_assert_int_eq(ses_read_data(&f, buf, 3, &e), 3);
	ck_assert_int_eq(ses_read_data(&f, buf + 3, 9, &e), 1);
	ck_assert_int_eq(memcmp(buf, "3456", 4), 0);
	ck_assert_int_eq(ses_read_data(&f, buf, 9, &e), 0);
	ses_read_close(&f);
	ck_assert_int_eq(ses_read_open(&w, "f", 99, UINT64_MAX, 0, &f, &e), 0);
	ck_assert_int_eq(ses_read_data(&f, buf, 9, &e), 0);
	ses_read_close(&f);
	assert_refused(ses_read_open(&w, "f", 0, UINT64_MAX, 9, &f, &e), &e, ERR_TOO_LARGE);
	ck_assert_int_eq(ses_read_open(&w, "f", 1, UINT64_MAX, 9, &f, &e), 0);
	/* What is added meanwhile is not read; what is taken away is not waited for. */
	put_at(rootfd, "f", "0123456789abcdef");
	ck_assert_int_eq(ses_read_data(&f, buf, sizeof(buf), &e), 9);
	ck_assert_int_eq(ses_read_data(&f, buf, sizeof(buf), &e), 0);
	ses_read_close(&f);
	ck_assert_int_eq(ses_read_open(&w, "f", 0, UINT64_MAX, 99, &f, &e), 0);
	put_at(rootfd, "f", "01");
	ck_assert_int_eq(ses_read_data(&f, buf, 8, &e), 2);
	ck_assert_int_eq(ses_read_data(&f, buf, 8, &e), 0);
	ses_read_close(&f);
}
END_TEST

START_TEST(errors)
{
	char text[5000];

	mode(_i);
	ck_assert_int_eq(mkdirat(rootfd, "d", 0755), 0);
	put_at(rootfd, "f", "x");
	assert_refused(try_read("nothing"), &e, ERR_NOT_FOUND);
	assert_refused(try_read("d/nothing"), &e, ERR_NOT_FOUND);
	assert_refused(try_read("no/thing"), &e, ERR_NOT_FOUND);
	assert_refused(try_read("d"), &e, ERR_PATH);
	assert_refused(try_read(""), &e, ERR_PATH);
	assert_refused(try_read("f/x"), &e, ERR_PATH);
	assert_refused(try_read("../outside/f"), &e, ERR_PATH);
	assert_refused(try_read("d/../f"), &e, ERR_PATH);
	assert_refused(try_read("/etc/passwd"), &e, ERR_PATH);
	assert_refused(write_file("../outside/f", "x"), &e, ERR_PATH);
	assert_refused(write_file("d", "x"), &e, ERR_PATH);
	assert_refused(write_file("f/x", "x"), &e, ERR_PATH);
	assert_refused(write_file("", "x"), &e, ERR_PATH);
	memset(text, 'n', sizeof(text));
	text[256] = '\0';
	assert_refused(write_file(text, "x"), &e, ERR_PATH);
	for (size_t i = 1; i < sizeof(text); i += 2)
		memcpy(text + i - 1, "d/", 2);
	text[4998] = '\0';
	assert_refused(try_read(text), &e, ERR_PATH);
	ck_assert_ptr_nonnull(strstr(e.msg, "4095"));
	assert_refused(try_read("a\n\x1b[31mb"), &e, ERR_NOT_FOUND);
	ck_assert_ptr_null(strchr(e.msg, 27));
	assert_refused(try_list("f"), &e, ERR_PATH);
	assert_refused(try_list("nothing"), &e, ERR_NOT_FOUND);
	assert_refused(ses_remove(&w, "", true, &e), &e, ERR_PATH);
	assert_refused(ses_remove(&w, ".", true, &e), &e, ERR_PATH);
	assert_refused(ses_remove(&w, "nothing", true, &e), &e, ERR_NOT_FOUND);
	assert_refused(ses_remove(&w, "../outside", true, &e), &e, ERR_PATH);
}
END_TEST

static void make_socket(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/%s", root, path);
	ck_assert_int_eq(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
	close(s);
}

/* What a box leaves at the name of its result. */
START_TEST(planted)
{
	char outside[128];
	_cleanup_fd_ int fd = -1;
	struct stat st, after;

	mode(_i);
	snprintf(outside, sizeof(outside), "%s/outside", base);
	ck_assert_int_eq(symlinkat("../outside/f", rootfd, "link"), 0);
	ck_assert_int_eq(symlinkat("../outside/made", rootfd, "dangling"), 0);
	ck_assert_int_eq(symlinkat(outside, rootfd, "dir"), 0);
	ck_assert_int_eq(symlinkat("../missing", rootfd, "nodir"), 0);
	ck_assert_int_eq(symlinkat("/proc/self/root", rootfd, "magic"), 0);
	ck_assert_int_eq(mkfifoat(rootfd, "fifo", 0644), 0);
	make_socket("socket");
	ck_assert_int_eq(linkat(basefd, "outside/f", rootfd, "hard", 0), 0);
	ck_assert_int_eq(symlinkat("hard", rootfd, "inside"), 0);
	ck_assert_int_eq(symlinkat(".", rootfd, "here"), 0);

	/* The control: another program is led out. */
	fd = openat(rootfd, "link", O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);

	for (const char *const *p = (const char *const[]){ "link", "dangling", "dir/f", "dir/new", "nodir/x", "magic/etc/passwd", "inside", "here/hard", "here/new", "fifo",
						      "socket", NULL };
	     *p; p++) {
		assert_refused(try_read(*p), &e, ERR_PATH);
		assert_refused(write_file(*p, "x"), &e, ERR_PATH);
	}
	assert_refused(try_list("dir"), &e, ERR_PATH);
	assert_refused(try_list("fifo"), &e, ERR_PATH);
	assert_refused(ses_make_dir(&w, "dir/new", true, &e), &e, ERR_PATH);
	assert_refused(ses_make_dir(&w, "nodir/new", true, &e), &e, ERR_PATH);
	assert_refused(ses_make_dir(&w, "dangling", true, &e), &e, ERR_PATH);
	assert_refused(ses_remove(&w, "dir/f", true, &e), &e, ERR_PATH);
	assert_refused(ses_rename(&w, "dir/f", "mine", true, &e), &e, ERR_PATH);
	assert_refused(ses_rename(&w, "hard", "dir/f", true, &e), &e, ERR_PATH);
	assert_refused(try_stat("dir/f"), &e, ERR_PATH);
	ck_assert_int_lt(faccessat(basefd, "outside/made", F_OK, 0), 0);
	ck_assert_int_lt(faccessat(basefd, "missing", F_OK, 0), 0);

	/* A file of several names: the others keep what they have. */
	ck_assert_int_eq(write_file("hard", "mine"), 0);
	ck_assert_str_eq(read_file("hard"), "mine");

	/* The kinds, as they are shown; and each is removed as itself. */
	ck_assert_str_eq(list("", true), "dangling dir fifo hard here inside link magic nodir socket");
	for (const char *const *p = (const char *const[]){ "link", "dangling", "dir", "nodir", "magic", "inside", "here", "fifo", "socket", NULL }; *p; p++) {
		struct ses_file f;

		ck_assert_int_eq(ses_stat(&w, *p, &f, &e), 0);
		ck_assert_uint_eq(f.type, !strcmp(*p, "fifo") ? SES_FIFO : !strcmp(*p, "socket") ? SES_SOCKET : SES_SYMLINK);
		if (!strcmp(*p, "dir"))
			ck_assert_str_eq(f.target, outside);
		ses_file_free(&f);
		ck_assert_int_eq(fstatat(basefd, "outside", &st, 0), 0);
		ck_assert_int_eq(ses_rename(&w, *p, "other", true, &e), 0);
		ck_assert_int_eq(ses_remove(&w, "other", _i > 1, &e), 0);
		ck_assert_int_eq(fstatat(basefd, "outside", &after, 0), 0);
		ck_assert_int_eq(st.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
	}
	ck_assert_str_eq(list("", true), "hard");
}
END_TEST

START_TEST(devices)
{
	mode(_i);
	if (mknodat(rootfd, "null", S_IFCHR | 0666, makedev(1, 3)) < 0 || mknodat(rootfd, "zero", S_IFCHR | 0666, makedev(1, 5)) < 0) {
		ck_assert_int_ne(geteuid(), 0); /* and an ordinary user's box has none either */
		return;
	}
	assert_refused(try_read("zero"), &e, ERR_PATH);
	assert_refused(write_file("null", "x"), &e, ERR_PATH);
	ck_assert_str_eq(list("", false), "null zero");
	ck_assert_int_eq(ses_remove(&w, "null", false, &e), 0);
}
END_TEST

/* 20 GB that are not there: its size is looked at before a byte is read. */
START_TEST(sparse)
{
	struct rlimit few = { 64 << 20, 64 << 20 };
	_cleanup_fd_ int fd = openat(rootfd, "big", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	struct ses_read f;
	char buf[8];

	ck_assert_int_eq(ftruncate(fd, (off_t)20 << 30), 0);
	ck_assert_int_eq(setrlimit(RLIMIT_DATA, &few), 0);
	assert_refused(try_read("big"), &e, ERR_TOO_LARGE);
	ck_assert_int_eq(ses_read_open(&w, "big", ((uint64_t)20 << 30) - 4, UINT64_MAX, SES_READ_MAX, &f, &e), 0);
	ck_assert_int_eq(ses_read_data(&f, buf, sizeof(buf), &e), 4);
	ses_read_close(&f);
}
END_TEST

/* A file under a lease makes whoever opens it wait for its holder, up to /proc/sys/fs/lease-break-time. */
START_TEST(leased)
{
	int ready[2];
	pid_t pid;
	char c;

	put_at(rootfd, "f", "x");
	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		int fd = openat(rootfd, "f", O_RDWR);

		signal(SIGIO, SIG_IGN);
		if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(ready[0], &c, 1), 1);
	assert_refused(try_read("f"), &e, ERR_SYS);
	ck_assert_ptr_nonnull(strstr(e.msg, "lease"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ck_assert_str_eq(read_file("f"), "x");
}
END_TEST

/* The box: what is `a` now is `b` now, and the other way round, without end. */
static pid_t exchange(const char *a, const char *b)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			syscall(SYS_renameat2, rootfd, a, rootfd, b, 2 /* RENAME_EXCHANGE */);
	}
	return pid;
}

static void stop(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#define RACES 4000

/* A file that is a link, a FIFO at other moments. */
START_TEST(raced_file)
{
	unsigned inside = 0, refused = 0, led_out = 0;
	pid_t pid;

	mode(_i);
	put_at(rootfd, "f", "inside");
	if (_i < 2)
		ck_assert_int_eq(symlinkat("../outside/f", rootfd, "g"), 0);
	else
		ck_assert_int_eq(mkfifoat(rootfd, "g", 0644), 0);
	pid = exchange("f", "g");
	for (int i = 0; i < RACES; i++) {
		const char *text = read_file("f");

		if (text) {
			ck_assert_str_eq(text, "inside");
			inside++;
		} else {
			ck_assert_int_eq(e.kind, ERR_PATH);
			refused++;
		}
		if (_i < 2) { /* the control */
			char plain[16] = "";

			led_out += fd_read_file_at(rootfd, "f", plain, sizeof(plain)) > 0 && !strcmp(plain, "outside");
		}
	}
	stop(pid);
	ck_assert_uint_gt(inside, 0);
	ck_assert_uint_gt(refused, 0);
	ck_assert(_i >= 2 || led_out > 0);
}
END_TEST

/* A directory that is a link out at other moments. Nothing is made, read, removed or listed there. */
START_TEST(raced_directory)
{
	unsigned done = 0, refused = 0, led_out = 0;
	pid_t pid;

	mode(_i);
	ck_assert_int_eq(mkdirat(rootfd, "d", 0755), 0);
	ck_assert_int_eq(symlinkat("../outside", rootfd, "l"), 0);
	pid = exchange("d", "l");
	for (int i = 0; i < RACES / 4; i++) {
		struct ses_files files;
		const char *text;
		int r;

		r = write_file("d/f", "inside");
		done += r == 0;
		refused += r < 0;
		ck_assert(r == 0 || e.kind == ERR_PATH || e.kind == ERR_NOT_FOUND);
		text = read_file("d/f");
		ck_assert(!text || !strcmp(text, "inside"));
		ses_make_dir(&w, "d/made/below", true, &e);
		ses_rename(&w, "d/f", "d/moved", true, &e);
		if (ses_list(&w, "", true, &files, &e) == 0)
			ses_files_free(&files);
		if (ses_list(&w, "d", true, &files, &e) == 0) {
			for (size_t k = 0; k < files.n; k++)
				ck_assert(!strstr(files.v[k].path, "kept"));
			ses_files_free(&files);
		}
		ses_remove(&w, "d/made", true, &e);
		ses_remove(&w, "d/f", true, &e);
		led_out += faccessat(rootfd, "d/f", F_OK, 0) == 0; /* the control */
	}
	stop(pid);
	ck_assert_uint_gt(done, 0);
	ck_assert_uint_gt(refused, 0);
	ck_assert_uint_gt(led_out, 0);
	ck_assert_int_lt(faccessat(basefd, "outside/made", F_OK, 0), 0);
	ck_assert_int_lt(faccessat(basefd, "outside/moved", F_OK, 0), 0);
}
END_TEST

/* A tree is removed whose directories are exchanged for a link out meanwhile. */
START_TEST(raced_removal)
{
	mode(_i);
	ck_assert_int_eq(mkdirat(basefd, "outside/deep", 0755), 0);
	put_at(basefd, "outside/deep/f", "kept");
	for (int i = 0; i < 60; i++) {
		pid_t pid;

		ck_assert_int_eq(mkdirat(rootfd, "t", 0755) | mkdirat(rootfd, "t/d", 0755) | mkdirat(rootfd, "t/d/deep", 0755), 0);
		put_at(rootfd, "t/d/deep/f", "x");
		ck_assert_int_eq(symlinkat("../../outside", rootfd, "t/l"), 0);
		pid = exchange("t/d", "t/l");
		ses_remove(&w, "t", true, &e);
		stop(pid);
		if (faccessat(rootfd, "t", F_OK, 0) == 0)
			ck_assert_msg(ses_remove(&w, "t", true, &e) == 0, "%s", e.msg);
	}
	ck_assert_int_eq(faccessat(basefd, "outside/deep/f", F_OK, 0), 0);
}
END_TEST

/* Root's calls make and reach what the workspace's owner could. */
START_TEST(owner)
{
	struct stat st;

	if (geteuid() != 0)
		return;
	mode(_i);
	ck_assert_int_eq(fchown(rootfd, 12345, 23456), 0);
	ck_assert_int_eq(ses_workspace(rootfd, &w, &e), 0);
	ck_assert_int_eq(write_file("a/f", "x"), 0);
	ck_assert_int_eq(ses_make_dir(&w, "a/d", true, &e), 0);
	for (const char *const *p = (const char *const[]){ "a", "a/f", "a/d", NULL }; *p; p++) {
		ck_assert_int_eq(fstatat(rootfd, *p, &st, 0), 0);
		ck_assert_uint_eq(st.st_uid, 12345);
		ck_assert_uint_eq(st.st_gid, 23456);
	}
	/* A directory of root's in the workspace, where the owner, and so its box, can move it to any name. */
	ck_assert_int_eq(mkdirat(rootfd, "private", 0700), 0);
	put_at(rootfd, "private/key", "secret");
	assert_refused(try_read("private/key"), &e, ERR_SYS);
	assert_refused(write_file("private/new", "x"), &e, ERR_SYS);
	assert_refused(ses_remove(&w, "private", true, &e), &e, ERR_SYS);
	ck_assert_int_eq(ses_make_dir(&w, "private", true, &e), 0);
	ck_assert_int_eq(fstatat(rootfd, "private", &st, 0), 0);
	ck_assert_uint_eq(st.st_uid, 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
	/* And afterwards root is root. */
	ck_assert_int_eq(faccessat(rootfd, "private/key", R_OK, 0), 0);
	ck_assert_int_eq(fchmodat(rootfd, "a/f", 0, 0), 0);
	put_at(rootfd, "a/f", "x");
}
END_TEST

START_TEST(listing)
{
	_cleanup_buf_ struct buf out;
	struct ses_file f;
	struct json j;

	mode(_i);
	ck_assert_int_eq(write_file("b/x", "1"), 0);
	ck_assert_int_eq(write_file("b-a", "22"), 0);
	ck_assert_int_eq(write_file("a", "333"), 0);
	ck_assert_int_eq(symlinkat("b", rootfd, "c"), 0);
	ck_assert_int_eq(mkdirat(rootfd, "closed", 0755), 0);
	ck_assert_str_eq(list("", true), "a b b-a b/x c closed");
	ck_assert_str_eq(list("", false), "a b b-a c closed");
	ck_assert_str_eq(list("b", true), "b/x");
	ck_assert_str_eq(list("./b/", true), "b/x");
	ck_assert_str_eq(list("closed", true), "");

	ck_assert_int_eq(utimensat(rootfd, "c", (struct timespec[2]){ { 1, 2 }, { 3, 4 } }, AT_SYMLINK_NOFOLLOW), 0);
	ck_assert_int_eq(ses_stat(&w, "c", &f, &e), 0);
	buf_init(&out, 4096);
	json_init(&j, &out);
	ses_file_json(&j, &f);
	ck_assert_str_eq(out.data, "{\"path\":\"c\",\"type\":\"symlink\",\"size\":1,\"mode\":511,\"mtime_ns\":3000000004,\"target\":\"b\"}");
	ses_file_free(&f);
	ck_assert_int_eq(ses_stat(&w, "", &f, &e), 0);
	ck_assert_uint_eq(f.type, SES_DIRECTORY);
	ck_assert_str_eq(f.path, "");
	ses_file_free(&f);
	for (enum ses_type t = 0; t < SES_TYPE_N; t++)
		ck_assert_ptr_nonnull(ses_type_name(t));
}
END_TEST

START_TEST(many)
{
	struct ses_files files;
	char name[32];

	put_at(rootfd, "f", "");
	ck_assert_int_eq(mkdirat(rootfd, "d", 0755), 0);
	for (int i = 0; i < SES_LIST_MAX; i++) {
		snprintf(name, sizeof(name), "d/%06d", i);
		if (i % 50000 == 0) {
			ck_assert_int_eq(unlinkat(rootfd, "f", 0), 0);
			put_at(rootfd, "f", "");
		}
		ck_assert_int_eq(linkat(rootfd, "f", rootfd, name, 0), 0);
	}
	ck_assert_int_eq(ses_list(&w, "d", true, &files, &e), 0);
	ck_assert_uint_eq(files.n, SES_LIST_MAX);
	ck_assert_str_eq(files.v[SES_LIST_MAX - 1].path, "d/099999");
	ses_files_free(&files);
	assert_refused(ses_list(&w, "", true, &files, &e), &e, ERR_TOO_LARGE);
	ck_assert_int_eq(ses_remove(&w, "d", true, &e), 0);
	ck_assert_str_eq(list("", true), "f");
}
END_TEST

/* Directories below each other, as many as asked for, with a file at the end. */
static void dig(const char *first, int depth)
{
	int fd = openat(rootfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (int i = 0; i < depth; i++) {
		int next;

		ck_assert_int_eq(mkdirat(fd, i ? "dd" : first, 0755), 0);
		next = openat(fd, i ? "dd" : first, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = next;
	}
	put_at(fd, "f", "x");
	close(fd);
}

/* Deeper than paths are long, with few descriptors. */
START_TEST(depth)
{
	struct rlimit few = { 64, 64 };
	struct ses_files files;

	mode(_i);
	dig("deep", 1500);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert_int_eq(ses_list(&w, "", true, &files, &e), 0);
	ck_assert_uint_gt(files.n, 800);
	ses_files_free(&files);
	ck_assert_msg(ses_remove(&w, "deep", true, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(list("", true), "");
}
END_TEST

START_TEST(removing)
{
	mode(_i);
	if (geteuid() == 0) {
		/* All of it, as it is to be removed, too. */
		ck_assert_int_eq(fchown(rootfd, 12345, 12345) | fchown(basefd, 12345, 12345) | fchownat(basefd, "outside", 12345, 12345, 0), 0);
		ck_assert_int_eq(setresgid(12345, 12345, 12345) | setresuid(12345, 12345, 12345), 0);
		ck_assert_int_eq(ses_workspace(rootfd, &w, &e), 0);
	}
	ck_assert_int_eq(write_file("d/e/f", "x"), 0);
	assert_refused(ses_remove(&w, "d", false, &e), &e, ERR_PATH);
	ck_assert_ptr_nonnull(strstr(e.msg, "recursive"));
	/* Closed to their owner. */
	ck_assert_int_eq(fchmodat(rootfd, "d/e", 0500, 0) | fchmodat(rootfd, "d", 0, 0), 0);
	ck_assert_msg(ses_remove(&w, "d", true, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(ses_make_dir(&w, "d", true, &e), 0);
	ck_assert_int_eq(ses_remove(&w, "d", false, &e), 0);
	dig("d", 100);
	ck_assert_int_eq(fchmodat(rootfd, "d/dd/dd", 0500, 0), 0);
	ck_assert_msg(ses_remove(&w, "d", true, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(list("", true), "");
}
END_TEST

START_TEST(directories)
{
	mode(_i);
	ck_assert_int_eq(ses_make_dir(&w, "a/b/c", true, &e), 0);
	ck_assert_int_eq(ses_make_dir(&w, "a/b/c", true, &e), 0);
	ck_assert_int_eq(ses_make_dir(&w, "", true, &e), 0);
	assert_refused(ses_make_dir(&w, "", false, &e), &e, ERR_PATH);
	assert_refused(ses_make_dir(&w, "a/b/c", false, &e), &e, ERR_EXISTS);
	assert_refused(ses_make_dir(&w, "x/y", false, &e), &e, ERR_NOT_FOUND);
	ck_assert_int_eq(ses_make_dir(&w, "x", false, &e), 0);
	ck_assert_int_eq(write_file("f", "x"), 0);
	assert_refused(ses_make_dir(&w, "f", true, &e), &e, ERR_EXISTS);
	assert_refused(ses_make_dir(&w, "f/g", true, &e), &e, ERR_PATH);
}
END_TEST

START_TEST(renaming)
{
	mode(_i);
	ck_assert_int_eq(write_file("a", "a") | write_file("b", "b") | write_file("d/f", "f"), 0);
	assert_refused(ses_rename(&w, "a", "b", false, &e), &e, ERR_EXISTS);
	ck_assert_str_eq(read_file("b"), "b");
	ck_assert_int_eq(ses_rename(&w, "a", "b", true, &e), 0);
	ck_assert_str_eq(read_file("b"), "a");
	ck_assert_int_eq(ses_rename(&w, "b", "d/b", false, &e), 0);
	assert_refused(ses_rename(&w, "nothing", "x", true, &e), &e, ERR_NOT_FOUND);
	assert_refused(ses_rename(&w, "d/b", "no/b", true, &e), &e, ERR_NOT_FOUND);
	ck_assert_ptr_nonnull(strstr(e.msg, "no/b"));
	assert_refused(ses_rename(&w, "d", "d/d", true, &e), &e, ERR_PATH);
	ck_assert_int_eq(write_file("x", "x"), 0);
	assert_refused(ses_rename(&w, "x", "d", true, &e), &e, ERR_EXISTS);
	assert_refused(ses_rename(&w, "d", "x", true, &e), &e, ERR_EXISTS);
	ck_assert_int_eq(ses_make_dir(&w, "full/e", true, &e) | ses_make_dir(&w, "empty", true, &e), 0);
	assert_refused(ses_rename(&w, "d", "full", true, &e), &e, ERR_EXISTS);
	ck_assert_int_eq(ses_rename(&w, "d", "empty", true, &e), 0);
	assert_refused(ses_rename(&w, "x", "../outside/f", true, &e), &e, ERR_PATH);
	assert_refused(ses_rename(&w, "../outside/f", "x", true, &e), &e, ERR_PATH);
	ck_assert_str_eq(list("", true), "empty empty/b empty/f full full/e x");
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, writing, 0, 2);
	tcase_add_loop_test(tc, reading, 0, 2);
	tcase_add_loop_test(tc, errors, 0, 2);
	tcase_add_loop_test(tc, planted, 0, 4);
	tcase_add_loop_test(tc, devices, 0, 2);
	tcase_add_test(tc, sparse);
	tcase_add_test(tc, leased);
	tcase_add_loop_test(tc, raced_file, 0, 4);
	tcase_add_loop_test(tc, raced_directory, 0, 2);
	tcase_add_loop_test(tc, raced_removal, 0, 2);
	tcase_add_loop_test(tc, owner, 0, 2);
	tcase_add_loop_test(tc, listing, 0, 2);
	tcase_add_test(tc, many);
	tcase_add_loop_test(tc, depth, 0, 2);
	tcase_add_loop_test(tc, removing, 0, 2);
	tcase_add_loop_test(tc, directories, 0, 2);
	tcase_add_loop_test(tc, renaming, 0, 2);
}

int main(void)
{
	return unit_main("workspace", fill);
}
