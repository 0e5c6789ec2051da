/* cgroup v2: where the caller stands, and where groups for boxes may be made.
 *
 * A controller reaches a group only when the group above has it in cgroup.subtree_control, and the
 * kernel lets a group other than the root have controllers there only while it holds no process
 * itself. The caller's own group holds the caller, so the search goes up: to the nearest group that
 * the caller may write to (the kernel asks for cgroup.procs of the common ancestor, too) and that
 * hands memory and pids down, or would if asked. A slice of systemd is used as it is; what its
 * manager switched is left alone, since it would be switched back. As a last way a process that
 * stands alone in its group steps into one of its own below it: a scope or a container that runs
 * nothing but cloche.
 *
 * What may go wrong: nothing is delegated (a login over ssh, a service without Delegate=), a
 * read-only cgroup file system (a container's default), a container whose root group holds its
 * processes. Each has its own words, which doctor shows. */
#include "box/limits_rungs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"

static const struct {
	const char *name;
	unsigned bit;
} controllers[] = {
	{ "memory", CG2_MEMORY },
	{ "pids", CG2_PIDS },
	{ "cpu", CG2_CPU },
	{ "io", CG2_IO },
};
#define N_CONTROLLERS (sizeof(controllers) / sizeof(controllers[0]))

unsigned cg2_parse_controllers(const char *text)
{
	unsigned found = 0;

	while (*text) {
		size_t n = strcspn(text, " \n");

		for (size_t i = 0; i < N_CONTROLLERS; i++)
			if (strlen(controllers[i].name) == n &&
			    memcmp(controllers[i].name, text, n) == 0)
				found |= controllers[i].bit;
		text += n + (text[n] != '\0');
	}
	return found;
}

void cg2_words(unsigned bits, char *ret, size_t cap)
{
	unsigned left = bits;
	size_t at = 0;

	ret[0] = '\0';
	for (size_t i = 0; i < N_CONTROLLERS && at < cap; i++) {
		if (!(bits & controllers[i].bit))
			continue;
		left &= ~controllers[i].bit;
		at += (size_t)snprintf(ret + at, cap - at, "%s%s",
				       at == 0 ? ""
				       : left  ? ", "
					       : " and ",
				       controllers[i].name);
	}
}

void cg2_parse_groups(const char *text, size_t n, struct cg2_place *ret)
{
	unsigned v1 = 0;

	while (n > 0) {
		const char *end = memchr(text, '\n', n), *one, *two = NULL;
		size_t line = end ? (size_t)(end - text) : n, path;

		one = memchr(text, ':', line);
		if (one)
			two = memchr(one + 1, ':', line - (size_t)(one + 1 - text));
		path = two ? line - (size_t)(two + 1 - text) : 0;
		for (size_t i = 0; two && i < N_CONTROLLERS; i++)
			if (cg_list_has(one + 1, (size_t)(two - one - 1), controllers[i].name))
				v1 |= controllers[i].bit;
		if (!ret->found && path > 0 && path < CG_PATH_MAX && two == one + 1 &&
		    two - text == 2 && text[0] == '0' && two[1] == '/' &&
		    !memchr(two + 1, '\0', path)) {
			memcpy(ret->group, two + 1, path);
			ret->group[path] = '\0';
			ret->found = true;
		}
		text += line + (end != NULL);
		n -= line + (end != NULL);
	}
	ret->elsewhere = (v1 & CG2_MEMORY) && (v1 & CG2_PIDS);
}

void cg2_parse_mount(const char *line, size_t n, struct cg2_place *ret)
{
	struct cg_mount m;

	if (!ret->found || ret->mounted || !cg_parse_mount(line, n, &m) || m.version != 2 ||
	    !cg_map_path(ret->group, m.root, m.point, ret->path))
		return;
	ret->top = strlen(m.point);
	ret->mounted = true;
}

static void each_mount(void *ctx, const char *line, size_t n)
{
	cg2_parse_mount(line, n, ctx);
}

static bool mounted(const void *ctx)
{
	return ((const struct cg2_place *)ctx)->mounted;
}

int cg2_find(struct cg2_place *ret, struct err *e)
{
	size_t n;
	const char *text = cg_own_groups(true, &n, e);

	*ret = (struct cg2_place){ 0 };
	if (!text)
		return -1;
	cg2_parse_groups(text, n, ret);
	if (!ret->found)
		return err_set(e, ERR_MISSING, "no cgroup v2 hierarchy");
	/* A user who can't have limits from v1 may still have a group to kill by. */
	if (ret->elsewhere && geteuid() == 0)
		return err_set(e, ERR_MISSING, "memory and pids belong to cgroup v1 here");
	if (cg_each_mount(each_mount, mounted, ret) < 0)
		return err_sys(e, "reading /proc/self/mountinfo");
	if (!ret->mounted)
		return err_set(e, ERR_MISSING, "the caller's group %.200s is not mounted here",
			       ret->group);
	return 0;
}

static unsigned read_controllers(int fd, const char *file)
{
	char text[512];

	return fd_read_file_at(fd, file, text, sizeof(text)) > 0 ? cg2_parse_controllers(text) : 0;
}

enum holds { HOLDS_NONE, HOLDS_SELF, HOLDS_OTHERS };

/* Who stands in the group itself. A process of another pid namespace shows as 0. */
static enum holds who(int fd)
{
	char text[64], self[16];
	ssize_t n = fd_read_file_at(fd, "cgroup.procs", text, sizeof(text));

	if (n == 0)
		return HOLDS_NONE;
	snprintf(self, sizeof(self), "%d", (int)getpid());
	return n > 0 && strcmp(text, self) == 0 ? HOLDS_SELF : HOLDS_OTHERS;
}

/* The hierarchy's own root, which alone may hold processes and hand controllers down. */
static bool kernel_root(int fd)
{
	return faccessat(fd, "cgroup.type", F_OK, 0) < 0 && errno == ENOENT;
}

static int writable(int fd, const char *path, struct err *e)
{
	if (faccessat(fd, ".", W_OK, 0) == 0 && faccessat(fd, "cgroup.procs", W_OK, 0) == 0)
		return 0;
	if (errno == EROFS)
		return err_set(e, ERR_MISSING,
			       "%.200s is mounted read-only, as containers have it by default",
			       path);
	if (errno == EACCES || errno == EPERM)
		return err_set(e, ERR_MISSING, "%.200s is not delegated to uid %u", path,
			       (unsigned)geteuid());
	return err_sys(e, "%.200s", path);
}

int cg2_look_at(int fd, const char *path, unsigned want, struct cg2_parent *ret, struct err *e)
{
	unsigned has, down, missing;
	char words[64];
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC)
		return err_set(e, ERR_MISSING, "%.200s is no group of cgroup v2", path);
	if (writable(fd, path, e) < 0)
		return -1;
	has = read_controllers(fd, "cgroup.controllers");
	down = read_controllers(fd, "cgroup.subtree_control");
	missing = want & has & ~down;
	ret->fd = fd;
	snprintf(ret->path, sizeof(ret->path), "%s", path);
	ret->gives = want & (has | down);
	ret->enable = missing;
	ret->alone = false;
	if (missing == 0 || kernel_root(fd))
		return 0;
	switch (who(fd)) {
	case HOLDS_NONE:
		return 0;
	case HOLDS_SELF:
		ret->alone = true;
		return 0;
	case HOLDS_OTHERS:
		break;
	}
	ret->gives = want & down;
	ret->enable = 0;
	if (ret->gives & (CG2_MEMORY | CG2_PIDS))
		return 0;
	cg2_words(missing, words, sizeof(words));
	return err_set(
		e, ERR_MISSING,
		"%.200s holds other processes, so the kernel can't give %s to groups below it",
		path, words);
}

/* A group whose controllers the service manager switches. */
static bool managed(const char *path, bool root)
{
	const char *name = strrchr(path, '/');
	size_t n;

	name = name ? name + 1 : path;
	n = strlen(name);
	if (root)
		return access("/run/systemd/system", F_OK) == 0;
	return strncmp(name, "user@", 5) == 0 || (n > 6 && strcmp(name + n - 6, ".slice") == 0);
}

static int rank(const struct cg2_parent *p)
{
	const unsigned both = CG2_MEMORY | CG2_PIDS;

	if (p->alone)
		return (p->gives & both) == both ? 15 : 1;
	return ((p->gives & both) == both ? 16
		: p->gives & both	  ? 4
					  : 0) +
	       !!(p->gives & CG2_CPU) + !!(p->gives & CG2_IO);
}

/* From the caller's group to the top of what can be seen; the first that is not writable ends it,
 * for nothing above it could be entered. */
static int walk_up(const struct cg2_place *own, unsigned want, struct cg2_parent *ret,
		   struct err *e)
{
	static struct cg2_parent p;
	static char path[CG_PATH_MAX];
	struct err first = { 0 }, why;
	int best = -1;

	memcpy(path, own->path, sizeof(path));
	for (;;) {
		int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
		char *slash = strrchr(path, '/');

		if (fd < 0) {
			err_sys(&why, "opening %.200s", path);
		} else if (cg2_look_at(fd, path, want, &p, &why) == 0) {
			if (!p.alone && p.enable && managed(path, kernel_root(fd))) {
				p.gives &= ~p.enable;
				p.enable = 0;
			}
			if (rank(&p) > best) {
				if (best >= 0)
					fd_close(&ret->fd);
				best = rank(&p);
				*ret = p;
				fd = -1;
			}
			why.kind = ERR_NONE;
		}
		if (first.kind == ERR_NONE)
			first = why;
		fd_close(&fd);
		if (best >= 16 && (ret->gives & want) == want)
			return 0;
		if (faccessat(AT_FDCWD, path, W_OK, 0) < 0 || !slash || slash == path ||
		    (size_t)(slash - path) < own->top)
			break;
		*slash = '\0';
	}
	if (best >= 0)
		return 0;
	*e = first;
	return -1;
}

/* May this process be moved into the group, as the kernel sees it? */
static int enterable(const char *path, struct err *e)
{
	static struct cg2_place own;
	static char common[CG_PATH_MAX + 16];
	size_t n = 0;
	struct err none;

	if (cg2_find(&own, &none) < 0)
		return 0; /* then the clone says so */
	for (size_t i = 0; own.path[i] == path[i] || !own.path[i] || !path[i]; i++) {
		if ((own.path[i] == '/' || !own.path[i]) && (path[i] == '/' || !path[i]))
			n = i;
		if (!own.path[i] || !path[i])
			break;
	}
	if (n < own.top)
		return 0;
	memcpy(common, path, n);
	memcpy(common + n, "/cgroup.procs", sizeof("/cgroup.procs"));
	if (access(common, W_OK) == 0)
		return 0;
	common[n] = '\0';
	return err_set(
		e, ERR_MISSING,
		"the way there leads over %.200s, which this user may not write to: start cloche in a "
		"group below the one that was delegated",
		common);
}

static int named(const char *path, unsigned want, struct cg2_parent *ret, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	static char real[CG_PATH_MAX];
	char link[32];
	ssize_t n;

	if (fd < 0)
		return err_sys(e, "%.200s", path);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, real, sizeof(real) - 1);
	if (n <= 0 || n == (ssize_t)sizeof(real) - 1)
		return err_set(e, ERR_MISSING, "%.200s: its path can't be told", path);
	real[n] = '\0';
	if (cg2_look_at(fd, real, want, ret, e) < 0 || enterable(real, e) < 0)
		return -1;
	if (!(ret->gives & (CG2_MEMORY | CG2_PIDS)))
		return err_set(
			e, ERR_MISSING,
			"%.200s has neither memory nor pids among its cgroup.controllers: the group above "
			"must name them in its cgroup.subtree_control",
			real);
	fd_steal(&fd);
	return 0;
}

int cg2_find_parent(unsigned want, struct cg2_parent *ret, struct err *e)
{
	static struct cg2_place own;
	const char *path = getenv("CLOCHE_CGROUP");

	ret->fd = -1;
	if (path && path[0]) {
		if (named(path, want, ret, e) == 0)
			return 0;
		err_prefix(e, "CLOCHE_CGROUP");
		e->kind = ERR_REFUSED;
		return -1;
	}
	return cg2_find(&own, e) < 0 ? -1 : walk_up(&own, want, ret, e);
}
