/* The skeleton: what the plan's ready ops say stands in a directory, under a name that changes with whatever they say or copy, and only in a store
 * that is the caller's alone. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/skeleton.h"

/* A run keeps its views as long as it lives. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

static char dir[64], store[128], source[96], links[96];
static struct rootfs_entry entries[16];
static struct box_spec spec;
static struct plan plan;
static struct err e;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_msg(fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0, "%s: %s", path, strerror(errno));
	close(fd);
}

static void link_put(const char *name, const char *target)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", links, name);
	ck_assert_int_eq(symlink(target, path), 0);
}

static void setup(void)
{
	char path[160];
	size_t n = 0;

	umask(022);
	strcpy(dir, "/tmp/unit-skel-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(store, sizeof(store), "%s/a/b/store", dir);
	snprintf(source, sizeof(source), "%s/cache", dir);
	snprintf(links, sizeof(links), "%s/links", dir);
	put(source, "the cache");
	ck_assert_int_eq(mkdir(links, 0755), 0);
	link_put("vi", "/usr/bin/vim");
	link_put("dead", "/nowhere");
	snprintf(path, sizeof(path), "%s/secret", links);
	put(path, "no link");
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_LOWER, "usr", "/usr", 0, 0, false };
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_DIR, "etc", NULL, 0, 0755, false };
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_DIR, "tmp", NULL, 0, 01777, false };
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_DIR, "root", NULL, 0, 0700, false };
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_FILE, "etc/hosts", "127.0.0.1 x\n", 12, 0644, false };
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_LINK, "bin", "usr/bin", 0, 0, false };
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_BIND, "etc/cache", source, 0, 0, true };
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_LOWER, "etc/alternatives", links, 0, 0, true };
	entries[n++] = (struct rootfs_entry){ ROOTFS_ENTRY_BIND, "etc/bound", source, 0, 0, false };
	spec = (struct box_spec){ .root = { .kind = ROOTFS_HOST, .name = "host", .entries = entries, .n_entries = n },
				  .home = "/root", .cwd = "/" };
	spec.limits = (struct box_limits){ .memory = 512 << 20, .shm = 64 << 20, .root = 256 << 20 };
	ck_assert_int_eq(plan_build(&spec, &plan, &e), 0);
}

static void teardown(void)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int ready(void)
{
	ck_assert_int_eq(plan_build(&spec, &plan, &e), 0);
	return skeleton_open(&plan, store, geteuid(), getegid());
}

static ino_t ino_of(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

static mode_t mode_of(int fd, const char *path)
{
	struct stat st;

	ck_assert_msg(fstatat(fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0, "%s: %s", path, strerror(errno));
	ck_assert_uint_eq(st.st_uid, geteuid());
	return st.st_mode;
}

static void is_file(int fd, const char *path, const char *text)
{
	char got[64];

	ck_assert_uint_eq(mode_of(fd, path), S_IFREG | 0644);
	ck_assert_int_ge(fd_read_file_at(fd, path, got, sizeof(got)), 0);
	ck_assert_str_eq(got, text);
}

static void is_link(int fd, const char *path, const char *target)
{
	char got[64];
	ssize_t n = readlinkat(fd, path, got, sizeof(got));

	ck_assert_int_eq(n, (ssize_t)strlen(target));
	ck_assert_int_eq(memcmp(got, target, (size_t)n), 0);
}

START_TEST(what_stands_in_it)
{
	int fd = ready();

	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(mode_of(fd, "."), S_IFDIR | 0755);
	ck_assert_uint_eq(mode_of(fd, "etc"), S_IFDIR | 0755);
	ck_assert_uint_eq(mode_of(fd, "tmp"), S_IFDIR | 01777);
	ck_assert_uint_eq(mode_of(fd, "root"), S_IFDIR | 0700);
	ck_assert_uint_eq(mode_of(fd, "usr"), S_IFDIR | 0755); /* a place to mount on */
	ck_assert_uint_eq(mode_of(fd, "proc"), S_IFDIR | 0555);
	ck_assert_uint_eq(mode_of(fd, "dev/shm"), S_IFDIR | 01777);
	ck_assert_uint_eq(mode_of(fd, "dev/null"), S_IFREG | 0666);
	is_file(fd, "etc/hosts", "127.0.0.1 x");
	is_file(fd, "etc/cache", "the cache");
	is_file(fd, "etc/bound", "");
	is_link(fd, "bin", "usr/bin");
	is_link(fd, "dev/fd", "/proc/self/fd");
	is_link(fd, "etc/alternatives/vi", "/usr/bin/vim");
	is_link(fd, "etc/alternatives/dead", "/nowhere");
	ck_assert_int_eq(faccessat(fd, "etc/alternatives/secret", F_OK, AT_SYMLINK_NOFOLLOW), -1);
	ck_assert_int_eq(faccessat(fd, "usr/bin", F_OK, 0), -1); /* nothing of the host but what is marked */
	close(fd);
}
END_TEST

/* Every op that is not carried out ahead is one that a box carries out; what is ready can't be a mount of the caller's or of the kernel's. */
START_TEST(what_is_ready)
{
	spec.mounts[spec.n_mounts++] = (struct box_mount){ .kind = BOX_MOUNT_DIR, .src = "/srv", .dst = "/etc/mine" };
	spec.mounts[spec.n_mounts++] = (struct box_mount){ .kind = BOX_MOUNT_FILE, .src = "/srv/f", .dst = "/f", .rw = true };
	spec.devices[spec.n_devices++].path = "/dev/kvm";
	spec.read_only = true;
	ck_assert_int_eq(plan_build(&spec, &plan, &e), 0);
	for (unsigned i = 0; i < plan.n_ops; i++) {
		const struct op *op = &plan.ops[i];

		if (!op->ready)
			continue;
		ck_assert(!op->strange);
		ck_assert(op->kind == OP_DIR || op->kind == OP_FILE || op->kind == OP_LINK ||
			  (op->kind == OP_BIND && strcmp(op->path, "etc/cache") == 0) ||
			  (op->kind == OP_LOWER && strcmp(op->path, "etc/alternatives") == 0));
	}
	spec.root.kind = ROOTFS_DIR;
	spec.root.dir = "/srv";
	spec.root.n_entries = 0;
	ck_assert_int_eq(plan_build(&spec, &plan, &e), 0);
	for (unsigned i = 0; i < plan.n_ops; i++)
		ck_assert(!plan.ops[i].ready);
}
END_TEST

START_TEST(one_for_all_that_say_the_same)
{
	int first = ready(), second;

	spec.limits.memory = 64 << 20; /* not a matter of the skeleton */
	spec.read_only = true;
	second = ready();
	ck_assert(first >= 0 && second >= 0);
	ck_assert_uint_eq(ino_of(first), ino_of(second));
	close(first);
	close(second);
}
END_TEST

START_TEST(another_for_what_differs)
{
	ino_t seen[8];
	struct timespec times[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
	int fds[8];

	for (int i = 0; i < 7; i++) {
		if (i == 1)
			entries[4].text = "127.0.0.2 x\n";
		if (i == 2)
			entries[5].text = "usr/sbin";
		if (i == 3)
			entries[2].mode = 0755;
		if (i == 4)
			put(source, "another cache");
		if (i == 5)
			ck_assert_int_eq(utimensat(AT_FDCWD, source, times, 0), 0); /* same size, another time */
		if (i == 6)
			link_put("new", "/usr/bin/new");
		fds[i] = ready();
		ck_assert_int_ge(fds[i], 0);
		seen[i] = ino_of(fds[i]);
		for (int k = 0; k < i; k++)
			ck_assert_msg(seen[k] != seen[i], "%d is %d", i, k);
	}
	is_file(fds[0], "etc/hosts", "127.0.0.1 x"); /* what is in use does not change */
	is_file(fds[0], "etc/cache", "the cache");
	is_file(fds[6], "etc/cache", "another cache");
	is_link(fds[6], "etc/alternatives/new", "/usr/bin/new");
	for (int i = 0; i < 7; i++)
		close(fds[i]);
}
END_TEST

START_TEST(a_store_that_is_not_ours_alone)
{
	static const mode_t modes[] = { 0777, 0770, 0720, 0702, 01777 };
	int fd = ready();

	close(fd);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		ck_assert_int_eq(chmod(store, modes[i]), 0);
		ck_assert_int_eq(ready(), -1);
		ck_assert_uint_eq(skeleton_sweep(store), 0);
	}
	ck_assert_int_eq(chmod(store, 0700), 0);
	fd = ready();
	ck_assert_int_ge(fd, 0);
	close(fd);
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(store, 12345, 0), 0);
		ck_assert_int_eq(ready(), -1);
		ck_assert_uint_eq(skeleton_sweep(store), 0);
	}
}
END_TEST

START_TEST(a_store_that_cannot_be)
{
	snprintf(store, sizeof(store), "%s/x", source); /* below a file */
	ck_assert_int_eq(ready(), -1);
	ck_assert_uint_eq(skeleton_sweep(store), 0);
	snprintf(store, sizeof(store), "%s/none", dir);
	ck_assert_uint_eq(skeleton_sweep(store), 0);
	ck_assert_int_eq(access(store, F_OK), -1); /* a sweep makes nothing */
}
END_TEST

/* A source that can't be copied whole means no skeleton, and nothing half-made stays. */
START_TEST(what_cannot_be_copied)
{
	ck_assert_int_eq(unlink(source), 0);
	ck_assert_int_eq(mkfifo(source, 0600), 0);
	ck_assert_int_eq(ready(), -1);
	ck_assert_int_eq(unlink(source), 0);
	ck_assert_int_eq(symlink("/etc/passwd", source), 0);
	ck_assert_int_eq(ready(), -1);
	ck_assert_int_eq(unlink(source), 0);
	put(source, "");
	ck_assert_int_eq(truncate(source, 64 << 20), 0);
	ck_assert_int_eq(ready(), -1);
	ck_assert_int_eq(rmdir(store), 0); /* it is empty */
}
END_TEST

/* A planted link of the right name is no skeleton. */
START_TEST(a_link_in_the_store)
{
	char from[160], to[160];
	int fd = ready();
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	n = readlink(from, to, sizeof(to) - 1);
	ck_assert_int_gt(n, 0);
	to[n] = '\0';
	close(fd);
	ck_assert_uint_eq(skeleton_sweep(store), 1);
	ck_assert_int_eq(symlink("/usr", to), 0);
	ck_assert_int_eq(ready(), -1);
	ck_assert_uint_eq(skeleton_sweep(store), 0);
	ck_assert_int_eq(access("/usr/bin", F_OK), 0);
	ck_assert_int_eq(unlink(to), 0);
}
END_TEST

START_TEST(sweeping)
{
	char draft[160];
	int fd = ready();

	ck_assert_int_ge(fd, 0);
	snprintf(draft, sizeof(draft), "%s/draft-1-1234567890", store); /* what a killed cloche left */
	ck_assert_int_eq(mkdir(draft, 0755), 0);
	snprintf(draft, sizeof(draft), "%s/else", store); /* not ours to touch */
	ck_assert_int_eq(mkdir(draft, 0755), 0);
	ck_assert_uint_eq(skeleton_sweep(store), 1);
	is_file(fd, "etc/hosts", "127.0.0.1 x"); /* in use */
	close(fd);
	ck_assert_uint_eq(skeleton_sweep(store), 1);
	ck_assert_uint_eq(skeleton_sweep(store), 0);
	ck_assert_int_eq(access(draft, F_OK), 0);
	fd = ready();
	ck_assert_int_ge(fd, 0);
	is_file(fd, "etc/hosts", "127.0.0.1 x");
	close(fd);
}
END_TEST

/* Many start at once while others sweep: whoever gets one gets all of it. */
START_TEST(starts_and_sweeps_at_once)
{
	pid_t pids[8];
	int status;

	for (int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i] > 0)
			continue;
		for (int k = 0; k < 300; k++) {
			struct stat st;
			int fd;

			if (i < 4) {
				skeleton_sweep(store);
				continue;
			}
			fd = skeleton_open(&plan, store, geteuid(), getegid());
			if (fd < 0)
				continue;
			for (unsigned o = 0; o < plan.n_ops; o++)
				if (plan.ops[o].ready && fstatat(fd, plan.ops[o].path, &st, AT_SYMLINK_NOFOLLOW) < 0)
					_exit(1);
			close(fd);
		}
		_exit(0);
	}
	for (int i = 0; i < 8; i++) {
		ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
		ck_assert_int_eq(status, 0);
	}
}
END_TEST

START_TEST(not_more_than_a_few)
{
	static char text[SKELETONS_MAX + 4][16];
	int fd = -1;

	for (int i = 0; i < SKELETONS_MAX + 4; i++) {
		snprintf(text[i], sizeof(text[i]), "host %d\n", i);
		entries[4].text = text[i];
		entries[4].len = strlen(text[i]);
		fd = ready();
		if (i < SKELETONS_MAX) {
			ck_assert_int_ge(fd, 0);
			close(fd);
		}
	}
	fd_close(&fd);
	entries[4].text = text[0];
	entries[4].len = strlen(text[0]);
	ck_assert_uint_le(skeleton_sweep(store), SKELETONS_MAX);
	fd = ready();
	ck_assert_int_ge(fd, 0);
	close(fd);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_stands_in_it);
	tcase_add_test(tc, what_is_ready);
	tcase_add_test(tc, one_for_all_that_say_the_same);
	tcase_add_test(tc, another_for_what_differs);
	tcase_add_test(tc, a_store_that_is_not_ours_alone);
	tcase_add_test(tc, a_store_that_cannot_be);
	tcase_add_test(tc, what_cannot_be_copied);
	tcase_add_test(tc, a_link_in_the_store);
	tcase_add_test(tc, sweeping);
	tcase_add_test(tc, starts_and_sweeps_at_once);
	tcase_add_test(tc, not_more_than_a_few);
}

int main(void)
{
	return unit_main("skeleton", fill);
}
