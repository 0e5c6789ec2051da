/* Where the directories are, who may own them, and the removal of dead owners' ones. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "state/dirs.h"
#include "state/owner.h"

static char top[64];

static const char *below(const char *name)
{
	static char path[4][512];
	static unsigned turn;
	char *p = path[turn++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", top, name);
	return p;
}

static void setup(void)
{
	snprintf(top, sizeof(top), "/tmp/ct-state-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
	for (const char *const *v = (const char *const[]){ "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "CLOCHE_HOME", NULL }; *v; v++)
		unsetenv(*v);
	setenv("HOME", below("home"), 1);
	ck_assert_int_eq(mkdir(below("home"), 0700), 0);
}

static void teardown(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", top);
	ck_assert_int_eq(system(cmd), 0);
}

static void want_path(enum state_dir which, const char *want)
{
	char got[STATE_PATH_MAX];
	struct err e;

	ck_assert_int_eq(state_path(which, got, &e), 0);
	ck_assert_str_eq(got, want);
}

START_TEST(store_and_config_follow_xdg_then_home)
{
	want_path(STATE_STORE, below("home/.local/share/cloche"));
	want_path(STATE_CONFIG, below("home/.config/cloche"));
	setenv("XDG_DATA_HOME", below("data"), 1);
	setenv("XDG_CONFIG_HOME", below("conf"), 1);
	want_path(STATE_STORE, below("data/cloche"));
	want_path(STATE_CONFIG, below("conf/cloche"));
	setenv("XDG_DATA_HOME", "data", 1); /* relative: to be ignored */
	want_path(STATE_STORE, below("home/.local/share/cloche"));
}
END_TEST

START_TEST(cloche_home_moves_all_three)
{
	char got[STATE_PATH_MAX];
	struct err e;

	setenv("XDG_DATA_HOME", below("data"), 1);
	setenv("CLOCHE_HOME", below("all"), 1);
	want_path(STATE_STORE, below("all/store"));
	want_path(STATE_RUNTIME, below("all/runtime"));
	want_path(STATE_CONFIG, below("all/config"));
	for (int i = 0; i < STATE_DIR_N; i++) {
		setenv("CLOCHE_HOME", "relative/dir", 1);
		assert_refused(state_path((enum state_dir)i, got, &e), &e, ERR_USAGE);
		ck_assert_ptr_nonnull(strstr(e.msg, "CLOCHE_HOME"));
	}
	setenv("CLOCHE_HOME", "", 1); /* empty: as if not set */
	want_path(STATE_STORE, below("data/cloche"));
}
END_TEST

START_TEST(a_home_that_is_not_there_is_no_place)
{
	char got[STATE_PATH_MAX];
	struct err e;

	setenv("HOME", below("ghost"), 1);
	assert_refused(state_path(STATE_STORE, got, &e), &e, ERR_MISSING);
	ck_assert_ptr_nonnull(strstr(e.msg, "CLOCHE_HOME"));
	setenv("XDG_DATA_HOME", below("data"), 1); /* needs no HOME */
	want_path(STATE_STORE, below("data/cloche"));
}
END_TEST

START_TEST(too_long_is_refused)
{
	char *longest = malloc(8192), got[STATE_PATH_MAX];
	struct err e;

	memset(longest, 'a', 8191);
	longest[0] = '/';
	longest[8191] = '\0';
	setenv("CLOCHE_HOME", longest, 1);
	assert_refused(state_path(STATE_STORE, got, &e), &e, ERR_USAGE);
	free(longest);
}
END_TEST

START_TEST(runtime_base_must_be_ours)
{
	char tmp[64], run[64];

	snprintf(tmp, sizeof(tmp), "/tmp/cloche-%u", (unsigned)geteuid());
	snprintf(run, sizeof(run), "/run/user/%u/cloche", (unsigned)geteuid());
	ck_assert_int_eq(mkdir(below("run"), 0700), 0);
	setenv("XDG_RUNTIME_DIR", below("run"), 1);
	want_path(STATE_RUNTIME, below("run/cloche"));
	ck_assert_int_eq(symlink("run", below("link")), 0);
	for (int i = 0; i < 4; i++) {
		char got[STATE_PATH_MAX];
		struct err e;

		setenv("XDG_RUNTIME_DIR", i == 0 ? below("link") : i == 1 ? below("absent") : i == 2 ? "run" : below("run"), 1);
		if (i == 3)
			ck_assert_int_eq(chmod(below("run"), 0777), 0);
		ck_assert_int_eq(state_path(STATE_RUNTIME, got, &e), 0);
		ck_assert(strcmp(got, tmp) == 0 || strcmp(got, run) == 0);
	}
}
END_TEST

START_TEST(nothing_is_made_unless_asked)
{
	struct err e;

	setenv("CLOCHE_HOME", below("all"), 1);
	for (int i = 0; i < STATE_DIR_N; i++)
		assert_refused(state_open((enum state_dir)i, false, &e), &e, ERR_MISSING);
	ck_assert_uint_eq(state_sweep(10), 0);
	ck_assert_int_eq(access(below("all"), F_OK), -1);
}
END_TEST

START_TEST(made_private_with_parents)
{
	struct stat st;
	struct err e;

	setenv("CLOCHE_HOME", below("deep/er/all"), 1);
	for (int i = 0; i < STATE_DIR_N; i++) {
		int fd = state_open((enum state_dir)i, true, &e);

		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_int_eq(st.st_mode & 0777, 0700);
		fd_close(&fd);
	}
}
END_TEST

START_TEST(links_files_and_open_modes_are_refused)
{
	struct err e;
	int fd;

	setenv("CLOCHE_HOME", top, 1);
	ck_assert_int_eq(mkdir(below("elsewhere"), 0700), 0);
	ck_assert_int_eq(symlink("elsewhere", below("runtime")), 0);
	assert_refused(state_open(STATE_RUNTIME, true, &e), &e, ERR_REFUSED);
	ck_assert_int_eq(unlink(below("runtime")), 0);
	fd = open(below("runtime"), O_CREAT | O_WRONLY, 0600);
	fd_close(&fd);
	assert_refused(state_open(STATE_RUNTIME, true, &e), &e, ERR_REFUSED);
	ck_assert_int_eq(unlink(below("runtime")), 0);
	ck_assert_int_eq(mkdir(below("runtime"), 0700), 0);
	ck_assert_int_eq(chmod(below("runtime"), 0755), 0);
	assert_refused(state_open(STATE_RUNTIME, true, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "chmod 700"));
	/* The store may be read by others, not written. */
	ck_assert_int_eq(mkdir(below("store"), 0700), 0);
	ck_assert_int_eq(chmod(below("store"), 0755), 0);
	fd = state_open(STATE_STORE, true, &e);
	ck_assert_int_ge(fd, 0);
	fd_close(&fd);
	ck_assert_int_eq(chmod(below("store"), 0775), 0);
	assert_refused(state_open(STATE_STORE, true, &e), &e, ERR_REFUSED);
}
END_TEST

START_TEST(a_stranger_s_directory_is_refused)
{
	struct err e;

	if (geteuid() != 0)
		return; /* only root can give a directory away */
	setenv("CLOCHE_HOME", top, 1);
	ck_assert_int_eq(mkdir(below("runtime"), 0700), 0);
	ck_assert_int_eq(chown(below("runtime"), 12345, 12345), 0);
	assert_refused(state_open(STATE_RUNTIME, true, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "12345"));
}
END_TEST

START_TEST(an_owner_lives_and_goes)
{
	struct state_owner o = { .fd = -1, .runtime_fd = -1 }, p = { .fd = -1, .runtime_fd = -1 };
	char path[512];
	struct stat st;
	struct err e;

	setenv("CLOCHE_HOME", top, 1);
	ck_assert_int_eq(state_owner_open(&o, &e), 0);
	ck_assert_int_eq(state_owner_open(&p, &e), 0); /* twice in one process: two names */
	ck_assert_str_ne(o.name, p.name);
	snprintf(path, sizeof(path), "%s/runtime/%s", top, o.name);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0700);
	ck_assert_uint_eq(state_sweep(10), 0);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert_int_eq(mkdirat(o.fd, "d", 0700), 0);
	ck_assert_int_eq(symlinkat("/tmp", o.fd, "d/out"), 0);
	state_owner_close(&o);
	ck_assert_int_eq(lstat(path, &st), -1);
	ck_assert_int_eq(o.fd, -1);
	state_owner_close(&o);
	state_owner_close(&p);
	ck_assert_int_eq(access("/tmp", F_OK), 0);
}
END_TEST

/* A process that makes its directory, puts things into it, and is killed. */
static void dead_owner(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct state_owner o;
		struct err e;
		int fd;

		if (state_owner_open(&o, &e) < 0)
			_exit(1);
		fd = openat(o.fd, "socket", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
		if (fd < 0 || mkdirat(o.fd, "sub", 0700) < 0 || symlinkat(top, o.fd, "sub/up") < 0)
			_exit(1);
		raise(SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status));
}

static unsigned entries(void)
{
	char cmd[128], n[16] = "";
	FILE *f;

	snprintf(cmd, sizeof(cmd), "ls -A %s/runtime | wc -l", top);
	f = popen(cmd, "r");
	ck_assert_ptr_nonnull(fgets(n, sizeof(n), f));
	pclose(f);
	return (unsigned)atoi(n);
}

START_TEST(the_dead_are_swept_within_bounds)
{
	setenv("CLOCHE_HOME", top, 1);
	ck_assert_int_eq(mkdir(below("keep"), 0700), 0);
	for (int i = 0; i < 5; i++)
		dead_owner();
	ck_assert_uint_eq(entries(), 5);
	ck_assert_uint_eq(state_sweep(0), 0);
	ck_assert_uint_eq(state_sweep(2), 2);
	ck_assert_uint_eq(entries(), 3);
	ck_assert_uint_eq(state_sweep(100), 3);
	ck_assert_uint_eq(entries(), 0);
	ck_assert_int_eq(access(below("keep"), F_OK), 0); /* no link was followed */
}
END_TEST

START_TEST(only_owners_names_are_swept)
{
	static const char *const names[] = { "owner", "owner-1", "owner-999999999-1", "owner--5-1.0", "owner-0-1.0", "owner-999999998-1.0x",
					     "cloche.sock", "owner-999999998-1.0.0" };
	struct err e;
	int fd;

	setenv("CLOCHE_HOME", top, 1);
	fd = state_open(STATE_RUNTIME, true, &e);
	ck_assert_int_ge(fd, 0);
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_int_eq(mkdirat(fd, names[i], 0700), 0);
	/* A link with an owner's name leads nowhere, a file is none of ours. */
	ck_assert_int_eq(symlinkat(top, fd, "owner-999999998-1.1"), 0);
	ck_assert_uint_eq(state_sweep(100), 0);
	ck_assert_int_eq(mkdirat(fd, "owner-999999998-1.2", 0700), 0);
	ck_assert_uint_eq(state_sweep(100), 1);
	ck_assert_int_eq(access(top, F_OK), 0);
	fd_close(&fd);
}
END_TEST

START_TEST(a_lock_counts_more_than_a_name)
{
	_cleanup_fd_ int fd = -1, held = -1;
	struct err e;

	/* An owner in another pid namespace: no process of that number here, but the lock is held. */
	setenv("CLOCHE_HOME", top, 1);
	fd = state_open(STATE_RUNTIME, true, &e);
	ck_assert_int_eq(mkdirat(fd, "owner-999999998-7.0", 0700), 0);
	held = openat(fd, "owner-999999998-7.0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(flock(held, LOCK_EX | LOCK_NB), 0);
	ck_assert_uint_eq(state_sweep(100), 0);
	fd_close(&held);
	ck_assert_uint_eq(state_sweep(100), 1);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, store_and_config_follow_xdg_then_home);
	tcase_add_test(tc, cloche_home_moves_all_three);
	tcase_add_test(tc, a_home_that_is_not_there_is_no_place);
	tcase_add_test(tc, too_long_is_refused);
	tcase_add_test(tc, runtime_base_must_be_ours);
	tcase_add_test(tc, nothing_is_made_unless_asked);
	tcase_add_test(tc, made_private_with_parents);
	tcase_add_test(tc, links_files_and_open_modes_are_refused);
	tcase_add_test(tc, a_stranger_s_directory_is_refused);
	tcase_add_test(tc, an_owner_lives_and_goes);
	tcase_add_test(tc, the_dead_are_swept_within_bounds);
	tcase_add_test(tc, only_owners_names_are_swept);
	tcase_add_test(tc, a_lock_counts_more_than_a_name);
}

int main(void)
{
	return unit_main("state", fill);
}
