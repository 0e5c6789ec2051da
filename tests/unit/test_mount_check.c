/* The caller's mounts: how options are read, what is refused of them together, what the child opens, and the hints. */
#include "mount_env.h"

START_TEST(volumes_parse)
{
	static const struct {
		const char *text, *src, *dst;
		bool untrusted, rw;
	} good[] = {
		{ "/a:/b", "/a", "/b", false, true },        { "/a:/b", "/a", "/b", true, false },
		{ "/a:/b:ro", "/a", "/b", false, false },    { "/a:/b:rw", "/a", "/b", true, true },
		{ "a/b:/c//d/./", "a/b", "/c/d", false, true }, { "./x y:/z", "./x y", "/z", false, true },
	};
	static const char *const bad[] = { "", ":", "/a", "/a:", ":/b", "/a::ro", "/a:/b:", "/a:/b:RO",
					   "/a:/b:ro:rw", "/a:/b:z", "/a:b", "/a:/b/../c",
					   "/a:/b\n", "/a:./b:ro" };
	struct box_mount m;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_msg(mount_parse_volume(&mc, good[i].text, good[i].untrusted, &m, &e) == 0, "%s: %s", good[i].text, e.msg);
		ck_assert_str_eq(m.src, good[i].src);
		ck_assert_str_eq(m.dst, good[i].dst);
		ck_assert(m.rw == good[i].rw && !m.workspace);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_refused(mount_parse_volume(&mc, bad[i], false, &m, &e), &e, ERR_USAGE);
}
END_TEST

START_TEST(tmpfs_parse)
{
	static const char *const bad[] = { "", "/a", "/a:", ":1m", "/a:1", "/a:0m", "/a:-1m", "/a:1x", "/a:b:1m",
					   "a:1m", "/a/..:1m", "/a:1m:ro", "/a:99999999t" };
	struct box_mount m;

	ck_assert_int_eq(mount_parse_tmpfs(&mc, "/a//b:1.5m", &m, &e), 0);
	ck_assert_str_eq(m.dst, "/a/b");
	ck_assert_uint_eq(m.size, 1536 * 1024);
	ck_assert(m.kind == BOX_MOUNT_TMPFS && m.rw && !m.src);
	ck_assert_int_eq(mount_parse_tmpfs(&mc, "/a:4096b", &m, &e), 0);
	ck_assert_uint_eq(m.size, 4096);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_refused(mount_parse_tmpfs(&mc, bad[i], &m, &e), &e, ERR_USAGE);
}
END_TEST

static void make_socket(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	close(fd);
}

START_TEST(sources_of_the_wrong_kind)
{
	make_socket(fmt("%s/agent", proj));
	ck_assert_int_eq(mkfifo(fmt("%s/pipe", proj), 0600), 0);
	make_file(fmt("%s/plain", proj));
	refused(fmt("%s/agent", proj), false, "a socket");
	refused(fmt("%s/pipe", proj), false, "a FIFO");
	refused("/dev/null", false, "host system path");
	passes(fmt("%s/plain", proj), true);
	ck_assert_int_eq(spec.mounts[0].kind, BOX_MOUNT_FILE);
	refused(fmt("%s/none", proj), false, "create it first");
	refused(fmt("%s/plain/x", proj), false, "is a file, not a directory");
	refused("~/x", false, "$HOME");
	ck_assert_int_eq(symlink("turn", fmt("%s/turn", proj)), 0);
	refused(fmt("%s/turn", proj), false, "circle");
	fresh();
	ck_assert_int_eq(workspace(fmt("%s/plain", proj)), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_USAGE);
	ck_assert_int_eq(e.stage, STAGE_WORKSPACE);
	fresh();
	ck_assert_int_eq(workspace(home), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "name the project's directory"));
	ck_assert_ptr_nonnull(strstr(e.msg, "--workspace"));
}
END_TEST

START_TEST(fills_the_mount)
{
	struct stat st;

	ck_assert_int_eq(symlink(proj, fmt("%s/way", dir)), 0);
	ck_assert_int_eq(chdir(dir), 0);
	ck_assert_int_eq(workspace("./way/."), 0);
	ck_assert_int_eq(mount_check_all(&mc, &spec, &e), 0);
	ck_assert_int_eq(stat(proj, &st), 0);
	ck_assert_str_eq(spec.mounts[0].src, proj);
	ck_assert_str_eq(spec.mounts[0].dst, "/workspace");
	ck_assert(spec.mounts[0].workspace && spec.mounts[0].rw && spec.mounts[0].kind == BOX_MOUNT_DIR);
	ck_assert(spec.mounts[0].dev == st.st_dev && spec.mounts[0].ino == st.st_ino);
	ck_assert(spec.mounts[0].owner == st.st_uid && spec.mounts[0].group == st.st_gid);
}
END_TEST

/* The same thing must be there when the child opens it. */
START_TEST(replaced_between_check_and_open)
{
	struct box_mount m;
	int fd;

	ck_assert_int_eq(make_dirs(fmt("%s/d", proj)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/.ssh", home)), 0);
	passes(fmt("%s/d", proj), true);
	m = spec.mounts[0];
	fd = mount_open_checked(&m);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(rename(m.src, fmt("%s/old", proj)), 0);
	ck_assert_int_eq(mount_open_checked(&m), -1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(symlink(fmt("%s/.ssh", home), m.src), 0);
	ck_assert_int_eq(mount_open_checked(&m), -1);
	ck_assert_int_eq(errno, ELOOP);
	unlink(m.src);
	ck_assert_int_eq(mkdir(m.src, 0755), 0);
	ck_assert_int_eq(mount_open_checked(&m), -1);
	ck_assert_int_eq(errno, ESTALE);
	/* A link in the middle. */
	ck_assert_int_eq(rmdir(m.src), 0);
	ck_assert_int_eq(rename(fmt("%s/old", proj), m.src), 0);
	fd = mount_open_checked(&m);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(rename(proj, fmt("%s/moved", home)), 0);
	ck_assert_int_eq(symlink(fmt("%s/moved", home), proj), 0);
	ck_assert_int_eq(mount_open_checked(&m), -1);
	ck_assert_int_eq(errno, ELOOP);
}
END_TEST

START_TEST(targets)
{
	static const char *const bad[] = { "/", "/proc", "/proc/sys", "/sys", "/sys/fs/cgroup", "/dev", "/dev/sda",
					   "/dev/shm", "/dev/shm/x", "/usr",
					   "/usr/bin", "/bin", "/lib64", "/etc", "/home", "//proc//", "/./dev/." };
	static const char *const good[] = { "/procx", "/etc/myapp", "/home/user", "/home/user/x", "/opt/x", "/tmp",
					    "/var/run/x", "/usr/local", "/devx" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fresh();
		ck_assert_int_eq(volume(fmt("%s:%s", proj, bad[i])), 0);
		assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
		ck_assert_msg(strstr(e.msg, "refused by the rule target"), "%s: %s", bad[i], e.msg);
		fresh();
		ck_assert_int_eq(tmpfs(fmt("%s:1m", bad[i])), 0);
		assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		fresh();
		ck_assert_int_eq(volume(fmt("%s:%s", proj, good[i])), 0);
		ck_assert_msg(mount_check_all(&mc, &spec, &e) == 0, "%s: %s", good[i], e.msg);
	}
	fresh();
	ck_assert_int_eq(tmpfs("/usr/none:1m"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_USAGE);
	fresh();
	ck_assert_int_eq(tmpfs("/x:513m"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "--memory"));
	fresh();
	ck_assert_int_eq(tmpfs("/x:512m"), 0);
	ck_assert_int_eq(mount_check_all(&mc, &spec, &e), 0);
	fresh();
	spec.limits.memory = BOX_LIMIT_NONE;
	ck_assert_int_eq(tmpfs("/x:513m"), 0);
	ck_assert_int_eq(mount_check_all(&mc, &spec, &e), 0);
}
END_TEST

/* A root file system whose links lead to what may not be a target. */
START_TEST(targets_through_the_images_links)
{
	char root[256];

	snprintf(root, sizeof(root), "%s/img", dir);
	ck_assert_int_eq(make_dirs(fmt("%s/proc", root)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/real", root)), 0);
	ck_assert_int_eq(symlink("/proc", fmt("%s/data", root)), 0);
	ck_assert_int_eq(symlink("../../../dev", fmt("%s/up", root)), 0);
	ck_assert_int_eq(symlink("real", fmt("%s/fine", root)), 0);
	for (int i = 0; i < 5; i++) {
		static const char *const dst[] = { "/data", "/data/self", "/up/shm", "/fine/sub", "/real/sub" };

		fresh();
		spec.root = (struct rootfs){ .kind = ROOTFS_DIR, .name = "img", .dir = root };
		ck_assert_int_eq(volume(fmt("%s:%s", proj, dst[i])), 0);
		if (i < 3) {
			assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
			ck_assert_ptr_nonnull(strstr(e.msg, "in the box"));
		} else {
			ck_assert_msg(mount_check_all(&mc, &spec, &e) == 0, "%s", e.msg);
			ck_assert_str_eq(spec.mounts[0].dst, "/real/sub");
		}
	}
	/* Two names of one place are the same target. */
	fresh();
	spec.root = (struct rootfs){ .kind = ROOTFS_DIR, .name = "img", .dir = root };
	ck_assert_int_eq(volume(fmt("%s:/fine/a", proj)), 0);
	ck_assert_int_eq(tmpfs("/real/a:1m"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_USAGE);
	ck_assert_ptr_nonnull(strstr(e.msg, "same target"));
	fresh();
	ck_assert_int_eq(volume(fmt("%s:/var/run", proj)), 0);
	ck_assert_int_eq(tmpfs("/run:1m"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_USAGE);
}
END_TEST

START_TEST(covering)
{
	ck_assert_int_eq(make_dirs(fmt("%s/sub/deep", proj)), 0);
	make_file(fmt("%s/file", proj));
	ck_assert_int_eq(symlink("sub", fmt("%s/link", proj)), 0);
	static const struct {
		const char *inner; /* with %s for the project */
		bool tmpfs;
		const char *says; /* NULL: passes */
	} rows[] = {
		{ "%s/sub:/workspace/sub:ro", false, NULL },
		{ "%s/sub:/workspace/sub/deep", false, NULL },
		{ "%s/sub:/workspace", false, "same target" },
		{ "%s/sub:/workspace/none", false, "create it first" },
		{ "%s/sub:/workspace/link", false, "no links in targets" },
		{ "%s/sub:/workspace/link/deep", false, "no links in targets" },
		{ "%s/sub:/workspace/file", false, "a directory" },
		{ "%s/file:/workspace/sub", false, "a file" },
		{ "%s/file:/workspace/file:ro", false, NULL },
		{ "/workspace/sub:1m", true, NULL },
		{ "/workspace/none:1m", true, "create it first" },
		{ "/workspace:1m", true, "same target" },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		for (int order = 0; order < 2; order++) {
			char text[512];
			struct stat st;
			int r;

			snprintf(text, sizeof(text), "%s%s", rows[i].tmpfs ? "" : proj, rows[i].inner + (rows[i].tmpfs ? 0 : 2));
			fresh();
			if (order)
				ck_assert_int_eq(workspace(proj), 0);
			ck_assert_int_eq(rows[i].tmpfs ? tmpfs(text) : volume(text), 0);
			if (!order)
				ck_assert_int_eq(workspace(proj), 0);
			r = mount_check_all(&mc, &spec, &e);
			ck_assert_msg(r == (rows[i].says ? -1 : 0), "%s: %s", text, r ? e.msg : "passed");
			if (rows[i].says)
				ck_assert_msg(strstr(e.msg, rows[i].says), "%s: %s", text, e.msg);
			else
				ck_assert_str_eq(spec.mounts[0].dst, "/workspace");
			/* Nothing was made on the host. */
			ck_assert_int_eq(stat(fmt("%s/none", proj), &st), -1);
		}
	}
	fresh();
	ck_assert_int_eq(tmpfs("/data:1m"), 0);
	ck_assert_int_eq(volume(fmt("%s:/data/x", proj)), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "tmpfs over mount"));
	fresh();
	ck_assert_int_eq(tmpfs("/data/x:1m"), 0);
	ck_assert_int_eq(tmpfs("/data:1m"), 0);
	ck_assert_int_eq(tmpfs("/dat:1m"), 0);
	ck_assert_int_eq(mount_check_all(&mc, &spec, &e), 0);
	ck_assert_str_eq(spec.mounts[2].dst, "/data/x");
	fresh();
	ck_assert_int_eq(volume(fmt("%s/file:/f", proj)), 0);
	ck_assert_int_eq(tmpfs("/f/x:1m"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_USAGE);
}
END_TEST

/* Five mounts in each of their 120 orders: one policy. */
START_TEST(order_changes_nothing)
{
	struct box_mount first[5];
	int perm[5] = { 0, 1, 2, 3, 4 }, seen = 0;
	unsigned c[5] = { 0 };

	ck_assert_int_eq(make_dirs(fmt("%s/a/b", proj)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/a/c", proj)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/data", dir)), 0);
	for (unsigned i = 0; i < 5;) {
		if (seen == 0 || c[i] < i) {
			if (seen) {
				unsigned j = i % 2 ? c[i] : 0;
				int t = perm[j];

				perm[j] = perm[i];
				perm[i] = t;
				c[i]++;
				i = 0;
			}
			fresh();
			for (int k = 0; k < 5; k++) {
				const char *texts[] = { fmt("%s:/w", proj), fmt("%s/a:/w/a:ro", proj), fmt("%s/a/b:/w/a/b:rw", proj),
							"/w/a/c:1m", fmt("%s/data:/aa", dir) };

				ck_assert_int_eq(perm[k] == 3 ? tmpfs(texts[3]) : volume(texts[perm[k]]), 0);
			}
			ck_assert_msg(mount_check_all(&mc, &spec, &e) == 0, "%s", e.msg);
			for (int k = 0; k < 5; k++) {
				static char dst[5][64];

				if (seen == 0) {
					first[k] = spec.mounts[k];
					first[k].dst = strcpy(dst[k], spec.mounts[k].dst);
				}
				ck_assert_str_eq(first[k].dst, spec.mounts[k].dst);
				ck_assert(first[k].rw == spec.mounts[k].rw && first[k].ino == spec.mounts[k].ino &&
					  first[k].kind == spec.mounts[k].kind);
			}
			seen++;
		} else {
			c[i] = 0;
			i++;
		}
	}
	ck_assert_int_eq(seen, 120);
}
END_TEST

START_TEST(fifos_under_untrusted)
{
	bool complete;

	ck_assert_int_eq(make_dirs(fmt("%s/a/b", proj)), 0);
	ck_assert_int_eq(symlink("/", fmt("%s/a/out", proj)), 0);
	for (int i = 0; i < 4; i++) {
		if (i == 1)
			ck_assert_int_eq(mkfifo(fmt("%s/a/b/pi\x1bpe", proj), 0600), 0);
		fresh();
		spec.profile = i < 3 ? BOX_PROFILE_UNTRUSTED : BOX_PROFILE_DEFAULT;
		ck_assert_int_eq(i == 2 ? volume(fmt("%s:/x", proj)) : workspace(proj), 0);
		if (i == 1) {
			assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
			ck_assert_ptr_nonnull(strstr(e.msg, "a/b/pi?pe"));
		} else {
			ck_assert_msg(mount_check_all(&mc, &spec, &e) == 0, "%s", e.msg);
		}
	}
	unlink(fmt("%s/a/b/pi\x1bpe", proj));
	ck_assert_int_eq(mount_scan_fifo(&spec.mounts[0], &complete, &e), 0);
	ck_assert(complete);
	for (int i = 0; i < MOUNT_SCAN_MAX; i++)
		ck_assert_int_eq(mknod(fmt("%s/f%d", proj, i), S_IFREG | 0600, 0), 0);
	ck_assert_int_eq(mount_scan_fifo(&spec.mounts[0], &complete, &e), 0);
	ck_assert(!complete);
}
END_TEST

static bool noted(const char *what)
{
	for (size_t i = 0; i < mc.n_notes; i++)
		if (strstr(mc.notes[i], what))
			return true;
	return false;
}

START_TEST(notes)
{
	ck_assert_int_eq(make_dirs(fmt("%s/.ssh", proj)), 0);
	make_file(fmt("%s/.env", proj));
	make_file(fmt("%s/.sshx", proj));
	make_socket(fmt("%s/sock", proj));
	ck_assert_int_eq(workspace(proj), 0);
	ck_assert_int_eq(mount_check_all(&mc, &spec, &e), 0);
	ck_assert(noted(".ssh (private keys)") && noted(".env") && noted("sock, a socket") && !noted(".sshx"));
	ck_assert_uint_eq(mc.n_notes, 3);
	passes(proj, false);
	ck_assert(noted(".env") && !noted("sock,"));
	for (int i = 0; i < 50; i++)
		mount_note(&mc, "%d", i);
	ck_assert_uint_eq(mc.n_notes, MOUNT_NOTES_MAX);
}
END_TEST

START_TEST(rootfs)
{
	struct box_mount m;

	ck_assert_int_eq(mount_check_rootfs(&mc, proj, &m, &e), 0);
	ck_assert_str_eq(m.src, proj);
	assert_refused(mount_check_rootfs(&mc, "/", &m, &e), &e, ERR_REFUSED);
	ck_assert_int_eq(e.stage, STAGE_IMAGE);
	assert_refused(mount_check_rootfs(&mc, home, &m, &e), &e, ERR_REFUSED);
	assert_refused(mount_check_rootfs(&mc, fmt("%s/none", proj), &m, &e), &e, ERR_USAGE);
	make_file(fmt("%s/file", proj));
	assert_refused(mount_check_rootfs(&mc, fmt("%s/file", proj), &m, &e), &e, ERR_USAGE);
}
END_TEST

static const char *hint(const char *arg)
{
	static char buf[600];

	return mount_hint(&mc, &spec, arg, buf, sizeof(buf)) ? buf : "";
}

START_TEST(hints)
{
	make_file(fmt("%s/x.py", proj));
	make_file(fmt("%s/sub/y.py", proj));
	make_file(fmt("%s/.ssh/id", home));
	make_file(fmt("%s/z.py", dir));
	ck_assert_int_eq(chdir(proj), 0);
	ck_assert_str_eq(hint("x.py"), "x.py exists here but the box does not see it: add --workspace .");
	ck_assert_str_eq(hint("./sub/y.py"), "./sub/y.py exists here but the box does not see it: add --workspace .");
	ck_assert_str_eq(hint("none.py"), "");
	ck_assert_str_eq(hint("-x"), "");
	ck_assert_str_eq(hint(""), "");
	ck_assert_str_eq(hint("sub"), "");
	ck_assert_str_eq(hint("/usr/bin/env"), "");
	ck_assert_str_eq(hint("/etc/passwd"), "");
	ck_assert_str_eq(hint(fmt("%s/.ssh/id", home)), "");
	ck_assert_str_eq(hint(fmt("%s/z.py", dir)),
			 fmt("%s/z.py exists here but the box does not see it: add -v %s/z.py:%s/z.py:ro", dir, dir, dir));
	/* In HOME itself a workspace of "." would be refused: the single file is offered. */
	make_file(fmt("%s/run.sh", home));
	ck_assert_int_eq(chdir(home), 0);
	ck_assert_str_eq(hint("run.sh"), fmt("run.sh exists here but the box does not see it: add -v %s/run.sh:/home/user/run.sh:ro", home));
	/* With the workspace there, what it shows needs no hint, and what is elsewhere in it is pointed to. */
	ck_assert_int_eq(chdir(proj), 0);
	ck_assert_int_eq(workspace("."), 0);
	ck_assert_int_eq(mount_check_all(&mc, &spec, &e), 0);
	spec.cwd = "/workspace";
	ck_assert_str_eq(hint("x.py"), "");
	ck_assert_str_eq(hint("sub/y.py"), "");
	ck_assert_str_eq(hint(fmt("%s/x.py", proj)), fmt("%s/x.py is at /workspace/x.py in the box", proj));
	ck_assert_int_eq(chdir(fmt("%s/sub", proj)), 0);
	ck_assert_str_eq(hint("y.py"), "y.py is at /workspace/sub/y.py in the box");
}
END_TEST

static const struct denial *denied(const char *policy)
{
	const struct denial *found = NULL;

	for (size_t i = 0; i < mc.n_denied; i++)
		if (strcmp(mc.denied[i].policy, policy) == 0) {
			ck_assert_ptr_null(found); /* once */
			found = &mc.denied[i];
		}
	ck_assert_msg(found != NULL, "%s denies nothing", policy);
	ck_assert(!found->allow_with != !found->reason);
	return found;
}

/* All rules that refuse a mount, and all mounts that are refused, whatever the order; what the message tells is the first. */
START_TEST(all_that_refuses)
{
	const struct denial *d;

	make_file(fmt("%s/.bashrc", home));
	ck_assert_int_eq(volume(fmt("%s/.bashrc:/a b", home)), 0);
	ck_assert_int_eq(volume("/etc:/proc/x"), 0);
	ck_assert_int_eq(tmpfs("/t:1g"), 0);
	ck_assert_int_eq(volume(fmt("%s:/fine", proj)), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_msg(strstr(e.msg, ".bashrc") && strstr(e.msg, "; 2 other mounts are refused, too"), "%s", e.msg);
	ck_assert_uint_eq(mc.n_denied, 5);
	d = denied(".bashrc (code that the host runs later, read-write)");
	ck_assert_ptr_eq(d, &mc.denied[0]);
	ck_assert_str_eq(d->what, fmt("-v %s/.bashrc:/a b", home));
	ck_assert_str_eq(d->path, fmt("%s/.bashrc", home));
	ck_assert_str_eq(d->allow_with, fmt("-v '%s/.bashrc:/a b:ro'", home));
	ck_assert_ptr_nonnull(denied("target /proc")->reason);
	ck_assert_str_eq(denied("/etc (host system path)")->what, "-v /etc:/proc/x");
	ck_assert_str_eq(denied("/etc (host system path, read-write)")->allow_with, "-v /etc:/proc/x:ro");
	ck_assert_str_eq(denied("tmpfs within memory")->allow_with, "--tmpfs /t:1g --memory 1073741824");

	fresh(); /* a workspace: where the command starts moves with it */
	spec.cwd = "/workspace";
	ck_assert_int_eq(workspace("/usr/lib"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_str_eq(denied("/usr (host system path, read-write)")->allow_with, "-v /usr/lib:/workspace:ro -w /workspace");
	fresh();
	spec.cwd = "/elsewhere";
	ck_assert_int_eq(workspace("/usr/lib"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_str_eq(mc.denied[0].allow_with, "-v /usr/lib:/workspace:ro");

	fresh(); /* more than there is room for */
	for (int i = 0; i < MOUNT_DENIED_MAX + 5; i++)
		ck_assert_int_eq(volume(fmt("/proc:/x%d:ro", i)), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_uint_eq(mc.n_denied, MOUNT_DENIED_MAX);

	fresh(); /* two rules, one mount: nothing else is to be mended; and one more */
	ck_assert_int_eq(volume("/etc:/x"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_uint_eq(mc.n_denied, 2);
	ck_assert_msg(!strstr(e.msg, "refused, too"), "%s", e.msg);
	fresh();
	ck_assert_int_eq(volume("/etc:/x"), 0);
	ck_assert_int_eq(volume("/proc:/y:ro"), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
	ck_assert_msg(strstr(e.msg, "; 1 other mount is refused, too"), "%s", e.msg);
}
END_TEST

START_TEST(files_that_are_not_shared)
{
	make_file(fmt("%s/x.py", proj));
	make_file(fmt("%s/it's.py", proj));
	make_file(fmt("%s/.ssh/id", home));
	ck_assert_int_eq(symlink(fmt("%s/x.py", proj), fmt("%s/link", proj)), 0);
	ck_assert_int_eq(chdir(proj), 0);
	hint("x.py");
	hint(fmt("%s/it's.py", proj));
	hint(fmt("%s/.ssh/id", home));
	hint("../proj/x.py");
	hint("link"); /* as a workspace it would lead out of the box */
	hint("none.py");
	hint("/tmp");
	ck_assert_uint_eq(mc.n_denied, 5);
	for (size_t i = 0; i < mc.n_denied; i++)
		ck_assert_int_eq(mc.denied[i].kind, DENIAL_READ);
	ck_assert_str_eq(mc.denied[0].allow_with, "--workspace .");
	ck_assert_str_eq(mc.denied[1].allow_with, fmt("-v '%s/it'\\''s.py:%s/it'\\''s.py:ro'", proj, proj));
	ck_assert_ptr_null(mc.denied[2].allow_with);
	ck_assert_str_eq(mc.denied[2].policy, ".ssh");
	ck_assert_str_eq(mc.denied[3].allow_with, fmt("-v %s/x.py:/home/proj/x.py:ro", proj));
	ck_assert_str_eq(mc.denied[4].allow_with, fmt("-v %s/x.py:/home/user/link:ro", proj));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, volumes_parse);
	tcase_add_test(tc, tmpfs_parse);
	tcase_add_test(tc, sources_of_the_wrong_kind);
	tcase_add_test(tc, fills_the_mount);
	tcase_add_test(tc, replaced_between_check_and_open);
	tcase_add_test(tc, targets);
	tcase_add_test(tc, targets_through_the_images_links);
	tcase_add_test(tc, covering);
	tcase_add_test(tc, order_changes_nothing);
	tcase_add_test(tc, fifos_under_untrusted);
	tcase_add_test(tc, notes);
	tcase_add_test(tc, rootfs);
	tcase_add_test(tc, hints);
	tcase_add_test(tc, all_that_refuses);
	tcase_add_test(tc, files_that_are_not_shared);
}

int main(void)
{
	return unit_main("mount_check", fill);
}
