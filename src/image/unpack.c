/* Unpacking a layer: one function an entry's kind.
 *
 * How: the name is normalised, its directory opened beneath the layer's (unpack_dir.c), and the
 * entry made there by its last part alone, with O_EXCL and O_NOFOLLOW. Nothing is ever opened by a
 * name that the archive composed.
 *
 * What may go wrong: a name that leads elsewhere (refused by the walk), a name given twice (the
 * later wins), a layer that never ends (limits), a whiteout that would remove a parent (its victim
 * is one plain name). Metadata is set through the descriptor of what was just made. */
#include "image/unpack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "image/unpack_impl.h"

#define WH ".wh."
#define WH_OWN ".wh..wh."
#define WH_OPAQUE ".wh..wh..opq"

const struct img_unpack_limits img_unpack_default = {
	.entries = 2000000,
	.bytes = UINT64_C(64) << 30,
	.archive_bytes = UINT64_C(80) << 30,
};

static int set_xattrs(struct unpack *u, int fd, const struct tar_entry *en, struct err *e)
{
	static const char user[] = "user.", overlay[] = "user.overlay.";

	for (size_t i = 0; i < en->n_xattrs; i++) {
		const struct tar_xattr *x = &en->xattrs[i];

		/* overlayfs's own would let a layer redirect and hide what it likes. */
		if (fd < 0 || strncmp(x->name, user, strlen(user)) != 0 ||
		    !strncmp(x->name, overlay, strlen(overlay))) {
			u->done.xattrs++;
		} else if (fsetxattr(fd, x->name, x->value, x->n, 0) < 0) {
			if (errno != EOPNOTSUPP && errno != E2BIG && errno != ENOSPC &&
			    errno != ERANGE && errno != EINVAL)
				return err_sys(e, "setxattr");
			u->done.xattrs++;
		}
	}
	return 0;
}

static int check_owner(const struct unpack *u, const struct tar_entry *en, struct err *e)
{
	if (u->how->keep_owners && (en->uid >= UINT32_MAX || en->gid >= UINT32_MAX))
		return err_set(e, ERR_REFUSED, "its owner is no user id");
	return 0;
}

static void times_of(const struct tar_entry *en, struct timespec ret[2])
{
	ret[0] = (struct timespec){ .tv_nsec = UTIME_OMIT };
	ret[1] = (struct timespec){ .tv_sec = en->mtime, .tv_nsec = en->mtime_ns };
}

static int write_content(struct unpack *u, struct tar *t, int fd, struct err *e)
{
	for (;;) {
		const uint8_t *data;
		const void *piece;
		uint64_t offset;
		size_t n;

		if (tar_data(t, &offset, &piece, &n, e) < 0)
			return -1;
		if (n == 0)
			return 0;
		if (unpack_count_bytes(u, n, e) < 0)
			return -1;
		for (data = piece; n > 0;) {
			ssize_t w = pwrite(fd, data, n, (off_t)offset);

			if (w < 0 && errno == EINTR)
				continue;
			if (w < 0)
				return err_sys(e, "write");
			data += w;
			n -= (size_t)w;
			offset += (uint64_t)w;
		}
	}
}

static int make_file(struct unpack *u, struct tar *t, int dir, const char *name,
		     const struct tar_entry *en, struct err *e)
{
	_cleanup_fd_ int fd =
		openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct timespec times[2];

	if (fd < 0)
		return err_sys(e, "create");
	if (write_content(u, t, fd, e) < 0)
		return -1;
	/* What lies behind the last piece is a hole, too. */
	if (ftruncate(fd, (off_t)en->size) < 0)
		return err_sys(e, "truncate");
	if (set_xattrs(u, fd, en, e) < 0)
		return -1;
	if (u->how->keep_owners && fchown(fd, (uid_t)en->uid, (gid_t)en->gid) < 0)
		return err_sys(e, "chown to %u:%u", (unsigned)en->uid, (unsigned)en->gid);
	if (en->mode & 06000)
		u->done.set_ids++;
	times_of(en, times);
	if (fchmod(fd, en->mode & 0777) < 0 || futimens(fd, times) < 0)
		return err_sys(e, "chmod");
	return 0;
}

/* A link or a FIFO: there is no descriptor to set its metadata through, and what was just made is
 * not followed. */
static int make_other(struct unpack *u, int dir, const char *name, const struct tar_entry *en,
		      struct err *e)
{
	struct timespec times[2];

	if (en->type == TAR_SYMLINK ? symlinkat(en->link, dir, name) : mkfifoat(dir, name, 0600))
		return err_sys(e, "create");
	if (u->how->keep_owners &&
	    fchownat(dir, name, (uid_t)en->uid, (gid_t)en->gid, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "chown to %u:%u", (unsigned)en->uid, (unsigned)en->gid);
	if (en->type == TAR_FIFO && fchmodat(dir, name, en->mode & 0777, 0) < 0)
		return err_sys(e, "chmod");
	times_of(en, times);
	if (utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return err_sys(e, "utimens");
	return set_xattrs(u, -1, en, e);
}

static int make_dir(struct unpack *u, int dir, const char *name, const char *path,
		    const struct tar_entry *en, struct err *e)
{
	_cleanup_fd_ int fd = -1;

	if (unpack_mkdir(dir, name, e) < 0)
		return -1;
	if (en->n_xattrs > 0) {
		fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return err_sys(e, "open");
		if (set_xattrs(u, fd, en, e) < 0)
			return -1;
	}
	return unpack_dir_note(u, path, en, e);
}

/* Links to the file `last` in `from`, which this layer has given. */
static int link_own(const struct unpack *u, int from, const char *last, int dir, const char *name,
		    struct err *e)
{
	/* What is in its place goes first; with it the target may go. */
	if (!u->how->files && unpack_remove(dir, name, e) < 0)
		return -1;
	return linkat(from, last, dir, name, 0) < 0 ? err_sys(e, "link") : 0;
}

static int link_to(struct unpack *u, const char *target, int dir, const char *name,
		   const char *path, struct err *e)
{
	char parent[TAR_PATH_CAP], whole[TAR_PATH_CAP];
	const char *slash = strrchr(target, '/'), *last = slash ? slash + 1 : target;
	_cleanup_fd_ int from = -1;
	int there, r = 0;

	memcpy(parent, target, slash ? (size_t)(slash - target) : 0);
	parent[slash ? slash - target : 0] = '\0';
	if (u->how->n_lowers > 0 && unpack_resolve(u, parent, parent, e) < 0)
		return -1;
	if (path_join(whole, sizeof(whole), parent, last) < 0)
		return err_sys(e, "link");
	if (!strcmp(whole, path))
		return err_set(e, ERR_REFUSED, "that is itself");
	from = path_open_beneath(u->root, parent, O_DIRECTORY);
	there = from < 0 || !*last ? THERE_NOTHING : unpack_there(from, last, e);
	if (there < 0)
		return -1;
	if (there == THERE_OTHER)
		return link_own(u, from, last, dir, name, e);
	if (there == THERE_NOTHING && *last && u->how->n_lowers > 0)
		r = unpack_borrow(u, whole, dir, name, e);
	if (r != 0)
		return r < 0 ? -1 : 0;
	return err_set(e, ERR_REFUSED,
		       u->how->files
			       ? "no such file was given by the archive before"
			       : "no such file was given by this layer before, or by one below");
}

static int make_link(struct unpack *u, int dir, const char *name, const char *path,
		     const struct tar_entry *en, struct err *e)
{
	char target[TAR_PATH_CAP], shown[200];

	if (unpack_name(en->link, target, e) == 0 && link_to(u, target, dir, name, path, e) == 0)
		return 0;
	return err_prefix(e, "a hard link to %s", str_printable(shown, sizeof(shown), en->link));
}

static int hide(struct unpack *u, int dir, const char *name, struct err *e)
{
	const char *victim = name + strlen(WH);
	int there;

	if (!strcmp(name, WH_OPAQUE)) {
		u->done.whiteouts++;
		if (!*u->parent_path)
			u->done.opaque_root = true;
		return *u->parent_path ? unpack_opaque(dir, ".", e) : 0;
	}
	if (!strncmp(name, WH_OWN, strlen(WH_OWN))) /* aufs's own files */
		return 0;
	if (!*victim || !strcmp(victim, ".") || !strcmp(victim, ".."))
		return err_set(e, ERR_REFUSED, "it is a whiteout of no name");
	u->done.whiteouts++;
	there = unpack_there(dir, victim, e);
	if (there < 0)
		return -1;
	if (there == THERE_DIR)
		return unpack_opaque(dir, victim, e);
	if (there == THERE_NOTHING && mknodat(dir, victim, S_IFCHR, makedev(0, 0)) < 0)
		return err_sys(e, "the file system takes no whiteouts: mknod");
	return 0;
}

/* A device is not made; what this layer gave before at its place is no longer there. */
static int leave_out(struct unpack *u, int dir, const char *name, struct err *e)
{
	int there = unpack_there(dir, name, e);

	if (there < 0)
		return -1;
	u->done.devices++;
	return there == THERE_WHITEOUT ? 0 : unpack_remove(dir, name, e);
}

/* What an archive of files may not have. A directory may be named after what is in it. */
static int check_plain(int dir, const char *name, const struct tar_entry *en, struct err *e)
{
	int there = unpack_there(dir, name, e);

	if (there < 0)
		return -1;
	if (en->type == TAR_CHAR || en->type == TAR_BLOCK || en->type == TAR_FIFO)
		return err_set(e, ERR_REFUSED, "it is a device or a FIFO");
	if (there != THERE_NOTHING && (there != THERE_DIR || en->type != TAR_DIR))
		return err_set(e, ERR_REFUSED, "the archive gives it twice");
	return 0;
}

static int make(struct unpack *u, struct tar *t, const struct tar_entry *en, struct err *e)
{
	char path[TAR_PATH_CAP];
	const char *name;
	int dir;

	if (unpack_name(en->path, path, e) < 0 || check_owner(u, en, e) < 0 ||
	    unpack_count(u, e) < 0)
		return -1;
	if (!*path) {
		if (en->type != TAR_DIR)
			return err_set(e, ERR_REFUSED, "the root is no directory");
		return make_dir(u, u->root, ".", path, en, e);
	}
	dir = unpack_parent(u, path, &name, e);
	if (dir < 0 || (u->how->files && check_plain(dir, name, en, e) < 0))
		return -1;
	if (!u->how->files && !strncmp(name, WH, strlen(WH)))
		return hide(u, dir, name, e);
	if (en->type == TAR_DIR)
		return make_dir(u, dir, name, path, en, e);
	if (en->type == TAR_HARDLINK)
		return make_link(u, dir, name, path, en, e);
	if (en->type == TAR_CHAR || en->type == TAR_BLOCK)
		return leave_out(u, dir, name, e);
	if (!u->how->files && unpack_remove(dir, name, e) < 0)
		return -1;
	return en->type == TAR_FILE ? make_file(u, t, dir, name, en, e)
				    : make_other(u, dir, name, en, e);
}

static int unpack_all(struct unpack *u, struct tar *t, struct err *e)
{
	const struct tar_entry *en;
	char shown[200];

	for (;;) {
		if (tar_next(t, &en, e) < 0)
			return -1;
		if (!en)
			break;
		if (make(u, t, en, e) < 0)
			return err_prefix(e, "%s", str_printable(shown, sizeof(shown), en->path));
	}
	return unpack_dirs_finish(u, e);
}

int img_unpack(int dirfd, const struct tar_source *source, const struct img_unpack_how *how,
	       struct img_unpacked *ret, struct err *e)
{
	struct unpack u = { .root = dirfd, .how = how, .parent = -1 };
	_cleanup_tar_ struct tar *t = NULL;
	mode_t mask;
	int r;

	if (tar_open(source, how->limits.archive_bytes, &t, e) < 0)
		return -1;
	if (how->lax_end)
		tar_lax_end(t);
	mask = umask(0);
	r = unpack_all(&u, t, e);
	umask(mask);
	unpack_dirs_free(&u);
	fd_close(&u.parent);
	if (r == 0)
		*ret = u.done;
	return r;
}
