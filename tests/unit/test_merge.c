/* Layers merged into one: what overlayfs would show of them, without a whiteout or an opaque marker, and with files that are theirs. */
#include "unpack_env.h"

#include <errno.h>

#include "image/merge.h"

#define LAYERS_MAX 4

static const struct {
	const char *layers[LAYERS_MAX]; /* lowest first */
	const char *tree;
} cases[] = {
	{ { "d a 755\nf a/x 644 one\nf a/y 600 two", "f a/x 640 three\nd b 700" },
	  "d755 a\nf640 a/x three =\nf600 a/y two =\nd700 b" },
	{ { "d a 755\nf a/x 644 one\nf y 644 y", "f a/.wh.x 644\nf .wh.y 644\nf .wh.none 644" }, "d755 a" },
	{ { "d a 755\nd a/b 755\nf a/b/x 644 one", "d a 711\nf a/.wh..wh..opq 644\nf a/y 644 y" }, "d711 a\nf644 a/y y =" },
	{ { "d a 755\nf a/x 644 one", "f .wh.a 644", "d a 500\nf a/y 400 y" }, "d500 a\nf400 a/y y =" },
	{ { "d a 755\nf a/x 644 one", "f a 644 file" }, "f644 a file =" },
	{ { "f a 644 file", "d a 755\nf a/x 644 one" }, "d755 a\nf644 a/x one =" },
	{ { "s a /nowhere\ns b a", "f a 600 x\np c 600" }, "f600 a x =\ns b a\np600 c" },
	{ { "d a 0\nd a/b 0\nf a/b/x 0 one", "d a 500\nf a/y 644 y" }, "d500 a\nd0 a/b\nf0 a/b/x one =\nf644 a/y y =" },
	{ { "f a 644 one\nh b a", "f a 644 two" }, "f644 a two =\nf644 b one =" },
	{ { "d a 755", "d a 1777\nd a/b 2755", "f .wh.nothing 644", "d a 755" }, "d755 a\nd2755 a/b" },
	{ { "d a 755\nd a/b 755\nd a/b/c 755\nf a/b/c/x 644 x", "d a 755\nd a/b 755\nf a/b/.wh.c 644", "d a 755\nd a/b 755\nd a/b/c 700" },
	  "d755 a\nd755 a/b\nd700 a/b/c" },
};

static int fds[LAYERS_MAX];

static bool make(enum who who, const char *const *layers, size_t *ret_n)
{
	int top, n = 0;

	if (!become(who))
		return false;
	top = layerfd;
	for (; n < LAYERS_MAX && layers[n]; n++) {
		char name[2] = { (char)('1' + n), '\0' };

		ck_assert_int_eq(mkdirat(top, name, 0700), 0);
		fds[n] = layerfd = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		make_archive(layers[n]);
		ck_assert_msg(unpack(&img_unpack_default, false) == 0, "%s", e.msg);
	}
	ck_assert_int_eq(mkdirat(top, "m", 0700), 0);
	layerfd = openat(top, "m", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	memcpy(layer + strlen(layer), "/m", 3);
	*ret_n = (size_t)n;
	return true;
}

static struct img_unpacked merged;

static int merge(size_t n)
{
	int top_first[LAYERS_MAX];

	for (size_t i = 0; i < n; i++)
		top_first[i] = fds[n - 1 - i];
	return img_merge(layerfd, top_first, n, &merged, &e);
}

START_TEST(test_cases)
{
	size_t i = (size_t)_i / WHO_N, n;
	struct stat st;
	char got[4096];
	int r;

	/* A closed directory is one to who has no capability. */
	if (!make((enum who)(_i % WHO_N), cases[i].layers, &n))
		return;
	r = merge(n);
	if (r < 0 && strstr(cases[i].layers[0], "d a 0") && _i % WHO_N == AS_USER) {
		ck_assert_int_eq(e.num, EACCES);
		return;
	}
	ck_assert_msg(r == 0, "%s", e.msg);
	outside_is_untouched();
	ck_assert(fstat(layerfd, &st) == 0 && (st.st_mode & 0700) == 0700);
	tree(got, sizeof(got));
	ck_assert_str_eq(got, cases[i].tree);
}
END_TEST

START_TEST(test_metadata)
{
	static const char *const layers[LAYERS_MAX] = { "x user.note one\nd a 755\nd b 755",
							"x user.note three\nd a 755\nf a/.wh..wh..opq 644\nf b/x 644 x" };
	char value[64];
	size_t n;
	int a;

	ck_assert(make(AS_CALLER, layers, &n));
	ck_assert_msg(merge(n) == 0, "%s", e.msg);
	a = openat(layerfd, "a", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(fgetxattr(a, "user.note", value, sizeof(value)), 5);
	ck_assert_int_eq(memcmp(value, "three", 5), 0);
	ck_assert_int_lt(fgetxattr(a, "user.overlay.opaque", value, sizeof(value)), 0);
	close(a);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_cases, 0, WHO_N * sizeof(cases) / sizeof(*cases));
	tcase_add_test(tc, test_metadata);
}

int main(void)
{
	return unit_main("merge", fill);
}
