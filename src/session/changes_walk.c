/* Walking a workspace: what files and links there are, and what tells whether they have changed.
 *
 * How: the directories found are the list of work. Each is opened by its path, beneath the
 * workspace and without links (base/path.h), one at a time: no depth takes more than one
 * descriptor, and a directory that a box has exchanged for a link meanwhile is not gone through.
 * Its names are read by getdents64, and only files and links are looked at further: that is as many
 * system calls as `find -printf` makes, or fewer.
 *
 * What may go wrong: files that come and go (one that is gone when it is looked at was not there);
 * directories that are closed to us (their content counts as not there); a tree made to be slow to
 * walk (bounded: entries, names, steps of the kernel); two changes within one tick of the clock
 * that files are stamped with (tree_settle). */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/sys.h"
#include "session/changes_impl.h"
#include "session/workspace_impl.h"

#define NAMES_MAX (64u << 20)
#define STEPS_MAX 20000000
#define SECOND UINT64_C(1000000000)
#define TICKS_MAX 400 /* pauses of half a millisecond */

/* As the kernel's struct statx; base/sys.h has it without names. */
struct stamp {
	int64_t sec;
	uint32_t nsec;
	int32_t unused;
};
struct status {
	uint32_t mask, blksize;
	uint64_t attributes;
	uint32_t nlink, uid, gid;
	uint16_t mode, unused;
	uint64_t ino, size, blocks, attributes_mask;
	struct stamp atime, btime, ctime, mtime;
	uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
	uint64_t rest[14];
};
_Static_assert(sizeof(struct status) == 256, "struct statx");
#define WANT_TYPE 0x1u
#define WANT_MTIME 0x40u
#define WANT_CTIME 0x80u
#define WANT_INO 0x100u
#define WANT_SIZE 0x200u
#define WANT_BTIME 0x800u

static int too_large(struct err *e)
{
	return err_set(
		e, ERR_TOO_LARGE,
		"the workspace has more than %d files, too long names or too deep directories: too many to track its changes",
		SES_CHANGES_WALK_MAX);
}

/* The array with room for one more element, or NULL. */
static void *grow(void *v, size_t *cap, size_t n, size_t size, struct err *e)
{
	size_t want = *cap ? 2 * *cap : 256;
	void *more;

	if (v && n < *cap)
		return v;
	more = reallocarray(v, want, size);
	if (!more)
		err_sys(e, "the list of files");
	else
		*cap = want;
	return more;
}

static int add_name(struct tree *t, const char *name, uint32_t *ret, struct err *e)
{
	size_t n = strlen(name) + 1;

	if (t->cap_names - t->n_names < n) {
		size_t cap = t->cap_names ? 2 * t->cap_names : 16384;
		char *v;

		if (cap > NAMES_MAX)
			return too_large(e);
		v = realloc(t->names, cap);
		if (!v)
			return err_sys(e, "the list of files");
		t->names = v;
		t->cap_names = cap;
	}
	memcpy(t->names + t->n_names, name, n);
	*ret = (uint32_t)t->n_names;
	t->n_names += n;
	return 0;
}

static uint64_t nanoseconds(struct stamp s)
{
	return (uint64_t)s.sec * SECOND + s.nsec;
}

static int look(int fd, const char *name, struct tree_entry *v)
{
	struct status st;

	if (syscall(SYS_statx, fd, name, AT_SYMLINK_NOFOLLOW,
		    WANT_TYPE | WANT_MTIME | WANT_CTIME | WANT_INO | WANT_SIZE | WANT_BTIME,
		    &st) < 0)
		return -1;
	v->type = S_ISREG(st.mode)   ? TREE_FILE
		  : S_ISLNK(st.mode) ? TREE_SYMLINK
		  : S_ISDIR(st.mode) ? TREE_DIR
				     : UINT8_MAX;
	v->ino = st.ino;
	v->ctime = nanoseconds(st.ctime);
	/* Inodes are used again. What has no time of birth is the same while it has not been
	 * written to. */
	v->birth = nanoseconds(st.mask & WANT_BTIME ? st.btime : st.mtime);
	v->size = st.size;
	v->dev = st.dev_major << 20 ^ st.dev_minor;
	return 0;
}

static int add_dir(struct tree *t, uint32_t parent, uint32_t entry, size_t name_len, struct err *e)
{
	struct tree_dir d = { .entry = entry, .parent = parent }, *dirs;

	if (t->n_dirs > 0) {
		const struct tree_dir *up = &t->dirs[parent];

		d.depth = up->depth + 1;
		d.path_len = up->path_len + (up->path_len > 0) + (uint32_t)name_len;
	}
	dirs = grow(t->dirs, &t->cap_dirs, t->n_dirs, sizeof(*t->dirs), e);
	if (!dirs)
		return -1;
	t->dirs = dirs;
	dirs[t->n_dirs++] = d;
	return 0;
}

static int add(struct tree *t, uint32_t dir, int fd, const struct ses_name *name, struct err *e)
{
	struct tree_entry v = { .dir = dir }, *all;

	if (name->type == DT_DIR)
		v.type = TREE_DIR;
	else if (name->type != DT_REG && name->type != DT_LNK && name->type != DT_UNKNOWN)
		return 0;
	else if (look(fd, name->name, &v) < 0 || v.type > TREE_DIR)
		return 0;
	if (t->n == SES_CHANGES_WALK_MAX)
		return too_large(e);
	all = grow(t->v, &t->cap, t->n, sizeof(*t->v), e);
	if (!all)
		return -1;
	t->v = all;
	if (add_name(t, name->name, &v.name, e) < 0)
		return -1;
	if (v.type == TREE_DIR) {
		v.dev = (uint32_t)t->n_dirs;
		if (add_dir(t, dir, (uint32_t)t->n, strlen(name->name), e) < 0)
			return -1;
	} else if (v.ctime > t->newest) {
		t->newest = v.ctime;
	}
	all[t->n++] = v;
	return 0;
}

size_t tree_path_len(const struct tree *t, const struct tree_entry *v)
{
	size_t up = t->dirs[v->dir].path_len;

	return up + (up > 0) + strlen(tree_name(t, v));
}

/* From the end to the beginning. */
void tree_path(const struct tree *t, const struct tree_entry *v, char *ret)
{
	char *p = ret + tree_path_len(t, v);

	for (;;) {
		const char *name = tree_name(t, v);
		size_t n = strlen(name);

		p -= n;
		memcpy(p, name, n);
		if (v->dir == 0)
			return;
		*--p = '/';
		v = &t->v[t->dirs[v->dir].entry];
	}
}

static int open_dir(int root, const struct tree *t, const struct tree_dir *d)
{
	char path[SES_PATH_CAP];

	if (d->path_len >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (d->entry != TREE_NONE)
		tree_path(t, &t->v[d->entry], path);
	path[d->path_len] = '\0';
	return ses_open_dir(root, path, false);
}

static int read_dir(struct tree *t, uint32_t at, int fd, struct err *e)
{
	struct ses_name name;
	struct ses_dir d;

	t->dirs[at].first = (uint32_t)t->n;
	ses_dir(&d, fd);
	while (ses_dir_next(&d, &name) > 0)
		if ((at > 0 || !ses_replace_is_at(fd, name.name)) && add(t, at, fd, &name, e) < 0)
			return -1;
	t->dirs[at].n = (uint32_t)t->n - t->dirs[at].first;
	return 0;
}

static int walk(int root, struct tree *t, struct err *e)
{
	uint64_t steps = 0;

	if (add_dir(t, 0, TREE_NONE, 0, e) < 0)
		return -1;
	for (uint32_t i = 0; i < t->n_dirs; i++) {
		_cleanup_fd_ int fd = open_dir(root, t, &t->dirs[i]);

		steps += 1 + t->dirs[i].depth;
		if (steps > STEPS_MAX)
			return too_large(e);
		if (fd < 0 && (i == 0 || errno == EMFILE || errno == ENFILE || errno == ENOMEM))
			return err_sys(e, "open a directory of the workspace");
		if (fd >= 0 && read_dir(t, i, fd, e) < 0)
			return -1;
	}
	return 0;
}

int tree_walk(int dirfd, struct tree *ret, struct err *e)
{
	struct tree t = { 0 };

	if (walk(dirfd, &t, e) < 0) {
		tree_free(&t);
		return -1;
	}
	*ret = t;
	return 0;
}

void tree_free(struct tree *t)
{
	free(t->v);
	free(t->dirs);
	free(t->names);
	*t = (struct tree){ 0 };
}

/* Files are stamped with a clock that ticks a few hundred times a second: what is written twice in
 * a tick has the same ctime after both. Since Linux 6.13 these file systems give a file that was
 * looked at a finer time at its next change, its removal too, and no file an earlier one after that
 * (Documentation/filesystems/multigrain-ts.rst). */
static bool stamps_finely(int dirfd)
{
	unsigned major = 0, minor = 0;
	struct utsname u;
	struct statfs fs;

	if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2 || major < 6 ||
	    (major == 6 && minor < 13) || fstatfs(dirfd, &fs) < 0)
		return false;
	switch ((uint64_t)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case TMPFS_MAGIC:
		return true;
	default:
		return false;
	}
}

void tree_settle(int dirfd, const struct tree *t)
{
	const struct timespec pause = { .tv_nsec = 500000 };
	struct timespec now;
	uint64_t n;

	if (stamps_finely(dirfd))
		return;
	/* A machine that is short of processors may tick late. */
	for (int i = 0; i < TICKS_MAX; i++) {
		if (clock_gettime(CLOCK_REALTIME_COARSE, &now) < 0)
			return;
		n = (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
		/* What is far ahead was not taken from this clock as it is. */
		if (t->newest < n || t->newest - n > SECOND)
			return;
		nanosleep(&pause, NULL);
	}
}
