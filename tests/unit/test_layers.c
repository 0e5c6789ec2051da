/* A stack of directories read as one tree: what hides what, links inside the stack, and that a hostile image ends the walk by its bounds. What
 * overlayfs itself shows of such a stack is compared in tests/integration/test_image_run.py. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/layers.h"

static char base[64];
static int fds[3]; /* the topmost first */
static const struct layers stack = { fds, 3 };

static void setup(void)
{
	snprintf(base, sizeof(base), "/tmp/ct-layers-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	for (int i = 0; i < 3; i++) {
		char path[80];

		snprintf(path, sizeof(path), "%s/%d", base, i);
		ck_assert_int_eq(mkdir(path, 0755), 0);
		fds[i] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ck_assert_int_ge(fds[i], 0);
	}
}

static int gone(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static void teardown(void)
{
	for (int i = 0; i < 3; i++)
		fd_close(&fds[i]);
	nftw(base, gone, 16, FTW_DEPTH | FTW_PHYS);
}

/* In one layer: "d path", "f path", "w path" a whiteout, "o path" an opaque directory, "s path target". */
static void make(int layer, const char *what)
{
	char path[4096], target[4096] = "";
	char type = what[0];
	int fd;

	ck_assert_int_ge(sscanf(what + 2, "%4095s %4095s", path, target), 1);
	switch (type) {
	case 'f':
		fd = openat(fds[layer], path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(fd_write_all(fd, (char[]){ (char)('0' + layer) }, 1), 0);
		close(fd);
		break;
	case 'w':
		ck_assert_int_eq(mknodat(fds[layer], path, S_IFCHR, makedev(0, 0)), 0);
		break;
	case 's':
		ck_assert_int_eq(symlinkat(target, fds[layer], path), 0);
		break;
	default:
		ck_assert_int_eq(mkdirat(fds[layer], path, 0755), 0);
		fd = openat(fds[layer], path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (type == 'o')
			ck_assert_int_eq(fsetxattr(fd, "user.overlay.opaque", "y", 1, 0), 0);
		close(fd);
	}
}

/* The layer whose file is found ('0'...), 'd' for another kind, or '-' with errno. */
static char seen(const char *path)
{
	_cleanup_fd_ int at = layers_open(&stack, path), fd = -1;
	char link[64], c = 'd';

	if (at < 0)
		return '-';
	snprintf(link, sizeof(link), "/proc/self/fd/%d", at);
	fd = open(link, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && read(fd, &c, 1) == 1)
		return c;
	return 'd';
}

static const char *where(const char *path)
{
	static char out[4096];

	return layers_resolve(&stack, path, out) == 0 ? out : NULL;
}

START_TEST(the_topmost_counts)
{
	make(2, "d a");
	make(2, "f a/low");
	make(2, "f a/mid");
	make(2, "f a/gone");
	make(2, "d a/emptied");
	make(2, "f a/emptied/x");
	make(2, "d a/file");
	make(2, "f a/file/x");
	make(1, "d a");
	make(1, "f a/mid");
	make(1, "w a/gone");
	make(1, "o a/emptied");
	make(1, "f a/emptied/y");
	make(1, "f a/file");
	make(0, "d a");
	make(0, "f a/top");
	ck_assert_int_eq(seen("a/low"), '2');
	ck_assert_int_eq(seen("/a/mid"), '1');
	ck_assert_int_eq(seen("a/top"), '0');
	ck_assert_int_eq(seen("a/gone"), '-');
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(seen("a/emptied/x"), '-');
	ck_assert_int_eq(seen("a/emptied/y"), '1');
	ck_assert_int_eq(seen("a/file"), '1');
	ck_assert_int_eq(seen("a/file/x"), '-');
	ck_assert_int_eq(errno, ENOTDIR);
	ck_assert_int_eq(seen("a"), 'd');
	ck_assert_int_eq(seen("/"), 'd');
	/* What is made again above a whiteout is there. */
	make(0, "f a/gone");
	ck_assert_int_eq(seen("a/gone"), '0');
}
END_TEST

START_TEST(links_stay_inside)
{
	make(2, "d usr");
	make(2, "d usr/lib");
	make(2, "f usr/lib/so");
	make(2, "s lib usr/lib");
	make(1, "s abs /usr/lib/so");
	make(1, "s out ../../../../usr/lib");
	make(1, "s dir /usr");
	make(0, "s twice dir/lib");
	make(0, "s missing /none/at/all");
	make(0, "s back none/../usr/lib");
	make(0, "s dot ./usr/./lib/.");
	ck_assert_int_eq(seen("lib/so"), '2');
	ck_assert_int_eq(seen("abs"), '2');
	ck_assert_int_eq(seen("out/so"), '2');
	ck_assert_str_eq(where("/lib/so"), "/usr/lib/so");
	ck_assert_str_eq(where("/twice/so"), "/usr/lib/so");
	ck_assert_str_eq(where("/out"), "/usr/lib");
	ck_assert_str_eq(where("/dot/x/y"), "/usr/lib/x/y");
	ck_assert_str_eq(where("/missing/x"), "/none/at/all/x");
	ck_assert_str_eq(where("/back"), "/usr/lib");
	ck_assert_str_eq(where("/"), "/");
	ck_assert_str_eq(where("/new/place"), "/new/place");
	/* A link that a whiteout hides leads nowhere. */
	make(0, "w lib");
	ck_assert_str_eq(where("/lib/so"), "/lib/so");
}
END_TEST

START_TEST(bounds)
{
	char text[4096];
	size_t n = (size_t)snprintf(text, sizeof(text), "s long ");

	make(0, "s a b");
	make(0, "s b a");
	ck_assert_ptr_null(where("/a"));
	ck_assert_int_eq(errno, ELOOP);
	/* Each step as long as can be: down into a directory and up again, some hundred times, by links to links. */
	make(2, "d d");
	for (int i = 0; i < 500; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "d/../");
	snprintf(text + n, sizeof(text) - n, "d");
	make(2, text);
	ck_assert_str_eq(where("/long"), "/d");
	make(1, "s l0 long/../long/../long/../long/../long/../long");
	make(1, "s l1 l0/../l0/../l0/../l0/../l0/../l0/../l0");
	ck_assert_ptr_null(where("/l1"));
	ck_assert_int_eq(errno, ELOOP);
	memset(text, 'n', 300);
	text[300] = '\0';
	ck_assert_ptr_null(where(text));
	ck_assert_int_eq(errno, ENAMETOOLONG);
	memset(text, '/', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	ck_assert_str_eq(where(text), "/");
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_topmost_counts);
	tcase_add_test(tc, links_stay_inside);
	tcase_add_test(tc, bounds);
}

int main(void)
{
	return unit_main("layers", fill);
}
