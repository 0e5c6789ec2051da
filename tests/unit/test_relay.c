/* The relay over real pipes: capture against a naive model, streaming with back-pressure, and every way a stream ends. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "box/relay.h"

static struct relay r;
static struct err e;
static int in[2], out[2];

static void setup(void)
{
	signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(pipe2(in, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
	relay_init(&r, in[0], out[1]);
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* What byte `i` of the stream is: no period divides a cap. ASCII, so that no cut goes through a character. */
static char byte_at(uint64_t i)
{
	return (char)((i * 7 + i / 251) & 0x7f);
}

static void feed(uint64_t *at, size_t n)
{
	char chunk[32768];

	while (n > 0) {
		size_t k = n < sizeof(chunk) ? n : sizeof(chunk);

		for (size_t i = 0; i < k; i++)
			chunk[i] = byte_at(*at + i);
		ck_assert_int_eq(fd_write_all(in[1], chunk, k), 0);
		*at += k;
		n -= k;
		relay_move(&r, POLLIN, 0);
	}
}

/* The promise in its plain form: at most cap bytes, the first half and the last half, and how many are missing between. */
static void check_kept(uint64_t total, uint64_t cap)
{
	struct box_stream s = { 0 };
	uint64_t head = total < cap / 2 ? total : cap / 2;
	uint64_t left = total - head, tail = left < cap - cap / 2 ? left : cap - cap / 2;

	relay_take(&r, &s);
	ck_assert_uint_eq(s.len, head + tail);
	ck_assert_uint_eq(s.cut, total - head - tail);
	ck_assert_uint_eq(s.head_len, s.cut ? head : s.len);
	ck_assert_uint_le(s.len, cap);
	for (uint64_t i = 0; i < head; i++)
		if (s.data[i] != byte_at(i))
			ck_abort_msg("head byte %llu of %llu, cap %llu", (unsigned long long)i, (unsigned long long)total, (unsigned long long)cap);
	for (uint64_t i = 0; i < tail; i++)
		if (s.data[head + i] != byte_at(total - tail + i))
			ck_abort_msg("tail byte %llu of %llu, cap %llu", (unsigned long long)i, (unsigned long long)total, (unsigned long long)cap);
	munmap(s.data, s.mapped);
}

static void capture(uint64_t cap)
{
	int fresh[2];

	relay_close(&r);
	fd_close(&in[1]);
	ck_assert_int_eq(pipe2(fresh, O_CLOEXEC | O_NONBLOCK), 0);
	memcpy(in, fresh, sizeof(in));
	relay_init(&r, in[0], -1);
	ck_assert_int_eq(relay_capture(&r, cap, &e), 0);
}

START_TEST(every_size_around_every_small_cap)
{
	for (uint64_t cap = 0; cap <= 9; cap++)
		for (uint64_t total = 0; total <= 3 * cap + 4; total++)
			for (size_t step = 1; step <= 5; step += 2) {
				uint64_t at = 0;

				capture(cap);
				while (at < total)
					feed(&at, total - at < step ? total - at : step);
				check_kept(total, cap);
			}
}
END_TEST

/* Told to keep less at any moment, it keeps the promise for a smaller cap, or the one it had when it is past its first half. */
START_TEST(narrowed)
{
	for (uint64_t cap = 0; cap <= 20; cap++)
		for (uint64_t when = 0; when <= 2 * cap + 1; when++)
			for (uint64_t least = 0; least <= cap + 3; least += 3)
				for (uint64_t total = when; total <= when + 2 * cap + 3; total += 5) {
					uint64_t at = 0, want = 2 * when < least ? least : 2 * when;

					capture(cap);
					feed(&at, when);
					relay_narrow(&r, least);
					ck_assert_uint_eq(r.cap, when <= cap / 2 && want < cap ? want : cap);
					want = r.cap;
					while (at < total)
						feed(&at, total - at < 3 ? total - at : 3);
					ck_assert_uint_eq(relay_kept(&r), total < want ? total : want);
					check_kept(total, want);
				}
}
END_TEST

/* Wherever the cut falls in text of one to four bytes a character, whole characters are left on both sides. */
START_TEST(no_cut_goes_through_a_character)
{
	static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" "b\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9zz\xe2\x82\xac";
	const size_t n = sizeof(text) - 1;

	for (uint64_t cap = 2; cap < n; cap++) {
		struct box_stream s;

		capture(cap);
		ck_assert_int_eq(fd_write_all(in[1], text, n), 0);
		relay_move(&r, POLLIN, 0);
		relay_take(&r, &s);
		ck_assert_uint_eq(s.len + s.cut, n);
		ck_assert_uint_le(s.len, cap);
		ck_assert_uint_gt(s.cut, 0);
		ck_assert_uint_ge(s.len + 6, cap);
		for (size_t i = 0, k; i < s.len; i += k) {
			uint32_t cp;

			k = str_utf8(s.data + i, s.len - i, &cp);
			ck_assert_uint_ne(cp, STR_INVALID);
		}
		ck_assert_mem_eq(s.data, text, s.head_len);
		ck_assert_mem_eq(s.data + s.head_len, text + n - (s.len - s.head_len), s.len - s.head_len);
		munmap(s.data, s.mapped);
	}
}
END_TEST

START_TEST(sizes_around_larger_caps)
{
	static const uint64_t caps[] = { 64, 1001, 4096, 65535, 65536, 65537, 200000 };

	for (size_t c = 0; c < sizeof(caps) / sizeof(caps[0]); c++) {
		uint64_t cap = caps[c];
		const uint64_t totals[] = { 0, 1, cap / 2 - 1, cap / 2, cap / 2 + 1, cap - 1, cap, cap + 1, cap + cap / 2 - 1, cap + cap / 2,
					    cap + cap / 2 + 1, 2 * cap, 5 * cap + 3 };

		for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
			uint64_t at = 0;

			capture(cap);
			feed(&at, totals[i]);
			check_kept(totals[i], cap);
		}
	}
}
END_TEST

START_TEST(random_chunks)
{
	unsigned seed = 20240607;

	for (int round = 0; round < 300; round++) {
		uint64_t cap = (uint64_t)rand_r(&seed) % 3000, at = 0;
		int chunks = rand_r(&seed) % 12;

		capture(cap);
		while (chunks-- > 0)
			feed(&at, (size_t)rand_r(&seed) % (rand_r(&seed) % 2 ? 40 : 4000));
		check_kept(at, cap);
	}
}
END_TEST

/* A cap costs address space, not memory; what can't even be reserved is an error that names the option. */
START_TEST(huge_caps)
{
	uint64_t at = 0;

	capture(1ULL << 38);
	feed(&at, 100000);
	check_kept(100000, 1ULL << 38);
	relay_close(&r);
	relay_init(&r, -1, -1);
	assert_refused(relay_capture(&r, UINT64_MAX, &e), &e, ERR_SYS);
	ck_assert_ptr_nonnull(strstr(e.msg, "--max-output"));
	ck_assert_ptr_null(r.store);
	relay_close(&r);
}
END_TEST

START_TEST(capture_ends_with_its_source)
{
	uint64_t at = 0;
	int from;

	capture(100);
	from = r.from;
	feed(&at, 10);
	fd_close(&in[1]);
	ck_assert(is_open(from));
	relay_move(&r, POLLIN, 0);
	ck_assert_int_eq(r.from, -1);
	ck_assert(!is_open(from));
	check_kept(10, 100);
}
END_TEST

START_TEST(captured_is_never_polled_for_writing)
{
	struct pollfd p[2];
	uint64_t at = 0;

	capture(4);
	feed(&at, 10);
	ck_assert_uint_eq(relay_poll(&r, p), 2);
	ck_assert_int_eq(p[0].fd, r.from);
	ck_assert_int_eq(p[1].fd, -1);
	ck_assert(!relay_pending(&r));
}
END_TEST

/* One chunk at a time: nothing more is read until it is written, so a slow reader slows the box and cloche's memory stays what it is. */
START_TEST(back_pressure)
{
	char buf[65536], got[65536];
	struct pollfd p[2];
	size_t n = 0, sent = 0;
	ssize_t k;

	memset(buf, 'x', sizeof(buf));
	while ((k = write(out[1], buf, sizeof(buf))) > 0) /* the reader's pipe is full */
		;
	while ((k = write(in[1], buf, 5000)) > 0)
		sent += (size_t)k;
	relay_poll(&r, p);
	ck_assert_int_eq(p[0].fd, r.from);
	ck_assert_int_eq(p[1].fd, -1);
	relay_move(&r, POLLIN, 0);
	ck_assert(relay_pending(&r));
	relay_poll(&r, p);
	ck_assert_int_eq(p[0].fd, -1);
	ck_assert_int_eq(p[1].fd, out[1]);
	for (int i = 0; i < 10; i++)
		relay_move(&r, true, true); /* EAGAIN: nothing moves, nothing is lost */
	ck_assert(relay_pending(&r));
	ck_assert_uint_eq(r.at, 0);
	fd_close(&in[1]);
	while (read(out[0], got, sizeof(got)) > 0)
		;
	while (r.from >= 0 || relay_pending(&r)) {
		relay_move(&r, true, true);
		while ((k = read(out[0], got, sizeof(got))) > 0)
			n += (size_t)k;
	}
	ck_assert_uint_eq(n, sent);
}
END_TEST

/* A pipe that polls ready takes PIPE_BUF without blocking, and no more is promised: it may be somebody's blocking descriptor. */
START_TEST(no_write_is_larger_than_a_ready_pipe_takes)
{
	char buf[65536], got[65536];

	memset(buf, 'x', sizeof(buf));
	ck_assert_int_eq(write(in[1], buf, 20000), 20000);
	relay_move(&r, POLLIN, 0);
	relay_move(&r, false, true);
	ck_assert_int_eq(read(out[0], got, sizeof(got)), 4096);
}
END_TEST

START_TEST(a_regular_file_takes_it_at_once)
{
	char path[] = "/tmp/unit-relay-XXXXXX", buf[20000];
	int file = mkstemp(path);

	ck_assert_int_ge(file, 0);
	unlink(path);
	relay_init(&r, in[0], file);
	memset(buf, 'x', sizeof(buf));
	ck_assert_int_eq(write(in[1], buf, sizeof(buf)), sizeof(buf));
	relay_move(&r, POLLIN, 0);
	relay_move(&r, false, true);
	ck_assert_int_eq(lseek(file, 0, SEEK_CUR), sizeof(buf));
	ck_assert(!relay_pending(&r));
	close(file);
}
END_TEST

/* Byte for byte, through pipes of odd fill, with random readiness. */
START_TEST(streaming_is_exact)
{
	unsigned seed = 7;
	uint64_t sent = 0, got = 0;
	const uint64_t total = 2000000;
	char buf[70000];

	while (got < total) {
		size_t want = (size_t)rand_r(&seed) % 9000;
		ssize_t k;

		if (want > total - sent)
			want = (size_t)(total - sent);
		for (size_t i = 0; i < want; i++)
			buf[i] = byte_at(sent + i);
		k = want ? write(in[1], buf, want) : 0;
		if (k > 0)
			sent += (uint64_t)k;
		if (sent == total)
			fd_close(&in[1]);
		relay_move(&r, rand_r(&seed) % 2, rand_r(&seed) % 3 > 0);
		k = rand_r(&seed) % 2 ? read(out[0], buf, (size_t)rand_r(&seed) % sizeof(buf) + 1) : 0;
		for (ssize_t i = 0; i < k; i++)
			if (buf[i] != byte_at(got + (uint64_t)i))
				ck_abort_msg("byte %llu", (unsigned long long)(got + (uint64_t)i));
		if (k > 0)
			got += (uint64_t)k;
	}
}
END_TEST

/* Nobody listens any more: the box's end is closed, so that it sees EPIPE as it would outside; the caller's own descriptor stays. */
START_TEST(epipe_closes_the_source)
{
	int from = r.from;

	ck_assert_int_eq(write(in[1], "hello", 5), 5);
	relay_move(&r, POLLIN, 0);
	fd_close(&out[0]);
	relay_move(&r, false, true);
	ck_assert_int_eq(r.from, -1);
	ck_assert_int_eq(r.to, -1);
	ck_assert(!is_open(from));
	ck_assert(is_open(out[1]));
	ck_assert(!relay_pending(&r));
	ck_assert_int_eq(write(in[1], "x", 1), -1);
	ck_assert_int_eq(errno, EPIPE);
}
END_TEST

START_TEST(stdin_is_closed_after_the_last_byte)
{
	char got[16];
	int to = out[1];

	r.own_to = true;
	ck_assert_int_eq(write(in[1], "last", 4), 4);
	fd_close(&in[1]);
	relay_move(&r, POLLIN, 0);
	ck_assert_int_eq(r.to, to);
	relay_move(&r, true, true); /* written, and then the end is seen */
	relay_move(&r, POLLIN, 0);
	ck_assert_int_eq(r.to, -1);
	ck_assert(!is_open(to));
	ck_assert_int_eq(read(out[0], got, sizeof(got)), 4);
	ck_assert_int_eq(read(out[0], got, sizeof(got)), 0);
}
END_TEST

START_TEST(stdin_that_the_command_closed)
{
	int to = out[1];

	r.own_to = true;
	ck_assert_int_eq(write(in[1], "x", 1), 1);
	relay_move(&r, POLLIN, 0);
	fd_close(&out[0]);
	relay_move(&r, false, true);
	ck_assert(!is_open(to));
	ck_assert_int_eq(r.from, -1);
}
END_TEST

/* After the box: what lies in the pipe is taken, and no end of file is waited for, because somebody may still hold the other end. */
START_TEST(drain_captured)
{
	char buf[30000];

	capture(100000);
	memset(buf, 0, sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = byte_at(i);
	ck_assert_int_eq(fcntl(in[0], F_SETFL, 0), 0);
	ck_assert_int_eq(fd_write_all(in[1], buf, sizeof(buf)), 0);
	relay_drain(&r);
	ck_assert_int_eq(r.from, -1);
	check_kept(sizeof(buf), 100000);
	relay_drain(&r);
}
END_TEST

START_TEST(drain_streamed)
{
	char buf[4096], got[8192];

	memset(buf, 'x', sizeof(buf));
	ck_assert_int_eq(fcntl(in[0], F_SETFL, 0), 0);
	ck_assert_int_eq(fd_write_all(in[1], buf, sizeof(buf)), 0);
	relay_drain(&r);
	ck_assert(relay_pending(&r));
	ck_assert_int_ge(r.from, 0);
	relay_drain(&r); /* not while a chunk waits: it would be overwritten */
	ck_assert_uint_eq(r.len - r.at, sizeof(buf));
	relay_move(&r, false, true);
	ck_assert(!relay_pending(&r));
	relay_drain(&r);
	ck_assert_int_eq(r.from, -1);
	ck_assert_int_eq(read(out[0], got, sizeof(got)), sizeof(buf));
}
END_TEST

START_TEST(never_opened)
{
	struct pollfd p[2];

	relay_init(&r, -1, -1);
	ck_assert_uint_eq(relay_poll(&r, p), 2);
	ck_assert(p[0].fd == -1 && p[1].fd == -1);
	relay_move(&r, false, false);
	relay_drain(&r);
	relay_close(&r);
	relay_close(&r);
}
END_TEST

static void teardown(void)
{
	relay_close(&r);
}

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, every_size_around_every_small_cap);
	tcase_add_test(tc, narrowed);
	tcase_add_test(tc, no_cut_goes_through_a_character);
	tcase_add_test(tc, sizes_around_larger_caps);
	tcase_add_test(tc, random_chunks);
	tcase_add_test(tc, huge_caps);
	tcase_add_test(tc, capture_ends_with_its_source);
	tcase_add_test(tc, captured_is_never_polled_for_writing);
	tcase_add_test(tc, back_pressure);
	tcase_add_test(tc, no_write_is_larger_than_a_ready_pipe_takes);
	tcase_add_test(tc, a_regular_file_takes_it_at_once);
	tcase_add_test(tc, streaming_is_exact);
	tcase_add_test(tc, epipe_closes_the_source);
	tcase_add_test(tc, stdin_is_closed_after_the_last_byte);
	tcase_add_test(tc, stdin_that_the_command_closed);
	tcase_add_test(tc, drain_captured);
	tcase_add_test(tc, drain_streamed);
	tcase_add_test(tc, never_opened);
}

int main(void)
{
	return unit_main("relay", fill);
}
