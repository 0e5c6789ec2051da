/* The child's half of a plan.
 *
 * The new root is mounted over some existing directory ("the stage"), furnished from inside, and
 * becomes the root by pivot_root(".", "."); then the old root, now below it, is detached.
 * What the caller named is opened before, so the stage may cover it; no stage covers a system path.
 *
 * Two ways to reach a place in the new root. Where every component is of our own making (the host
 * image's skeleton, /dev, /proc) a relative path from the new root is safe and cheapest; over a
 * root of somebody else's they are ours because they are laid into the overlay's upper side before
 * it is mounted. Where the path may lead through what somebody else wrote (a --rootfs, an image,
 * another mount) the place is opened step by step inside the root (base/path.h) and mounted by
 * descriptor: a planted link leads nowhere else.
 *
 * What may go wrong: a kernel that forbids a mount in a user namespace answers EPERM; the message
 * names the op's path, and `cloche doctor` says why. */
#include "box/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/sys.h"
#include "box/mount_check.h"
#include "box/ops_impl.h"

/* Names on the scratch tmpfs, which the box never sees: its root is a mount further down. */
#define EMPTY "empty"
#define VIEW "view"
#define ATTACH "attach"
#define ROOT "root"
#define UPPER "upper"
/* As the new root sees them: what is above a mount's root is the directory that it is mounted in.
 */
#define ABOVE "../"
/* What /proc is covered with. */
#define COVER_ATTR                                                                                 \
	(SYS_MOUNT_ATTR_RDONLY | SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV |                    \
	 SYS_MOUNT_ATTR_NOEXEC)

/* Where the new root is staged: any directory that holds no system path. It is covered only in the
 * child's own mount namespace. */
static const char *const stages[] = { "/tmp", "/mnt", "/srv", "/home", "/var" };

int ops_source_open(struct plan_source *s, struct err *e)
{
	struct stat st;
	int fd;

	if (s->fd >= 0) /* an id-mapped mount that the parent made */
		return 0;
	if (s->check) {
		_cleanup_fd_ int at = mount_open_checked(s->check);

		if (at < 0)
			return err_sys(
				e,
				"%s: it changed while the box was being built, or can't be opened",
				s->path);
		fd = s->tree ? sys_open_tree(at, "",
					     AT_EMPTY_PATH | SYS_OPEN_TREE_CLONE |
						     SYS_AT_RECURSIVE | O_CLOEXEC)
			     : fd_steal(&at);
	} else if (s->tree) {
		fd = sys_open_tree(AT_FDCWD, s->path,
				   SYS_OPEN_TREE_CLONE | AT_SYMLINK_NOFOLLOW | O_CLOEXEC);
	} else {
		fd = open(s->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
	if (fd < 0)
		return err_sys(e, "open %s", s->path);
	s->fd = fd;
	if (s->rdev && (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != s->rdev))
		return err_set(e, ERR_REFUSED,
			       "%s: another device is there than the one that was checked",
			       s->path);
	return 0;
}

int ops_open_sources(struct plan *p, struct err *e)
{
	for (unsigned i = 0; i < p->n_sources; i++)
		if (p->sources[i].check && ops_source_open(&p->sources[i], e) < 0)
			return err_at(e, p->sources[i].check->workspace ? STAGE_WORKSPACE
									: STAGE_MOUNT);
	return 0;
}

/* Opens the place of an op whose path may be strange. */
static int place_open(const struct walk *w, const struct op *op)
{
	return path_open_in_root(w->root, op->path, O_CLOEXEC);
}

/* Is every component of our own or the kernel's making? Then mount(2) takes paths relative to the
 * working directory, the new root. A bind so made costs half of a detached mount, which is a mount
 * namespace of its own that the kernel makes and dissolves. */
static bool plain(const struct op *op)
{
	return !op->strange;
}

/* The place as a path that mount(2) may follow. `*ret_fd` keeps it alive. */
const char *ops_place_path(const struct walk *w, const struct op *op, char buf[64], int *ret_fd)
{
	if (plain(op) && op->kind != OP_LOWER)
		return op->path;
	if (plain(op)) {
		/* Absolute by descriptor, so that it holds while the working directory is a lower
		 * directory. */
		int n = snprintf(buf, 64, "/proc/self/fd/%d/%s", w->root, op->path);

		if (n > 0 && n < 64)
			return buf;
	}
	*ret_fd = place_open(w, op);
	if (*ret_fd < 0)
		return NULL;
	snprintf(buf, 64, "/proc/self/fd/%d", *ret_fd);
	return buf;
}

int ops_attach(const struct walk *w, const struct op *op, int tree, struct err *e)
{
	_cleanup_fd_ int place = -1;
	int r;

	if (plain(op)) {
		r = sys_move_mount(tree, "", w->root, op->path, SYS_MOVE_MOUNT_F_EMPTY_PATH);
	} else {
		place = place_open(w, op);
		if (place < 0)
			return err_sys(e, "mount target /%s", op->path);
		r = sys_move_mount(tree, "", place, "",
				   SYS_MOVE_MOUNT_F_EMPTY_PATH | SYS_MOVE_MOUNT_T_EMPTY_PATH);
	}
	return r < 0 ? err_sys(e, "mount on /%s", op->path) : 0;
}

/* Binds for plain places. `attr` may be 0: what is bound keeps the attributes that it has. Nobody
 * but init sees the mount before they are set. */
static int bind(const char *from, const struct op *op, uint64_t attr, struct err *e)
{
	struct sys_mount_attr set = { .attr_set = attr };

	if (mount(from, op->path, NULL, MS_BIND, NULL) < 0) {
		if (errno == ENOENT && strncmp(from, "/dev/", 5) == 0)
			return err_set(
				e, ERR_MISSING,
				"a box needs %s, and it is not there; fix: mount -t devtmpfs dev /dev",
				from);
		return err_sys(e, "mount on /%s", op->path);
	}
	if (attr && sys_mount_setattr(AT_FDCWD, op->path, 0, &set) < 0)
		return err_sys(e, "set attributes of the mount on /%s", op->path);
	return 0;
}

static int op_dir(const struct walk *w, const struct op *op, struct err *e)
{
	_cleanup_fd_ int fd = -1;

	if (op->strange) {
		fd = path_make_dir(w->root, op->path);
		return fd < 0 ? err_sys(e, "directory /%s of the box", op->path) : 0;
	}
	if (mkdirat(w->root, op->path, op->mode) == 0 || errno == EEXIST)
		return 0;
	return err_sys(e, "make directory /%s", op->path);
}

static int op_file(const struct walk *w, const struct op *op, struct err *e)
{
	_cleanup_fd_ int fd = -1;

	if (op->strange) {
		fd = path_make_file(w->root, op->path);
		return fd < 0 ? err_sys(e, "file /%s of the box", op->path) : 0;
	}
	fd = openat(w->root, op->path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_EXCL,
		    op->mode);
	if (fd < 0)
		return errno == EEXIST && op->len == 0 ? 0 : err_sys(e, "make file /%s", op->path);
	if (op->len > 0 && fd_write_all(fd, op->text, op->len) < 0)
		return err_sys(e, "write file /%s", op->path);
	return 0;
}

/* Stands in a source. An id-mapped one comes as a detached mount, which must be attached to be
 * stood in: on the scratch tmpfs, with which it goes when the host's tree is detached. To take it
 * off by itself would make the kernel wait once more for all that may look at it. */
int ops_source_enter(struct walk *w, const struct plan_source *s, struct err *e)
{
	char name[32];

	snprintf(name, sizeof(name), ATTACH "%u", w->attached);
	if (s->check && s->tree) {
		if (mkdirat(w->scratch, name, 0700) < 0 ||
		    sys_move_mount(s->fd, "", w->scratch, name, SYS_MOVE_MOUNT_F_EMPTY_PATH) < 0)
			return err_sys(e, "attach %s", s->path);
		w->attached++;
	}
	return fchdir(s->fd) < 0 ? err_sys(e, "enter %s", s->path) : 0;
}

int ops_source_leave(const struct walk *w, const struct plan_source *s, struct err *e)
{
	return fchdir(w->root >= 0 ? w->root : w->scratch) < 0 ? err_sys(e, "leave %s", s->path)
							       : 0;
}

static int op_bind(const struct walk *w, const struct op *op, struct err *e)
{
	struct plan_source *s = &w->p->sources[op->source];
	struct sys_mount_attr attr = { .attr_set = op->flags };
	int tree;

	if (plain(op) && !s->check &&
	    !s->rdev) /* a node or file of the host's own, nothing that a check has named */
		return bind(s->path, op, op->flags, e);
	if (ops_source_open(s, e) < 0)
		return -1;
	tree = s->fd;
	if (op->flags && sys_mount_setattr(tree, "", AT_EMPTY_PATH | SYS_AT_RECURSIVE, &attr) < 0)
		return err_sys(e, "set attributes of the mount on /%s", op->path);
	return ops_attach(w, op, tree, e);
}

static int op_mount(const struct walk *w, const struct op *op, const char *type,
		    unsigned long flags, struct err *e)
{
	_cleanup_fd_ int place = -1;
	char target[64];
	const char *at = ops_place_path(w, op, target, &place);

	if (!at)
		return err_sys(e, "mount target /%s", op->path);
	if (mount(type, at, type, flags, op->text) < 0)
		return err_sys(e, "mount %s on /%s", type, op->path);
	return 0;
}

static int op_proc(const struct walk *w, const struct op *op, struct err *e)
{
	if (op_mount(w, op, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, e) == 0)
		return 0;
	if (e->num == EPERM)
		return err_set(
			e, ERR_MISSING,
			"the kernel gives no fresh /proc here, because the /proc outside is itself masked (a "
			"container?): use --proc none, or start the container with an unmasked one: docker run "
			"--security-opt systempaths=unconfined, podman run --security-opt unmask=ALL");
	return -1;
}

/* Its root is the group that this process was born in, for that is the root of its cgroup
 * namespace. The one call makes the mount read-only: nobody can write there for a moment. */
static int op_cgroup(const struct walk *w, const struct op *op, struct err *e)
{
	_cleanup_fd_ int dir = -1;

	if (!w->p->own_group)
		return 0;
	dir = path_make_dir(w->root, op->path);
	if (dir < 0)
		return err_sys(e, "directory /%s of the box", op->path);
	return op_mount(w, op, "cgroup2", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, e);
}

static int op_mask(const struct walk *w, const struct op *op, struct err *e)
{
	struct sys_mount_attr attr = { .attr_set = COVER_ATTR };
	_cleanup_fd_ int tree = -1;

	/* Looked at before, since a mount made and not used costs the kernel ten times as much as
	 * the look. */
	if (faccessat(w->root, op->path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_sys(e, "look at /%s", op->path);
	if (plain(op))
		return op->mode == S_IFREG ? bind("dev/null", op, 0, e)
					   : bind(ABOVE EMPTY, op, COVER_ATTR, e);
	if (op->mode == S_IFREG)
		tree = sys_open_tree(w->root, "dev/null",
				     SYS_OPEN_TREE_CLONE | AT_SYMLINK_NOFOLLOW | O_CLOEXEC);
	else
		tree = sys_open_tree(w->empty, "", AT_EMPTY_PATH | SYS_OPEN_TREE_CLONE | O_CLOEXEC);
	if (tree < 0 ||
	    (op->mode == S_IFDIR && sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0))
		return err_sys(e, "mask /%s", op->path);
	return ops_attach(w, op, tree, e);
}

static int op_view(struct walk *w, const struct op *op, struct err *e)
{
	struct sys_mount_attr attr = { .attr_set = COVER_ATTR };
	char name[32];
	_cleanup_fd_ int fd = -1, tree = -1;

	snprintf(name, sizeof(name), ABOVE VIEW "%u", w->views++);
	fd = openat(w->scratch, name + strlen(ABOVE), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
		    0444);
	if (fd < 0 || fd_write_all(fd, op->text, op->len) < 0)
		return err_sys(e, "write the view for /%s", op->path);
	if (plain(op))
		return bind(name, op, COVER_ATTR, e);
	tree = sys_open_tree(w->scratch, name + strlen(ABOVE), SYS_OPEN_TREE_CLONE | O_CLOEXEC);
	if (tree < 0 || sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0)
		return err_sys(e, "make the view for /%s", op->path);
	return ops_attach(w, op, tree, e);
}

static int op_readonly(const struct walk *w, const struct op *op, struct err *e)
{
	struct sys_mount_attr attr = { .attr_set = SYS_MOUNT_ATTR_RDONLY };
	_cleanup_fd_ int tree = -1;

	if (plain(op))
		return bind(op->path, op, SYS_MOUNT_ATTR_RDONLY, e);
	tree = sys_open_tree(w->root, op->path,
			     SYS_OPEN_TREE_CLONE | AT_SYMLINK_NOFOLLOW | O_CLOEXEC);
	if (tree < 0 || sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0)
		return err_sys(e, "make /%s read-only", op->path);
	return ops_attach(w, op, tree, e);
}

/* By a mount of its own onto itself, which the root's becoming read-only does not reach. Only what
 * is the root's: over a mount (a home of /proc, says the image) this would take away what covers
 * it. */
static int op_writable(const struct walk *w, const struct op *op, struct err *e)
{
	_cleanup_fd_ int place = place_open(w, op), tree = -1;
	struct stat st, root;

	if (place < 0 || fstat(place, &st) < 0 || fstat(w->root, &root) < 0)
		return err_sys(e, "directory /%s of the box", op->path);
	if (st.st_dev != root.st_dev || st.st_ino == root.st_ino)
		return 0;
	tree = sys_open_tree(place, "", AT_EMPTY_PATH | SYS_OPEN_TREE_CLONE | O_CLOEXEC);
	if (tree < 0 ||
	    sys_move_mount(tree, "", place, "",
			   SYS_MOVE_MOUNT_F_EMPTY_PATH | SYS_MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return err_sys(e, "keep /%s writable", op->path);
	return 0;
}

static int op_run(struct walk *w, const struct op *op, struct err *e)
{
	switch (op->kind) {
	case OP_DIR:
		return op_dir(w, op, e);
	case OP_FILE:
		return op_file(w, op, e);
	case OP_LINK:
		if (symlinkat(op->text, w->root, op->path) < 0 && errno != EEXIST)
			return err_sys(e, "make link /%s", op->path);
		return 0;
	case OP_LOWER:
		return ops_lower(w, op, e);
	case OP_BIND:
		return op_bind(w, op, e);
	case OP_TMPFS:
		return op_mount(w, op, "tmpfs", op->flags, e);
	case OP_DEVPTS:
		return op_mount(w, op, "devpts", MS_NOSUID | MS_NOEXEC, e);
	case OP_PROC:
		return op_proc(w, op, e);
	case OP_MASK:
		return op_mask(w, op, e);
	case OP_VIEW:
		return op_view(w, op, e);
	case OP_CGROUP:
		return op_cgroup(w, op, e);
	case OP_READONLY:
		return op_readonly(w, op, e);
	case OP_WRITABLE:
		return op_writable(w, op, e);
	case OP_LAYERS:
		return ops_layers(w, op, e);
	case OP_KIND_N:
		break;
	}
	return err_set(e, ERR_SYS, "unknown op %d", (int)op->kind);
}

static int root_open(struct walk *w, struct err *e)
{
	w->root = openat(w->scratch, ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return w->root < 0 ? err_sys(e, "open the new root") : 0;
}

/* What is laid over the lower side, into the upper one, before there is an overlay. */
static int upper_lay(struct walk *w, struct err *e)
{
	_cleanup_fd_ int upper = openat(w->scratch, UPPER, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = 0;

	if (upper < 0)
		return err_sys(e, "prepare the overlay");
	w->root = upper;
	for (unsigned i = 0; i < w->p->n_ops && r == 0; i++)
		if (w->p->ops[i].laid)
			r = op_run(w, &w->p->ops[i], e);
	w->root = -1;
	return r;
}

/* The overlay over the working directory: upper and work on the scratch tmpfs, the lower by "." or
 * by names in it, so that no host path shows in mountinfo. What a set-up box writes goes into the
 * draft, whose maker brings it to the disk (`volatile`); what was laid over the image lies between
 * the two then, and is not kept. */
static int overlay_here(struct walk *w, const char *lowers, struct err *e)
{
	char target[64], between[64] = "", options[4096];
	bool kept = w->draft >= 0;
	int side = kept ? w->draft : w->scratch, n;

	if (mkdirat(w->scratch, UPPER, 0755) < 0 || mkdirat(w->scratch, BOX_DRAFT_WORK, 0700) < 0 ||
	    mkdirat(w->scratch, ROOT, 0755) < 0)
		return err_sys(e, "prepare the overlay");
	if (upper_lay(w, e) < 0)
		return -1;
	snprintf(target, sizeof(target), "/proc/self/fd/%d/" ROOT, w->scratch);
	if (kept)
		snprintf(between, sizeof(between), "/proc/self/fd/%d/" UPPER ":", w->scratch);
	n = snprintf(
		options, sizeof(options),
		"lowerdir=%s%s,upperdir=/proc/self/fd/%d/%s,workdir=/proc/self/fd/%d/%s,userxattr%s",
		between, lowers, side, kept ? BOX_DRAFT_UPPER : UPPER, side, BOX_DRAFT_WORK,
		kept ? ",index=off,volatile" : "");
	if (n < 0 || (size_t)n >= sizeof(options))
		return err_set(e, ERR_USAGE, "more layers than one mount takes");
	if (mount("cloche", target, "overlay", FIXED_FLAGS, options) < 0)
		return err_sys(e, "overlay");
	return root_open(w, e);
}

/* A plain directory of the scratch tmpfs, mounted onto itself, as pivot_root(2) wants it. */
static int root_plain(struct walk *w, struct err *e)
{
	_cleanup_fd_ int tree = -1;

	if (mkdirat(w->scratch, ROOT, 0755) < 0 && errno != EEXIST)
		return err_sys(e, "prepare the new root");
	tree = sys_open_tree(w->scratch, ROOT, SYS_OPEN_TREE_CLONE | O_CLOEXEC);
	if (tree < 0 || sys_move_mount(tree, "", w->scratch, ROOT, SYS_MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_sys(e, "mount the new root");
	return root_open(w, e);
}

/* The root over a directory of the caller's. */
static int root_overlay(struct walk *w, struct err *e)
{
	const struct plan_source *s = &w->p->sources[0];

	if (ops_source_enter(w, s, e) < 0)
		return -1;
	if (overlay_here(w, w->p->lowers, e) < 0)
		return err_prefix(e, "%s", s->path);
	return ops_source_leave(w, s, e);
}

static int root_mount(struct walk *w, struct err *e)
{
	const char *stage = NULL;

	for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]) && !stage; i++)
		if (mount("cloche", stages[i], "tmpfs", FIXED_FLAGS, w->p->root_options) == 0)
			stage = stages[i];
	if (!stage)
		return err_sys(e, "mount a tmpfs for the new root");
	w->scratch = open(stage, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w->scratch < 0 || mkdirat(w->scratch, EMPTY, 0555) < 0)
		return err_sys(e, "prepare the new root");
	w->empty = openat(w->scratch, EMPTY, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (w->empty < 0)
		return err_sys(e, "prepare the new root");
	if (w->p->root_overlay)
		return root_overlay(w, e);
	/* Not every file system can be below an overlay; then the skeleton is of no use, and
	 * nothing is lost but time. */
	w->ready = w->p->skeleton && overlay_here(w, ".", e) == 0;
	if (w->ready)
		return 0;
	*e = (struct err){ 0 };
	return root_plain(w, e);
}

static int root_enter(struct walk *w, struct err *e)
{
	if (fchdir(w->root) < 0 || sys_pivot_root(".", ".") < 0)
		return err_sys(e, "make the new root the root");
	return 0;
}

int ops_run(struct plan *p, struct err *e)
{
	struct walk w = { .p = p, .root = -1, .scratch = -1, .empty = -1, .draft = -1 };

	if (p->draft && (w.draft = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0)
		return err_sys(e, "open the draft of the new root");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_sys(e, "make the mount tree private");
	if (root_mount(&w, e) < 0)
		return -1;
	if (fchdir(w.root) < 0)
		return err_sys(e, "enter the new root");
	for (unsigned i = 0; i < p->n_ops; i++)
		if (!(w.ready && p->ops[i].ready) && !p->ops[i].laid &&
		    op_run(&w, &p->ops[i], e) < 0)
			return err_at(e, STAGE_MOUNT);
	if (root_enter(&w, e) < 0)
		return err_at(e, STAGE_MOUNT);
	/* Every descriptor of the host's tree goes now: init must hold none when it runs something
	 * foreign. */
	for (unsigned i = 0; i < p->n_sources; i++)
		fd_close(&p->sources[i].fd);
	fd_close(&w.empty);
	fd_close(&w.scratch);
	fd_close(&w.draft);
	fd_close(&w.root);
	return 0;
}

int ops_detach(const struct plan *p, struct err *e)
{
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return err_sys(e, "let go of the host's tree");
	if (p->root_readonly) {
		struct sys_mount_attr attr = { .attr_set = SYS_MOUNT_ATTR_RDONLY };

		if (sys_mount_setattr(AT_FDCWD, "/", 0, &attr) < 0)
			return err_sys(e, "make / read-only");
	}
	return 0;
}
