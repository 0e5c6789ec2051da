/* A linked worktree has a file `.git` that names a directory of its repository,
 * REPO/worktrees/NAME. Commands of git in the box need that directory, objects, refs and their
 * logs; they only read the rest. So the repository is shown read-only at the path that the file
 * names, with those parts read-write on top of it. What git on the host executes or believes stays
 * as it is: config, hooks, the worktrees of others, and in the read-write parts the files that lead
 * elsewhere, each held by a read-only mount of itself (a mount point can be neither removed nor
 * renamed).
 *
 * The worktree is the box's to write, so an earlier box may have written `.git`. It is believed
 * only when the repository names the worktree in turn, which no box can write; and no part may be a
 * link (mount_check.c holds that to what is mounted).
 *
 * What may go wrong: a box can destroy objects and refs, as anybody can who may commit. What
 * changes config or packed-refs fails in it: branch -u, gc, deleting a packed branch. */
#include "box/git_share.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define CONFIG_MAX 65536

struct linked {
	char work[PATH_MAX];	 /* the worktree, canonical */
	char dir[PATH_MAX];	 /* REPO/worktrees/NAME, canonical */
	char there[PATH_MAX];	 /* the same as the box will look for it */
	size_t repo, repo_there; /* lengths of REPO in the two */
};

/* Relative to REPO/worktrees/NAME where `own`, else to REPO. */
static const struct part {
	const char *name;
	bool own, rw, may_lack;
} parts[] = {
	{ "", false, false, false },
	{ "objects", false, true, false },
	{ "objects/info", false, false, false }, /* alternates: objects of others */
	{ "refs", false, true, false },
	{ "reftable", false, true, true },
	{ "logs", false, true, false },
	{ "", true, true, false },
	{ "commondir", true, false, false }, /* leads to config and hooks */
	{ "gitdir", true, false, false },
	{ "config.worktree", true, false, true },
};

/* The whole of a small regular file, as a string. -1 with errno. */
static int read_small(int dirfd, const char *name, char *buf, size_t cap)
{
	_cleanup_fd_ int fd =
		openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	if (!S_ISREG(st.st_mode)) {
		errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
		return -1;
	}
	n = fd_read_full(fd, buf, cap);
	if (n < 0)
		return -1;
	if ((size_t)n == cap || memchr(buf, '\0', (size_t)n)) {
		errno = EINVAL;
		return -1;
	}
	buf[n] = '\0';
	return 0;
}

/* One line without its end. */
static int read_line(int dirfd, const char *name, char *buf, size_t cap)
{
	size_t n;

	if (read_small(dirfd, name, buf, cap) < 0)
		return -1;
	n = strlen(buf);
	while (n > 0 && (buf[n - 1] == '\n' || buf[n - 1] == '\r'))
		buf[--n] = '\0';
	if (n == 0 || strchr(buf, '\n')) {
		errno = EINVAL;
		return -1;
	}
	return 0;
}

/* Takes names off the end for each ".." of `path`: what a shell would make of BASE/PATH. */
static int collapse(const char *base, const char *path, char ret[PATH_MAX])
{
	size_t len = strlen(base);

	memcpy(ret, base, len + 1);
	while (*path) {
		size_t n = strcspn(path, "/");

		if (n == 2 && path[0] == '.' && path[1] == '.') {
			while (len > 0 && ret[--len] != '/')
				;
		} else if (n > 1 || (n == 1 && path[0] != '.')) {
			if (len + 1 + n >= PATH_MAX)
				return -1;
			ret[len++] = '/';
			memcpy(ret + len, path, n);
			len += n;
		}
		ret[len] = '\0';
		path += n + (path[n] == '/');
	}
	return len > 0 ? 0 : -1;
}

/* The length of REPO in REPO/worktrees/NAME, or 0. */
static size_t repo_length(const char *dir)
{
	const char *name = strrchr(dir, '/');
	size_t n = name ? (size_t)(name - dir) : 0;
	static const char mid[] = "/worktrees";

	if (n <= sizeof(mid) - 1 || memcmp(dir + n - (sizeof(mid) - 1), mid, sizeof(mid) - 1) != 0)
		return 0;
	return n - (sizeof(mid) - 1);
}

/* Follows `.git` of the worktree. The words in it are not believed yet. */
static int follow(const char *dir, struct linked *l, struct err *e)
{
	char line[PATH_MAX + 16], full[PATH_MAX];
	_cleanup_fd_ int work = -1;
	struct err ignored;
	const char *to;
	int r;

	if (path_canonical(dir, l->work) == 0)
		work = path_open_nolinks(l->work, O_DIRECTORY);
	if (work < 0)
		return err_sys(e, "open it");
	if (read_line(work, ".git", line, sizeof(line)) < 0)
		return err_set(
			e, ERR_USAGE, "%s",
			errno == EISDIR
				? "its .git is a directory: it is shared as it is, and git works "
				  "without --git"
			: errno == ENOENT ? "there is no .git in it"
					  : "its .git can't be read, or is no file that git "
					    "wrote");
	to = line + 8;
	if (strncmp(line, "gitdir: ", 8) != 0)
		return err_set(e, ERR_USAGE, "its .git is no file that git wrote");
	r = collapse(*to == '/' ? "" : MOUNT_WORKSPACE, to, full);
	if (r == 0)
		r = path_normalise(full, l->there, &ignored);
	if (r == 0)
		r = path_join(full, sizeof(full), *to == '/' ? "" : l->work, to);
	if (r < 0 || path_canonical(full, l->dir) < 0)
		return err_set(
			e, ERR_USAGE,
			"its .git names a directory that is not there; see git worktree repair");
	l->repo = repo_length(l->dir);
	l->repo_there = repo_length(l->there);
	if (!l->repo || !l->repo_there)
		return err_set(e, ERR_USAGE,
			       "it is no linked worktree of git, but a submodule or the like");
	return 0;
}

/* The repository must know this worktree: only it can tell that `.git` was not written by a box. */
static int believe(const struct linked *l, struct err *e)
{
	_cleanup_fd_ int own = path_open_nolinks(l->dir, O_DIRECTORY);
	char line[PATH_MAX], full[PATH_MAX], back[PATH_MAX], want[PATH_MAX];
	struct mount_shown s;

	if (own < 0)
		return err_sys(e, "open %s", mount_show(&s, l->dir));
	if (read_line(own, "commondir", line, sizeof(line)) < 0 || strcmp(line, "../..") != 0)
		return err_set(e, ERR_REFUSED,
			       "refused by the rule linked worktree: %s/commondir is not ../..",
			       mount_show(&s, l->dir));
	if (read_line(own, "gitdir", line, sizeof(line)) < 0)
		return err_sys(e, "read %s/gitdir", mount_show(&s, l->dir));
	if (*line == '/')
		snprintf(full, sizeof(full), "%s", line);
	else if (path_join(full, sizeof(full), l->dir, line) < 0)
		full[0] = '\0';
	if (path_join(want, sizeof(want), l->work, ".git") < 0 || path_canonical(full, back) < 0 ||
	    strcmp(back, want) != 0)
		return err_set(e, ERR_REFUSED,
			       "refused by the rule linked worktree: its .git leads to %s, which "
			       "does not name it in turn; see git worktree repair",
			       mount_show(&s, l->dir));
	return 0;
}

/* A config of the worktree's own would be read by git on the host; where none is there yet, none
 * can be held. */
static int config_check(const struct linked *l, struct err *e)
{
	static char text[CONFIG_MAX];
	_cleanup_fd_ int own = path_open_nolinks(l->dir, O_DIRECTORY);
	struct mount_shown s;
	struct stat st;

	if (own >= 0 && fstatat(own, "config.worktree", &st, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (own < 0 || read_small(own, "../../config", text, sizeof(text)) < 0)
		return err_sys(e, "read config of its repository");
	if (strcasestr(text, "worktreeConfig"))
		return err_set(
			e, ERR_USAGE,
			"extensions.worktreeConfig is set, and this worktree has no such file yet; "
			"create it: touch %s/config.worktree",
			mount_show(&s, l->dir));
	return 0;
}

static int add_part(struct mount_check *c, const struct linked *l, const struct part *p,
		    struct box_spec *spec, struct err *e)
{
	char src[PATH_MAX], dst[PATH_MAX];
	size_t from = p->own ? strlen(l->dir) : l->repo;
	size_t to = p->own ? strlen(l->there) : l->repo_there;
	struct box_mount *m = &spec->mounts[spec->n_mounts];
	struct mount_shown s;
	struct stat st;
	int n, k;

	n = snprintf(src, sizeof(src), "%.*s%s%s", (int)from, l->dir, *p->name ? "/" : "", p->name);
	k = snprintf(dst, sizeof(dst), "%.*s%s%s", (int)to, l->there, *p->name ? "/" : "", p->name);
	if (n < 0 || k < 0 || (size_t)n >= sizeof(src) || (size_t)k >= sizeof(dst))
		return err_set(e, ERR_USAGE, "the path of its repository is too long");
	if (lstat(src, &st) < 0) {
		if (p->may_lack && errno == ENOENT)
			return 0;
		if (errno == ENOENT)
			return err_set(
				e, ERR_USAGE,
				"there is no %s in its repository yet; create it first: mkdir %s",
				p->name, mount_show(&s, src));
		return err_sys(e, "look at %s", mount_show(&s, src));
	}
	if (S_ISLNK(st.st_mode))
		return err_set(e, ERR_REFUSED,
			       "refused by the rule no links in a repository: %s is one",
			       mount_show(&s, src));
	if (spec->n_mounts == BOX_MOUNTS_MAX)
		return err_set(e, ERR_USAGE, "more than %d mounts", BOX_MOUNTS_MAX);
	*m = (struct box_mount){ .kind = BOX_MOUNT_DIR, .rw = p->rw, .git = true };
	m->src = mount_rules_keep(&c->rules, src, e);
	m->dst = m->src ? mount_rules_keep(&c->rules, dst, e) : NULL;
	if (!m->dst)
		return -1;
	spec->n_mounts++;
	return 0;
}

/* `.git` itself, so that the worktree can't be led elsewhere. */
static int add_file(struct mount_check *c, const struct linked *l, struct box_spec *spec,
		    struct err *e)
{
	char src[PATH_MAX];
	struct box_mount *m = &spec->mounts[spec->n_mounts];

	if (spec->n_mounts == BOX_MOUNTS_MAX)
		return err_set(e, ERR_USAGE, "more than %d mounts", BOX_MOUNTS_MAX);
	if (path_join(src, sizeof(src), l->work, ".git") < 0)
		return err_set(e, ERR_USAGE, "its path is too long");
	*m = (struct box_mount){ .kind = BOX_MOUNT_FILE,
				 .git = true,
				 .dst = MOUNT_WORKSPACE "/.git",
				 .src = mount_rules_keep(&c->rules, src, e) };
	if (!m->src)
		return -1;
	spec->n_mounts++;
	return 0;
}

int git_share(struct mount_check *c, const char *dir, struct box_spec *spec, struct err *e)
{
	static struct linked l; /* large */
	struct mount_shown s;
	int r = follow(dir, &l, e);

	if (r == 0)
		r = believe(&l, e);
	if (r == 0)
		r = config_check(&l, e);
	for (size_t i = 0; r == 0 && i < sizeof(parts) / sizeof(parts[0]); i++)
		r = add_part(c, &l, &parts[i], spec, e);
	if (r == 0)
		r = add_file(c, &l, spec, e);
	return r < 0 ? err_prefix(e, "--git: %s", mount_show(&s, dir)) : 0;
}

bool git_is_linked(const char *dir)
{
	static struct linked l;
	struct err ignored;

	return follow(dir, &l, &ignored) == 0;
}
