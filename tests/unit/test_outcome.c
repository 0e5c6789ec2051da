/* The table of endings: every row, every pair of facts that are true at once, and that the docs say the same. */
#include "unit.h"

#include <sys/mman.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "box/outcome.h"
#include "box/seccomp.h"
#include "cli/opt.h"

static const char *outcome_md;
static struct box_spec spec;
static struct box_outcome o;
static struct err why;
static struct box_denied escape;
static char *argv[] = { (char[]){ "prog" }, NULL };

static void setup(void)
{
	spec = (struct box_spec){ .argv = argv, .root = { .name = "host" } };
	spec.limits.memory = 512 << 20;
	spec.limits.timeout_us = 3600ULL * 1000000;
	spec.limits.workspace_max = 1 << 20;
	o = (struct box_outcome){ 0 };
	err_set(&why, ERR_SYS, "mount on /x");
	err_at(&why, STAGE_MOUNT);
	escape = (struct box_denied){ .nr = sc_number(sc_native(), "mount"), .pid = 77, .ended = true, .comm = "evil\x1b[2J" };
}

static void judge(const struct box_evidence *v)
{
	o = (struct box_outcome){ .exit_code = 55, .signal = 5, .fault = FAULT_CANCELLED };
	outcome_judge(&spec, v, &o);
	ck_assert_int_ge(outcome_code(&o), 0);
	ck_assert_int_le(outcome_code(&o), 255);
	if (o.fault != FAULT_NONE) {
		char safe[sizeof(o.err.msg)];

		ck_assert_uint_gt(strlen(o.err.msg), 0);
		ck_assert_str_eq(str_printable(safe, sizeof(safe), o.err.msg), o.err.msg);
	}
}

#define EXITED(n) ((n) << 8)

/* Facts in the order in which they count: of two that are true the earlier one is told. */
enum fact { F_EXEC, F_FAILED, F_START_DEADLINE, F_ESCAPE, F_WORKSPACE, F_MEMORY, F_OOM_KILLS, F_DEADLINE, F_CANCELLED, F_ENDED, F_LOST, F_N };

static const struct {
	enum box_fault fault;
	int code;
} told[F_N] = {
	[F_EXEC] = { FAULT_EXEC_FAILED, 127 },          [F_FAILED] = { FAULT_STARTUP_FAILED, 125 },
	[F_START_DEADLINE] = { FAULT_STARTUP_FAILED, 125 }, [F_ESCAPE] = { FAULT_ESCAPE_BLOCKED, 159 },
	[F_WORKSPACE] = { FAULT_WORKSPACE_FULL, 137 },  [F_MEMORY] = { FAULT_OOM, 137 },
	[F_OOM_KILLS] = { FAULT_OOM, 137 },             [F_DEADLINE] = { FAULT_TIMEOUT, 124 },
	[F_CANCELLED] = { FAULT_CANCELLED, 130 },       [F_ENDED] = { FAULT_NONE, 3 },
	[F_LOST] = { FAULT_INIT_LOST, 125 },
};

static void set_fact(struct box_evidence *v, unsigned f)
{
	switch ((enum fact)f) {
	case F_EXEC:
		v->failed = true;
		err_set(&why, ERR_EXEC, "spawn");
		why.num = ENOENT;
		break;
	case F_FAILED:
		v->failed = true;
		break;
	case F_START_DEADLINE:
		v->start_deadline = true;
		break;
	case F_ESCAPE:
		v->escape = &escape;
		break;
	case F_WORKSPACE:
		v->hit = LIMIT_HIT_WORKSPACE;
		break;
	case F_MEMORY:
		if (v->hit == LIMIT_HIT_NONE)
			v->hit = LIMIT_HIT_MEMORY;
		break;
	case F_OOM_KILLS:
		v->oom_kills = 2;
		break;
	case F_DEADLINE:
		v->deadline = true;
		break;
	case F_CANCELLED:
		v->cancelled = true;
		break;
	case F_ENDED:
		v->ended = true;
		v->status = EXITED(3);
		break;
	default:
		break;
	}
}

/* All combinations: what is told is the first of the facts that are true. */
START_TEST(precedence)
{
	for (unsigned set = 0; set < 1U << F_LOST; set++) {
		struct box_evidence v = { .err = &why };
		unsigned first = F_LOST;

		setup();
		for (unsigned f = 0; f < F_LOST; f++)
			if (set >> f & 1) {
				first = first == F_LOST ? f : first;
				set_fact(&v, f);
			}
		judge(&v);
		ck_assert_msg(o.fault == told[first].fault && outcome_code(&o) == told[first].code, "facts %#x: %s, %d", set,
			      o.fault ? fault_name(o.fault) : "none", outcome_code(&o));
		ck_assert_int_eq(o.signal, 0);
	}
}
END_TEST

/* Whatever a program chooses to exit with is its own: 137, 143, 159 and 124 too. */
START_TEST(chosen_codes_are_no_fault)
{
	for (int code = 0; code < 256; code++) {
		struct box_evidence v = { .err = &why, .ended = true, .status = EXITED(code), .oom_kills = code % 2 ? 0 : UINT64_MAX };

		judge(&v);
		ck_assert_int_eq(o.fault, FAULT_NONE);
		ck_assert_int_eq(o.exit_code, code);
		ck_assert_int_eq(outcome_code(&o), code);
		ck_assert_int_eq(o.signal, 0);
	}
}
END_TEST

START_TEST(signals)
{
	for (int sig = 1; sig <= 64; sig++)
		for (int core = 0; core <= 0x80; core += 0x80) {
			struct box_evidence v = { .err = &why, .ended = true, .status = sig | core };

			judge(&v);
			ck_assert_int_eq(o.signal, sig);
			ck_assert_int_eq(outcome_code(&o), sig == SIGKILL ? 137 : 128 + sig);
			ck_assert_int_eq(o.fault, sig == SIGKILL ? FAULT_KILLED : FAULT_NONE);
		}
}
END_TEST

/* Only a count that is known and not zero is an out-of-memory kill. */
START_TEST(unknown_counts_are_no_oom)
{
	struct box_evidence v = { .err = &why, .ended = true, .status = SIGKILL, .oom_kills = UINT64_MAX };

	judge(&v);
	ck_assert_int_eq(o.fault, FAULT_KILLED);
	v.oom_kills = 0;
	judge(&v);
	ck_assert_int_eq(o.fault, FAULT_KILLED);
	v.oom_kills = 1;
	judge(&v);
	ck_assert_int_eq(o.fault, FAULT_OOM);
}
END_TEST

START_TEST(exec_failures)
{
	static const struct {
		int num, code;
		const char *says;
	} rows[] = {
		{ ENOENT, 127, "no command prog in image host" }, { ENOTDIR, 127, "no command prog" },
		{ EACCES, 126, "x bit" },  { EPERM, 126, "x bit" }, { EISDIR, 126, "x bit" },
		{ ENOEXEC, 126, "no #! line" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct box_evidence v = { .err = &why, .failed = true };

		err_set(&why, ERR_EXEC, "spawn");
		why.num = rows[i].num;
		judge(&v);
		ck_assert_int_eq(o.fault, FAULT_EXEC_FAILED);
		ck_assert_int_eq(outcome_code(&o), rows[i].code);
		ck_assert_msg(strstr(o.err.msg, rows[i].says), "%s", o.err.msg);
		ck_assert_int_eq(o.err.num, rows[i].num);
	}
}
END_TEST

/* The caller's and the box's words are quoted as one printable line (judge checks that), cut rather than left out. */
START_TEST(hostile_words)
{
	static char big[3000];
	char *hostile[] = { (char[]){ "a\nb\x1b]0;x\x07" }, big, (char[]){ "\xff\xfe" }, (char[]){ "" } };
	struct box_evidence v = { .err = &why, .failed = true };

	memset(big, 'q', sizeof(big) - 1);
	for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
		err_set(&why, ERR_EXEC, "spawn");
		why.num = ENOENT;
		argv[0] = hostile[i];
		spec.root.name = hostile[i];
		judge(&v);
		err_set(&why, ERR_SYS, "mount on /x%s", hostile[i]);
		judge(&v);
		ck_assert_int_eq(o.fault, FAULT_STARTUP_FAILED);
	}
	v = (struct box_evidence){ .err = &why, .escape = &escape };
	memcpy(escape.comm, "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n", 16);
	judge(&v);
}
END_TEST

START_TEST(messages_name_what_matters)
{
	struct box_evidence v = { .err = &why, .deadline = true };

	judge(&v);
	ck_assert_msg(strstr(o.err.msg, "deadline of 3600 s"), "%s", o.err.msg);
	spec.limits.timeout_us = 1500000;
	judge(&v);
	ck_assert_msg(strstr(o.err.msg, "deadline of 1.5 s"), "%s", o.err.msg);
	v = (struct box_evidence){ .err = &why, .hit = LIMIT_HIT_MEMORY };
	judge(&v);
	ck_assert_msg(strstr(o.err.msg, "512 MiB (--memory)"), "%s", o.err.msg);
	v = (struct box_evidence){ .err = &why, .hit = LIMIT_HIT_WORKSPACE };
	judge(&v);
	ck_assert_msg(strstr(o.err.msg, "--workspace-max"), "%s", o.err.msg);
	v = (struct box_evidence){ .err = &why, .escape = &escape };
	judge(&v);
	ck_assert_msg(strstr(o.err.msg, "mount") && strstr(o.err.msg, "evil?[2J") && strstr(o.err.msg, "77"), "%s", o.err.msg);
	escape.nr = -1;
	judge(&v);
	ck_assert_msg(strstr(o.err.msg, "ending set"), "%s", o.err.msg);
	v = (struct box_evidence){ .err = &why, .failed = true };
	judge(&v);
	ck_assert_int_eq(o.err.stage, STAGE_MOUNT);
	v = (struct box_evidence){ .err = &why, .start_deadline = true };
	judge(&v);
	ck_assert_int_ne(o.err.stage, STAGE_NONE);
}
END_TEST

START_TEST(what_filled_the_memory)
{
	struct box_evidence v = { .err = &why, .hit = LIMIT_HIT_MEMORY };

	o = (struct box_outcome){ 0 };
	strcpy(o.usage.filled_by, "tmpfs");
	outcome_judge(&spec, &v, &o);
	ck_assert_msg(strstr(o.err.msg, "filled by tmpfs"), "%s", o.err.msg);
}
END_TEST

/* The exit codes of the docs: the same pairs of code and fault that outcome_judge gives, and none besides. */
START_TEST(the_docs_say_the_same)
{
	_cleanup_buf_ struct buf md;
	bool seen[FAULT_N] = { false };
	unsigned rows = 0;
	char *line, *save;

	buf_init(&md, 1 << 20);
	opt_markdown(NULL, 0, &md);
	ck_assert(!md.failed);
	for (line = strtok_r(md.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char code[16], fault[32];
		bool ok = false;

		if (sscanf(line, "| %15[0-9] | `%31[a-z_]` |", code, fault) != 2)
			continue;
		rows++;
		for (int f = 1; f < FAULT_N; f++) {
			struct box_outcome row = { .fault = (enum box_fault)f, .exit_code = -1 };
			int n = atoi(code);

			if (strcmp(fault_name((enum box_fault)f), fault) != 0)
				continue;
			seen[f] = true;
			ok = outcome_code(&row) == n || (f == FAULT_EXEC_FAILED && n == 126);
		}
		ck_assert_msg(ok, "docs have %s for %s", code, fault);
	}
	for (int f = 1; f < FAULT_N; f++)
		ck_assert_msg(seen[f], "docs leave out %s", fault_name((enum box_fault)f));
	ck_assert_uint_eq(rows, FAULT_N); /* one a fault, two for exec_failed */
}
END_TEST

/* docs/OUTCOME.md: rows of "| `fault` | code[, code] |". */
START_TEST(outcome_md_says_the_same)
{
	bool seen[FAULT_N] = { false };
	char line[1000];
	FILE *f = fopen(outcome_md, "re");

	ck_assert_msg(f, "%s", outcome_md);
	while (fgets(line, sizeof(line), f)) {
		char name[32];
		int code, more = -1;

		if (sscanf(line, "| `%31[a-z_]` | %d, %d", name, &code, &more) < 2)
			continue;
		for (int k = 1; k < FAULT_N; k++) {
			struct box_outcome row = { .fault = (enum box_fault)k, .exit_code = -1 };

			if (strcmp(fault_name((enum box_fault)k), name) != 0)
				continue;
			ck_assert_msg(!seen[k], "%s twice", name);
			seen[k] = true;
			ck_assert_int_eq(more < 0 ? code : more, outcome_code(&row));
			ck_assert_int_eq(more < 0 ? 0 : code, k == FAULT_EXEC_FAILED ? 126 : 0);
		}
	}
	fclose(f);
	for (int k = 1; k < FAULT_N; k++)
		ck_assert_msg(seen[k], "OUTCOME.md leaves out %s", fault_name((enum box_fault)k));
}
END_TEST

START_TEST(names)
{
	ck_assert_ptr_null(fault_name(FAULT_NONE));
	ck_assert_ptr_null(fault_name(FAULT_N));
	ck_assert_ptr_null(fault_name((enum box_fault)-1));
	for (int f = 1; f < FAULT_N; f++)
		for (int k = 1; k < f; k++)
			ck_assert_str_ne(fault_name((enum box_fault)f), fault_name((enum box_fault)k));
}
END_TEST

START_TEST(freeing_twice)
{
	o.out.data = mmap(NULL, 3, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	o.out.mapped = 3;
	o.out.cut = 9;
	outcome_free(&o);
	ck_assert(!o.out.data && !o.err_out.data && o.out.cut == 0);
	outcome_free(&o);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, precedence);
	tcase_add_test(tc, chosen_codes_are_no_fault);
	tcase_add_test(tc, signals);
	tcase_add_test(tc, unknown_counts_are_no_oom);
	tcase_add_test(tc, exec_failures);
	tcase_add_test(tc, hostile_words);
	tcase_add_test(tc, messages_name_what_matters);
	tcase_add_test(tc, what_filled_the_memory);
	tcase_add_test(tc, the_docs_say_the_same);
	tcase_add_test(tc, outcome_md_says_the_same);
	tcase_add_test(tc, names);
	tcase_add_test(tc, freeing_twice);
}

int main(int argc, char **args)
{
	outcome_md = argc > 1 ? args[1] : "docs/OUTCOME.md";
	return unit_main("outcome", fill);
}
