/* What is laid over an image for a setup, by what the image has: a directory of its own, a link, a whiteout, nothing. */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "image/setup_files.h"

static char base[64];
static int fds[2];

static void setup(void)
{
	snprintf(base, sizeof(base), "/tmp/ct-laid-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	ck_assert_int_eq(chdir(base), 0);
	ck_assert(mkdir("upper", 0755) == 0 && mkdir("lower", 0755) == 0);
	fds[0] = open("upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fds[1] = open("lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void teardown(void)
{
	char command[128];

	close(fds[0]);
	close(fds[1]);
	snprintf(command, sizeof(command), "rm -rf %s", base);
	ck_assert_int_eq(system(command), 0);
}

static void make_dirs(const char *names)
{
	char command[256];

	snprintf(command, sizeof(command), "mkdir -p %s", names);
	ck_assert_int_eq(system(command), 0);
}

/* The paths that are laid, with a blank behind each; directories with "/". */
static const char *laid(void)
{
	static struct image_host h;
	static char text[512];
	struct rootfs root = { .kind = ROOTFS_LAYERS, .layers = { fds, 2 } };

	h.n = 0;
	text[0] = '\0';
	image_setup_files(&h, &root);
	ck_assert(root.entries == h.entries && root.n_entries == h.n);
	for (size_t i = 0; i < root.n_entries; i++) {
		const struct rootfs_entry *en = &root.entries[i];

		strcat(text, en->path);
		strcat(text, en->kind == ROOTFS_ENTRY_DIR ? "/ " : " ");
		if (en->kind == ROOTFS_ENTRY_FILE)
			ck_assert(en->len == strlen(en->text) && en->len > 0);
	}
	return text;
}

#define ALL "etc/ etc/apt/ etc/apt/apt.conf.d/ etc/apt/apt.conf.d/00cloche usr/ usr/sbin/ usr/sbin/policy-rc.d "

START_TEST(by_what_is_there)
{
	ck_assert_str_eq(laid(), "");
	make_dirs("lower/usr");
	ck_assert_str_eq(laid(), "usr/ ");
	make_dirs("lower/etc/apt/apt.conf.d upper/usr/sbin");
	ck_assert_str_eq(laid(), ALL);
	/* Of the modes that they have there: the topmost counts. */
	make_dirs("upper/etc");
	ck_assert(chmod("upper/etc", 0711) == 0 && chmod("lower/etc/apt", 0700) == 0);
	ck_assert_str_eq(laid(), ALL);
}
END_TEST

START_TEST(modes)
{
	struct image_host h = { .n = 0 };
	struct rootfs root = { .kind = ROOTFS_LAYERS, .layers = { fds, 2 } };

	make_dirs("lower/etc/apt/apt.conf.d upper/etc upper/usr/sbin");
	ck_assert(chmod("upper/etc", 0711) == 0 && chmod("lower/etc/apt", 0700) == 0);
	image_setup_files(&h, &root);
	ck_assert_uint_eq(h.n, 7);
	ck_assert_uint_eq(h.entries[0].mode, 0711);
	ck_assert_uint_eq(h.entries[1].mode, 0700);
	ck_assert_uint_eq(h.entries[3].mode, 0644);
	ck_assert_uint_eq(h.entries[6].mode, 0755);
}
END_TEST

/* A directory over a link would hide what the link leads to: /usr/sbin is one to bin in some distributions. */
START_TEST(links_and_whiteouts)
{
	make_dirs("lower/etc lower/usr/bin lower/usr/sbin lower/opt");
	ck_assert(symlink("bin", "upper/usr-sbin") == 0 && mkdir("upper/usr", 0755) == 0 && rename("upper/usr-sbin", "upper/usr/sbin") == 0);
	ck_assert(symlink("../opt", "lower/etc/apt") == 0);
	ck_assert_str_eq(laid(), "etc/ usr/ ");
	ck_assert(unlink("lower/etc/apt") == 0 && mkdir("upper/etc", 0755) == 0);
	make_dirs("lower/etc/apt/apt.conf.d");
	ck_assert_int_eq(mknod("upper/etc/apt", S_IFCHR, makedev(0, 0)), 0);
	ck_assert_str_eq(laid(), "etc/ usr/ ");
}
END_TEST

static void fill(TCase *t)
{
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, by_what_is_there);
	tcase_add_test(t, modes);
	tcase_add_test(t, links_and_whiteouts);
}

int main(void)
{
	return unit_main("setup_files", fill);
}
