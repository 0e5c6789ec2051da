/* Generated files over /proc: cuts of cpu lists, numbers of meminfo, and what a spec asks for. */
#include "unit.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "box/views.h"

static struct box_spec spec;
static struct err e;

/* Through an exact allocation, so that a byte read beyond the text is seen by the sanitizers. */
static const char *cut(size_t (*fn)(char *, size_t, unsigned), const char *text, unsigned cpus)
{
	static char kept[8192];
	size_t n = strlen(text), k;
	char *copy = malloc(n ? n : 1);

	memcpy(copy, text, n);
	k = fn(copy, n, cpus);
	ck_assert_uint_le(k, n);
	memcpy(kept, copy, k);
	kept[k] = '\0';
	free(copy);
	return kept;
}

#define ONE(n) "processor\t: " #n "\nvendor_id\t: Some\nflags\t\t: fpu processor\n\n"

START_TEST(cpuinfo)
{
	static const struct {
		const char *text;
		unsigned cpus;
		const char *kept;
	} rows[] = {
		{ ONE(0) ONE(1) ONE(2), 2, ONE(0) ONE(1) },
		{ ONE(0) ONE(1) ONE(2), 3, ONE(0) ONE(1) ONE(2) },
		{ ONE(0) ONE(1) ONE(2), 9, ONE(0) ONE(1) ONE(2) },
		{ ONE(0) ONE(1), 0, "" },
		{ ONE(1) ONE(3), 1, ONE(1) }, /* cpu 0 is offline */
		{ "", 1, "" },
		{ "\n", 1, "\n" },
		{ "processor", 0, "" },
		{ "processor", 1, "processor" },
		{ "processo", 0, "processo" },
		{ "model name: processor\n", 0, "model name: processor\n" },
		{ "no newline at the end", 1, "no newline at the end" },
		{ ONE(0) "processor\t: 1", 1, ONE(0) },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_str_eq(cut(views_cut_cpuinfo, rows[i].text, rows[i].cpus), rows[i].kept);
}
END_TEST

START_TEST(stat_lines)
{
	static const struct {
		const char *text;
		unsigned cpus;
		const char *kept;
	} rows[] = {
		{ "cpu  9 9\ncpu0 1 1\ncpu1 2 2\ncpu2 3 3\nintr 5 0 0\nctxt 7\n", 2, "cpu  9 9\ncpu0 1 1\ncpu1 2 2\nintr 5 0 0\nctxt 7\n" },
		{ "cpu  9 9\ncpu0 1\ncpu1 2\nctxt 7\n", 0, "cpu  9 9\nctxt 7\n" },
		{ "cpu  9 9\ncpu0 1\ncpu1 2\nctxt 7\n", 64, "cpu  9 9\ncpu0 1\ncpu1 2\nctxt 7\n" },
		{ "cpu  9\ncpu1 1\ncpu3 2\n", 1, "cpu  9\ncpu1 1\n" }, /* cpu 0 is offline: one is still one */
		{ "cpu  9\ncpu2 1\ncpu10 2\ncpu11 3\n", 2, "cpu  9\ncpu2 1\ncpu10 2\n" },
		{ "", 1, "" },
		{ "cpu", 0, "cpu" },
		{ "cpu1", 0, "" },
		{ "cpu12", 0, "" },
		{ "cpux 1\n", 0, "cpux 1\n" },
		{ "\n\n", 0, "\n\n" },
		{ "ctxt cpu0\n", 0, "ctxt cpu0\n" },
		{ "cpu99999999999999999999999 1\nx\n", 0, "x\n" },
		{ "cpu0 1\nlast", 1, "cpu0 1\nlast" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_str_eq(cut(views_cut_stat, rows[i].text, rows[i].cpus), rows[i].kept);
}
END_TEST

static unsigned count(const char *text, size_t len, const char *line)
{
	unsigned n = 0;
	size_t k = strlen(line);

	for (size_t at = 0; at + k <= len; at++)
		if ((at == 0 || text[at - 1] == '\n') && memcmp(text + at, line, k) == 0)
			n++;
	return n;
}

START_TEST(this_machine)
{
	static char text[1 << 20];
	ssize_t n = fd_read_file_at(AT_FDCWD, "/proc/stat", text, sizeof(text));
	unsigned have = n > 0 ? count(text, (size_t)n, "cpu") - 1 : 0;

	ck_assert_uint_gt(have, 0);
	for (unsigned cpus = 0; cpus <= have + 1; cpus++) {
		n = fd_read_file_at(AT_FDCWD, "/proc/stat", text, sizeof(text));
		n = (ssize_t)views_cut_stat(text, (size_t)n, cpus);
		ck_assert_uint_eq(count(text, (size_t)n, "cpu"), 1 + (cpus < have ? cpus : have));
		ck_assert_uint_eq(count(text, (size_t)n, "ctxt "), 1);
		n = fd_read_file_at(AT_FDCWD, "/proc/cpuinfo", text, sizeof(text));
		n = (ssize_t)views_cut_cpuinfo(text, (size_t)n, cpus);
		ck_assert_uint_eq(count(text, (size_t)n, "processor"), cpus < have ? cpus : have);
	}
}
END_TEST

START_TEST(cpus)
{
	static const struct {
		double asked;
		unsigned sees;
	} rows[] = { { 0.01, 1 }, { 0.5, 1 }, { 1, 1 }, { 1.001, 2 }, { 2, 2 }, { 2.5, 3 }, { 1024, 1024 } };
	cpu_set_t set;
	unsigned have;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	have = (unsigned)CPU_COUNT(&set);
	ck_assert_uint_eq(views_cpus(&spec), have);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		spec.limits.cpus = rows[i].asked;
		ck_assert_uint_eq(views_cpus(&spec), rows[i].sees < have ? rows[i].sees : have);
	}
	/* The caller's own affinity is the most that there is. */
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set)) {
			CPU_ZERO(&set);
			CPU_SET(cpu, &set);
			break;
		}
	ck_assert_int_eq(sched_setaffinity(0, sizeof(set), &set), 0);
	spec.limits.cpus = 2;
	ck_assert_uint_eq(views_cpus(&spec), 1);
}
END_TEST

static unsigned long long kb(const struct box_view *v, const char *name)
{
	const char *at = strstr(v->text, name);
	unsigned long long n;
	char unit[3];

	ck_assert_msg(at && (at == v->text || at[-1] == '\n'), "no line %s", name);
	ck_assert_int_eq(sscanf(at + strlen(name), " %llu %2s", &n, unit), 2);
	ck_assert_str_eq(unit, "kB");
	return n;
}

START_TEST(meminfo)
{
	static const uint64_t sizes[] = { 4ULL << 20, (4ULL << 20) + 1023, 512ULL << 20, 1ULL << 40, BOX_LIMIT_NONE - 1 };
	struct box_view v[BOX_VIEWS_MAX];
	size_t n;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		spec.limits.memory = sizes[i];
		ck_assert_int_eq(views_make(&spec, v, &n, &e), 0);
		ck_assert_uint_eq(n, 2);
		ck_assert_str_eq(v[1].path, "proc/meminfo");
		ck_assert_uint_eq(strlen(v[1].text), v[1].len);
		ck_assert_uint_eq(kb(&v[1], "MemTotal:"), sizes[i] / 1024);
		ck_assert_uint_eq(kb(&v[1], "MemAvailable:"), sizes[i] / 1024);
		ck_assert_uint_eq(kb(&v[1], "SwapTotal:"), 0);
		ck_assert_uint_eq(kb(&v[1], "SwapFree:"), 0);
		ck_assert(v[1].text[v[1].len - 1] == '\n');
	}
}
END_TEST

/* A version 4 UUID, another one each time, and never the host's. */
START_TEST(boot_id)
{
	struct box_view v[BOX_VIEWS_MAX];
	char first[64], host[64];
	size_t n;

	spec.limits.memory = BOX_LIMIT_NONE;
	ck_assert_int_eq(views_make(&spec, v, &n, &e), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert_str_eq(v[0].path, "proc/sys/kernel/random/boot_id");
	ck_assert_uint_eq(v[0].len, 37);
	ck_assert_uint_eq(strspn(v[0].text, "0123456789abcdef-"), 36);
	ck_assert(v[0].text[8] == '-' && v[0].text[13] == '-' && v[0].text[14] == '4' && v[0].text[23] == '-' && v[0].text[36] == '\n');
	memcpy(first, v[0].text, 37);
	ck_assert_int_eq(views_make(&spec, v, &n, &e), 0);
	ck_assert_int_ne(memcmp(first, v[0].text, 36), 0);
	if (fd_read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", host, sizeof(host)) > 0)
		ck_assert_int_ne(memcmp(host, v[0].text, 36), 0);
}
END_TEST

START_TEST(what_is_made)
{
	struct box_view v[BOX_VIEWS_MAX];
	size_t n;

	spec.limits.memory = 64 << 20;
	spec.limits.cpus = 1;
	ck_assert_int_eq(views_make(&spec, v, &n, &e), 0);
	ck_assert_uint_eq(n, 4);
	ck_assert_str_eq(v[2].path, "proc/cpuinfo");
	ck_assert_str_eq(v[3].path, "proc/stat");
	ck_assert_uint_le(count(v[2].text, v[2].len, "processor"), 1);
	ck_assert_uint_eq(count(v[3].text, v[3].len, "cpu0"), 1);
	ck_assert_uint_eq(count(v[3].text, v[3].len, "cpu1"), 0);
	ck_assert(v[2].text[v[2].len - 1] == '\n' && v[3].text[v[3].len - 1] == '\n');
	free((void *)(uintptr_t)v[2].text);
	free((void *)(uintptr_t)v[3].text);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, cpuinfo);
	tcase_add_test(tc, stat_lines);
	tcase_add_test(tc, this_machine);
	tcase_add_test(tc, cpus);
	tcase_add_test(tc, meminfo);
	tcase_add_test(tc, boot_id);
	tcase_add_test(tc, what_is_made);
}

int main(void)
{
	return unit_main("views", fill);
}
