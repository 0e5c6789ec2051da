/* Replacing all that a workspace has.
 *
 * How: a draft directory at the workspace's top, so that it is on the same file system, with a
 * directory for what is to be and one for what was. At the end every name at the top is moved to
 * the latter, and then every name of the former to the top.
 *
 * What may go wrong: a name can't be moved (something is mounted there, no permission): those that
 * were are moved back, the last first. A box makes new files meanwhile: one that stands in the way
 * is moved to what was. Killed in between, the workspace has a `.cloche-restore-...` with all that
 * is not in its place. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "session/workspace_impl.h"

#define DRAFT ".cloche-restore"
#define FRESH "new"
#define OLD "old"
#define TRIES 16
#define NAMES_MAX 1000000

struct names {
	char **v;
	size_t n, cap;
};

static void names_free(struct names *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i]);
	free(l->v);
}

static int add_name(struct names *l, const char *name)
{
	if (l->n == NAMES_MAX) {
		errno = E2BIG;
		return -1;
	}
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		char **v = reallocarray(l->v, cap, sizeof(*v));

		if (!v)
			return -1;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n] = strdup(name);
	if (!l->v[l->n])
		return -1;
	l->n++;
	return 0;
}

/* All names in the directory but `but`. */
static int take_names(int dir, const char *but, struct names *l)
{
	_cleanup_fd_ int fd = ses_open_dir(dir, "", false);
	struct ses_name name;
	struct ses_dir d;
	int got;

	if (fd < 0)
		return -1;
	ses_dir(&d, fd);
	while ((got = ses_dir_next(&d, &name)) > 0)
		if (strcmp(name.name, but) != 0 && add_name(l, name.name) < 0)
			return -1;
	return got;
}

static int rename_new(int from, const char *name, int to, const char *as)
{
	return (int)syscall(SYS_renameat2, from, name, to, as, RENAME_NOREPLACE);
}

/* A directory that its owner may not write to can't be moved to another one (its ".." is written):
 * it may for that moment. */
static int move(int from, const char *name, int to, const char *as)
{
	_cleanup_fd_ int fd = -1;
	struct stat st;
	int r;

	if (rename_new(from, name, to, as) == 0)
		return 0;
	if (errno != EACCES || fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISDIR(st.st_mode))
		return -1;
	fd = ses_open_dir(from, name, true);
	if (fd < 0)
		return -1;
	r = rename_new(from, name, to, as);
	if (fchmod(fd, st.st_mode & 07777) < 0)
		return -1;
	return r;
}

int ses_replace_begin(const struct ses_workspace *w, struct ses_replace *ret, struct err *e)
{
	SES_AS_OWNER(w);
	struct ses_replace r = SES_REPLACE_NONE;
	int made = -1;

	r.w = w;
	for (int i = 0; i < TRIES && made < 0; i++) {
		ses_draft(r.draft, DRAFT);
		made = mkdirat(w->fd, r.draft, 0700);
		if (made < 0 && errno != EEXIST)
			break;
	}
	if (made < 0)
		return ses_fail(e, "");
	r.fd = ses_open_dir(w->fd, r.draft, false);
	if (r.fd >= 0 && mkdirat(r.fd, FRESH, 0700) == 0 && mkdirat(r.fd, OLD, 0700) == 0) {
		r.fresh = ses_open_dir(r.fd, FRESH, false);
		r.old = ses_open_dir(r.fd, OLD, false);
	}
	if (r.fresh < 0 || r.old < 0) {
		struct err passed;

		ses_fail(e, r.draft);
		ses_replace_drop(&r, &passed);
		return -1;
	}
	*ret = r;
	return 0;
}

/* Moves names from one directory to another until one fails; *ret_n is how many were. What stands
 * in the way goes to `aside`, if that is not -1. */
static int move_all(const struct names *l, int from, int to, int aside, size_t *ret_n,
		    struct err *e)
{
	char as[SES_DRAFT_CAP];

	for (*ret_n = 0; l->v && *ret_n < l->n; ++*ret_n) {
		const char *name = l->v[*ret_n];
		int r = move(from, name, to, name);

		for (int k = 0; k < TRIES && r < 0 && errno == EEXIST && aside >= 0; k++) {
			ses_draft(as, DRAFT);
			if (move(to, name, aside, as) < 0 && errno != ENOENT)
				break;
			r = move(from, name, to, name);
		}
		/* What has gone by itself need not be moved out of the way. */
		if (r < 0 && !(errno == ENOENT && aside < 0))
			return ses_fail(e, name);
	}
	return 0;
}

/* The first n of them, the last first. */
static int move_back(const struct names *l, size_t n, int from, int to)
{
	while (l->v && n-- > 0)
		if (move(from, l->v[n], to, l->v[n]) < 0 && errno != ENOENT)
			return -1;
	return 0;
}

static int stuck(struct ses_replace *r, struct err *e)
{
	r->keep = true;
	return err_prefix(e, "what was there before is in part in %s/" OLD, r->draft);
}

static int exchange(struct ses_replace *r, const struct names *was, const struct names *is,
		    struct err *e)
{
	size_t n = 0, k = 0;
	int top = r->w->fd;

	if (move_all(was, top, r->old, -1, &n, e) < 0)
		return move_back(was, n, r->old, top) < 0 ? stuck(r, e) : -1;
	if (move_all(is, r->fresh, top, r->old, &k, e) == 0)
		return 0;
	if (move_back(is, k, top, r->fresh) < 0 || move_back(was, n, r->old, top) < 0)
		return stuck(r, e);
	return -1;
}

int ses_replace_end(struct ses_replace *r, struct err *e)
{
	SES_AS_OWNER(r->w);
	struct names was = { 0 }, is = { 0 };
	int rc;

	if (take_names(r->w->fd, r->draft, &was) < 0 || take_names(r->fresh, "", &is) < 0)
		rc = ses_fail(e, "");
	else
		rc = exchange(r, &was, &is, e);
	names_free(&was);
	names_free(&is);
	return rc;
}

int ses_replace_drop(struct ses_replace *r, struct err *e)
{
	bool there = r->fd >= 0;

	fd_close(&r->fresh);
	fd_close(&r->old);
	fd_close(&r->fd);
	if (!there || r->keep)
		return 0;
	SES_AS_OWNER(r->w);
	if (ses_remove_tree(r->w->fd, r->draft) == 0)
		return 0;
	return ses_fail(e, r->draft);
}
