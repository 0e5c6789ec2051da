/* A home, a project in it and a runtime directory of the test's own, and short words for options and their checks. */
#pragma once

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "box/mount_check.h"

static char dir[64], home[128], runtime[128], proj[128];
static struct mount_check mc;
static struct box_spec spec;
static struct err e;

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static inline void remove_all(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline const char *fmt(const char *f, ...) __attribute__((format(printf, 1, 2)));
static inline const char *fmt(const char *f, ...)
{
	static char ring[8][1024]; /* enough for the arguments of one call; what lives longer is copied */
	static unsigned next;
	char *s = ring[next++ % 8];
	va_list ap;

	va_start(ap, f);
	vsnprintf(s, sizeof(ring[0]), f, ap);
	va_end(ap);
	return s;
}

static inline int make_dirs(const char *abs)
{
	_cleanup_fd_ int root = open("/", O_PATH | O_DIRECTORY), fd = path_make_dir(root, abs);

	return fd < 0 ? -1 : 0;
}

static inline void make_file(const char *abs)
{
	_cleanup_fd_ int root = open("/", O_PATH | O_DIRECTORY), fd = path_make_file(root, abs);

	ck_assert_msg(fd >= 0, "%s: %s", abs, strerror(errno));
}

static inline void fresh(void)
{
	mount_check_free(&mc);
	ck_assert_int_eq(mount_check_init(&mc, &e), 0);
	ck_assert_int_eq(mount_check_learn(&mc, &e), 0);
	spec = (struct box_spec){ .root = { .kind = ROOTFS_HOST, .name = "host" }, .cwd = "/home/user", .home = "/home/user" };
	spec.limits.memory = 512 << 20;
}

static inline void setup(void)
{
	static const char *const clean[] = { "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "CLOCHE_HOME", "GNUPGHOME", "DOCKER_CONFIG",
					     "CARGO_HOME", "GRADLE_USER_HOME", "PASSWORD_STORE_DIR" };

	for (size_t i = 0; i < sizeof(clean) / sizeof(clean[0]); i++)
		unsetenv(clean[i]);
	for (size_t i = 0; i < mount_rules_n; i++)
		if (mount_rules[i].kind == RULE_ENV)
			unsetenv(mount_rules[i].pattern);
	umask(022);
	strcpy(dir, "/tmp/unit-mount-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(home, sizeof(home), "%s/h/home", dir);
	snprintf(runtime, sizeof(runtime), "%s/r/run", dir);
	snprintf(proj, sizeof(proj), "%s/h/home/proj", dir);
	ck_assert_int_eq(make_dirs(proj), 0);
	ck_assert_int_eq(make_dirs(runtime), 0);
	setenv("HOME", home, 1);
	setenv("XDG_RUNTIME_DIR", runtime, 1);
	fresh();
}

static inline void teardown(void)
{
	mount_check_free(&mc);
	ck_assert_int_eq(chdir("/"), 0);
	remove_all(dir);
}

static inline int volume(const char *text)
{
	if (mount_parse_volume(&mc, text, spec.profile == BOX_PROFILE_UNTRUSTED, &spec.mounts[spec.n_mounts], &e) < 0)
		return -1;
	spec.n_mounts++;
	return 0;
}

static inline int tmpfs(const char *text)
{
	if (mount_parse_tmpfs(&mc, text, &spec.mounts[spec.n_mounts], &e) < 0)
		return -1;
	spec.n_mounts++;
	return 0;
}

static inline int workspace(const char *text)
{
	if (mount_parse_workspace(&mc, text, &spec.mounts[spec.n_mounts], &e) < 0)
		return -1;
	spec.n_mounts++;
	return 0;
}

/* One source alone, through the whole check. */
static inline int check(const char *src, bool rw)
{
	fresh();
	if (volume(fmt("%s:/mnt/x:%s", src, rw ? "rw" : "ro")) < 0)
		return -1;
	return mount_check_all(&mc, &spec, &e);
}

static inline void refused(const char *src, bool rw, const char *what)
{
	e.msg[0] = '\0';
	ck_assert_msg(check(src, rw) == -1, "%s (%s) passed", src, rw ? "rw" : "ro");
	ck_assert_msg(strstr(e.msg, what), "%s: \"%s\" does not say \"%s\"", src, e.msg, what);
	ck_assert_msg(!strchr(e.msg, '\n') && strlen(e.msg) < sizeof(e.msg) - 1, "%s", e.msg);
}

static inline void passes(const char *src, bool rw)
{
	ck_assert_msg(check(src, rw) == 0, "%s (%s): %s", src, rw ? "rw" : "ro", e.msg);
	ck_assert_int_eq((int)spec.n_mounts, 1);
}
