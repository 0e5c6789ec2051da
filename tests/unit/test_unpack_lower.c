/* Layers that lean on those below them: what overlayfs would show decides, and links of layers below are followed among the layers only. */
#include "unpack_env.h"

/* Two layers, lowest first, and what the third makes of them; or why not. `borrowed`: it leaned on them. */
static const struct {
	const char *first, *second, *third, *tree, *says;
	bool borrowed;
} cases[] = {
	/* Directories that the third does not name. */
	{ "d tmp 1777\nd a 500", "", "f tmp/f 644 x\nf a/f 644 y\nf n/f 644 z",
	  "d500 a\nf644 a/f y\nd755 n\nf644 n/f z\nd1777 tmp\nf644 tmp/f x", NULL, true },
	{ "d a 711", "d a 700", "f a/f 644 x", "d700 a\nf644 a/f x", NULL, true },
	{ "d a 711", "f .wh.a 0", "f a/f 644 x", "d755 a\nf644 a/f x", NULL, true },
	{ "", "", "f a/f 644 x", "d755 a\nf644 a/f x", NULL, true },
	{ "d a 711\nd a/b 700", "d a 755\nf a/.wh..wh..opq 0", "f a/b/f 644 x", "d755 a\nd755 a/b\nf644 a/b/f x", NULL, true },
	{ "d a 711", "", "f .wh..wh..opq 0\nf a/f 644 x", "d755 a\nf644 a/f x", NULL, false },
	{ "d a 711", "", "f .wh.a 0\nf a/f 644 x", "d755 a O\nf644 a/f x", NULL, true },
	{ "d a 711", "", "d a 755\nf a/f 644 x", "d755 a\nf644 a/f x", NULL, false },
	/* A directory that is a link below. */
	{ "d usr 755\nd usr/lib 711\ns lib usr/lib", "", "f lib/x/f 644 x",
	  "d755 usr\nd711 usr/lib\nd755 usr/lib/x\nf644 usr/lib/x/f x", NULL, true },
	{ "d usr/lib 711\ns lib /usr/lib", "", "f lib/f 644 x\nf lib/g 644 y",
	  "d755 usr\nd711 usr/lib\nf644 usr/lib/f x\nf644 usr/lib/g y", NULL, true },
	{ "s lib /usr/lib", "", "d lib 700\nf lib/f 644 x", "d700 lib\nf644 lib/f x", NULL, false }, /* named: it takes the link's place */
	{ "s lib ../../../../../outside", "", "f lib/kept 644 x", "d755 outside\nf644 outside/kept x", NULL, true },
	{ "s a b/c\nd b 755\ns b/c /d/./e/../f", "", "f a/x 644 x", "d755 d\nd755 d/f\nf644 d/f/x x", NULL, true },
	{ "s lib usr/lib\nd usr/lib 755\nf usr/lib/x 644 1", "", "f lib/.wh.x 0", "d755 usr\nd755 usr/lib\nw usr/lib/x", NULL, true },
	{ "s lib usr/lib\nd usr/lib 755", "", "d lib/d 700\nf lib/d/f 644 x",
	  "d755 usr\nd755 usr/lib\nd700 usr/lib/d\nf644 usr/lib/d/f x", NULL, true },
	{ "s a b\ns b a", "", "f a/f 644 x", NULL, "too many links", false },
	{ "s a a/a", "", "f a/f 644 x", NULL, "too many links", false },
	{ "f a 644 x", "", "f a/f 644 x", NULL, "gives as a file", false },
	{ "s a ../outside", "", "s l a\nf l/f 644 x", NULL, "which this layer gives as a link", false },
	{ "s a b", "", "s b ../outside\nf a/f 644 x", NULL, "which this layer gives as a link", false },
	/* Hard links to what is below: a copy, and what is in this layer goes first. */
	{ "f a 4640 below", "", "h b a", "f640 b below", NULL, true },
	{ "f a 644 one", "f a 600 two", "h b a", "f600 b two", NULL, true },
	{ "f a 644 one", "", "f a 644 two\nh b a", "f644 a two =\nf644 b two =", NULL, false },
	{ "d d 755\nf d/a 644 one", "", "f b 644 x\nh b d/a", "f644 b one", NULL, true },
	{ "s lib usr/lib\nf usr/lib/a 644 one", "", "h lib/b lib/a", "d755 usr\nd755 usr/lib\nf644 usr/lib/b one", NULL, true },
	{ "s lib usr/lib\nd usr/lib 755", "", "f lib/a 644 x\nh lib/b lib/a",
	  "d755 usr\nd755 usr/lib\nf644 usr/lib/a x =\nf644 usr/lib/b x =", NULL, true },
	{ "f a 644 one", "f .wh.a 0", "h b a", NULL, "no such file was given", false },
	{ "f a 644 one", "", "f .wh.a 0\nh b a", NULL, "no such file was given", false },
	{ "f d/a 644 one", "f d/.wh..wh..opq 0", "h b d/a", NULL, "no such file was given", false },
	{ "f a 644 one", "", "f .wh..wh..opq 0\nh b a", NULL, "no such file was given", false },
	{ "s a ../outside/kept", "", "h b a", NULL, "no such file was given", false },
	{ "s a ../outside", "", "h b a/kept", NULL, "no such file was given", false },
	{ "d a 755", "", "h b a", NULL, "no such file was given", false },
	{ "p a 644", "", "h b a", NULL, "no such file was given", false },
	{ "f a 644 one", "", "h a a", NULL, "that is itself", false },
};

static void make_lower(int top, const char *name, const char *lines, int *ret)
{
	ck_assert_int_eq(mkdirat(top, name, 0700), 0);
	layerfd = *ret = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(layerfd, 0);
	make_archive(lines);
	ck_assert_msg(unpack(&img_unpack_default, false) == 0, "%s: %s", lines, e.msg);
}

/* `layer` of the environment becomes layer/3, of which the tree is shown. */
static bool stack(enum who who, const char *first, const char *second)
{
	int top;

	if (!become(who))
		return false;
	top = layerfd;
	n_lowers = 0;
	make_lower(top, "1", first, &lowers[1]);
	make_lower(top, "2", second, &lowers[0]);
	ck_assert_int_eq(mkdirat(top, "3", 0700), 0);
	layerfd = openat(top, "3", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	n_lowers = 2;
	memcpy(layer + strlen(layer), "/3", 3);
	return true;
}

START_TEST(test_cases)
{
	char got[16384];
	size_t i = (size_t)_i / WHO_N;
	int r;

	if (!stack((enum who)(_i % WHO_N), cases[i].first, cases[i].second))
		return;
	make_archive(cases[i].third);
	e.kind = ERR_NONE;
	r = unpack(&img_unpack_default, false);
	outside_is_untouched();
	if (cases[i].says) {
		ck_assert_msg(r == -1, "taken: %s", cases[i].third);
		ck_assert_int_eq(e.kind, ERR_REFUSED);
		ck_assert_msg(strstr(e.msg, cases[i].says) != NULL, "want \"%s\": %s", cases[i].says, e.msg);
		return;
	}
	ck_assert_msg(r == 0, "%s: %s", cases[i].third, e.msg);
	tree(got, sizeof(got));
	ck_assert_str_eq(got, cases[i].tree);
	ck_assert_int_eq(done.borrowed > 0, cases[i].borrowed);
}
END_TEST

/* Copies count as content: a layer of hard links can't be larger than it may. */
START_TEST(test_bomb)
{
	struct img_unpack_limits limits = img_unpack_default;

	ck_assert(stack(AS_CALLER, "f a 644 0123456789", ""));
	make_archive("h b a\nh c a\nh d a");
	limits.bytes = 30;
	ck_assert_msg(unpack(&limits, false) == 0, "%s", e.msg);
	limits.bytes = 29;
	assert_refused(unpack(&limits, false), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "bytes of content"));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_cases, 0, WHO_N * sizeof(cases) / sizeof(*cases));
	tcase_add_test(tc, test_bomb);
}

int main(void)
{
	return unit_main("unpack over layers", fill);
}
