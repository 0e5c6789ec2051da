/* What a call changed: each kind of change, what must not be missed (a file written back to its old size and times), what must not be followed,
 * bounds, and random work compared with a model of it. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/changes.h"

static char root[64];
static int rootfd = -1;
static struct ses_changes *c;
static struct buf out;
static struct err e;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void setup(void)
{
	umask(022);
	snprintf(root, sizeof(root), "/tmp/ct-changes-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(rootfd, 0);
	buf_init(&out, 64 << 20);
}

static void teardown(void)
{
	ses_changes_free(&c);
	buf_free(&out);
	fd_close(&rootfd);
	umount2(root, MNT_DETACH);
	nftw(root, remove_one, 64, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *path, const char *text)
{
	_cleanup_fd_ int fd = openat(rootfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, text, strlen(text)), 0);
}

static void begin(void)
{
	ses_changes_free(&c);
	ck_assert_msg(ses_changes_begin(rootfd, &c, &e) == 0, "%s", e.msg);
}

static void end(uint64_t want_cut, const char *want)
{
	uint64_t cut = 99;
	struct json j;

	buf_free(&out);
	buf_init(&out, 64 << 20);
	json_init(&j, &out);
	ck_assert_msg(ses_changes_end(c, &j, &cut, &e) == 0, "%s", e.msg);
	ck_assert(!out.failed);
	ck_assert_uint_eq(cut, want_cut);
	if (want)
		ck_assert_str_eq(out.data, want);
}

START_TEST(kinds)
{
	ck_assert_int_eq(mkdirat(rootfd, "d", 0755), 0);
	put("d/stays", "as it is");
	put("changes", "one");
	put("goes", "four");
	put("moves", "content");
	begin();
	end(0, "[]");

	begin();
	put("changes", "other");
	put("d/new", "12345");
	ck_assert_int_eq(unlinkat(rootfd, "goes", 0), 0);
	ck_assert_int_eq(renameat(rootfd, "moves", rootfd, "d/moved"), 0);
	ck_assert_int_eq(mkdirat(rootfd, "empty", 0755), 0);
	end(0, "[{\"path\":\"changes\",\"change\":\"modified\",\"size\":5},"
	       "{\"path\":\"d/moved\",\"change\":\"renamed\",\"size\":7,\"from\":\"moves\"},"
	       "{\"path\":\"d/new\",\"change\":\"created\",\"size\":5},"
	       "{\"path\":\"goes\",\"change\":\"deleted\",\"size\":4}]");
}
END_TEST

/* A directory that moves takes its files along; one in the place of a file, and the other way. */
START_TEST(directories)
{
	ck_assert_int_eq(mkdirat(rootfd, "a", 0755), 0);
	ck_assert_int_eq(mkdirat(rootfd, "a/b", 0755), 0);
	put("a/b/one", "1");
	put("a/two", "22");
	put("x", "333");
	begin();
	ck_assert_int_eq(renameat(rootfd, "a", rootfd, "z"), 0);
	ck_assert_int_eq(unlinkat(rootfd, "x", 0), 0);
	ck_assert_int_eq(mkdirat(rootfd, "x", 0755), 0);
	put("x/y", "");
	put("a", "a file");
	end(0, "[{\"path\":\"a\",\"change\":\"created\",\"size\":6},"
	       "{\"path\":\"x\",\"change\":\"deleted\",\"size\":3},"
	       "{\"path\":\"x/y\",\"change\":\"created\",\"size\":0},"
	       "{\"path\":\"z/b/one\",\"change\":\"renamed\",\"size\":1,\"from\":\"a/b/one\"},"
	       "{\"path\":\"z/two\",\"change\":\"renamed\",\"size\":2,\"from\":\"a/two\"}]");
}
END_TEST

/* Where the kernel stamps files with a clock that ticks slowly: false when this caller can't have such a place. */
static bool on_ramfs(void)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("none", root, "ramfs", 0, NULL) < 0)
		return false;
	fd_close(&rootfd);
	rootfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return true;
}

/* Size and mtime as before: the status tells. In the very tick in which it was made, too. */
START_TEST(written_unseen)
{
	struct timespec times[2];
	struct stat st;

	if (_i && !on_ramfs())
		return;
	for (int i = 0; i < 50; i++) {
		_cleanup_fd_ int fd = -1;

		put("secret", "before");
		put("replaced", "before");
		ck_assert_int_eq(fstatat(rootfd, "secret", &st, 0), 0);
		times[0] = st.st_atim;
		times[1] = st.st_mtim;
		begin();
		fd = openat(rootfd, "secret", O_WRONLY | O_CLOEXEC);
		ck_assert_int_eq(fd_write_all(fd, "behind", 6), 0);
		ck_assert_int_eq(futimens(fd, times), 0);
		ck_assert_int_eq(unlinkat(rootfd, "replaced", 0), 0);
		put("replaced", "behind");
		end(0, "[{\"path\":\"replaced\",\"change\":\"modified\",\"size\":6},"
		       "{\"path\":\"secret\",\"change\":\"modified\",\"size\":6}]");
		ck_assert_int_eq(unlinkat(rootfd, "replaced", 0) | unlinkat(rootfd, "secret", 0), 0);
	}
}
END_TEST

/* Another file, of the same size, with the inode of the one that was there: made in the tick in which that was made, all of its times would be the
 * same. */
START_TEST(replaced_unseen)
{
	if (_i && !on_ramfs())
		return;
	for (int i = 0; i < 50; i++) {
		put("f", "before");
		begin();
		ck_assert_int_eq(unlinkat(rootfd, "f", 0), 0);
		put("f", "behind");
		end(0, "[{\"path\":\"f\",\"change\":\"modified\",\"size\":6}]");
		ck_assert_int_eq(unlinkat(rootfd, "f", 0), 0);
	}
}
END_TEST

/* Links are themselves; what they lead to is not looked at. FIFOs are nothing, and nobody waits for them. */
START_TEST(links)
{
	char outside[96], text[160];
	_cleanup_fd_ int fd = -1;

	snprintf(outside, sizeof(outside), "%s.outside", root);
	ck_assert_int_eq(mkdir(outside, 0755), 0);
	ck_assert_int_eq(symlinkat("/etc/passwd", rootfd, "old"), 0);
	put("file", "x");
	begin();
	ck_assert_int_eq(symlinkat(outside, rootfd, "dir"), 0);
	ck_assert_int_eq(renameat(rootfd, "old", rootfd, "new"), 0);
	ck_assert_int_eq(mkfifoat(rootfd, "fifo", 0644), 0);
	ck_assert_int_eq(unlinkat(rootfd, "file", 0), 0);
	ck_assert_int_eq(symlinkat("x", rootfd, "file"), 0);
	snprintf(text, sizeof(text), "%s/inside", outside);
	fd = open(text, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	snprintf(text, sizeof(text),
		 "[{\"path\":\"dir\",\"change\":\"created\",\"size\":%zu,\"type\":\"symlink\"},"
		 "{\"path\":\"file\",\"change\":\"modified\",\"size\":1,\"type\":\"symlink\"},",
		 strlen(outside));
	end(0, NULL);
	ck_assert_msg(!strncmp(out.data, text, strlen(text)), "%s", out.data);
	ck_assert_str_eq(out.data + strlen(text),
			 "{\"path\":\"new\",\"change\":\"renamed\",\"size\":11,\"from\":\"old\",\"type\":\"symlink\"}]");
	nftw(outside, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

/* Several names of one file: those that have gone are given to those that have come, once each. */
START_TEST(hard_links)
{
	put("a", "x");
	ck_assert_int_eq(linkat(rootfd, "a", rootfd, "b", 0), 0);
	begin();
	ck_assert_int_eq(renameat(rootfd, "a", rootfd, "a2"), 0);
	ck_assert_int_eq(renameat(rootfd, "b", rootfd, "b2"), 0);
	ck_assert_int_eq(linkat(rootfd, "b2", rootfd, "c", 0), 0);
	end(0, NULL);
	ck_assert_ptr_nonnull(strstr(out.data, "\"from\":\"a\""));
	ck_assert_ptr_nonnull(strstr(out.data, "\"from\":\"b\""));
	ck_assert_ptr_nonnull(strstr(out.data, "\"change\":\"created\""));
	ck_assert_ptr_null(strstr(out.data, "deleted"));
}
END_TEST

START_TEST(names)
{
	begin();
	put("caf\xc3\xa9\n\x1b[31m", "");
	put("\xff\xfe", "");
	end(0, "[{\"path\":\"caf\xc3\xa9\\n\\u001b[31m\",\"change\":\"created\",\"size\":0},"
	       "{\"path\":\"\xef\xbf\xbd\xef\xbf\xbd\",\"change\":\"created\",\"size\":0}]");
}
END_TEST

/* Deeper than paths are long, with few descriptors. */
START_TEST(depth)
{
	int fd = openat(rootfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	begin();
	for (int i = 0; i < 1500; i++) {
		int next;

		ck_assert_int_eq(mkdirat(fd, "dd", 0755), 0);
		next = openat(fd, "dd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = next;
		if (i == 1000)
			ck_assert_int_eq(symlinkat("x", fd, "l"), 0);
	}
	end(0, NULL);
	ck_assert_ptr_nonnull(strstr(out.data, "/dd/l\",\"change\":\"created\""));
	/* nftw would need paths of that length. */
	for (int i = 0; i < 1500; i++) {
		int up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		if (i == 1500 - 1001)
			unlinkat(fd, "l", 0);
		ck_assert_int_ge(up, 0);
		close(fd);
		fd = up;
		ck_assert_int_eq(unlinkat(fd, "dd", AT_REMOVEDIR), 0);
	}
	close(fd);
}
END_TEST

/* A directory that is closed to us counts as empty, the workspace itself is an error. */
START_TEST(closed)
{
	if (geteuid() == 0) {
		ck_assert_int_eq(fchown(rootfd, 12345, 12345), 0);
		ck_assert_int_eq(setresgid(12345, 12345, 12345) | setresuid(12345, 12345, 12345), 0);
	}
	ck_assert_int_eq(mkdirat(rootfd, "d", 0755), 0);
	put("d/f", "x");
	begin();
	ck_assert_int_eq(fchmodat(rootfd, "d", 0, 0), 0);
	put("g", "x");
	end(0, "[{\"path\":\"d/f\",\"change\":\"deleted\",\"size\":1},{\"path\":\"g\",\"change\":\"created\",\"size\":1}]");
	ck_assert_int_eq(fchmodat(rootfd, "d", 0755, 0), 0);
	ses_changes_free(&c);
	ck_assert_int_eq(fchmod(rootfd, 0), 0);
	assert_refused(ses_changes_begin(rootfd, &c, &e), &e, ERR_SYS);
	ck_assert_int_eq(fchmod(rootfd, 0755), 0);
}
END_TEST

START_TEST(many)
{
	char name[64];

	ck_assert_int_eq(mkdirat(rootfd, "d", 0755), 0);
	put("0", "x");
	begin();
	for (int i = 0; i < SES_CHANGES_LIST_MAX + 7; i++) {
		snprintf(name, sizeof(name), "d/%06d", i);
		if (i % 50000 == 0) { /* a file takes no more than 65,000 links */
			ck_assert_int_eq(unlinkat(rootfd, "0", 0), 0);
			put("0", "x");
		}
		ck_assert_int_eq(linkat(rootfd, "0", rootfd, name, 0), 0);
	}
	end(8, NULL);
}
END_TEST

/* Random work. The model: each path is a file with a number and a count of what was done to it. */
#define PATHS 48
struct model {
	unsigned id[PATHS], version[PATHS]; /* id 0: nothing */
};
static unsigned next_id;

static unsigned dice(unsigned n)
{
	static uint64_t state = 88172645463325252ULL;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state % n);
}

/* Path i is in directory i % 4 of two levels. */
static const char *path_of(unsigned i)
{
	static const char *const dirs[] = { "", "p/", "q/", "p/q/" };
	static char text[4][32];
	static unsigned turn;

	turn = (turn + 1) % 4;
	snprintf(text[turn], sizeof(text[turn]), "%sf%02u", dirs[i % 4], i);
	return text[turn];
}

static void step(struct model *m)
{
	unsigned a = dice(PATHS), b = dice(PATHS);
	struct timespec times[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };

	switch (dice(6)) {
	case 0:
	case 1:
		if (!m->id[a])
			m->id[a] = ++next_id;
		m->version[a] = ++next_id;
		put(path_of(a), dice(2) ? "aaaa" : "bbbb");
		if (dice(2))
			ck_assert_int_eq(utimensat(rootfd, path_of(a), times, AT_SYMLINK_NOFOLLOW), 0);
		break;
	case 2:
		ck_assert_int_eq(unlinkat(rootfd, path_of(a), 0), m->id[a] ? 0 : -1);
		m->id[a] = 0;
		break;
	case 3:
		if (a == b)
			break;
		ck_assert_int_eq(renameat(rootfd, path_of(a), rootfd, path_of(b)), m->id[a] ? 0 : -1);
		if (m->id[a]) {
			m->id[b] = m->id[a];
			m->version[b] = ++next_id;
			m->id[a] = 0;
		}
		break;
	case 4:
		if (m->id[a]) {
			ck_assert_int_eq(fchmodat(rootfd, path_of(a), 0600 + dice(64), 0), 0);
			m->version[a] = ++next_id;
		}
		break;
	case 5: /* written aside and renamed over it, as editors do */
		put("draft", "cccc");
		ck_assert_int_eq(renameat(rootfd, "draft", rootfd, path_of(a)), 0);
		m->id[a] = ++next_id;
		m->version[a] = ++next_id;
	}
}

struct line {
	char path[32], text[160];
};
static int by_line(const void *a, const void *b)
{
	return strcmp(((const struct line *)a)->path, ((const struct line *)b)->path);
}

static void expect(const struct model *old, const struct model *new, char *ret, size_t cap)
{
	static struct line lines[PATHS];
	size_t n = 0, len = 1;

	for (unsigned i = 0; i < PATHS; i++) {
		const char *what = NULL, *from = NULL;

		if (new->id[i] && !old->id[i]) {
			what = "created";
			for (unsigned k = 0; k < PATHS; k++)
				if (old->id[k] == new->id[i] && !new->id[k]) {
					what = "renamed";
					from = path_of(k);
				}
		} else if (new->id[i] && (new->id[i] != old->id[i] || new->version[i] != old->version[i])) {
			what = "modified";
		} else if (old->id[i] && !new->id[i]) {
			what = "deleted";
			for (unsigned k = 0; k < PATHS; k++)
				if (new->id[k] == old->id[i] && !old->id[k])
					what = NULL;
		}
		if (!what)
			continue;
		snprintf(lines[n].path, sizeof(lines[n].path), "%s", path_of(i));
		snprintf(lines[n].text, sizeof(lines[n].text), "{\"path\":\"%s\",\"change\":\"%s\",\"size\":4%s%s%s}", lines[n].path, what,
			 from ? ",\"from\":\"" : "", from ? from : "", from ? "\"" : "");
		n++;
	}
	qsort(lines, n, sizeof(*lines), by_line);
	ret[0] = '[';
	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(ret + len, cap - len, "%s%s", i ? "," : "", lines[i].text);
	snprintf(ret + len, cap - len, "]");
}

START_TEST(like_the_model)
{
	static char want[65536];
	static struct model old, new;
	struct timespec pause = { .tv_nsec = 9000000 };

	ck_assert_int_eq(mkdirat(rootfd, "p", 0755) | mkdirat(rootfd, "q", 0755) | mkdirat(rootfd, "p/q", 0755), 0);
	for (int round = 0; round < 200; round++) {
		unsigned steps = dice(2) ? dice(8) : dice(60);

		old = new;
		begin();
		/* A file that is deleted in the tick it was made in, and another made in that tick, are alike but for their content; begin sees
		 * to it that none of those that it saw was. */
		for (unsigned i = 0; i < steps; i++)
			step(&new);
		expect(&old, &new, want, sizeof(want));
		end(0, want);
		if (dice(4) == 0)
			nanosleep(&pause, NULL);
	}
}
END_TEST

/* A box works in the tree while it is walked: what it exchanges for links is not gone through, and the walk ends. */
START_TEST(raced)
{
	char outside[96], inside[128];
	pid_t pid;

	snprintf(outside, sizeof(outside), "%s.outside", root);
	ck_assert_int_eq(mkdir(outside, 0755), 0);
	snprintf(inside, sizeof(inside), "%s/secret", outside);
	close(open(inside, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	ck_assert_int_eq(mkdirat(rootfd, "d", 0755), 0);
	ck_assert_int_eq(symlinkat(outside, rootfd, "l"), 0);
	put("d/inside", "x");
	pid = fork();
	if (pid == 0)
		for (;;) {
			renameat(rootfd, "d", rootfd, "t");
			renameat(rootfd, "l", rootfd, "d");
			renameat(rootfd, "d", rootfd, "l");
			renameat(rootfd, "t", rootfd, "d");
		}
	for (int i = 0; i < 500; i++) {
		begin();
		end(0, NULL);
		ck_assert_ptr_null(strstr(out.data, "secret"));
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	nftw(outside, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, kinds);
	tcase_add_test(tc, directories);
	tcase_add_loop_test(tc, written_unseen, 0, 2);
	tcase_add_loop_test(tc, replaced_unseen, 0, 2);
	tcase_add_test(tc, links);
	tcase_add_test(tc, hard_links);
	tcase_add_test(tc, names);
	tcase_add_test(tc, depth);
	tcase_add_test(tc, closed);
	tcase_add_test(tc, many);
	tcase_add_test(tc, like_the_model);
	tcase_add_test(tc, raced);
}

int main(void)
{
	return unit_main("changes", fill);
}
