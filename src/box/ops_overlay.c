/* Directories of the host and layers, shown through overlays of their own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/ops_impl.h"

#define OWN_UPPER "own-upper" /* on the scratch tmpfs; of layers that are not the root */
#define OWN_WORK "own-work"

/* Where no overlay can be had: the directory has mounts below it that this user namespace may not
 * take apart, or an outer container has used up the depth of overlays. Read-only by bind then,
 * which leaves the host's sockets in it reachable: told in a note, and no choice for hostile code.
 */
static int lower_bind(const struct walk *w, const struct op *op, struct err *e)
{
	struct sys_mount_attr attr = { .attr_set = SYS_MOUNT_ATTR_RDONLY | SYS_MOUNT_ATTR_NOSUID |
						   SYS_MOUNT_ATTR_NODEV };
	const struct plan_source *s = &w->p->sources[op->source];
	_cleanup_fd_ int tree = -1;

	if (w->p->strict) {
		w->p->no_overlay = op->source + 1;
		return err_set(
			e, ERR_MISSING,
			"%s can't be shown through an overlay here (mounts below it, or a container in a container), "
			"and the untrusted profile takes nothing less",
			s->path);
	}
	tree = sys_open_tree(AT_FDCWD, ".", SYS_OPEN_TREE_CLONE | SYS_AT_RECURSIVE | O_CLOEXEC);
	if (tree < 0 || sys_mount_setattr(tree, "", AT_EMPTY_PATH | SYS_AT_RECURSIVE, &attr) < 0)
		return err_sys(e, "bind %s read-only", s->path);
	if (ops_attach(w, op, tree, e) < 0 || ops_source_leave(w, s, e) < 0)
		return -1;
	*e = (struct err){ 0 };
	w->p->n_binds++;
	return 0;
}

/* A lower-only overlay: sockets and FIFOs of the host are not reachable through it, and mountinfo
 * tells no host path. It needs two lower directories; the second is empty. */
int ops_lower(struct walk *w, const struct op *op, struct err *e)
{
	struct plan_source *s = &w->p->sources[op->source];
	_cleanup_fd_ int place = -1;
	char target[64], lower[64];
	const char *at = ops_place_path(w, op, target, &place);
	int r;

	if (s->shared && ops_attach(w, op, s->fd, e) == 0)
		return 0;
	if (s->shared) { /* an own one then, as ever */
		*e = (struct err){ 0 };
		fd_close(&s->fd);
		s->shared = false;
	}
	if (!at)
		return err_sys(e, "mount target /%s", op->path);
	if (ops_source_open(s, e) < 0 || ops_source_enter(w, s, e) < 0)
		return -1;
	snprintf(lower, sizeof(lower), "lowerdir=.:/proc/self/fd/%d,userxattr", w->empty);
	r = mount("cloche", at, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, lower);
	if (r < 0)
		err_sys(e, "overlay of %s on /%s", s->path, op->path);
	if (r < 0 && e->num == EINVAL)
		return lower_bind(w, op, e);
	return r < 0 ? -1 : ops_source_leave(w, s, e);
}

/* Layers elsewhere than at the root, with an empty directory below them: an overlay without an
 * upper side needs two lower ones. */
int ops_layers(struct walk *w, const struct op *op, struct err *e)
{
	struct plan_source *s = op->source < 0 ? NULL : &w->p->sources[op->source];
	const bool draft = op->mode == UPPER_DRAFT;
	const int side = draft ? w->draft : w->scratch;
	_cleanup_fd_ int place = -1;
	char target[64], upper[160] = "", options[4096];
	const char *at = ops_place_path(w, op, target, &place);
	int n;

	if (!at)
		return err_sys(e, "mount target /%s", op->path);
	if (s && (ops_source_open(s, e) < 0 || ops_source_enter(w, s, e) < 0))
		return -1;
	if (op->mode == UPPER_SCRATCH &&
	    (mkdirat(w->scratch, OWN_UPPER, 0755) < 0 || mkdirat(w->scratch, OWN_WORK, 0700) < 0))
		return err_sys(e, "prepare the overlay");
	if (op->mode != UPPER_NONE)
		snprintf(upper, sizeof(upper),
			 ",upperdir=/proc/self/fd/%d/%s,workdir=/proc/self/fd/%d/%s%s", side,
			 draft ? BOX_DRAFT_UPPER : OWN_UPPER, side,
			 draft ? BOX_DRAFT_WORK : OWN_WORK, draft ? ",index=off,volatile" : "");
	n = snprintf(options, sizeof(options), "lowerdir=%s%s/proc/self/fd/%d%s,userxattr",
		     op->text ? op->text : "", op->text ? ":" : "", w->empty, upper);
	if (n < 0 || (size_t)n >= sizeof(options))
		return err_set(e, ERR_USAGE, "more layers than one mount takes");
	if (mount("cloche", at, "overlay", FIXED_FLAGS | (*upper ? 0 : MS_RDONLY), options) < 0)
		return err_sys(e, "overlay on /%s", op->path);
	return s ? ops_source_leave(w, s, e) : 0;
}
