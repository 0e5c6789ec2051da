/* What every unit test shares: Check, and a main made of one line. Each test runs in a process of its own (CK_FORK). */
#pragma once

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

/* Runs the cases that `fill` adds; fails when a test fails, and when there was none. */
static inline int unit_main(const char *name, void (*fill)(TCase *))
{
	Suite *s = suite_create(name);
	TCase *tc = tcase_create(name);
	SRunner *sr = srunner_create(s);
	int failed, run;

	suite_add_tcase(s, tc);
	tcase_set_timeout(tc, 120); /* a hang guard: sanitizers and a busy machine take ten times as long */
	fill(tc);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	run = srunner_ntests_run(sr);
	srunner_free(sr);
	return failed == 0 && run > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The error contract: on failure *e is set with a message of one line. */
#define assert_refused(call, e, want_kind)                        \
	do {                                                      \
		(e)->kind = ERR_NONE;                             \
		(e)->msg[0] = '\0';                               \
		ck_assert_int_eq((call), -1);                     \
		ck_assert_int_eq((e)->kind, (want_kind));         \
		ck_assert_uint_gt(strlen((e)->msg), 0);           \
		ck_assert_ptr_null(strchr((e)->msg, '\n'));       \
	} while (0)
