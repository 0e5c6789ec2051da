/* How much of what commands print is kept: of each up to its own cap, of all calls of a session together up to a bound. */
#include "unit.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "session/output.h"

#define MIB (1ULL << 20)
#define CAP (8 * MIB)

static struct session s;
static struct err e;

static json_t *event(void *ctx, const char *name)
{
	return NULL;
}

static void moved(void *ctx)
{
}

static void setup(void)
{
	ck_assert_int_eq(loop_open(&s.loop, &e), 0);
}

static void teardown(void)
{
	loop_close(&s.loop);
}

/* A command that has n bytes to print. */
static void begin(struct output *o, uint64_t n)
{
	int fd = memfd_create("printed", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)n), 0);
	output_init(o, &s, o, event, moved);
	ck_assert_int_eq(output_open(o, &o->out, "stdout", fd, CAP, &e), 0);
	output_run(o);
}

static void end(const struct output *o)
{
	while (!output_finished(o))
		ck_assert_int_eq(loop_round(&s.loop, 0, &e), 0);
}

/* Takes what was kept of n bytes: their beginning and their end. Returns how much that is. */
static uint64_t taken(struct output *o, uint64_t n)
{
	struct box_stream t = { 0 };
	uint64_t len;

	output_take(&o->out, &t);
	len = t.len;
	ck_assert_uint_eq(len + t.cut, n);
	ck_assert_uint_eq(t.head_len, t.cut ? len / 2 : len);
	ck_assert_int_eq(munmap(t.data, t.mapped), 0);
	return len;
}

START_TEST(of_one)
{
	struct output o;

	begin(&o, 4 * MIB);
	end(&o);
	ck_assert_uint_eq(s.stored_bytes, 4 * MIB);
	ck_assert_uint_eq(taken(&o, 4 * MIB), 4 * MIB);
	output_close(&o);
	ck_assert_uint_eq(s.stored_bytes, 0);
	begin(&o, 12 * MIB);
	end(&o);
	ck_assert_uint_eq(s.stored_bytes, CAP);
	ck_assert_uint_eq(taken(&o, 12 * MIB), CAP);
	output_close(&o);
	ck_assert_uint_eq(s.stored_bytes, 0);
}
END_TEST

/* Who comes when others have all keeps a little; with room again, everything. */
START_TEST(of_all)
{
	struct output first, second, third;

	s.stored_bytes = SES_STORED_BYTES - 4 * MIB;
	begin(&first, 4 * MIB);
	end(&first);
	ck_assert_uint_eq(s.stored_bytes, SES_STORED_BYTES);
	begin(&second, 4 * MIB);
	end(&second);
	ck_assert_uint_eq(s.stored_bytes, SES_STORED_BYTES + SES_STORED_LEAST);
	ck_assert_uint_eq(taken(&first, 4 * MIB), 4 * MIB);
	ck_assert_uint_eq(taken(&second, 4 * MIB), SES_STORED_LEAST);
	output_close(&first);
	output_close(&second);
	ck_assert_uint_eq(s.stored_bytes, SES_STORED_BYTES - 4 * MIB);
	begin(&third, 2 * MIB);
	end(&third);
	ck_assert_uint_eq(taken(&third, 2 * MIB), 2 * MIB);
	output_close(&third);
}
END_TEST

/* What it has already it keeps, and as much again. */
START_TEST(of_one_that_is_at_it)
{
	struct output o;
	uint64_t had;

	begin(&o, 6 * MIB);
	while (s.stored_bytes < 2 * MIB)
		ck_assert_int_eq(loop_round(&s.loop, 0, &e), 0);
	had = s.stored_bytes;
	ck_assert_uint_lt(had, 3 * MIB);
	s.stored_bytes = SES_STORED_BYTES;
	end(&o);
	ck_assert_uint_eq(taken(&o, 6 * MIB), 2 * had);
	output_close(&o);
	ck_assert_uint_eq(s.stored_bytes, SES_STORED_BYTES - had);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, of_one);
	tcase_add_test(tc, of_all);
	tcase_add_test(tc, of_one_that_is_at_it);
}

int main(void)
{
	return unit_main("output", fill);
}
