/* The messages between loop, spawner and keeper: what goes in comes out, and nothing else gets through. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/runner.h"
#include "session/spawn.h"

static int sock[2];

static void setup(void)
{
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sock), 0);
}

static int count_open(void)
{
	int n = 0;

	for (int i = 0; i < 256; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

static int memory(const void *data, size_t n)
{
	struct err e;
	int fd = -1;

	ck_assert_int_eq(spawn_memfd("test", data, n, &fd, &e), 0);
	return fd;
}

START_TEST(words_come_back)
{
	static char text[6][8] = { "sh", "-c", "", "a\nb", "A=1", "B=" };
	char *const argv[] = { text[0], text[1], text[2], text[3], NULL };
	char *const env[] = { text[4], text[5], NULL };
	struct spawn_words w;
	struct err e;
	int fd;

	ck_assert_int_eq(spawn_words_make(argv, env, "/dir", &fd, &e), 0);
	ck_assert_int_eq(spawn_words_read(fd, &w, &e), 0);
	ck_assert_uint_eq(w.argc, 4);
	ck_assert_uint_eq(w.envc, 2);
	for (size_t i = 0; i <= 4; i++)
		ck_assert_pstr_eq(w.argv[i], argv[i]);
	for (size_t i = 0; i <= 2; i++)
		ck_assert_pstr_eq(w.env[i], env[i]);
	ck_assert_str_eq(w.cwd, "/dir");
	close(fd);
	ck_assert_int_eq(spawn_words_make(argv, NULL, NULL, &fd, &e), 0);
	ck_assert_int_eq(spawn_words_read(fd, &w, &e), 0);
	ck_assert_uint_eq(w.envc, 0);
	ck_assert_ptr_null(w.env[0]);
	ck_assert_ptr_null(w.cwd);
	close(fd);
}
END_TEST

START_TEST(words_that_lie_are_refused)
{
	static const struct {
		uint32_t head[3];
		const char *text;
		size_t n;
	} rows[] = {
		{ { 0, 0, 0 }, "x", 2 },      { { 1, 0, 0 }, "x", 1 },	      { { 1, 0, 0 }, "", 0 },
		{ { 2, 0, 0 }, "x", 2 },      { { 1, 0, 2 }, "x\0y\0z", 6 },  { { UINT32_MAX, 0, 0 }, "x", 2 },
		{ { 1, UINT32_MAX, 0 }, "x", 2 }, { { 1, 0, 1 }, "x\0y", 3 }, { { 1, 0, 0 }, "x\0y", 4 },
	};
	struct spawn_words w;
	struct err e;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char data[64];
		int fd;

		memcpy(data, rows[i].head, sizeof(rows[i].head));
		memcpy(data + sizeof(rows[i].head), rows[i].text, rows[i].n);
		fd = memory(data, sizeof(rows[i].head) + rows[i].n);
		assert_refused(spawn_words_read(fd, &w, &e), &e, ERR_SYS);
		close(fd);
	}
}
END_TEST

START_TEST(too_many_words_are_refused)
{
	static char big[SPAWN_WORDS_MAX];
	char *const argv[] = { big, NULL };
	struct err e;
	int fd;

	memset(big, 'x', sizeof(big) - 1);
	assert_refused(spawn_words_make(argv, NULL, NULL, &fd, &e), &e, ERR_SYS);
	big[sizeof(big) - 64] = '\0'; /* the control */
	ck_assert_int_eq(spawn_words_make(argv, NULL, NULL, &fd, &e), 0);
	close(fd);
}
END_TEST

START_TEST(only_what_nobody_can_change_is_mapped)
{
	int bare = memfd_create("bare", MFD_CLOEXEC | MFD_ALLOW_SEALING), pipes[2];
	struct err e;
	char *map;
	size_t n;
	int fd;

	ck_assert_int_eq(write(bare, "text", 4), 4);
	assert_refused(spawn_map(bare, 100, &map, &n, &e), &e, ERR_SYS);
	ck_assert_int_eq(fcntl(bare, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	assert_refused(spawn_map(bare, 100, &map, &n, &e), &e, ERR_SYS);
	close(bare);
	ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
	assert_refused(spawn_map(pipes[0], 100, &map, &n, &e), &e, ERR_SYS);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_refused(spawn_map(fd, 1 << 30, &map, &n, &e), &e, ERR_SYS);
	close(fd);
	fd = memory("text", 4);
	assert_refused(spawn_map(fd, 3, &map, &n, &e), &e, ERR_SYS);
	ck_assert_int_eq(spawn_map(fd, 4, &map, &n, &e), 0);
	ck_assert_uint_eq(n, 4);
	ck_assert_mem_eq(map, "text", 4);
	map[0] = 'T'; /* its own copy */
	close(fd);
	fd = memory("", 0);
	ck_assert_int_eq(spawn_map(fd, 4, &map, &n, &e), 0);
	ck_assert_uint_eq(n, 0);
	close(fd);
}
END_TEST

START_TEST(calls_bring_what_their_flags_say)
{
	const struct spawn_fds own = { 0, 1, 2, 0, 1, 2 };
	int before = count_open();
	struct spawn_call last;
	struct spawn_fds f;

	for (unsigned flags = 0; flags < 16; flags++) {
		const struct spawn_call c = { .kind = SPAWN_CALL, .flags = flags, .timeout_us = flags };
		struct spawn_call got;

		ck_assert_int_eq(spawn_send_call(sock[0], &c, &own), 0);
		ck_assert_int_eq(spawn_recv_call(sock[1], &got, &f), 1);
		ck_assert_uint_eq(got.timeout_us, flags);
		ck_assert_int_ge(f.words, 0);
		ck_assert_int_ge(f.control, 0);
		ck_assert_int_ge(f.out, 0);
		ck_assert_int_eq(f.in >= 0, (flags & SPAWN_STDIN) != 0);
		ck_assert_int_eq(f.err >= 0, !(flags & SPAWN_PTY));
		ck_assert_int_eq(f.code >= 0, (flags & SPAWN_CODE) != 0);
		spawn_fds_close(&f);
	}
	ck_assert_int_eq(count_open(), before);
	ck_assert_int_eq(spawn_send_retire(sock[0]), 0);
	ck_assert_int_eq(spawn_recv_call(sock[1], &last, &f), 1);
	ck_assert(last.kind == SPAWN_RETIRE && f.words == -1 && f.code == -1);
	close(sock[0]);
	ck_assert_int_eq(spawn_recv_call(sock[1], &(struct spawn_call){ 0 }, &(struct spawn_fds){ 0 }), 0);
}
END_TEST

START_TEST(what_is_no_call_is_told)
{
	const struct spawn_call good = { .kind = SPAWN_CALL };
	struct spawn_call c = good;
	const int fds[8] = { 0, 1, 2, 0, 1, 2, 0, 1 };
	int before = count_open();
	struct spawn_fds f;

	for (size_t n = 0; n <= 8; n++) {
		ck_assert_int_eq(fd_send(sock[0], &good, sizeof(good), fds, n), 0);
		ck_assert_int_eq(spawn_recv_call(sock[1], &c, &f), n == 4 ? 1 : -1);
		if (n == 4)
			spawn_fds_close(&f);
		else
			ck_assert_int_eq(errno, EPROTO);
	}
	c = good;
	c.kind = SPAWN_READY;
	ck_assert_int_eq(fd_send(sock[0], &c, sizeof(c), fds, 4), 0);
	ck_assert_int_eq(spawn_recv_call(sock[1], &c, &f), -1);
	c = good;
	c.flags = 1 << 8;
	ck_assert_int_eq(fd_send(sock[0], &c, sizeof(c), fds, 4), 0);
	ck_assert_int_eq(spawn_recv_call(sock[1], &c, &f), -1);
	c = (struct spawn_call){ .kind = SPAWN_CALL, .flags = SPAWN_CODE, .language = SPAWN_LANGUAGE_N };
	ck_assert_int_eq(fd_send(sock[0], &c, sizeof(c), fds, 5), 0);
	ck_assert_int_eq(spawn_recv_call(sock[1], &c, &f), -1);
	ck_assert_int_eq(fd_send(sock[0], &good, sizeof(good) - 1, fds, 4), 0);
	ck_assert_int_eq(spawn_recv_call(sock[1], &c, &f), -1);
	ck_assert_int_eq(count_open(), before);
}
END_TEST

START_TEST(answers_come_back)
{
	struct spawn_hello h = { .kind = SPAWN_FAILED, .err = { .msg = "why" } };
	struct spawn_event ev = { .kind = SPAWN_CONNECTED, .tag = 7 };
	int got[SPAWN_HELLO_FDS], fds[2], before = count_open();

	memset(h.rule, 'x', sizeof(h.rule)); /* not ended */
	ck_assert_int_eq(fd_send(sock[0], &h, sizeof(h), &(int){ 0 }, 1), 0);
	ck_assert_int_eq(spawn_recv_hello(sock[1], &h, got), 1);
	ck_assert(got[0] >= 0 && got[1] == -1 && got[2] == -1);
	ck_assert_uint_eq(strlen(h.rule), sizeof(h.rule) - 1);
	ck_assert_str_eq(h.err.msg, "why");
	fd_close(&got[0]);
	ck_assert_int_eq(fd_send(sock[0], &ev, sizeof(ev), NULL, 0), 0);
	ck_assert_int_eq(spawn_recv_event(sock[1], &ev, fds), 1);
	ck_assert_uint_eq(ev.tag, 7);
	ck_assert_int_eq(fds[0], -1);
	ck_assert_int_eq(fd_send(sock[0], &ev, 3, &(int){ 0 }, 1), 0);
	ck_assert_int_eq(spawn_recv_event(sock[1], &ev, fds), -1);
	ck_assert_int_eq(errno, EPROTO);
	ck_assert_int_eq(count_open(), before);
	ck_assert_int_eq(spawn_recv_event(sock[1], &ev, fds), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

START_TEST(runners_have_words)
{
	for (int l = 0; l < SPAWN_LANGUAGE_N; l++) {
		char *const *argv = runner_argv((enum spawn_language)l);

		size_t n = 0;
		bool reads = false;

		for (; argv[n]; n++) {
			ck_assert_uint_gt(strlen(argv[n]), 0);
			reads |= strstr(argv[n], SPAWN_CODE_PATH) != NULL;
		}
		ck_assert_uint_ge(n, 3);
		ck_assert_uint_le(n, RUNNER_WORDS_MAX);
		ck_assert(reads);
		ck_assert_ptr_nonnull(spawn_language_names[l]);
	}
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, words_come_back);
	tcase_add_test(tc, words_that_lie_are_refused);
	tcase_add_test(tc, too_many_words_are_refused);
	tcase_add_test(tc, only_what_nobody_can_change_is_mapped);
	tcase_add_test(tc, calls_bring_what_their_flags_say);
	tcase_add_test(tc, what_is_no_call_is_told);
	tcase_add_test(tc, answers_come_back);
	tcase_add_test(tc, runners_have_words);
}

int main(void)
{
	return unit_main("spawn_proto", fill);
}
