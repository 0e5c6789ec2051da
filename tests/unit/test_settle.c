/* What a set-up box leaves, and what becomes of it: as an ordinary caller, and as root whose box wrote as somebody else. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/settle.h"

#define CALLER 12345
#define BOX 2113929216u

static char dir[64];
static int tree = -1;
static bool as_root; /* as well: each test runs for both callers */

static int put(const char *name, mode_t mode)
{
	_cleanup_fd_ int fd = openat(tree, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	return fd < 0 || write(fd, "12345", 5) != 5 || fchmod(fd, mode) < 0 ? -1 : 0;
}

static mode_t mode_of(const char *name)
{
	struct stat st;

	return fstatat(tree, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_mode;
}

static const char *at(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void put_socket(const char *name)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(to.sun_path, sizeof(to.sun_path), "%s/%s", dir, name);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&to, sizeof(to)), 0);
}

/* Becomes the caller of this round; root's tree belongs to root's box. */
static void setup(void)
{
	snprintf(dir, sizeof(dir), "/tmp/ct-settle-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chmod(dir, 0755), 0);
	if (geteuid() == 0 && !as_root)
		ck_assert_int_eq(chown(dir, CALLER, CALLER), 0);
	if (geteuid() == 0 && !as_root)
		ck_assert(setresgid(CALLER, CALLER, CALLER) == 0 && setresuid(CALLER, CALLER, CALLER) == 0);
	tree = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(tree, 0);
}

static void give_to_box(void)
{
	char command[300];

	if (!as_root)
		return;
	/* A change of owner takes the bits; a box makes its files as their owner. */
	snprintf(command, sizeof(command),
		 "find %s -exec sh -c 'm=$(stat -c %%a \"$1\"); chown -h %u:%u \"$1\"; [ -L \"$1\" ] || chmod $m \"$1\"' - {} \\;", dir, BOX, BOX);
	ck_assert_int_eq(system(command), 0);
}

static void teardown(void)
{
	char command[300];

	snprintf(command, sizeof(command), "chmod -R u+rwx %s; rm -rf %s", dir, dir);
	ck_assert_int_eq(system(command), 0);
	fd_close(&tree);
}

/* Runs a test body in a child, since it changes its ids. */
static void both(void (*body)(void))
{
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t pid;

		as_root = i == 1;
		if (as_root && geteuid() != 0)
			continue;
		pid = fork();
		if (pid == 0) {
			setup();
			body();
			teardown();
			_exit(0);
		}
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_msg(status == 0, "as %s", as_root ? "root" : "an ordinary caller");
	}
}

static void settle(struct img_unpacked *ret)
{
	struct err e = { 0 };

	give_to_box();
	ck_assert_msg(img_settle(tree, ret, &e) == 0, "%s", e.msg);
}

static void body_bits(void)
{
	struct img_unpacked done;
	struct stat st;

	ck_assert(put("plain", 0644) == 0 && put("suid", 04755) == 0 && put("sgid", 02755) == 0 && put("both", 06711) == 0);
	ck_assert(put("lock", 02644) == 0 && put("sticky", 01644) == 0 && put("none", 0) == 0);
	ck_assert(mkdirat(tree, "shared", 0755) == 0 && fchmodat(tree, "shared", 07775, 0) == 0);
	ck_assert_int_eq(mode_of("both") & 07777, 06711); /* the control */
	settle(&done);
	ck_assert_uint_eq(done.set_ids, 4);
	ck_assert_uint_eq(done.entries, 8);
	ck_assert_uint_eq(done.bytes, 35);
	ck_assert_int_eq(mode_of("plain") & 07777, 0644);
	ck_assert_int_eq(mode_of("suid") & 07777, 0755);
	ck_assert_int_eq(mode_of("sgid") & 07777, 0755);
	ck_assert_int_eq(mode_of("both") & 07777, 0711);
	ck_assert_int_eq(mode_of("lock") & 07777, 0644);
	ck_assert_int_eq(mode_of("sticky") & 07777, 01644);
	ck_assert_int_eq(mode_of("none") & 07777, 0);
	ck_assert_int_eq(mode_of("shared") & 07777, 03775);
	ck_assert(fstatat(tree, "both", &st, 0) == 0 && st.st_uid == geteuid() && st.st_gid == getegid());
}

static void body_kinds(void)
{
	struct img_unpacked done;
	struct stat st;

	put_socket("socket");
	ck_assert(mkfifoat(tree, "fifo", 0644) == 0 && symlinkat("/etc/shadow", tree, "link") == 0);
	ck_assert_int_eq(mknodat(tree, "whiteout", S_IFCHR, makedev(0, 0)), 0);
	if (as_root)
		ck_assert(mknodat(tree, "null", S_IFCHR | 0666, makedev(1, 3)) == 0 && mknodat(tree, "disk", S_IFBLK | 0660, makedev(8, 0)) == 0);
	settle(&done);
	ck_assert_uint_eq(done.whiteouts, 1);
	ck_assert_uint_eq(done.devices, as_root ? 2 : 0);
	ck_assert_uint_eq(done.entries, 3);
	ck_assert_uint_eq(mode_of("socket") | mode_of("null") | mode_of("disk"), 0);
	ck_assert(S_ISFIFO(mode_of("fifo")) && S_ISCHR(mode_of("whiteout")));
	ck_assert(fstatat(tree, "link", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode) && st.st_uid == geteuid());
}

/* The box's root needs no permission, and an ordinary caller has to get in all the same. */
static void body_closed(void)
{
	struct img_unpacked done;

	ck_assert(mkdirat(tree, "closed", 0700) == 0 && mkdirat(tree, "closed/in", 0700) == 0 && put("closed/in/file", 04700) == 0);
	ck_assert(fchmodat(tree, "closed/in", 0, 0) == 0 && fchmodat(tree, "closed", 0550, 0) == 0);
	settle(&done);
	ck_assert_uint_eq(done.set_ids, 1);
	ck_assert_int_eq(mode_of("closed") & 07777, 0550);
	ck_assert(fchmodat(tree, "closed", 0700, 0) == 0 && (mode_of("closed/in") & 07777) == 0);
	ck_assert(fchmodat(tree, "closed/in", 0700, 0) == 0 && (mode_of("closed/in/file") & 07777) == 0700);
}

static void body_attributes(void)
{
	/* A version 2 capability: one of root's for everybody, which a box can't even set. */
	static const unsigned char cap[20] = { 1, 0, 0, 2, 0, 0x20, 0, 0 };
	struct img_unpacked done;
	char value[64];
	struct err why;

	ck_assert(mkdirat(tree, "opaque", 0755) == 0 && mkdirat(tree, "odd", 0755) == 0 && put("file", 0644) == 0);
	ck_assert_int_eq(setxattr(at("opaque"), "user.overlay.opaque", "y", 1, 0), 0);
	ck_assert_int_eq(setxattr(at("opaque"), "user.overlay.impure", "y", 1, 0), 0);
	ck_assert_int_eq(setxattr(at("odd"), "user.overlay.opaque", "x", 1, 0), 0);
	ck_assert_int_eq(setxattr(at("file"), "user.overlay.redirect", "/etc", 4, 0), 0);
	ck_assert_int_eq(setxattr(at("file"), "user.overlay.opaque", "y", 1, 0), 0);
	ck_assert_int_eq(setxattr(at("file"), "user.mine", "kept", 4, 0), 0);
	settle(&done);
	if (as_root) { /* after the change of owner, which would take it */
		ck_assert_int_eq(setxattr(at("file"), "security.capability", cap, sizeof(cap), 0), 0);
		ck_assert_int_eq(img_settle(tree, &done, &why), 0);
		ck_assert_uint_eq(done.xattrs, 1);
	}
	ck_assert_int_eq(getxattr(at("opaque"), "user.overlay.opaque", value, sizeof(value)), 1);
	ck_assert_int_eq(getxattr(at("file"), "user.mine", value, sizeof(value)), 4);
	ck_assert_int_eq(getxattr(at("opaque"), "user.overlay.impure", value, sizeof(value)), -1);
	ck_assert_int_eq(getxattr(at("odd"), "user.overlay.opaque", value, sizeof(value)), -1);
	ck_assert_int_eq(getxattr(at("file"), "user.overlay.redirect", value, sizeof(value)), -1);
	ck_assert_int_eq(getxattr(at("file"), "user.overlay.opaque", value, sizeof(value)), -1);
	ck_assert_int_eq(getxattr(at("file"), "security.capability", value, sizeof(value)), -1);
}

static void body_deep(void)
{
	struct img_unpacked done = { .entries = 77 };
	int fd = dup(tree);
	struct err e;

	for (int i = 0; i < 300; i++) {
		int next;

		ck_assert_int_eq(mkdirat(fd, "d", 0755), 0);
		next = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ck_assert_int_ge(next, 0);
		close(fd);
		fd = next;
	}
	close(fd);
	assert_refused(img_settle(tree, &done, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "deep"));
	ck_assert_uint_eq(done.entries, 77);
}

#define FOR_BOTH(name)              \
	START_TEST(name)            \
	{                           \
		both(body_##name); \
	}                           \
	END_TEST
FOR_BOTH(bits)
FOR_BOTH(kinds)
FOR_BOTH(closed)
FOR_BOTH(attributes)
FOR_BOTH(deep)

static void fill(TCase *t)
{
	tcase_add_test(t, bits);
	tcase_add_test(t, kinds);
	tcase_add_test(t, closed);
	tcase_add_test(t, attributes);
	tcase_add_test(t, deep);
}

int main(void)
{
	return unit_main("settle", fill);
}
