/* What the tests of unpacking share: archives written as lines, a place to unpack into as one of three callers, and the tree as text.
 *
 * An archive is lines: TYPE PATH [MODE or TARGET [CONTENT]], TYPE one of d f s(ymlink) h(ard link) c(haracter device) b(lock device) p(ipe), and
 * x NAME VALUE: an extended attribute of the next one. A tree is a line a name, sorted: "d755 path", with O behind an opaque directory;
 * "f644 path content", "s path target", "w path" a whiteout, "p600 path"; "=" behind files that are hard links. */
#pragma once

#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/unpack.h"
#include "tar_make.h"

static char base[64], layer[80];
static int layerfd = -1, lowers[2];
static size_t n_lowers;
static struct tar_made made;
static struct img_unpacked done;
static struct err e;

static void put(const char *path, const char *text)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fd_write_all(fd, text, strlen(text)), 0);
}

/* base/layer is unpacked into; base/outside/kept has to stay.  */
static void setup(void)
{
	char path[128];

	snprintf(base, sizeof(base), "/tmp/ct-unpack-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	ck_assert_int_eq(chmod(base, 0755), 0);
	snprintf(layer, sizeof(layer), "%s/layer", base);
	ck_assert_int_eq(mkdir(layer, 0700), 0);
	snprintf(path, sizeof(path), "%s/outside", base);
	ck_assert_int_eq(mkdir(path, 0777), 0);
	ck_assert_int_eq(chmod(path, 0777), 0);
	snprintf(path, sizeof(path), "%s/outside/kept", base);
	put(path, "as it was");
	ck_assert_int_eq(chmod(path, 0666), 0);
}

/* Shows each name below dir to `look`, and removes it afterwards when asked to. Closed directories are opened for that, after they were shown: nftw
 * would not come into them. */
static void visit(const char *dir, void (*look)(const char *path, const struct stat *st), bool removes)
{
	DIR *d = opendir(dir);
	struct dirent *ent;

	ck_assert_ptr_nonnull(d);
	while ((ent = readdir(d))) {
		char path[PATH_MAX];
		struct stat st;

		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, ent->d_name);
		ck_assert_int_eq(lstat(path, &st), 0);
		if (look)
			look(path, &st);
		if (S_ISDIR(st.st_mode)) {
			ck_assert((st.st_mode & 0700) == 0700 || chmod(path, 0700) == 0);
			visit(path, look, removes);
		}
		ck_assert(!removes || remove(path) == 0);
	}
	closedir(d);
}

static void teardown(void)
{
	fd_close(&layerfd);
	free(made.data);
	visit(base, NULL, true);
	ck_assert_int_eq(rmdir(base), 0);
}

enum who { AS_CALLER, AS_USER, AS_SINGLE_ID, WHO_N };

/* False when this process can't become that. */
static bool become(enum who who)
{
	char map[64];

	if (who != AS_CALLER) {
		if (geteuid() != 0)
			return false;
		ck_assert_int_eq(chown(base, 12345, 12345) | chown(layer, 12345, 12345), 0);
		ck_assert_int_eq(setresgid(12345, 12345, 12345) | setresuid(12345, 12345, 12345), 0);
	}
	prctl(PR_SET_DUMPABLE, 1); /* or our own /proc is root's */
	if (who == AS_SINGLE_ID) {
		if (unshare(CLONE_NEWUSER) < 0)
			return false;
		snprintf(map, sizeof(map), "0 12345 1");
		ck_assert_int_eq(fd_write_file_at(AT_FDCWD, "/proc/self/setgroups", "deny"), 0);
		ck_assert_int_eq(fd_write_file_at(AT_FDCWD, "/proc/self/uid_map", map), 0);
		ck_assert_int_eq(fd_write_file_at(AT_FDCWD, "/proc/self/gid_map", map), 0);
	}
	layerfd = open(layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(layerfd, 0);
	return true;
}

static void make_line(const char *line)
{
	char path[1024] = "", third[1024] = "", content[256] = "", text[2048];

	sscanf(line + 2, "%1023s %1023s %255s", path, third, content);
	if (!strcmp(path, "-")) /* a line's way to say: empty */
		path[0] = '\0';
	if (line[0] == 'x') {
		snprintf(text, sizeof(text), "SCHILY.xattr.%s", path);
		tar_pax_one(&made, text, third);
		return;
	}
	if (strlen(path) > 100)
		tar_long(&made, 'L', path);
	switch (line[0]) {
	case 'd':
	case 'p':
		tar_header(&made, line[0] == 'd' ? '5' : '6', path, "", (unsigned)strtoul(third, NULL, 8), 0);
		break;
	case 'f':
		tar_file(&made, path, (unsigned)strtoul(third, NULL, 8), content);
		break;
	case 's':
	case 'h':
		tar_header(&made, line[0] == 's' ? '2' : '1', path, third, 0777, 0);
		break;
	default:
		tar_header(&made, line[0] == 'c' ? '3' : '4', path, "", 0666, 0);
	}
}

static void make_archive(const char *lines)
{
	char line[4096];

	made.n = made.served = 0;
	while (*lines) {
		size_t n = strcspn(lines, "\n");

		snprintf(line, sizeof(line), "%.*s", (int)n, lines);
		make_line(line);
		lines += n + (lines[n] == '\n');
	}
	tar_end(&made);
}

static int unpack(const struct img_unpack_limits *limits, bool keep_owners)
{
	struct tar_source source = { tar_serve, &made };
	struct img_unpack_how how = { *limits, keep_owners, lowers, n_lowers };

	made.served = 0;
	return img_unpack(layerfd, &source, &how, &done, &e);
}

static char found[64][1200];
static size_t n_found;

static void look(const char *path, const struct stat *st)
{
	const char *rel = path + strlen(layer) + 1;
	char text[256] = "";
	unsigned mode = st->st_mode & 07777;
	char *line;

	ck_assert_uint_lt(n_found, 64);
	line = found[n_found++];
	if (S_ISDIR(st->st_mode)) {
		ssize_t n = getxattr(path, "user.overlay.opaque", text, sizeof(text));

		ck_assert(n < 0 || (n == 1 && text[0] == 'y'));
		snprintf(line, 1200, "d%o %s%s", mode, rel, n == 1 ? " O" : "");
	} else if (S_ISLNK(st->st_mode)) {
		ck_assert_int_gt(readlink(path, text, sizeof(text) - 1), 0);
		snprintf(line, 1200, "s %s %s", rel, text);
	} else if (S_ISREG(st->st_mode)) {
		/* Read as the user who unpacked; what may not be read has its mode changed after it was noted. */
		chmod(path, 0600);
		ck_assert_int_ge(fd_read_file_at(AT_FDCWD, path, text, sizeof(text)), 0);
		chmod(path, mode);
		snprintf(line, 1200, "f%o %s %s%s", mode, rel, text, st->st_nlink > 1 ? " =" : "");
	} else if (S_ISCHR(st->st_mode)) {
		ck_assert_uint_eq(st->st_rdev, 0);
		snprintf(line, 1200, "w %s", rel);
	} else {
		snprintf(line, 1200, "p%o %s", mode, rel);
	}
}

static int by_path(const void *a, const void *b)
{
	return strcmp(strchr(a, ' '), strchr(b, ' '));
}

static void tree(char *ret, size_t cap)
{
	size_t len = 0;

	n_found = 0;
	visit(layer, look, false);
	qsort(found, n_found, sizeof(*found), by_path);
	ret[0] = '\0';
	for (size_t i = 0; i < n_found; i++)
		len += (size_t)snprintf(ret + len, cap - len, "%s%s", i ? "\n" : "", found[i]);
}

static void outside_is_untouched(void)
{
	char path[128], text[64];
	struct stat st;

	snprintf(path, sizeof(path), "%s/outside/kept", base);
	ck_assert_int_gt(fd_read_file_at(AT_FDCWD, path, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "as it was");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_nlink, 1);
	ck_assert_uint_eq(st.st_mode & 07777, 0666);
	snprintf(path, sizeof(path), "%s/outside", base);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_nlink, 2);
	ck_assert_int_eq(stat(base, &st), 0);
	ck_assert_uint_eq(st.st_nlink, 4);
}
