/* Unpacking a layer: a table of small archives with the tree or the refusal that each must give, tried as the caller, as a user without privilege, and
 * as one in a user namespace of a single id. Nothing outside of the layer's directory may change, whatever the archive says. */
#include "unpack_env.h"

#define P50 "pppppppppppppppppppppppppppppppppppppppppppppppppp"
#define P250 P50 P50 P50 P50 P50

static const struct {
	const char *archive, *tree;
} good[] = {
	{ "", "" },
	{ "d . 755\nd ./a 755\nf ./a/f 640 hello", "d755 a\nf640 a/f hello" },
	{ "d / 755\nf a///./f 644 x", "d755 a\nf644 a/f x" }, /* parents on the way */
	{ "f b/c/f 600 x\nd b 711\nd b/c 500", "d711 b\nd500 b/c\nf600 b/c/f x" },
	/* Directories without write permission, and what comes into them later. */
	{ "d a 555\nf a/f 444 x\nd a/b 500\nf a/b/g 400 y\nf a/late 0 z", "d555 a\nd500 a/b\nf400 a/b/g y\nf444 a/f x\nf0 a/late z" },
	{ "d a 0\nd a/b 0\nf a/b/f 644 x", "d0 a\nd0 a/b\nf644 a/b/f x" },
	{ "d tmp 1777\nd s 2775\nd u 4755", "d2775 s\nd1777 tmp\nd755 u" },
	/* Set-id bits of files go, in every spelling. */
	{ "f su 4755 x\nf sg 2755 x\nf st 7777 x", "f755 sg x\nf777 st x\nf755 su x" },
	{ "f a 4755 x\nh b a", "f755 a x =\nf755 b x =" },
	/* Devices go; the rest stays. */
	{ "f a 644 x\nc null 666\nb sda 666\nf z 644 y\np fifo 640", "f644 a x\np640 fifo\nf644 z y" },
	{ "f null 644 x\nc null 666", "" },
	{ "f .wh.null 0\nc null 666", "w null" },
	{ "c null 666\nf .wh.null 0", "w null" },
	/* Links that lead out are text: nothing is written through them. */
	{ "s dev /dev\ns proc ../../proc\ns etc /etc", "s dev /dev\ns etc /etc\ns proc ../../proc" },
	{ "s a ../outside\nd a 755\nf a/kept 644 new", "d755 a O\nf644 a/kept new" },
	{ "s a ../outside/kept\nf a 644 new", "f644 a new" },
	{ "s a ../outside/kept\nh b a", "s a ../outside/kept\ns b ../outside/kept" },
	/* Hard links. */
	{ "f a 644 x\nd d 755\nh d/b a\nh c ./d//b", "f644 a x =\nf644 c x =\nd755 d\nf644 d/b x =" },
	{ "f a 644 x\nf b 644 y\nh b a", "f644 a x =\nf644 b x =" },	   /* over a file */
	{ "f a 644 x\nd b 755\nf b/f 644 y\nh b a", "f644 a x =\nf644 b x =" }, /* over a directory */
	{ "f a 644 x\nh b a\nf a 644 new", "f644 a new\nf644 b x" },	   /* replaced, not written through */
	{ "p a 600\nh b a", "p600 a\np600 b" },
	/* Names given twice: the later wins; a directory keeps what is in it. */
	{ "f a 644 x\nf a 600 y", "f600 a y" },
	{ "d a 755\nf a/f 644 x\nd a 700", "d700 a\nf644 a/f x" },
	{ "f a 644 x\nd a 755\nf a/f 644 y", "d755 a O\nf644 a/f y" },
	{ "d a 500\nd a/b 500\nf a/b/f 400 x\nf a 644 y", "f644 a y" },
	{ "d a 500\nf a 644 y\nd a 711", "d711 a O" },
	{ "d a 755\ns a x", "s a x" },
	{ "f A 644 x\nf a 644 y", "f644 A x\nf644 a y" },
	/* Whiteouts hide what is below, never what the layer gives, in any order. */
	{ "f .wh.a 0", "w a" },
	{ "f d/.wh.a 644", "d755 d\nw d/a" },
	{ "f .wh.a 0\nf a 644 x", "f644 a x" },
	{ "f a 644 x\nf .wh.a 0", "f644 a x" },
	{ "f .wh.a 0\nd a 755\nf a/f 644 x", "d755 a O\nf644 a/f x" },
	{ "d a 755\nf a/f 644 x\nf .wh.a 0", "d755 a O\nf644 a/f x" },
	{ "f .wh.a 0\nf a/f 644 x", "d755 a O\nf644 a/f x" },
	{ "f .wh.a 0\nf .wh.a 0", "w a" },
	{ "d a 500\nf a/.wh.x 0", "d500 a\nw a/x" },
	/* As a hard link, a directory, a symbolic link, a device: the name counts. */
	{ "f z 644 x\nh .wh.a z", "w a\nf644 z x" },
	{ "h .wh.a nowhere", "w a" },
	{ "d .wh.a 755\ns .wh.b /x\nc .wh.c 0", "w a\nw b\nw c" },
	/* Opaque markers, before and after what they leave. */
	{ "d a 755\nf a/.wh..wh..opq 0\nf a/f 644 x", "d755 a O\nf644 a/f x" },
	{ "d a 755\nf a/f 644 x\nd a/d 755\nf a/.wh..wh..opq 0", "d755 a O\nd755 a/d\nf644 a/f x" },
	{ "f a/.wh..wh..opq 0\nf a/f 644 x\nd a 500", "d500 a O\nf644 a/f x" },
	{ "f .wh..wh..opq 0\nf f 644 x", "f644 f x" },
	{ "d .wh..wh.plnk 755\nf .wh..wh.aufs 0\nf f 644 x", "f644 f x" },
	/* Long names. */
	{ "f " P250 "/" P250 "/f 644 x", "d755 " P250 "\nd755 " P250 "/" P250 "\nf644 " P250 "/" P250 "/f x" },
	{ "f \303\251\377 644 x", "f644 \303\251\377 x" },
	/* Attributes of overlayfs and of the kernel are left out. */
	{ "x user.overlay.opaque y\nd a 755\nx user.overlay.redirect /\nd b 755\n"
	  "x security.capability 1\nf c 755 x\nx trusted.overlay.opaque y\nd d 755",
	  "d755 a\nd755 b\nf755 c x\nd755 d" },
};

START_TEST(test_good)
{
	char got[16384];

	if (!become((enum who)(_i % WHO_N)))
		return;
	make_archive(good[_i / WHO_N].archive);
	ck_assert_msg(unpack(&img_unpack_default, false) == 0, "%s: %s", good[_i / WHO_N].archive, e.msg);
	tree(got, sizeof(got));
	ck_assert_str_eq(got, good[_i / WHO_N].tree);
	outside_is_untouched();
}
END_TEST

static const struct {
	const char *archive, *says;
} bad[] = {
	{ "f /etc/passwd 644 x", "/etc/passwd: the name is absolute" },
	{ "f /../etc 644 x", "absolute" },
	{ "f //a 644 x", "absolute" },
	{ "f ../outside/new 644 x", "\"..\"" },
	{ "f a/../../outside/new 644 x", "\"..\"" },
	{ "d a 755\nf a/.. 644 x", "\"..\"" },
	{ "d .. 755", "\"..\"" },
	{ "f .wh... 0", "whiteout of no name" },
	{ "d a 755\nf a/.wh... 0", "whiteout of no name" },
	{ "f .wh.. 0", "whiteout of no name" },
	{ "f .wh. 0", "whiteout of no name" },
	{ "f .wh.a/b 0", "below a whiteout" },
	{ "f a/.wh..wh..opq/b 0", "below a whiteout" },
	{ "f . 644 x", "the root is no directory" },
	{ "s / /etc", "the root is no directory" },
	{ "s a ../outside\nf a/kept 644 x", "below a, which this layer gives as a link" },
	{ "s a ../outside\nd a/d 755", "below a," },
	{ "s a ../outside\nf a/.wh.kept 0", "below a," },
	{ "s a ../outside\nf a/.wh..wh..opq 0", "below a," },
	{ "s a ../outside\nf ./a//new 644 x", "below a," },
	{ "s a .\ns b a/..\nf b/f 644 x", "below b," },
	{ "d d 755\ns d/a ..\nf d/a/f 644 x", "below d/a," },
	{ "f a 644 x\nf a/f 644 x", "below a," },
	{ "d a 755\nf a/f 644 x\ns a ../outside\nf a/f 644 x", "below a," }, /* the parent was kept open */
	{ "h a b", "no such file was given" },
	{ "h a ../outside/kept", "\"..\"" },
	{ "h a /etc/passwd", "absolute" },
	{ "s l ../outside\nh a l/kept", "no such file was given" },
	{ "d d 755\nh a d", "no such file was given" },
	{ "h a .", "no such file was given" },
	{ "f .wh.b 0\nh a b", "no such file was given" },
	{ "f a 644 x\nh a a", "that is itself" },
	{ "f a 644 x\nh ./a a", "that is itself" },
	{ "d a 755\nf a/f 644 x\nh a a/f", "link to a/f" }, /* its own parent */
	{ "f " P250 "pppppp 644 x", "longer than 255" },
	{ "s a x\nh b a/c", "no such file was given" },
};

START_TEST(test_bad)
{
	if (!become((enum who)(_i % WHO_N)))
		return;
	make_archive(bad[_i / WHO_N].archive);
	memset(&done, 0x5a, sizeof(done));
	e.kind = ERR_NONE;
	ck_assert_msg(unpack(&img_unpack_default, false) == -1, "taken: %s", bad[_i / WHO_N].archive);
	ck_assert_msg(strstr(e.msg, bad[_i / WHO_N].says) != NULL, "want \"%s\": %s", bad[_i / WHO_N].says, e.msg);
	ck_assert_uint_eq(done.entries, 0x5a5a5a5a5a5a5a5a);
	ck_assert_ptr_null(strchr(e.msg, '\n'));
	outside_is_untouched();
}
END_TEST

/* Depth, entries, bytes, the archive's own size: the bound is met, one more is refused. */
START_TEST(test_bombs)
{
	struct img_unpack_limits limits = img_unpack_default;
	char line[4096];

	ck_assert(become(AS_CALLER));
	for (int more = 0; more < 2; more++) {
		snprintf(line, sizeof(line), "d ");
		for (int i = 0; i < 256 + more; i++)
			memcpy(line + 2 + 2 * i, "x/", 3);
		make_archive(line);
		ck_assert_int_eq(unpack(&limits, false), -more);
	}
	ck_assert_ptr_nonnull(strstr(e.msg, "deep"));
	make_archive("f p/q/f 644 x\nf b 644 y\nf b 644 y"); /* three, and two on the way */
	limits.entries = 5;
	ck_assert_int_eq(unpack(&limits, false), 0);
	ck_assert_uint_eq(done.entries, 5);
	limits.entries = 2; /* p and q are there now */
	assert_refused(unpack(&limits, false), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "more than 2 entries"));
	limits = img_unpack_default;
	limits.bytes = 3;
	ck_assert_int_eq(unpack(&limits, false), 0);
	ck_assert_uint_eq(done.bytes, 3);
	limits.bytes = 2;
	assert_refused(unpack(&limits, false), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "bytes of content"));
	limits = img_unpack_default;
	limits.archive_bytes = made.n;
	ck_assert_int_eq(unpack(&limits, false), 0);
	limits.archive_bytes--;
	assert_refused(unpack(&limits, false), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "larger than allowed"));
}
END_TEST

START_TEST(test_counts)
{
	if (!become(AS_CALLER))
		return;
	make_archive("f .wh..wh..opq 0\nf .wh.a 0\nc c 0\nb b 0\nf s 4755 x\nx security.capability 1\nf x 755 yy\nx user.a b\ns l t");
	ck_assert_msg(unpack(&img_unpack_default, false) == 0, "%s", e.msg);
	ck_assert(done.opaque_root);
	ck_assert_uint_eq(done.entries, 7);
	ck_assert_uint_eq(done.whiteouts, 2);
	ck_assert_uint_eq(done.devices, 2);
	ck_assert_uint_eq(done.set_ids, 1);
	ck_assert_uint_eq(done.xattrs, 2);
	ck_assert_uint_eq(done.bytes, 3);
	make_archive("f d/.wh..wh..opq 0");
	ck_assert_int_eq(unpack(&img_unpack_default, false), 0);
	ck_assert(!done.opaque_root);
}
END_TEST

/* Times, attributes, owners, and a umask that would take permissions away. */
START_TEST(test_metadata)
{
	bool root = _i == AS_CALLER && geteuid() == 0;
	struct stat st;
	char value[16];

	if (!become((enum who)_i))
		return;
	umask(0777);
	make_archive("d d 750\nx user.note hello\nf d/f 666 x\ns d/l t\np d/p 622\nx user.note dir\nd d/e 555");
	ck_assert_msg(unpack(&img_unpack_default, root) == 0, "%s", e.msg);
	ck_assert_uint_eq(umask(022), 0777);
	static const char *const names[] = { "d", "d/f", "d/l", "d/p", "d/e" };
	static const unsigned modes[] = { 0750, 0666, 0777, 0622, 0555 };
	for (size_t i = 0; i < 5; i++) {
		ck_assert_int_eq(fstatat(layerfd, names[i], &st, AT_SYMLINK_NOFOLLOW), 0);
		ck_assert_int_eq(st.st_mtime, 1000000000);
		ck_assert_uint_eq(st.st_mode & 07777, modes[i]);
		ck_assert_uint_eq(st.st_uid, root ? 1234 : geteuid());
		ck_assert_uint_eq(st.st_gid, root ? 1235 : getegid());
	}
	ck_assert_int_eq(fchdir(layerfd), 0);
	ck_assert_int_eq(getxattr("d/f", "user.note", value, sizeof(value)), 5);
	ck_assert_int_eq(memcmp(value, "hello", 5), 0);
	ck_assert_int_eq(getxattr("d/e", "user.note", value, sizeof(value)), 3);
	if (root) {
		tar_patch(&made, 108, "\200\0\0\0\377\377\377\377", 8); /* the last one's owner: -1 */
		assert_refused(unpack(&img_unpack_default, true), &e, ERR_REFUSED);
		ck_assert_ptr_nonnull(strstr(e.msg, "no user id"));
	}
}
END_TEST

/* A sparse file over 4 GiB costs what its pieces cost. */
START_TEST(test_sparse_large)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;
	char text[512], block[512] = "2\n5000000000\n3\n6000000000\n0\n", got[3];
	size_t n = tar_pax_add(text, 0, "GNU.sparse.major", "1", 1);

	ck_assert(become(AS_CALLER));
	n = tar_pax_add(text, n, "GNU.sparse.minor", "0", 1);
	n = tar_pax_add(text, n, "GNU.sparse.name", "big", 3);
	n = tar_pax_add(text, n, "GNU.sparse.realsize", "6000000000", 10);
	tar_pax_bytes(&made, 'x', text, n);
	tar_header(&made, '0', "GNUSparseFile.0/big", "", 0644, 512 + 3);
	tar_bytes(&made, block, 512);
	tar_bytes(&made, "end", 3);
	tar_pad(&made);
	tar_end(&made);
	ck_assert_msg(unpack(&img_unpack_default, false) == 0, "%s", e.msg);
	fd = openat(layerfd, "big", O_RDONLY | O_CLOEXEC);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 6000000000);
	ck_assert_int_lt(st.st_blocks, 1024);
	ck_assert_int_eq(pread(fd, got, 3, 5000000000), 3);
	ck_assert_int_eq(memcmp(got, "end", 3), 0);
	ck_assert_uint_eq(done.bytes, 3);
}
END_TEST

static bool is_file(const char *path, const char *want)
{
	char text[64];

	return fd_read_file_at(AT_FDCWD, path, text, sizeof(text)) >= 0 && !strcmp(text, want);
}

/* What overlayfs makes of two layers, in a user namespace of one id. Runs in a child; the code says what was wrong. */
static int see_overlay(void)
{
	char opts[512], map[64];
	unsigned uid = geteuid();

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return 77;
	snprintf(map, sizeof(map), "0 %u 1", uid);
	if (fd_write_file_at(AT_FDCWD, "/proc/self/uid_map", map) < 0)
		return 77;
	snprintf(opts, sizeof(opts), "lowerdir=%s/l2:%s/l1,userxattr", layer, layer);
	if (chdir(layer) < 0 || mount("cloche", "m", "overlay", MS_NODEV, opts) < 0)
		return 77;
	return !is_file("m/kept", "1") ? 1
	       : access("m/gone", F_OK) == 0 ? 2
	       : access("m/gone-dir", F_OK) == 0 ? 3
	       : !is_file("m/opaque/new", "2") ? 4
	       : access("m/opaque/old", F_OK) == 0 ? 5
	       : !is_file("m/merged/old", "1") || !is_file("m/merged/new", "2") ? 6
	       : access("m/anew/old", F_OK) == 0 || !is_file("m/anew/new", "2") ? 7
	       : access("m/sub/gone", F_OK) == 0 || !is_file("m/sub/kept", "1") ? 8
									  : 0;
}

START_TEST(test_overlay)
{
	static const char *const archives[] = {
		"f kept 644 1\nf gone 644 1\nf gone-dir/f 644 1\nf opaque/old 644 1\n"
		"f merged/old 644 1\nf anew/old 644 1\nf sub/gone 644 1\nf sub/kept 644 1",
		"f .wh.gone 0\nf .wh.gone-dir 0\nf opaque/new 644 2\nf opaque/.wh..wh..opq 0\nf merged/new 644 2\n"
		"f .wh.anew 0\nf anew/new 644 2\nf sub/.wh.gone 0",
	};
	int status, top;
	pid_t pid;

	ck_assert(become(geteuid() == 0 ? AS_USER : AS_CALLER));
	top = layerfd;
	ck_assert_int_eq(mkdirat(top, "m", 0755), 0);
	for (int i = 0; i < 2; i++) {
		char name[3] = { 'l', (char)('1' + i) };

		ck_assert_int_eq(mkdirat(top, name, 0755), 0);
		layerfd = openat(top, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		make_archive(archives[i]);
		ck_assert_msg(unpack(&img_unpack_default, false) == 0, "%s", e.msg);
	}
	pid = fork();
	if (pid == 0)
		_exit(see_overlay());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		fprintf(stderr, "test_overlay: no overlay in a user namespace here\n");
	else
		ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_good, 0, WHO_N * sizeof(good) / sizeof(*good));
	tcase_add_loop_test(tc, test_bad, 0, WHO_N * sizeof(bad) / sizeof(*bad));
	tcase_add_test(tc, test_bombs);
	tcase_add_test(tc, test_counts);
	tcase_add_loop_test(tc, test_metadata, 0, WHO_N);
	tcase_add_test(tc, test_sparse_large);
	tcase_add_test(tc, test_overlay);
}

int main(void)
{
	return unit_main("unpack", fill);
}
