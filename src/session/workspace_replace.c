/* Replacing all that a workspace has.
 *
 * How: a draft directory at the workspace's top, so that it is on the same file system, with a
 * directory for what is to be and one for what was. At the end every name at the top is moved to
 * the latter, and then every name of the former to the top.
 *
 * What may go wrong: a name can't be moved (something is mounted there, no permission): those that
 * were are moved back, the last first. A box makes new files meanwhile: one that stands in the way
 * is moved to what was. Killed in between, the workspace has a `.cloche-restore-...` with all that
 * is not in its place: whoever works with the workspace next puts it there (ses_replace_recover).
 * What is to be is called FRESH until all that was is out of the way, and PUT from then on: that
 * tells the way back from the way on. The draft is locked by flock(2) as long as its maker lives.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "session/workspace_impl.h"

#define DRAFT ".cloche-restore"
#define FRESH "new"
#define PUT "put" /* FRESH, when it takes the place of OLD */
#define OLD "old"
#define TRIES 16
#define NAMES_MAX 1000000

struct names {
	char **v;
	size_t n, cap;
};

enum take { TAKE_ALL, TAKE_CONTENT, TAKE_DRAFTS };

static bool is_draft(const char *name)
{
	const size_t n = strlen(DRAFT "-");

	return strncmp(name, DRAFT "-", n) == 0 && strlen(name + n) == 16 &&
	       strspn(name + n, "0123456789abcdef") == 16;
}

/* A name alone would let a box hide files. */
bool ses_replace_is_at(int top, const char *name)
{
	_cleanup_fd_ int fd = is_draft(name) ? ses_open_dir(top, name, false) : -1;

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

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

/* All names in the directory; all but those that drafts have; or these alone. */
static int take_names(int dir, enum take what, struct names *l)
{
	_cleanup_fd_ int fd = ses_open_dir(dir, "", false);
	struct ses_name name;
	struct ses_dir d;
	int got;

	if (fd < 0)
		return -1;
	ses_dir(&d, fd);
	while ((got = ses_dir_next(&d, &name)) > 0)
		if ((what == TAKE_ALL || is_draft(name.name) == (what == TAKE_DRAFTS)) &&
		    add_name(l, name.name) < 0)
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

/* Is the draft at `fd` ours from now on? Not when somebody is taking it for a dead one's. Where
 * files can't be locked it is, and stays when its maker is killed. */
static bool hold(int dir, const char *name, int fd)
{
	struct stat held, named;

	if (fd < 0)
		return false;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno != EWOULDBLOCK;
	return fstat(fd, &held) == 0 && fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

int ses_replace_begin(const struct ses_workspace *w, struct ses_replace *ret, struct err *e)
{
	SES_AS_OWNER(w);
	struct ses_replace r = SES_REPLACE_NONE;

	ses_replace_recover(w);
	r.w = w;
	for (int i = 0; i < TRIES; i++) {
		ses_draft(r.draft, DRAFT);
		if (mkdirat(w->fd, r.draft, 0700) < 0) {
			if (errno == EEXIST)
				continue;
			break;
		}
		r.fd = ses_open_dir(w->fd, r.draft, false);
		if (r.fd < 0 && errno != ENOENT)
			break;
		if (hold(w->fd, r.draft, r.fd))
			break;
		fd_close(&r.fd);
		unlinkat(w->fd, r.draft, AT_REMOVEDIR);
		errno = EAGAIN;
	}
	if (r.fd < 0)
		return ses_fail(e, "");
	if (mkdirat(r.fd, FRESH, 0700) == 0 && mkdirat(r.fd, OLD, 0700) == 0) {
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
	if (renameat(r->fd, FRESH, r->fd, PUT) < 0)
		ses_fail(e, r->draft);
	else if (move_all(is, r->fresh, top, r->old, &k, e) == 0)
		return 0;
	if (move_back(is, k, top, r->fresh) < 0 ||
	    (renameat(r->fd, PUT, r->fd, FRESH) < 0 && errno != ENOENT) ||
	    move_back(was, n, r->old, top) < 0)
		return stuck(r, e);
	return -1;
}

/* What is at the top already is newer, and stays. */
static int put_back(int draft, const char *part, int top)
{
	_cleanup_fd_ int from = ses_open_dir(draft, part, false);
	struct names l = { 0 };
	int rc = from < 0 || take_names(from, TAKE_ALL, &l) < 0 ? -1 : 0;

	for (size_t i = 0; i < l.n && rc == 0; i++)
		if (move(from, l.v[i], top, l.v[i]) < 0 && errno != EEXIST && errno != ENOENT)
			rc = -1;
	names_free(&l);
	return rc;
}

/* What was goes first: without PUT beside it, it would be taken for what is to come back. */
static int remove_draft(int top, const char *draft, int fd)
{
	if (ses_remove_tree(fd, OLD) < 0 && errno != ENOENT)
		return -1;
	return ses_remove_tree(top, draft);
}

static void recover(const struct ses_workspace *w, const char *draft)
{
	_cleanup_fd_ int fd = ses_open_dir(w->fd, draft, false);
	struct stat st;

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (put_back(fd, fstatat(fd, PUT, &st, AT_SYMLINK_NOFOLLOW) == 0 ? PUT : OLD, w->fd) == 0 ||
	    errno == ENOENT)
		(void)!remove_draft(w->fd, draft, fd);
}

unsigned ses_replace_all_at(int top, char ret[][SES_DRAFT_CAP], unsigned max)
{
	struct names drafts = { 0 };
	unsigned n = 0;

	if (take_names(top, TAKE_DRAFTS, &drafts) >= 0)
		for (size_t i = 0; i < drafts.n && n < max; i++)
			if (ses_replace_is_at(top, drafts.v[i]))
				snprintf(ret[n++], SES_DRAFT_CAP, "%s", drafts.v[i]);
	names_free(&drafts);
	return n;
}

bool ses_replace_left(int top)
{
	struct names drafts = { 0 };
	bool any = take_names(top, TAKE_DRAFTS, &drafts) >= 0 && drafts.n > 0;

	names_free(&drafts);
	return any;
}

void ses_replace_recover(const struct ses_workspace *w)
{
	SES_AS_OWNER(w);
	struct names drafts = { 0 };

	if (take_names(w->fd, TAKE_DRAFTS, &drafts) >= 0)
		for (size_t i = 0; i < drafts.n; i++)
			recover(w, drafts.v[i]);
	names_free(&drafts);
}

int ses_replace_end(struct ses_replace *r, struct err *e)
{
	SES_AS_OWNER(r->w);
	struct names was = { 0 }, is = { 0 };
	int rc;

	if (take_names(r->w->fd, TAKE_CONTENT, &was) < 0 || take_names(r->fresh, TAKE_ALL, &is) < 0)
		rc = ses_fail(e, "");
	else
		rc = exchange(r, &was, &is, e);
	names_free(&was);
	names_free(&is);
	return rc;
}

int ses_replace_drop(struct ses_replace *r, struct err *e)
{
	int rc = 0;

	fd_close(&r->fresh);
	fd_close(&r->old);
	if (r->fd >= 0 && !r->keep) {
		SES_AS_OWNER(r->w);
		rc = remove_draft(r->w->fd, r->draft, r->fd);
		if (rc < 0)
			ses_fail(e, r->draft);
	}
	fd_close(&r->fd);
	return rc;
}
