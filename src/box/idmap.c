/* An id-mapped mount takes its map from a user namespace. One is made for each pair of owner and
 * box, by a child that only waits until its maps are written and its namespace is open here.
 * mount_setattr(2), section "ID-mapped mounts". */
#include "box/idmap.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/mount_check.h"
#include "box/userns_why.h"

static int map_write(pid_t pid, const char *file, unsigned from, unsigned to, struct err *e)
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	snprintf(text, sizeof(text), "%u %u 1", from, to);
	return fd_write_file_at(AT_FDCWD, path, text) < 0
		       ? err_sys(e, "write %s of the workspace's id map", file)
		       : 0;
}

static int userns_fill(pid_t pid, const struct box_mount *m, const struct box_spec *s, int *ret,
		       struct err *e)
{
	char path[64];
	int fd;

	if (map_write(pid, "uid_map", m->owner, s->outer_uid, e) < 0 ||
	    map_write(pid, "gid_map", m->group, s->outer_gid, e) < 0)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, "open the workspace's id map");
	*ret = fd;
	return 0;
}

/* The child that holds a namespace until it is open here. It shares this process's memory, which it
 * does not change, and nobody waits for it to get a processor: not when it begins, since its maps
 * are written from here, and when it ends only at the end, or before its stack serves another. */
static struct {
	pid_t pid;   /* 0: none */
	int pipe[2]; /* its life: until the second one is closed here; its descriptors are its own
		      */
	char stack[16384] __attribute__((aligned(16)));
} holder;

static int hold(void *arg)
{
	char c;

	(void)arg;
	close(holder.pipe[1]);
	return read(holder.pipe[0], &c, 1) < 0;
}

void idmap_reap(void)
{
	while (holder.pid > 0 && waitpid(holder.pid, NULL, 0) < 0 && errno == EINTR)
		;
	holder.pid = 0;
}

static int userns_make(const struct box_mount *m, const struct box_spec *s, int *ret, struct err *e)
{
	pid_t pid;
	int r;

	idmap_reap();
	if (fd_pipe(&holder.pipe[0], &holder.pipe[1]) < 0)
		return err_sys(e, "make a pipe");
	pid = clone(hold, holder.stack + sizeof(holder.stack), CLONE_VM | CLONE_NEWUSER | SIGCHLD,
		    NULL);
	if (pid < 0)
		r = userns_refused("user namespace", errno, e);
	else
		r = userns_fill(pid, m, s, ret, e);
	holder.pid = pid > 0 ? pid : 0;
	/* Not fd_close, which would let the child see -1. */
	close(holder.pipe[0]);
	close(holder.pipe[1]);
	return r;
}

static int source_map(struct plan_source *src, const struct box_spec *s, int userns, struct err *e)
{
	struct sys_mount_attr attr = { .attr_set = SYS_MOUNT_ATTR_IDMAP,
				       .userns_fd = (uint64_t)userns };
	_cleanup_fd_ int at = mount_open_checked(src->check), tree = -1;

	if (at < 0)
		return err_sys(e, "%s: it changed after it was checked, or can't be opened",
			       src->path);
	/* Not recursive: what is mounted below may be of a kind that can't be mapped, and a box
	 * sees one file system of a workspace. */
	tree = sys_open_tree(at, "", AT_EMPTY_PATH | SYS_OPEN_TREE_CLONE | O_CLOEXEC);
	if (tree < 0 && errno == EPERM)
		return err_set(
			e, ERR_MISSING,
			"%s: root may share a directory only with CAP_SYS_ADMIN, which it lacks here: run "
			"cloche as the directory's owner, or: docker run --cap-add SYS_ADMIN ...",
			src->path);
	if (tree < 0)
		return err_sys(e, "%s: clone its mount", src->path);
	if (sys_mount_setattr(tree, "", AT_EMPTY_PATH, &attr) < 0) {
		if (errno != EINVAL && errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP)
			return err_sys(e, "%s: map its owner to the box's user", src->path);
		return err_set(
			e, ERR_MISSING,
			"%s: its file system can't map ids, and root's files are not shown to a box "
			"otherwise: run cloche as the directory's owner, or copy it to ext4, xfs or btrfs (tmpfs: kernel 6.3)",
			src->path);
	}
	src->fd = fd_steal(&tree);
	src->tree = true; /* for ops.c: a detached mount, whatever it is used for */
	return 0;
}

int idmap_sources(struct plan *p, const struct box_spec *spec, struct err *e)
{
	_cleanup_fd_ int userns = -1;
	const struct box_mount *last = NULL;

	for (unsigned i = 0; i < p->n_sources; i++) {
		const struct box_mount *m = p->sources[i].check;

		if (!m)
			continue;
		if (!last || last->owner != m->owner || last->group != m->group) {
			fd_close(&userns);
			if (userns_make(m, spec, &userns, e) < 0)
				return err_at(e, STAGE_WORKSPACE);
			last = m;
		}
		if (source_map(&p->sources[i], spec, userns, e) < 0)
			return err_at(e, m->workspace ? STAGE_WORKSPACE : STAGE_MOUNT);
	}
	return 0;
}
