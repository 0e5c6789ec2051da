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

/* Lives until the pipe ends. Its descriptors are its own, its memory is not: it changes none. */
static int hold(void *arg)
{
	const int *pipe = arg;
	char c;

	close(pipe[1]);
	return read(pipe[0], &c, 1) < 0;
}

static int userns_make(const struct box_mount *m, const struct box_spec *s, int *ret, struct err *e)
{
	static char stack[16384] __attribute__((aligned(16)));
	_cleanup_fd_ int hold_read = -1;
	int pipe[2], hold_write, r;
	pid_t pid;

	if (fd_pipe(&hold_read, &hold_write) < 0)
		return err_sys(e, "make a pipe");
	pipe[0] = hold_read;
	pipe[1] = hold_write;
	pid = clone(hold, stack + sizeof(stack), CLONE_VM | CLONE_NEWUSER | SIGCHLD, pipe);
	if (pid < 0) {
		userns_refused("user namespace", errno, e);
		fd_close(&hold_write);
		return -1;
	}
	r = userns_fill(pid, m, s, ret, e);
	fd_close(&hold_write);
	waitpid(pid, NULL, 0);
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
