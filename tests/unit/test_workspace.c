/* Files of a workspace, as whoever is outside the box works with them: what each call does and refuses, the bounds of lists and depths. The walk is
 * tried with openat2 and without. What a box plants there is in test_workspace_planted.c. */
#include "workspace_env.h"

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
