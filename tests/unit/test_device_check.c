/* --device: every row of the table by a name made from its pattern, and real nodes in a /dev of the test's own. */
#include "unit.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "box/device_check.h"

static struct mount_check mc;
static struct box_device dev;
static struct err e;

static void setup(void)
{
	ck_assert_int_eq(mount_check_init(&mc, &e), 0);
}

static void teardown(void)
{
	mount_check_free(&mc);
}

/* A name that the pattern stands for: '#' becomes digits, '*' a letter. */
static void instance(char *dst, const char *pattern)
{
	for (; *pattern; pattern++) {
		if (*pattern == '#') {
			*dst++ = '1';
			*dst++ = '7';
		} else {
			*dst++ = *pattern == '*' ? 'q' : *pattern;
		}
	}
	*dst = '\0';
}

START_TEST(every_row)
{
	char name[64];
	unsigned allowed = 0;

	for (size_t i = 0; i < device_rules_n; i++) {
		const struct device_rule *r = &device_rules[i], *got;

		instance(name, r->pattern);
		got = device_rule_of(name);
		ck_assert_msg(got && got->allow == r->allow, "%s", name);
		ck_assert_msg(r->allow || r->why, "%s is refused without a reason", r->pattern);
		allowed += r->allow;
		if (strchr(r->pattern, '*'))
			continue;
		/* Neighbours: not the same row, and never allowed by it. */
		strcat(name, "-x");
		ck_assert_msg(device_rule_of(name) != r, "%s", name);
		instance(name, r->pattern);
		strcat(name, "/x");
		ck_assert_msg(device_rule_of(name) != r, "%s", name);
	}
	ck_assert_uint_gt(allowed, 10);
	ck_assert_uint_gt(device_rules_n - allowed, 50);
	ck_assert_ptr_null(device_rule_of("ttyS"));
	ck_assert_ptr_null(device_rule_of("ttyS1x"));
	ck_assert_ptr_null(device_rule_of("unheard-of"));
	ck_assert_ptr_null(device_rule_of(""));
	ck_assert(device_rule_of("ttyS0")->allow && !device_rule_of("tty0")->allow && !device_rule_of("tty63")->allow);
	ck_assert(!device_rule_of("cpu/0/msr")->allow && device_rule_of("dri/renderD128")->allow);
}
END_TEST

START_TEST(paths)
{
	assert_refused(device_check(&mc, "null", &dev, &e), &e, ERR_USAGE);
	assert_refused(device_check(&mc, "", &dev, &e), &e, ERR_USAGE);
	assert_refused(device_check(&mc, "/dev/unheard-of", &dev, &e), &e, ERR_USAGE);
	assert_refused(device_check(&mc, "/dev", &dev, &e), &e, ERR_USAGE);
	assert_refused(device_check(&mc, "/etc/passwd", &dev, &e), &e, ERR_USAGE);
	assert_refused(device_check(&mc, "/dev/../etc/passwd", &dev, &e), &e, ERR_USAGE);
	assert_refused(device_check(&mc, "/dev/null", &dev, &e), &e, ERR_REFUSED);
	assert_refused(device_check(&mc, "/dev/./../dev/zero", &dev, &e), &e, ERR_REFUSED);
}
END_TEST

static void node(const char *path, mode_t type, unsigned maj, unsigned min)
{
	ck_assert_msg(mknod(path, type | 0600, makedev(maj, min)) == 0, "%s: %s", path, strerror(errno));
}

/* Needs a /dev of its own, and so root: mknod of devices is nobody else's. */
START_TEST(real_nodes)
{
	static const struct {
		const char *path;
		mode_t type;
		unsigned maj, min;
		const char *says; /* NULL: allowed */
	} rows[] = {
		{ "/dev/ttyUSB0", S_IFCHR, 188, 0, NULL },          { "/dev/kvm", S_IFCHR, 10, 232, NULL },
		{ "/dev/ttyUSB1", S_IFCHR, 1, 1, "memory" },        { "/dev/ttyUSB2", S_IFCHR, 4, 5, "terminal" },
		{ "/dev/ttyS0", S_IFCHR, 4, 64, NULL },             { "/dev/video0", S_IFCHR, 13, 64, "keyboard" },
		{ "/dev/video1", S_IFBLK, 8, 0, "block device" },   { "/dev/vda", S_IFBLK, 8, 0, "block device" },
		{ "/dev/mem", S_IFCHR, 1, 1, "memory" },            { "/dev/unheard-of", S_IFCHR, 240, 0, "known to be safe" },
		{ "/dev/initctl", S_IFIFO, 0, 0, "no device" },     { "/dev/nvme0", S_IFCHR, 240, 1, "disks" },
	};

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0)
		return;
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("none", "/dev", "tmpfs", 0, "mode=0755"), 0);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		node(rows[i].path, rows[i].type, rows[i].maj, rows[i].min);
		if (!rows[i].says) {
			ck_assert_msg(device_check(&mc, rows[i].path, &dev, &e) == 0, "%s", e.msg);
			ck_assert_str_eq(dev.path, rows[i].path);
			ck_assert_uint_eq(dev.rdev, makedev(rows[i].maj, rows[i].min));
			continue;
		}
		ck_assert_msg(device_check(&mc, rows[i].path, &dev, &e) == -1, "%s passed", rows[i].path);
		ck_assert_msg(strstr(e.msg, rows[i].says), "%s", e.msg);
	}
	ck_assert_uint_eq(mc.n_notes, 1);
	ck_assert_ptr_nonnull(strstr(mc.notes[0], "kvm"));
	/* A link is a way to say which node, not what it is. */
	ck_assert_int_eq(mkdir("/dev/serial", 0755), 0);
	ck_assert_int_eq(symlink("../ttyUSB0", "/dev/serial/one"), 0);
	ck_assert_int_eq(symlink("/dev/mem", "/dev/ttyUSB9"), 0);
	ck_assert_int_eq(device_check(&mc, "/dev/serial/one", &dev, &e), 0);
	ck_assert_str_eq(dev.path, "/dev/ttyUSB0");
	assert_refused(device_check(&mc, "/dev/ttyUSB9", &dev, &e), &e, ERR_REFUSED);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, every_row);
	tcase_add_test(tc, paths);
	tcase_add_test(tc, real_nodes);
}

int main(void)
{
	return unit_main("device_check", fill);
}
