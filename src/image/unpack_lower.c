/* Unpacking: what the layers below this one give.
 *
 * Archives lean on them in three ways: a file in a directory that the archive does not name (which
 * then keeps the mode it has below), a directory that is a link below (/lib on merged systems), and
 * a hard link to a file below. All need the tree as overlayfs would show it, with whiteouts and
 * opaque directories; it is looked up a part at a time through the stack of layers, this one on
 * top.
 *
 * What may go wrong: a link below that leads out. Links are text here: they are followed inside the
 * stack alone, where ".." stops at the root, and each step is again one name in an open directory.
 */
#include "image/unpack_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define LINKS_MAX 40

int unpack_find(const struct unpack *u, const char *path, struct unpack_found *ret, struct err *e)
{
	size_t n = u->done.opaque_root ? 0 : u->how->n_lowers;
	struct layers_found f;
	int r = layers_find_in(u->root, path, &f);

	ret->lower = false;
	for (size_t i = 0; r == 0 && i < n; i++) {
		r = layers_find_in(u->how->lowers[i], path, &f);
		ret->lower = true;
	}
	if (r < 0)
		return err_sys(e, "look for it in the layers below");
	if (r == 1)
		ret->at = f;
	return r == 1;
}

/* `rest` becomes the link's text, and what was left. */
static int follow(const struct unpack_found *f, char done[TAR_PATH_CAP], char rest[TAR_PATH_CAP],
		  const char *left, struct err *e)
{
	char text[TAR_PATH_CAP];
	ssize_t n = readlinkat(f->at.dir, f->at.name, text, sizeof(text) - 1);

	if (n < 0)
		return err_sys(e, "readlink");
	text[n] = '\0';
	if (snprintf(text + n, sizeof(text) - (size_t)n, "/%s", left) >=
	    (int)(sizeof(text) - (size_t)n))
		return err_set(e, ERR_REFUSED, "it is below a link that makes its name too long");
	if (text[0] == '/')
		done[0] = '\0';
	memcpy(rest, text, sizeof(text));
	return 0;
}

/* done += "/" + part. */
static int append(char done[TAR_PATH_CAP], const char *part, size_t n, struct err *e)
{
	size_t len = strlen(done);

	if (len + n + 2 > TAR_PATH_CAP || n > NAME_MAX)
		return err_set(e, ERR_REFUSED, "it is below a link that makes its name too long");
	if (len > 0)
		done[len++] = '/';
	memcpy(done + len, part, n);
	done[len + n] = '\0';
	return 0;
}

static void up(char *done)
{
	char *slash = strrchr(done, '/');

	*(slash ? slash : done) = '\0';
}

/* One part more in `done`: 1 when it was a link and `rest` starts anew. */
static int advance(struct unpack *u, char done[TAR_PATH_CAP], char rest[TAR_PATH_CAP],
		   const char *part, size_t n, struct err *e)
{
	struct unpack_found f = { .at.dir = -1 };
	int r;

	if (append(done, part, n, e) < 0)
		return -1;
	r = unpack_find(u, done, &f, e);
	/* A link of this layer is refused by the walk, which names it. */
	if (r == 1 && f.lower && S_ISLNK(f.at.st.st_mode)) {
		up(done);
		u->done.borrowed++;
		r = follow(&f, done, rest, part + n + (part[n] == '/'), e) < 0 ? -1 : 1;
	} else if (r == 1 && f.lower && !S_ISDIR(f.at.st.st_mode)) {
		r = err_set(e, ERR_REFUSED, "it is below what a layer below gives as a file");
	} else if (r == 1) {
		r = 0;
	}
	fd_close(&f.at.dir);
	return r;
}

int unpack_resolve(struct unpack *u, const char *dir, char ret[TAR_PATH_CAP], struct err *e)
{
	char done[TAR_PATH_CAP] = "", rest[TAR_PATH_CAP];
	const char *s = rest;
	unsigned links = 0;

	memcpy(rest, dir, strlen(dir) + 1);
	while (*s) {
		size_t n = strcspn(s, "/");
		int r = 0;

		if (n == 2 && !memcmp(s, "..", 2))
			up(done);
		else if (n > 0 && !(n == 1 && *s == '.'))
			r = advance(u, done, rest, s, n, e);
		if (r < 0)
			return -1;
		if (r == 1 && ++links > LINKS_MAX)
			return err_set(e, ERR_REFUSED, "it is below too many links");
		s = r == 1 ? rest : s + n + (s[n] == '/');
	}
	memcpy(ret, done, strlen(done) + 1);
	return 0;
}

int unpack_implied(struct unpack *u, const char *path, struct err *e)
{
	struct tar_entry *en = &u->implied;
	struct unpack_found f = { .at.dir = -1 };
	int r = unpack_find(u, path, &f, e);

	en->mode = 0755;
	en->uid = en->gid = 0;
	en->mtime = 0;
	en->mtime_ns = 0;
	if (r == 1 && S_ISDIR(f.at.st.st_mode)) {
		en->mode = f.at.st.st_mode & 07777;
		en->uid = f.at.st.st_uid;
		en->gid = f.at.st.st_gid;
		en->mtime = f.at.st.st_mtim.tv_sec;
		en->mtime_ns = (uint32_t)f.at.st.st_mtim.tv_nsec;
	}
	/* Over other layers it may be another directory. */
	u->done.borrowed += !u->done.opaque_root;
	fd_close(&f.at.dir);
	return r < 0 ? -1 : 0;
}

static int copy_content(struct unpack *u, int from, int to, struct err *e)
{
	char buf[65536];

	for (;;) {
		ssize_t n = read(from, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, "read");
		if (n == 0)
			return 0;
		if (unpack_count_bytes(u, (size_t)n, e) < 0)
			return -1;
		if (fd_write_all(to, buf, (size_t)n) < 0)
			return err_sys(e, "write");
	}
}

/* Nothing here blocks: what is opened was a regular file when it was looked up, and a FIFO that
 * took its place would be opened without waiting. */
static int copy_file(struct unpack *u, const struct unpack_found *f, int dir, const char *name,
		     struct err *e)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, f->at.st.st_mtim };
	_cleanup_fd_ int from = openat(f->at.dir, f->at.name,
				       O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC),
			 to = -1;

	if (from < 0)
		return err_sys(e, "open what it is a hard link to");
	to = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (to < 0)
		return err_sys(e, "create");
	if (copy_content(u, from, to, e) < 0)
		return -1;
	if (u->how->keep_owners && fchown(to, f->at.st.st_uid, f->at.st.st_gid) < 0)
		return err_sys(e, "chown");
	if (fchmod(to, f->at.st.st_mode & 0777) < 0 || futimens(to, times) < 0)
		return err_sys(e, "chmod");
	return 0;
}

int unpack_borrow(struct unpack *u, const char *target, int dir, const char *name, struct err *e)
{
	struct unpack_found f = { .at.dir = -1 };
	int r = unpack_find(u, target, &f, e);

	if (r == 1 && f.lower && S_ISREG(f.at.st.st_mode)) {
		u->done.borrowed++;
		r = unpack_remove(dir, name, e) < 0 || copy_file(u, &f, dir, name, e) < 0 ? -1 : 1;
	} else if (r == 1) {
		r = 0;
	}
	fd_close(&f.at.dir);
	return r;
}
