/* Descriptors: owning, whole reads and writes, small files, passing. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

static bool is_cloexec(int fd)
{
	return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

/* How many descriptors below 256 are open. */
static int count_open(void)
{
	int n = 0;

	for (int i = 0; i < 256; i++)
		n += is_open(i);
	return n;
}

/* A file of n bytes, its path in `path`. */
static void make_file(char path[32], const void *data, size_t n)
{
	int fd;

	strcpy(path, "/tmp/unit-fd-XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, data, n), 0);
	close(fd);
}

START_TEST(close_keeps_errno_and_marks)
{
	int fd = open("/dev/null", O_RDONLY), old = fd, none = -1;

	int bad = 250;

	ck_assert(is_open(old) && !is_open(bad));
	errno = EXDEV;
	fd_close(&fd);
	ck_assert_int_eq(fd, -1);
	fd_close(&fd);
	fd_close(&none);
	fd_close(&bad);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(bad, -1);
	ck_assert(!is_open(old));
}
END_TEST

START_TEST(cleanup_closes_and_steal_does_not)
{
	int seen, kept;
	{
		_cleanup_fd_ int fd = open("/dev/null", O_RDONLY);
		seen = fd;
	}
	ck_assert(!is_open(seen));
	{
		_cleanup_fd_ int fd = open("/dev/null", O_RDONLY);
		kept = fd_steal(&fd);
		ck_assert_int_eq(fd, -1);
	}
	ck_assert(is_open(kept));
	close(kept);
}
END_TEST

static void on_alarm(int sig)
{
}

/* More than a pipe holds, with a reader that is slow and a signal that interrupts: all bytes arrive in order. */
START_TEST(write_all_survives_signals_and_full_pipes)
{
	enum { BYTES = 1 << 20 };
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval tick = { .it_interval = { .tv_usec = 2000 }, .it_value = { .tv_usec = 2000 } };
	unsigned char *data = malloc(BYTES), *got = malloc(BYTES + 1);
	int r, w, status;
	pid_t pid;

	for (int i = 0; i < BYTES; i++)
		data[i] = (unsigned char)(i * 7 + i / 251);
	ck_assert_int_eq(fd_pipe(&r, &w), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		sigaction(SIGALRM, &sa, NULL);
		setitimer(ITIMER_REAL, &tick, NULL);
		close(r);
		_exit(fd_write_all(w, data, BYTES) == 0 ? 0 : 1);
	}
	close(w);
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &tick, NULL);
	usleep(20000);
	ck_assert_int_eq(fd_read_full(r, got, BYTES + 1), BYTES);
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	ck_assert_int_eq(memcmp(data, got, BYTES), 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	close(r);
	free(data);
	free(got);
}
END_TEST

START_TEST(write_all_reports)
{
	int fd = open("/dev/full", O_WRONLY);

	ck_assert_int_eq(fd_write_all(fd, "x", 1), -1);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(fd_write_all(fd, "", 0), 0);
	close(fd);
	ck_assert_int_eq(fd_write_all(-1, "x", 1), -1);
	ck_assert_int_eq(errno, EBADF);
}
END_TEST

START_TEST(read_full_stops_at_n_and_at_end)
{
	int r, w;
	char buf[8];

	ck_assert_int_eq(fd_pipe(&r, &w), 0);
	ck_assert_int_eq(fd_write_all(w, "abcdef", 6), 0);
	ck_assert_int_eq(fd_read_full(r, buf, 4), 4);
	ck_assert_int_eq(memcmp(buf, "abcd", 4), 0);
	close(w);
	ck_assert_int_eq(fd_read_full(r, buf, 8), 2);
	ck_assert_int_eq(fd_read_full(r, buf, 8), 0);
	close(r);
	ck_assert_int_eq(fd_read_full(r, buf, 8), -1);
}
END_TEST

START_TEST(pipe_is_cloexec)
{
	int r, w;

	ck_assert_int_eq(fd_pipe(&r, &w), 0);
	ck_assert(is_cloexec(r) && is_cloexec(w));
	close(r);
	close(w);
}
END_TEST

START_TEST(read_file_trims_and_terminates)
{
	char path[32], buf[16];
	int before = count_open();

	make_file(path, "12 34\n\n", 7);
	memset(buf, 'z', sizeof(buf));
	ck_assert_int_eq(fd_read_file_at(AT_FDCWD, path, buf, sizeof(buf)), 5);
	ck_assert_str_eq(buf, "12 34");
	unlink(path);
	make_file(path, "\n", 1);
	ck_assert_int_eq(fd_read_file_at(AT_FDCWD, path, buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "");
	unlink(path);
	make_file(path, "", 0);
	ck_assert_int_eq(fd_read_file_at(AT_FDCWD, path, buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, "");
	unlink(path);
	ck_assert_int_eq(fd_read_file_at(AT_FDCWD, path, buf, sizeof(buf)), -1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(count_open(), before);
}
END_TEST

/* The largest file that fits is one byte smaller than the buffer. */
START_TEST(read_file_at_the_edge)
{
	char path[32], buf[8];
	int before = count_open();

	make_file(path, "1234567", 7);
	ck_assert_int_eq(fd_read_file_at(AT_FDCWD, path, buf, sizeof(buf)), 7);
	ck_assert_str_eq(buf, "1234567");
	ck_assert_int_eq(fd_read_file_at(AT_FDCWD, path, buf, 7), -1);
	ck_assert_int_eq(errno, EFBIG);
	unlink(path);
	ck_assert_int_eq(count_open(), before);
}
END_TEST

START_TEST(read_file_relative_to_a_directory)
{
	int dir = open("/proc/self", O_PATH | O_DIRECTORY);
	char buf[64];

	ck_assert_int_gt(fd_read_file_at(dir, "comm", buf, sizeof(buf)), 0);
	close(dir);
}
END_TEST

START_TEST(write_file_needs_an_existing_one)
{
	char path[32], buf[16];

	make_file(path, "", 0);
	ck_assert_int_eq(fd_write_file_at(AT_FDCWD, path, "hello"), 0);
	ck_assert_int_eq(fd_read_file_at(AT_FDCWD, path, buf, sizeof(buf)), 5);
	ck_assert_str_eq(buf, "hello");
	unlink(path);
	ck_assert_int_eq(fd_write_file_at(AT_FDCWD, path, "hello"), -1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_int_eq(fd_write_file_at(AT_FDCWD, "/dev/full", "hello"), -1);
	ck_assert_int_eq(errno, ENOSPC);
}
END_TEST

START_TEST(read_u64_values)
{
	static const struct {
		const char *text;
		int rc;
		uint64_t value;
	} rows[] = {
		{ "0\n", 0, 0 },
		{ "42", 0, 42 },
		{ "18446744073709551614\n", 0, UINT64_MAX - 1 },
		{ "max\n", 0, UINT64_MAX },
		{ "18446744073709551616", -1, 0 },
		{ "", -1, 0 },
		{ "12 34", -1, 0 },
		{ "twelve", -1, 0 },
		{ "12x", -1, 0 },
		{ "maximum", -1, 0 },
		{ "-1\n", -1, 0 },
		{ "+1", -1, 0 },
		{ " 1", -1, 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char path[32];
		uint64_t v = 777;

		make_file(path, rows[i].text, strlen(rows[i].text));
		ck_assert_msg(fd_read_u64_at(AT_FDCWD, path, &v) == rows[i].rc, "row %zu", i);
		ck_assert_msg(v == (rows[i].rc == 0 ? rows[i].value : 777), "row %zu gave %llu", i, (unsigned long long)v);
		unlink(path);
	}
}
END_TEST

START_TEST(descriptors_are_passed)
{
	int pair[2], fds[FD_PASS_MAX], got[FD_PASS_MAX], before;
	size_t n = 99;
	char buf[16];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < FD_PASS_MAX; i++)
		fds[i] = open("/dev/zero", O_RDONLY);
	before = count_open();
	ck_assert_int_eq(fd_send(pair[0], "four", 4, fds, FD_PASS_MAX), 0);
	ck_assert_int_eq(fd_recv(pair[1], buf, sizeof(buf), got, FD_PASS_MAX, &n), 4);
	ck_assert_uint_eq(n, FD_PASS_MAX);
	for (int i = 0; i < FD_PASS_MAX; i++) {
		char c = 'x';

		ck_assert(is_cloexec(got[i]));
		ck_assert_int_eq(read(got[i], &c, 1), 1);
		ck_assert_int_eq(c, 0);
		close(got[i]);
	}
	ck_assert_int_eq(count_open(), before);
}
END_TEST

/* What the receiver did not ask for is closed, not leaked. */
START_TEST(unwanted_descriptors_are_closed)
{
	int pair[2], fds[2], got[1], before;
	size_t n = 99;
	char buf[16];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	fds[0] = open("/dev/null", O_RDONLY);
	fds[1] = open("/dev/null", O_RDONLY);
	before = count_open();
	ck_assert_int_eq(fd_send(pair[0], "a", 1, fds, 2), 0);
	ck_assert_int_eq(fd_recv(pair[1], buf, sizeof(buf), got, 1, &n), 1);
	ck_assert_uint_eq(n, 1);
	close(got[0]);
	ck_assert_int_eq(count_open(), before);
	ck_assert_int_eq(fd_send(pair[0], "b", 1, fds, 2), 0);
	ck_assert_int_eq(fd_recv(pair[1], buf, sizeof(buf), NULL, 0, NULL), 1);
	ck_assert_int_eq(count_open(), before);
}
END_TEST

START_TEST(send_and_receive_ends)
{
	int pair[2], fds[FD_PASS_MAX + 1] = { 0 };
	size_t n = 99;
	char buf[4];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(fd_send(pair[0], "a", 1, fds, FD_PASS_MAX + 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(fd_send(pair[0], "plain", 5, NULL, 0), 0);
	ck_assert_int_eq(fd_recv(pair[1], buf, sizeof(buf), NULL, 0, &n), 4);
	ck_assert_uint_eq(n, 0);
	close(pair[0]);
	ck_assert_int_eq(fd_recv(pair[1], buf, sizeof(buf), NULL, 0, NULL), 0);
	/* No SIGPIPE: the process would be gone. */
	ck_assert_int_eq(fd_send(pair[1], "a", 1, NULL, 0), -1);
	ck_assert_int_eq(errno, EPIPE);
	close(pair[1]);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, close_keeps_errno_and_marks);
	tcase_add_test(tc, cleanup_closes_and_steal_does_not);
	tcase_add_test(tc, write_all_survives_signals_and_full_pipes);
	tcase_add_test(tc, write_all_reports);
	tcase_add_test(tc, read_full_stops_at_n_and_at_end);
	tcase_add_test(tc, pipe_is_cloexec);
	tcase_add_test(tc, read_file_trims_and_terminates);
	tcase_add_test(tc, read_file_at_the_edge);
	tcase_add_test(tc, read_file_relative_to_a_directory);
	tcase_add_test(tc, write_file_needs_an_existing_one);
	tcase_add_test(tc, read_u64_values);
	tcase_add_test(tc, descriptors_are_passed);
	tcase_add_test(tc, unwanted_descriptors_are_closed);
	tcase_add_test(tc, send_and_receive_ends);
}

int main(void)
{
	return unit_main("fd", fill);
}
