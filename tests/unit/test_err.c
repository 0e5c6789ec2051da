/* Errors: what is set, what is kept, and that context never cuts the cause. */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

static void fill_text(char *text, size_t cap)
{
	memset(text, 'a', cap - 1);
	text[cap - 1] = '\0';
}

START_TEST(set_fills_and_returns)
{
	struct err e = { .kind = ERR_SYS, .stage = STAGE_MOUNT, .num = 7 };

	ck_assert_int_eq(err_set(&e, ERR_USAGE, "no such thing: %s %d", "x", 3), -1);
	ck_assert_int_eq(e.kind, ERR_USAGE);
	ck_assert_int_eq(e.stage, STAGE_NONE);
	ck_assert_int_eq(e.num, 0);
	ck_assert_str_eq(e.msg, "no such thing: x 3");
}
END_TEST

START_TEST(set_cuts_at_the_end)
{
	struct err e;
	char big[2000];

	fill_text(big, sizeof(big));
	err_set(&e, ERR_SYS, "%s", big);
	ck_assert_uint_eq(strlen(e.msg), sizeof(e.msg) - 1);
}
END_TEST

START_TEST(sys_takes_errno)
{
	struct err e;

	errno = EACCES;
	ck_assert_int_eq(err_sys(&e, "open %s", "/x"), -1);
	ck_assert_int_eq(e.kind, ERR_SYS);
	ck_assert_int_eq(e.num, EACCES);
	ck_assert_str_eq(e.msg, "open /x: Permission denied");
}
END_TEST

/* Where errno alone tells what to change, that stands behind it; and a short one is never made longer than there is room. */
START_TEST(what_to_change)
{
	static const struct {
		int num;
		const char *fix;
	} rows[] = { { EMFILE, "ulimit -n" }, { ENOMEM, "ulimit -v" }, { EFBIG, "ulimit -f" }, { EACCES, NULL } };
	struct err e;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		errno = rows[i].num;
		err_sys(&e, "do");
		ck_assert_int_eq(e.num, rows[i].num);
		ck_assert_int_eq(strncmp(e.msg, "do: ", 4), 0);
		ck_assert(rows[i].fix ? strstr(e.msg, rows[i].fix) != NULL : strstr(e.msg, "fix") == NULL);
	}
	errno = EAGAIN;
	ck_assert_int_eq(err_fork(&e, "start"), -1);
	ck_assert_ptr_nonnull(strstr(e.msg, "; fix: "));
	ck_assert_ptr_nonnull(strstr(e.msg, err_fork_fix));
	errno = EPERM;
	err_fork(&e, "start");
	ck_assert_str_eq(e.msg, "start: Operation not permitted");
	errno = ENOENT;
	err_proc(&e, "/proc/x");
	ck_assert_str_eq(e.msg, "open /proc/x: No such file or directory; fix: mount -t proc proc /proc");
	errno = EACCES;
	err_proc(&e, "/proc/x");
	ck_assert_str_eq(e.msg, "open /proc/x: Permission denied");
}
END_TEST

START_TEST(sys_with_a_full_message)
{
	struct err e;
	char big[2000];

	fill_text(big, sizeof(big));
	errno = ENOENT;
	err_sys(&e, "%s", big);
	ck_assert_int_eq(e.num, ENOENT);
	ck_assert_uint_eq(strlen(e.msg), sizeof(e.msg) - 1);
}
END_TEST

START_TEST(prefix_comes_in_front)
{
	struct err e;

	err_set(&e, ERR_REFUSED, "cause");
	e.stage = STAGE_MOUNT;
	e.num = 5;
	ck_assert_int_eq(err_prefix(&e, "a %d", 1), -1);
	ck_assert_int_eq(err_prefix(&e, "b"), -1);
	ck_assert_str_eq(e.msg, "b: a 1: cause");
	ck_assert_int_eq(e.kind, ERR_REFUSED);
	ck_assert_int_eq(e.stage, STAGE_MOUNT);
	ck_assert_int_eq(e.num, 5);
}
END_TEST

/* For every length of cause and of context: the cause is whole, at the end, and nothing is written beyond the buffer. */
START_TEST(prefix_never_cuts_the_cause)
{
	struct {
		struct err e;
		char guard[16];
	} box;
	const size_t cap = sizeof(box.e.msg);

	for (size_t cause = 0; cause < cap; cause += cause > cap - 12 || cause < 4 ? 1 : 7) {
		for (size_t head = 0; head < cap + 40; head += 13) {
			char tail[sizeof(box.e.msg)], text[600];
			size_t len, kept;

			memset(tail, 'c', cause);
			tail[cause] = '\0';
			memset(text, 'h', head);
			text[head] = '\0';
			memset(box.guard, 0x5a, sizeof(box.guard));
			err_set(&box.e, ERR_SYS, "%s", tail);
			err_prefix(&box.e, "%s", text);
			len = strlen(box.e.msg);
			ck_assert_uint_lt(len, cap);
			ck_assert_uint_ge(len, cause);
			ck_assert_str_eq(box.e.msg + len - cause, tail);
			if (len > cause) {
				kept = len - cause - 2;
				ck_assert_uint_eq(kept, strspn(box.e.msg, "h"));
				ck_assert_int_eq(memcmp(box.e.msg + kept, ": ", 2), 0);
				/* What is cut is cut only for want of room. */
				ck_assert(kept == head || len == cap - 1);
			} else {
				ck_assert_uint_lt(cap - 1 - cause, 2);
			}
			for (size_t i = 0; i < sizeof(box.guard); i++)
				ck_assert_int_eq(box.guard[i], 0x5a);
		}
	}
}
END_TEST

START_TEST(the_deepest_stage_wins)
{
	struct err e;

	err_set(&e, ERR_SYS, "x");
	ck_assert_int_eq(err_at(&e, STAGE_LIMITS), -1);
	ck_assert_int_eq(err_at(&e, STAGE_COMMAND), -1);
	ck_assert_int_eq(e.stage, STAGE_LIMITS);
}
END_TEST

START_TEST(every_stage_has_a_name)
{
	for (int i = 0; i < STAGE_N; i++) {
		const char *name = err_stage_name((enum err_stage)i);

		ck_assert_ptr_nonnull(name);
		ck_assert_int_eq(name[0] == '\0', i == STAGE_NONE);
		for (int k = 0; k < i; k++)
			ck_assert_str_ne(name, err_stage_name((enum err_stage)k));
	}
	ck_assert_str_eq(err_stage_name(STAGE_MOUNT), "mount");
	ck_assert_str_eq(err_stage_name(STAGE_N), "");
	ck_assert_str_eq(err_stage_name((enum err_stage)-1), "");
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, set_fills_and_returns);
	tcase_add_test(tc, set_cuts_at_the_end);
	tcase_add_test(tc, sys_takes_errno);
	tcase_add_test(tc, what_to_change);
	tcase_add_test(tc, sys_with_a_full_message);
	tcase_add_test(tc, prefix_comes_in_front);
	tcase_add_test(tc, prefix_never_cuts_the_cause);
	tcase_add_test(tc, the_deepest_stage_wins);
	tcase_add_test(tc, every_stage_has_a_name);
}

int main(void)
{
	return unit_main("err", fill);
}
