/* Where the program keeps things. The choice is made anew at each call: it costs a few stat calls
 * and depends on the environment only.
 *
 * What may go wrong: /tmp is everybody's. The fallback /tmp/cloche-UID may have been made by
 * somebody else, as a directory, a link or a file; it is opened without following a link and judged
 * through the descriptor, never by name, and a stranger's is refused. */
#include "state/dirs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

struct state_row {
	const char *name;
	const char *xdg;  /* the variable that names the base */
	const char *home; /* the base below HOME when it does not; NULL: not below HOME */
	mode_t forbid;	  /* mode bits that the directory must not have */
};

static const struct state_row rows[] = {
	[STATE_STORE] = { "store", "XDG_DATA_HOME", ".local/share", 0022 },
	[STATE_RUNTIME] = { "runtime", "XDG_RUNTIME_DIR", NULL, 0077 },
	[STATE_CONFIG] = { "config", "XDG_CONFIG_HOME", ".config", 0022 },
};
static_assert(sizeof(rows) / sizeof(rows[0]) == STATE_DIR_N, "a row for every directory");

const char *state_dir_name(enum state_dir which)
{
	return rows[which].name;
}

/* dst = base "/" name, or *e. */
static int join(char dst[STATE_PATH_MAX], const char *base, const char *name, struct err *e)
{
	if (path_join(dst, STATE_PATH_MAX, base, name) < 0)
		return err_set(
			e, ERR_USAGE,
			"the path of the %s directory is too long: shorten the variable that names it",
			name);
	return 0;
}

/* A base of the runtime directory counts when it is a directory of ours; a link or a stranger's
 * does not. */
static bool base_is_ours(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & 0022);
}

static int runtime_path(char ret[STATE_PATH_MAX], struct err *e)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	char own[64];

	if (base && base[0] == '/' && base_is_ours(base))
		return join(ret, base, "cloche", e);
	snprintf(own, sizeof(own), "/run/user/%u", (unsigned)geteuid());
	if (base_is_ours(own))
		return join(ret, own, "cloche", e);
	snprintf(own, sizeof(own), "cloche-%u", (unsigned)geteuid());
	return join(ret, "/tmp", own, e);
}

static int below_home(const struct state_row *row, char ret[STATE_PATH_MAX], struct err *e)
{
	const char *home = getenv("HOME"), *base = getenv(row->xdg);
	char dir[STATE_PATH_MAX];

	if (base && base[0] == '/')
		return join(ret, base, "cloche", e);
	if (!home || home[0] != '/') {
		const struct passwd *pw = getpwuid(geteuid());

		home = pw ? pw->pw_dir : NULL;
	}
	if (!home || home[0] != '/')
		return err_set(
			e, ERR_MISSING,
			"no place for the %s directory: HOME is not set; set HOME or CLOCHE_HOME",
			row->name);
	/* A home is somebody else's to make: accounts have one that must never be there. */
	if (access(home, F_OK) < 0)
		return err_set(
			e, ERR_MISSING,
			"no place for the %s directory: HOME %.200s is not there; set HOME or CLOCHE_HOME",
			row->name, home);
	if (join(dir, home, row->home, e) < 0)
		return -1;
	return join(ret, dir, "cloche", e);
}

int state_path(enum state_dir which, char ret[STATE_PATH_MAX], struct err *e)
{
	const struct state_row *row = &rows[which];
	const char *all = getenv("CLOCHE_HOME");

	if (all && all[0]) {
		if (all[0] != '/')
			return err_set(e, ERR_USAGE,
				       "CLOCHE_HOME must be an absolute path, and is \"%.200s\"",
				       all);
		return join(ret, all, row->name, e);
	}
	if (which == STATE_RUNTIME)
		return runtime_path(ret, e);
	return below_home(row, ret, e);
}

/* mkdir -p. Links are followed on the way: ~/.local may well be one, and all of it is the caller's
 * own choice. */
static int make_parents(const char *path)
{
	char part[STATE_PATH_MAX];
	size_t n = strlen(path);

	if (n >= sizeof(part)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(part, path, n + 1);
	for (char *p = part + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (mkdir(part, 0700) < 0 && errno != EEXIST)
			return -1;
		*p = '/';
	}
	return 0;
}

static int judge(int fd, const struct state_row *row, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_sys(e, "%s directory %s", row->name, path);
	if (st.st_uid != geteuid())
		return err_set(
			e, ERR_REFUSED,
			"%s directory %s belongs to uid %u, not to you: remove it, or set CLOCHE_HOME",
			row->name, path, (unsigned)st.st_uid);
	if (st.st_mode & row->forbid)
		return err_set(e, ERR_REFUSED,
			       "%s directory %s is open to others (mode %03o): chmod 700 %s",
			       row->name, path, (unsigned)(st.st_mode & 0777), path);
	return 0;
}

int state_open(enum state_dir which, bool make, struct err *e)
{
	const struct state_row *row = &rows[which];
	char path[STATE_PATH_MAX];
	_cleanup_fd_ int fd = -1;

	if (state_path(which, path, e) < 0)
		return -1;
	if (make) {
		if (make_parents(path) < 0)
			return err_sys(e, "can't make the directories above %s", path);
		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			return err_sys(e, "can't make the %s directory %s", row->name, path);
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_MISSING, "there is no %s directory %s", row->name, path);
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return err_set(
			e, ERR_REFUSED,
			"%s directory %s is a link or no directory: remove it, or set CLOCHE_HOME",
			row->name, path);
	if (fd < 0)
		return err_set(
			e, ERR_REFUSED,
			"%s directory %s can't be opened (%s): remove it, or set CLOCHE_HOME",
			row->name, path, strerror(errno));
	if (judge(fd, row, path, e) < 0)
		return -1;
	return fd_steal(&fd);
}
