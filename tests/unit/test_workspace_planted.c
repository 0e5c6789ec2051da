/* What a box can leave in its workspace for whoever works with the files from outside: links, FIFOs, sockets, devices, files of several names, of
 * 20 GB, under a lease; and a box that exchanges them while they are worked with, with the control that is led out. With openat2 and without. */
#include "workspace_env.h"

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
	static const char *const ways[] = { "link",   "dangling",  "dir/f",	 "dir/new", "nodir/x", "magic/etc/passwd",
					    "inside", "here/hard", "here/new", "fifo",	"socket",  NULL };
	static const char *const each[] = { "link", "dangling", "dir", "nodir", "magic", "inside", "here", "fifo", "socket", NULL };
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

	for (const char *const *p = ways; *p; p++) {
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
	for (const char *const *p = each; *p; p++) {
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
	_cleanup_fd_ int fd = openat(rootfd, "big", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	struct ses_read f;
	char buf[8];

	ck_assert_int_eq(ftruncate(fd, (off_t)20 << 30), 0);
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

/* On a busy machine the box may not run for that many rounds: on until all that is wanted was seen. A bound for a box that never runs. */
static bool another(int i, int least, bool seen)
{
	return i < least || (!seen && i < 500 * least);
}

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
	for (int i = 0; another(i, RACES, inside && refused && (_i >= 2 || led_out)); i++) {
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
	for (int i = 0; another(i, RACES / 4, done && refused && led_out); i++) {
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

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, planted, 0, 4);
	tcase_add_loop_test(tc, devices, 0, 2);
	tcase_add_test(tc, sparse);
	tcase_add_test(tc, leased);
	tcase_add_loop_test(tc, raced_file, 0, 4);
	tcase_add_loop_test(tc, raced_directory, 0, 2);
	tcase_add_loop_test(tc, raced_removal, 0, 2);
	tcase_add_loop_test(tc, owner, 0, 2);
}

int main(void)
{
	return unit_main("workspace_planted", fill);
}
