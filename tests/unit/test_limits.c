/* Unit tests of the ladder: its parsers with odd and hostile texts, and the rows of the outcome. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "box/limits_rungs.h"
#include "unit.h"

static void groups(const char *text, struct cg1_place place[CG1_N])
{
	memset(place, 0, sizeof(struct cg1_place) * CG1_N);
	cg1_parse_groups(text, strlen(text), place);
}

static void mount_line(const char *line, struct cg1_place place[CG1_N])
{
	cg1_parse_mount(line, strlen(line), place);
}

START_TEST(groups_plain)
{
	struct cg1_place p[CG1_N];

	groups("9:name=systemd:/\n8:pids:/a\n4:memory:/a/b:c\n1:cpu,cpuacct:/\n0::/v2\n", p);
	ck_assert_str_eq(p[CG1_PIDS].group, "/a");
	ck_assert_str_eq(p[CG1_MEMORY].group, "/a/b:c"); /* a colon may be in a name */
	ck_assert_str_eq(p[CG1_CPU].group, "/");
	groups("8:pids:/x", p); /* no newline at the end */
	ck_assert_str_eq(p[CG1_PIDS].group, "/x");
}
END_TEST

START_TEST(groups_odd)
{
	static const char *const odd[] = {
		"", "\n\n\n", ":", "::", "4:memory", "4:memory:", "4:memory:relative", "4:memory2:/a", "4:xmemory:/a", "4:,:/a",
		"0::/a", "name=memory:x:/a",
	};
	struct cg1_place p[CG1_N];
	char big[3000] = "4:memory:/";

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		groups(odd[i], p);
		ck_assert_msg(!p[CG1_MEMORY].found, "%s", odd[i]);
	}
	memset(big + 10, 'a', sizeof(big) - 11);
	groups(big, p);
	ck_assert(!p[CG1_MEMORY].found);
	groups("4:memory:/first\n5:memory:/second\n", p);
	ck_assert_str_eq(p[CG1_MEMORY].group, "/first");
	memset(p, 0, sizeof(p));
	cg1_parse_groups("4:memory:/a\0b\n", 14, p);
	ck_assert(!p[CG1_MEMORY].found);
}
END_TEST

START_TEST(mounts_plain)
{
	struct cg1_place p[CG1_N];

	groups("8:pids:/\n4:memory:/a/b\n1:cpu,cpuacct:/c\n", p);
	mount_line("35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory", p);
	mount_line("39 31 0:36 / /sys/fs/cgroup/pids rw shared:7 master:1 - cgroup cgroup rw,pids", p);
	mount_line("40 31 0:37 / /my\\040cg\\134x rw - cgroup cgroup rw,cpu,cpuacct", p);
	ck_assert_str_eq(p[CG1_MEMORY].path, "/sys/fs/cgroup/memory/a/b");
	ck_assert_str_eq(p[CG1_PIDS].path, "/sys/fs/cgroup/pids");
	ck_assert_str_eq(p[CG1_CPU].path, "/my cg\\x/c");
	ck_assert_uint_eq(p[CG1_MEMORY].mount, 35);
	mount_line("99 31 0:32 / /other rw,relatime - cgroup cgroup rw,memory", p);
	ck_assert_str_eq(p[CG1_MEMORY].path, "/sys/fs/cgroup/memory/a/b"); /* the first that shows it */
}
END_TEST

/* A container's own group bound in, and branches that do not show ours. */
START_TEST(mounts_branches)
{
	struct cg1_place p[CG1_N];

	groups("4:memory:/docker/abc/in\n8:pids:/docker/abc\n", p);
	mount_line("1 1 0:1 /docker/ab /m rw - cgroup cgroup rw,memory,pids", p);
	mount_line("1 1 0:1 /docker/abcd /m rw - cgroup cgroup rw,memory,pids", p);
	mount_line("1 1 0:1 /../x /m rw - cgroup cgroup rw,memory,pids", p);
	ck_assert(!p[CG1_MEMORY].mounted && !p[CG1_PIDS].mounted);
	mount_line("1 1 0:1 /docker/abc /m rw - cgroup cgroup rw,memory,pids", p);
	ck_assert_str_eq(p[CG1_MEMORY].path, "/m/in");
	ck_assert_str_eq(p[CG1_PIDS].path, "/m");
	groups("4:memory:/../other\n8:pids:/..\n", p);
	mount_line("1 1 0:1 / /m rw - cgroup cgroup rw,memory,pids", p);
	ck_assert(!p[CG1_MEMORY].mounted && !p[CG1_PIDS].mounted);
}
END_TEST

START_TEST(mounts_odd)
{
	static const char *const odd[] = {
		"", " ", "1", "1 1", "1 1 0:1 / /m", "1 1 0:1 / /m rw", "1 1 0:1 / /m rw -", "1 1 0:1 / /m rw - cgroup",
		"1 1 0:1 / /m rw - cgroup cgroup", "1 1 0:1 / /m rw - cgroup2 cgroup rw,memory",
		"1 1 0:1 / /m rw - tmpfs cgroup rw,memory", "1 1 0:1 / /m rw - cgroup cgroup rw,memoryx",
		"1 1 0:1 / m rw - cgroup cgroup rw,memory", "1 1 0:1 x /m rw - cgroup cgroup rw,memory",
		"1 1 0:1 / /m\\04 rw - cgroup cgroup rw,memory", "1 1 0:1 / /m\\000 rw - cgroup cgroup rw,memory",
		"1 1 0:1 / /m\\999 rw - cgroup cgroup rw,memory", "1 1 0:1 / /m\\ rw - cgroup cgroup rw,memory",
		"1 1 0:1  / /m rw - cgroup cgroup rw,memory",
	};
	struct cg1_place p[CG1_N];
	char big[4000], line[5000];

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		groups("4:memory:/a\n", p);
		mount_line(odd[i], p);
		ck_assert_msg(!p[CG1_MEMORY].mounted, "%s", odd[i]);
	}
	memset(big, 'a', sizeof(big));
	big[sizeof(big) - 1] = '\0';
	big[0] = '/';
	snprintf(line, sizeof(line), "1 1 0:1 / %s rw - cgroup cgroup rw,memory", big);
	groups("4:memory:/a\n", p);
	mount_line(line, p);
	ck_assert(!p[CG1_MEMORY].mounted);
	/* each fits alone, together they don't */
	big[1000] = '\0';
	snprintf(line, sizeof(line), "4:memory:%s", big);
	groups(line, p);
	ck_assert(p[CG1_MEMORY].found);
	snprintf(line, sizeof(line), "1 1 0:1 / %s rw - cgroup cgroup rw,memory", big);
	mount_line(line, p);
	ck_assert(!p[CG1_MEMORY].mounted);
}
END_TEST

START_TEST(pids_text)
{
	pid_t p[3];

	ck_assert_uint_eq(limits_parse_pids("", 0, p, 3), 0);
	ck_assert_uint_eq(limits_parse_pids("12 34 \n", 7, p, 3), 2);
	ck_assert_int_eq(p[1], 34);
	ck_assert_uint_eq(limits_parse_pids("1\n2\n3\n4\n", 8, p, 3), 3);
	ck_assert_uint_eq(limits_parse_pids("0 -1", 4, p, 3), 0);
	ck_assert_uint_eq(limits_parse_pids("99999999999 1", 13, p, 3), 0);
	ck_assert_uint_eq(limits_parse_pids("5x 6", 4, p, 3), 0);
}
END_TEST

START_TEST(group_names)
{
	static const char *const bad[] = { "cloche-", "cloche-1", "cloche-1-", "cloche--1", "cloche-1-x",
		"cloche-1-1x", "clochex-1-1",
					   "cloche-0-1", "cloche-99999999999-1", "cloche-1-12345678901", "", "xcloche-1-1" };
	pid_t pid = 0;

	ck_assert(group_is_ours("cloche-123-0", &pid));
	ck_assert_int_eq(pid, 123);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!group_is_ours(bad[i], &pid), "%s", bad[i]);
}
END_TEST

static void groups2(const char *text, struct cg2_place *p)
{
	memset(p, 0, sizeof(*p));
	cg2_parse_groups(text, strlen(text), p);
}

START_TEST(v2_groups)
{
	static const char *const odd[] = { "", "\n", "0:", "0::", "0::relative", "00::/a", "1::/a", "0:x:/a", ":0:/a", "0:memory:/a" };
	struct cg2_place p;
	char big[3000] = "0::/";

	groups2("0::/user.slice/a:b\n", &p);
	ck_assert(p.found && !p.elsewhere);
	ck_assert_str_eq(p.group, "/user.slice/a:b");
	groups2("5:memory:/m\n4:pids:/\n0::/x", &p);
	ck_assert(p.found && p.elsewhere);
	ck_assert_str_eq(p.group, "/x");
	groups2("5:cpu,memory:/m\n0::/x\n0::/second\n", &p); /* pids could still be v2's */
	ck_assert(p.found && !p.elsewhere);
	ck_assert_str_eq(p.group, "/x");
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		groups2(odd[i], &p);
		ck_assert_msg(!p.found, "%s", odd[i]);
	}
	memset(big + 4, 'a', sizeof(big) - 5);
	groups2(big, &p);
	ck_assert(!p.found);
	memset(&p, 0, sizeof(p));
	cg2_parse_groups("0::/a\0b\n", 8, &p);
	ck_assert(!p.found);
}
END_TEST

START_TEST(v2_mounts)
{
	static const char v1[] = "35 31 0:32 / /m rw - cgroup cgroup rw,memory",
			  host[] = "24 1 0:21 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate",
			  bound[] = "24 1 0:21 /a/b /own\\040group rw - cgroup2 none rw",
			  other[] = "24 1 0:21 /a/bc /x rw - cgroup2 none rw";
	struct cg2_place p;

	cg2_parse_mount(host, sizeof(host) - 1, memset(&p, 0, sizeof(p)));
	ck_assert(!p.mounted); /* without a group there is nothing to map */
	groups2("0::/a/b/c\n", &p);
	cg2_parse_mount(v1, sizeof(v1) - 1, &p);
	cg2_parse_mount(other, sizeof(other) - 1, &p);
	ck_assert(!p.mounted);
	cg2_parse_mount(bound, sizeof(bound) - 1, &p);
	ck_assert(p.mounted);
	ck_assert_str_eq(p.path, "/own group/c");
	ck_assert_uint_eq(p.top, strlen("/own group"));
	groups2("0::/a/b/c\n", &p);
	cg2_parse_mount(host, sizeof(host) - 1, &p);
	ck_assert_str_eq(p.path, "/sys/fs/cgroup/a/b/c");
	groups2("0::/\n", &p);
	cg2_parse_mount(host, sizeof(host) - 1, &p);
	ck_assert_str_eq(p.path, "/sys/fs/cgroup");
	groups2("0::/../outside\n", &p);
	cg2_parse_mount(host, sizeof(host) - 1, &p);
	ck_assert(!p.mounted);
}
END_TEST

START_TEST(v2_words)
{
	char text[64];

	ck_assert_uint_eq(cg2_parse_controllers("cpuset cpu io memory hugetlb pids rdma misc"),
			  CG2_CPU | CG2_IO | CG2_MEMORY | CG2_PIDS);
	ck_assert_uint_eq(cg2_parse_controllers("cpuset memoryx  pidsy"), 0);
	ck_assert_uint_eq(cg2_parse_controllers("memory\n"), CG2_MEMORY);
	ck_assert_uint_eq(cg2_parse_controllers(""), 0);
	cg2_words(CG2_MEMORY | CG2_PIDS | CG2_CPU, text, sizeof(text));
	ck_assert_str_eq(text, "memory, pids and cpu");
	cg2_words(CG2_PIDS, text, sizeof(text));
	ck_assert_str_eq(text, "pids");
	cg2_words(0, text, sizeof(text));
	ck_assert_str_eq(text, "");
	cg2_words(15, text, 8); /* cut, never over the end */
	ck_assert_uint_eq(strlen(text), 7);
}
END_TEST

START_TEST(counters)
{
	static const char events[] = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 7\noom_group_kill 1";
	uint64_t v = 99;

	ck_assert(group_counter(events, "oom_kill", &v) && v == 7);
	ck_assert(group_counter(events, "oom", &v) && v == 3);
	ck_assert(group_counter(events, "low", &v) && v == 0);
	ck_assert(group_counter(events, "oom_group_kill", &v) && v == 1);
	ck_assert(!group_counter(events, "oom_k", &v) && !group_counter(events, "", &v) && !group_counter("", "max", &v));
	ck_assert_uint_eq(v, 1);
}
END_TEST

START_TEST(ulimit_good)
{
	struct box_ulimit u;
	struct err e;

	ck_assert_int_eq(limit_ulimit_parse("nofile=64:128", &u, &e), 0);
	ck_assert(u.resource == RLIMIT_NOFILE && u.soft == 64 && u.hard == 128);
	ck_assert_int_eq(limit_ulimit_parse("stack=unlimited", &u, &e), 0);
	ck_assert(u.resource == RLIMIT_STACK && u.soft == BOX_LIMIT_NONE && u.hard == BOX_LIMIT_NONE);
	ck_assert_int_eq(limit_ulimit_parse("cpu=0:-1", &u, &e), 0);
	ck_assert(u.resource == RLIMIT_CPU && u.soft == 0 && u.hard == BOX_LIMIT_NONE);
}
END_TEST

START_TEST(ulimit_bad)
{
	static const char *const bad[] = { "", "=", "nofile", "nofile=", "nofile=:", "nofile=1:", "nofile=:1",
		"nofile=2:1", "=1",
					   "nofile=1:2:3", "nofile=-2", "nofile=1k", "nofile= 1", "NOFILE=1", "nofil=1", "nofilex=1",
					   "nofile=18446744073709551616", "nofile=unlimited:5", "core=0", "nofile=0x10" };
	struct box_ulimit u = { .resource = 77 };
	struct err e;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(limit_ulimit_parse(bad[i], &u, &e) == -1, "%s", bad[i]);
		ck_assert_int_eq(e.kind, ERR_USAGE);
		ck_assert_int_eq(u.resource, 77);
	}
}
END_TEST

START_TEST(names)
{
	ck_assert_str_eq(limit_name(LIMIT_MEMORY), "memory");
	ck_assert_str_eq(limit_name(LIMIT_WORKSPACE_MAX), "workspace_max");
	ck_assert_str_eq(limit_name(LIMIT_N), "");
	ck_assert_str_eq(limits_rung_name(LIMITS_RUNG_CGROUP2), "cgroup2");
	ck_assert_str_eq(limits_rung_name(LIMITS_RUNG_SUPERVISED), "supervised");
}
END_TEST

static const struct box_limits asked = {
	.memory = (64 << 20) + 100, .pids = 20, .output = 1 << 20, .file_size = BOX_LIMIT_NONE, .workspace_max = BOX_LIMIT_NONE,
};

START_TEST(rows_supervised)
{
	struct box_limits want = asked;
	struct limits l;
	struct err e;

	want.supervised = true;
	want.timeout_us = 5000000;
	want.cpus = 0.5;
	want.file_size = 4096;
	want.open_files = 100;
	want.workspace_max = 1 << 20;
	ck_assert_int_eq(limits_open(&l, &want, &e), 0);
	ck_assert_str_eq(l.state[LIMIT_MEMORY].rung, "supervised");
	ck_assert(!l.state[LIMIT_MEMORY].enforced && !l.state[LIMIT_PIDS].enforced);
	ck_assert_uint_eq(l.state[LIMIT_MEMORY].effective, want.memory);
	ck_assert_str_eq(l.state[LIMIT_CPUS].rung, "affinity");
	ck_assert(!l.state[LIMIT_CPUS].enforced);
	ck_assert_uint_eq(l.state[LIMIT_CPUS].requested, 500);
	ck_assert_uint_eq(l.state[LIMIT_CPUS].effective, 1000);
	ck_assert_str_eq(l.state[LIMIT_TIMEOUT].rung, "deadline");
	ck_assert(l.state[LIMIT_TIMEOUT].enforced);
	ck_assert_str_eq(l.state[LIMIT_OUTPUT].rung, "capture");
	ck_assert_str_eq(l.state[LIMIT_FILE_SIZE].rung, "rlimit");
	ck_assert_uint_eq(l.state[LIMIT_FILE_SIZE].effective, 4096);
	ck_assert_uint_eq(l.state[LIMIT_OPEN_FILES].effective, 100);
	ck_assert_str_eq(l.state[LIMIT_WORKSPACE_MAX].rung, "none"); /* nothing to sample yet */
	ck_assert(!l.state[LIMIT_WORKSPACE_MAX].enforced);
	ck_assert_int_eq(limits_period_ms(&l), -1); /* nothing to sample yet */
	ck_assert_int_eq(l.event_fd, -1);
	limits_close(&l);
}
END_TEST

START_TEST(rows_not_asked)
{
	struct box_limits want = asked;
	struct limits l;
	struct err e;

	want.supervised = true;
	ck_assert_int_eq(limits_open(&l, &want, &e), 0);
	ck_assert_str_eq(l.state[LIMIT_TIMEOUT].rung, "none");
	ck_assert_uint_eq(l.state[LIMIT_TIMEOUT].requested, BOX_LIMIT_NONE);
	ck_assert(!l.state[LIMIT_TIMEOUT].enforced);
	ck_assert_str_eq(l.state[LIMIT_CPUS].rung, "none");
	ck_assert_uint_eq(l.state[LIMIT_OPEN_FILES].requested, BOX_LIMIT_NONE);
	ck_assert_uint_le(l.state[LIMIT_OPEN_FILES].effective, 1024);
	limits_close(&l);
	/* zero is the default, never no limit */
	want.memory = want.pids = 0;
	ck_assert_int_eq(limits_open(&l, &want, &e), 0);
	ck_assert_uint_eq(l.state[LIMIT_MEMORY].effective, 512ull << 20);
	ck_assert_uint_eq(l.state[LIMIT_PIDS].effective, 256);
	limits_close(&l);
}
END_TEST

START_TEST(require_refuses)
{
	struct box_limits want = asked;
	char why[300];
	struct limits l;
	struct err e;

	want.require = want.supervised = true;
	ck_assert_int_eq(limits_open(&l, &want, &e), -1);
	ck_assert_int_eq(e.kind, ERR_USAGE);
	ck_assert_int_eq(e.stage, STAGE_LIMITS);
	want.supervised = false;
	if (limits_rung_probe(LIMITS_RUNG_CGROUP1, why, sizeof(why))) {
		want.memory = BOX_LIMIT_NONE;
		ck_assert_int_eq(limits_open(&l, &want, &e), -1);
		ck_assert_int_eq(e.kind, ERR_REFUSED);
		return;
	}
	ck_assert_int_eq(limits_open(&l, &want, &e), -1);
	ck_assert_int_eq(e.kind, ERR_MISSING);
	ck_assert_ptr_nonnull(strstr(e.msg, "cgroup1: "));
	ck_assert_ptr_nonnull(strstr(e.msg, "drop --require-limits"));
}
END_TEST

START_TEST(probes)
{
	char why[300];

	for (int i = 0; i < LIMITS_RUNG_N; i++) {
		why[0] = '\0';
		limits_rung_probe(i, why, sizeof(why));
		ck_assert_msg(why[0] != '\0', "%s", limits_rung_name(i));
	}
	ck_assert(limits_rung_probe(LIMITS_RUNG_SUPERVISED, why, sizeof(why)));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, groups_plain);
	tcase_add_test(tc, groups_odd);
	tcase_add_test(tc, mounts_plain);
	tcase_add_test(tc, mounts_branches);
	tcase_add_test(tc, mounts_odd);
	tcase_add_test(tc, pids_text);
	tcase_add_test(tc, group_names);
	tcase_add_test(tc, v2_groups);
	tcase_add_test(tc, v2_mounts);
	tcase_add_test(tc, v2_words);
	tcase_add_test(tc, counters);
	tcase_add_test(tc, ulimit_good);
	tcase_add_test(tc, ulimit_bad);
	tcase_add_test(tc, names);
	tcase_add_test(tc, rows_supervised);
	tcase_add_test(tc, rows_not_asked);
	tcase_add_test(tc, require_refuses);
	tcase_add_test(tc, probes);
}

int main(void)
{
	return unit_main("limits", fill);
}
