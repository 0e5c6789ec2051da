/* Who a box is: ids outside for a root caller, from the texts that uid_map has; --user for both kinds of root; HOME. */
#include "request_env.h"

#include "box/idrange.h"
#include "engine/ids.h"
#include "engine/range.h"

#define WANTED 2113929216U /* what ids.c says of itself */

START_TEST(outer_in_a_whole_range)
{
	uint32_t id = ids_outer("         0          0 4294967295\n");

	ck_assert_uint_eq(id, WANTED);
	ck_assert_uint_gt(id, 1879048191); /* beyond the last range of systemd */
	ck_assert_uint_le(id, INT32_MAX);
}
END_TEST

START_TEST(outer_maps)
{
	static const struct {
		const char *map;
		uint32_t id;
	} rows[] = {
		{ "0 0 4294967295", WANTED },
		{ "0 1000 1", 0 },                          /* root by name only */
		{ "0 100000 65536", 65535 },                /* a container's range: its last id */
		{ "0 1000 1\n1 100000 65536\n", 65536 },    /* rootless podman */
		{ "0 1000 1\n1 100000 1\n", 1 },
		{ "5 1000 1\n", 5 },
		{ "0 0 1000\n2113929216 2113929216 1\n", WANTED },
		{ "2113929217 0 10\n", WANTED + 10 },       /* just outside */
		{ "0 0 0\n", 0 },
		{ "", 0 },
		{ "\n", 0 },
		{ "junk", 0 },
		{ "0 0", 0 },
		{ "0 0 x", 0 },
		{ "-1 0 4", 0 },
		{ "4294967295 0 1", 0 },                    /* no id, but "none" */
		{ "4294967290 0 4", 4294967293U },
		{ "4294967290 0 6", 0 },
		{ "0 0 65536\njunk\n70000 0 5\n", 65535 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		ck_assert_msg(ids_outer(rows[i].map) == rows[i].id, "\"%s\": %u", rows[i].map, ids_outer(rows[i].map));
}
END_TEST

/* Whatever the text, never root, never "none". */
START_TEST(outer_random_maps)
{
	unsigned seed = 99;
	char map[256];

	for (int round = 0; round < 20000; round++) {
		size_t n = 0;
		uint32_t id;
		bool zero_only = true;

		for (int k = rand_r(&seed) % 4; k >= 0; k--) {
			unsigned long long from = (unsigned)rand_r(&seed) * 2ULL % 4294967296ULL, count = rand_r(&seed) % 3 ? (unsigned)rand_r(&seed) : 1;

			if (rand_r(&seed) % 3 == 0)
				from = 0;
			zero_only = zero_only && from == 0 && count == 1;
			n += (size_t)snprintf(map + n, sizeof(map) - n, "%10llu %10u %10llu\n", from, 0, count);
		}
		id = ids_outer(map);
		ck_assert_msg(id < UINT32_MAX - 1, "%s", map);
		ck_assert_msg(!zero_only || id == 0, "%s", map);
	}
}
END_TEST

/* What --user says, and who that is in the box. */
struct user_row {
	const char *user;
	uid_t uid;
	gid_t gid;
	const char *home;
};

static void is_user(const struct user_row *r)
{
	rq.user = r->user;
	prepares();
	ck_assert_msg(pr.spec.uid == r->uid && pr.spec.gid == r->gid, "%s: %u:%u", r->user, pr.spec.uid, pr.spec.gid);
	ck_assert_msg(strcmp(pr.spec.home, r->home) == 0, "%s: %s", r->user, pr.spec.home);
}

START_TEST(users_of_the_host_image)
{
	static const struct user_row rows[] = {
		{ NULL, 1000, 1000, "/home/user" },     { "root", 0, 0, "/root" },        { "user", 1000, 1000, "/home/user" },
		{ "nobody", 65534, 65534, "/home/user" }, { "0", 0, 0, "/root" },         { "4242", 4242, 4242, "/home/user" },
		{ "4242:7", 4242, 7, "/home/user" },    { "0:0", 0, 0, "/root" },         { "007", 7, 7, "/home/user" },
		{ "4294967293:4294967293", 4294967293U, 4294967293U, "/home/user" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fresh();
		is_user(&rows[i]);
		ck_assert_str_eq(pr.spec.cwd, rows[i].home);
	}
}
END_TEST

START_TEST(users_that_are_none)
{
	static const char *const bad[] = { "daemon", "Root", "root:0", ":", ":1", "-1", "+1", " 1", "1 ", "1:", "1::2", "1:2:3", "1:x", "1:-1",
					   "1.5", "0x10", "4294967294", "4294967295", "4294967296", "99999999999999999999999999", "1:4294967295", "us\ner",
					   "\x1b[2J", "1\n", "1:2\n", "\xff" };
	static char big[3000];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fresh();
		rq.user = bad[i];
		refused(ERR_USAGE, STAGE_SPEC, "--user");
	}
	memset(big, '1', sizeof(big) - 1);
	rq.user = big;
	refused(ERR_USAGE, STAGE_SPEC, "ids from 0 to 4294967293"); /* the advice is not cut off */
	memset(big, 'x', sizeof(big) - 1);
	refused(ERR_USAGE, STAGE_SPEC, "root, user and nobody");
}
END_TEST

/* Ids outside: the caller's own, or for root one that is nobody's. */
START_TEST(outside)
{
	prepares();
	if (geteuid() != 0) {
		ck_assert_uint_eq(pr.spec.outer_uid, geteuid());
		ck_assert_uint_eq(pr.spec.outer_gid, getegid());
		return;
	}
	ck_assert_int_eq(pr.spec.outer_uid == 0, pr.spec.outer_gid == 0);
	if (pr.spec.outer_uid)
		ck_assert(pr.spec.outer_uid >= 1000 && pr.spec.outer_gid >= 1000);
}
END_TEST

static const char passwd[] =
	"root:x:0:0:root:/root:/bin/sh\n"
	"# comment: x\n"
	"node:x:1000:1001::/home/node:/bin/bash\n"
	"long:x:5:6:Long, Name,,:/srv/long:/bin/sh\n"
	"nohome:x:8:8:::\n"
	"short:x:9:9\n"
	"cut:x:10\n"
	"nobody:x:65534:65534:nobody:/:/sbin/nologin\n"
	"minus:x:-1:-1::/x:/x\n"
	"big:x:4294967295:1::/x:/x\n"
	"huge:x:18446744073709551617:1::/x:/x\n"
	"letters:x:abc:1::/x:/x\n"
	"nopass\n"
	"colon:x\n"
	"next:7:7:7:7:/n:/n\n"
	"up:x:11:11::/../etc:/x\n"
	"slashes:x:12:12:://:/x\n"
	"relative:x:13:13::home:/x\n"
	"control:x:14:14::/a\x1b[2J:/x\n"
	"node:x:77:77::/second:/x\n"
	"last:x:15:16::/last:/x";

START_TEST(users_of_a_directory)
{
	static const struct user_row rows[] = {
		{ NULL, 0, 0, "/root" },           { "root", 0, 0, "/root" },             { "node", 1000, 1001, "/home/node" },
		{ "long", 5, 6, "/srv/long" },     { "nohome", 8, 8, "/home/user" },      { "nobody", 65534, 65534, "/" },
		{ "next", 7, 7, "/n" },            { "slashes", 12, 12, "/" },            { "relative", 13, 13, "/home/user" },
		{ "up", 11, 11, "/home/user" },    { "control", 14, 14, "/home/user" },   { "last", 15, 16, "/last" },
		{ "1000", 1000, 1000, "/home/user" }, { "3:4", 3, 4, "/home/user" },
	};
	static const char *const none[] = { "nod", "node:x", "x", "# comment", "cut", "short", "minus", "big", "huge", "letters", "nopass",
					    "colon", "no\nde" };
	char root[128], etc[128];

	snprintf(root, sizeof(root), "%s/root", dir);
	snprintf(etc, sizeof(etc), "%s/root/etc", dir);
	ck_assert(mkdir(root, 0755) == 0 && mkdir(etc, 0755) == 0);
	file_put("root/etc/passwd", passwd, sizeof(passwd) - 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fresh();
		rq.rootfs = root;
		is_user(&rows[i]);
	}
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		fresh();
		rq.rootfs = root;
		rq.user = none[i];
		refused(ERR_USAGE, STAGE_SPEC, strchr(none[i], ':') ? "no such group" : "no such user");
	}
	unlink(file_put("root/etc/passwd", "", 0));
	rq.user = "root";
	refused(ERR_USAGE, STAGE_SPEC, "no such user");
	rmdir(etc);
	rmdir(root);
}
END_TEST

/* The passwd file of a directory is whatever its author left there: a link out of it leads nowhere, a pipe does not hang. */
START_TEST(a_planted_passwd)
{
	char root[128], etc[128], path[160];

	snprintf(root, sizeof(root), "%s/root", dir);
	snprintf(etc, sizeof(etc), "%s/root/etc", dir);
	snprintf(path, sizeof(path), "%s/root/etc/passwd", dir);
	ck_assert(mkdir(root, 0755) == 0 && mkdir(etc, 0755) == 0);
	rq.rootfs = root;
	rq.user = "root";
	ck_assert_int_eq(symlink("../../../../../../etc/passwd", path), 0);
	refused(ERR_USAGE, STAGE_SPEC, "no such user");
	unlink(path);
	ck_assert_int_eq(mkfifo(path, 0644), 0);
	fresh();
	rq.rootfs = root;
	rq.user = "root";
	refused(ERR_USAGE, STAGE_SPEC, "no such user");
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	fresh();
	rq.rootfs = root;
	rq.user = "root";
	refused(ERR_USAGE, STAGE_SPEC, "no such user");
	rmdir(path);
	rmdir(etc);
	rmdir(root);
}
END_TEST

START_TEST(lines_of_a_range)
{
	static const struct {
		uint32_t own, n;
		size_t lines;
		struct idrange_line is[3];
	} rows[] = {
		{ 0, 65536, 2, { { 0, 77, 1 }, { 1, 100001, 65535 } } },
		{ 1000, 65536, 3, { { 0, 100000, 1000 }, { 1000, 77, 1 }, { 1001, 101001, 64535 } } },
		{ 65535, 65536, 2, { { 0, 100000, 65535 }, { 65535, 77, 1 } } },
		{ 70000, 65536, 2, { { 0, 100000, 65536 }, { 70000, 77, 1 } } },
		{ 0, 1, 1, { { 0, 77, 1 } } },
		{ 5, 1, 2, { { 0, 100000, 1 }, { 5, 77, 1 } } },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct idrange_line got[3] = { 0 };

		ck_assert_uint_eq(idrange_lines(rows[i].own, 77, 100000, rows[i].n, got), rows[i].lines);
		ck_assert_msg(memcmp(got, rows[i].is, sizeof(got)) == 0, "row %zu", i);
	}
}
END_TEST

START_TEST(rows_of_subuid)
{
	static const char text[] = "# comment\n12345:7:7x\nbob:100000:65536\n\nal:200000:10\nalice:300000:5\nroot:0:10\nneg:-1:10\n"
				   "much:4294967290:100\nnone:1:0\nhex:0x10:5\nshort:1\nbob:1:2\n12345:400000:65536";
	static const struct {
		const char *who;
		uint32_t start, n; /* n 0: there is none */
	} rows[] = { { "bob", 100000, 65536 }, { "al", 200000, 10 }, { "alice", 300000, 5 }, { "12345", 400000, 65536 }, { "root", 0, 0 },
		     { "neg", 0, 0 }, { "much", 0, 0 }, { "none", 0, 0 }, { "hex", 0, 0 }, { "short", 0, 0 }, { "bo", 0, 0 },
		     { "# comment", 0, 0 }, { "x", 0, 0 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t start = 0, n = 0;
		bool found = range_find(text, rows[i].who, &start, &n);

		ck_assert_msg(found == (rows[i].n > 0) && start == rows[i].start && n == rows[i].n, "%s: %d %u %u", rows[i].who, found, start, n);
	}
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, outer_in_a_whole_range);
	tcase_add_test(tc, outer_maps);
	tcase_add_test(tc, outer_random_maps);
	tcase_add_test(tc, users_of_the_host_image);
	tcase_add_test(tc, users_that_are_none);
	tcase_add_test(tc, outside);
	tcase_add_test(tc, lines_of_a_range);
	tcase_add_test(tc, rows_of_subuid);
	tcase_add_test(tc, users_of_a_directory);
	tcase_add_test(tc, a_planted_passwd);
}

int main(void)
{
	return unit_main("ids", fill);
}
