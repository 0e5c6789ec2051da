/* The caller's mounts: options to struct box_mount, and what is refused.
 *
 * A source is made canonical (links resolved), opened without links, and what is then open is
 * judged: by the path it has, by the path the caller wrote, and by device and inode. The child
 * opens the canonical path again, without links, and compares; a source that was replaced in
 * between is refused there.
 *
 * A target is a path of the box: none of the places that cloche furnishes, none twice, none under a
 * tmpfs. Targets inside another mount must exist in its source, because making them would leave
 * litter on the host.
 *
 * What may go wrong: network file systems that hang in stat(2) hang us too; nothing here can time
 * that out. */
#include "box/mount_check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "box/mount_below.h"

int mount_check_init(struct mount_check *c, struct err *e)
{
	c->n_notes = c->n_denied = 0;
	c->learned = false;
	c->spec = NULL;
	c->rules.n_places = c->rules.n_aliases = c->rules.n_envs = c->rules.n_known =
		c->rules.n_strings = 0;
	return 0;
}

void mount_check_free(struct mount_check *c)
{
	mount_rules_free(&c->rules);
}

int mount_check_state(struct mount_check *c, const char *dir, struct err *e)
{
	return mount_rules_place(&c->rules, PLACE_STATE, dir, e);
}

/* The option as the caller knows it, in front of a message. */
static int about(struct err *e, const struct box_mount *m)
{
	struct mount_shown src, dst;

	if (m->kind == BOX_MOUNT_TMPFS)
		err_prefix(e, "--tmpfs %s", mount_show(&dst, m->dst));
	else if (m->workspace)
		err_prefix(e, "--workspace %s", mount_show(&src, m->src));
	else if (m->git)
		err_prefix(e, "--git: %s", mount_show(&src, m->src));
	else
		err_prefix(e, "-v %s:%s", mount_show(&src, m->src), mount_show(&dst, m->dst));
	return err_at(e, m->workspace ? STAGE_WORKSPACE : STAGE_MOUNT);
}

/* A kept copy of text[0..n), or NULL with *e. */
static const char *keep_part(struct mount_check *c, const char *text, size_t n, struct err *e)
{
	char part[PATH_MAX];

	if (n >= sizeof(part)) {
		err_set(e, ERR_USAGE, "a path is longer than %d bytes", PATH_MAX - 1);
		return NULL;
	}
	memcpy(part, text, n);
	part[n] = '\0';
	return mount_rules_keep(&c->rules, part, e);
}

/* A kept, normalised copy of the target text[0..n), or NULL with *e. */
static const char *keep_target(struct mount_check *c, const char *text, size_t n, struct err *e)
{
	char norm[PATH_MAX];
	const char *raw = keep_part(c, text, n, e);

	if (!raw)
		return NULL;
	if (path_normalise(raw, norm, e) < 0) {
		struct mount_shown s;

		err_prefix(e, "target \"%s\"", mount_show(&s, raw));
		return NULL;
	}
	return mount_rules_keep(&c->rules, norm, e);
}

int mount_parse_volume(struct mount_check *c, const char *text, bool untrusted,
		       struct box_mount *ret, struct err *e)
{
	struct box_mount m = { .kind = BOX_MOUNT_DIR, .rw = !untrusted };
	const char *dst = strchr(text, ':'), *mode = dst ? strchr(dst + 1, ':') : NULL;
	struct mount_shown s;

	if (!dst || dst == text || !dst[1] || mode == dst + 1)
		return err_set(e, ERR_USAGE, "-v \"%s\": write SRC:DST, SRC:DST:ro or SRC:DST:rw",
			       mount_show(&s, text));
	if (mode) {
		if (strcmp(mode, ":ro") && strcmp(mode, ":rw"))
			return err_set(
				e, ERR_USAGE,
				"-v \"%s\": after the target comes :ro or :rw, nothing else (a path with "
				"':' can't be written; use a link to it)",
				mount_show(&s, text));
		m.rw = mode[2] == 'w';
		m.ro_said = !m.rw;
	}
	m.src = keep_part(c, text, (size_t)(dst - text), e);
	if (m.src)
		m.dst = keep_target(c, dst + 1, mode ? (size_t)(mode - dst - 1) : strlen(dst + 1),
				    e);
	if (m.dst)
		m.said = mount_rules_keep(&c->rules, text, e);
	if (!m.said)
		return err_prefix(e, "-v \"%s\"", mount_show(&s, text));
	*ret = m;
	return 0;
}

int mount_parse_tmpfs(struct mount_check *c, const char *text, struct box_mount *ret, struct err *e)
{
	struct box_mount m = { .kind = BOX_MOUNT_TMPFS, .rw = true };
	const char *size = strchr(text, ':');
	struct mount_shown s;

	if (!size || size == text || !size[1] || strchr(size + 1, ':'))
		return err_set(
			e, ERR_USAGE,
			"--tmpfs \"%s\": write DST:SIZE, such as /scratch:64m (no ':' in DST)",
			mount_show(&s, text));
	if (parse_size(size + 1, &m.size, e) < 0)
		return err_prefix(e, "--tmpfs \"%s\"", mount_show(&s, text));
	if (m.size == 0)
		return err_set(e, ERR_USAGE, "--tmpfs \"%s\": the size is zero",
			       mount_show(&s, text));
	if (size[strlen(size) - 1] >= '0' && size[strlen(size) - 1] <= '9')
		return err_set(e, ERR_USAGE,
			       "--tmpfs \"%s\": the size needs a unit: k, m, g, or b for bytes",
			       mount_show(&s, text));
	m.dst = keep_target(c, text, (size_t)(size - text), e);
	if (m.dst)
		m.said = mount_rules_keep(&c->rules, text, e);
	if (!m.said)
		return err_prefix(e, "--tmpfs \"%s\"", mount_show(&s, text));
	*ret = m;
	return 0;
}

int mount_parse_workspace(struct mount_check *c, const char *dir, struct box_mount *ret,
			  struct err *e)
{
	struct box_mount m = { .kind = BOX_MOUNT_DIR,
			       .rw = true,
			       .workspace = true,
			       .dst = MOUNT_WORKSPACE };

	if (!*dir)
		return err_set(
			e, ERR_USAGE,
			"--workspace: the directory's name is empty; write . for the current one");
	m.src = keep_part(c, dir, strlen(dir), e);
	m.said = m.src;
	if (!m.src)
		return err_prefix(e, "--workspace");
	*ret = m;
	return 0;
}

/* ---- sources ---- */

/* errno of a source that could not be opened, as one clear line; the option stands in front of it.
 */
static int source_missing(const struct box_mount *m, struct err *e)
{
	switch (errno) {
	case ENOENT:
		if (m->src[0] == '~')
			return err_set(
				e, ERR_USAGE,
				"no such directory: the shell did not replace ~; write $HOME");
		return err_set(e, ERR_USAGE, "no such %sdirectory; create it first",
			       m->workspace ? "" : "file or ");
	case ENOTDIR:
		return err_set(e, ERR_USAGE, "a part of the path is a file, not a directory");
	case EACCES:
		return err_set(e, ERR_USAGE,
			       "you may not enter it yourself: check the permissions on the way");
	case ELOOP:
		return err_set(e, ERR_USAGE,
			       "links in a circle, or replaced by a link while it was looked at");
	case ESTALE:
	case ENOTCONN:
	case EIO:
	case EHOSTDOWN:
	case ETIMEDOUT:
		return err_set(e, ERR_MISSING,
			       "the file system there does not answer (%s): mount it again",
			       strerror(errno));
	default:
		return err_sys(e, "can't be opened");
	}
}

/* `real` is where the caller's words lead; it is worth saying when they did not say so. */
static int source_refused(const struct box_mount *m, const char *real, const struct mount_rule *r,
			  struct err *e)
{
	const char *advice = mount_class_advice(r->class);
	struct mount_shown s;
	char name[64];

	/* A workspace is read-write by its nature; the same directory read-only is a volume. */
	if (m->workspace && mount_class_rw_only(r->class))
		advice = "show it read-only with -v DIR:/workspace:ro -w /workspace";
	return err_set(e, ERR_REFUSED, "%s%s%srefused by the rule %s (%s): %s",
		       strcmp(real, m->src) ? "it is " : "",
		       strcmp(real, m->src) ? mount_show(&s, real) : "",
		       strcmp(real, m->src) ? ", " : "", mount_rule_name(r, name),
		       mount_class_name(r->class), advice);
}

/* The caller's own spelling, before links are resolved: ~/.ssh is refused wherever it leads. False
 * when it says nothing of its own. */
static bool spelling(const struct box_mount *m, const char *real, char norm[PATH_MAX])
{
	char cwd[PATH_MAX], full[PATH_MAX];
	struct err ignored;

	if (m->src[0] == '/')
		snprintf(full, sizeof(full), "%s", m->src);
	else if (!getcwd(cwd, sizeof(cwd)) || path_join(full, sizeof(full), cwd, m->src) < 0)
		return false;
	return path_normalise(full, norm, &ignored) == 0 && strcmp(norm, real);
}

/* All rules that refuse a source, since each would do alone; the first is the one that is told. */
static void deny_source(struct mount_check *c, const struct box_mount *m, const char *real,
			const char *spelt, int fd, const struct mount_rule *first)
{
	const struct mount_rule *all[MOUNT_DENIED_MAX];
	size_t n = mount_rules_all(&c->rules, real, spelt, fd, m->rw, all, MOUNT_DENIED_MAX);

	mount_deny_rule(c, m, real, first);
	for (size_t i = 0; i < n; i++)
		if (all[i] != first)
			mount_deny_rule(c, m, real, all[i]);
}

int mount_check_learn(struct mount_check *c, struct err *e)
{
	if (c->learned)
		return 0;
	if (mount_rules_init(&c->rules, e) < 0)
		return -1;
	mount_rules_learn(&c->rules);
	if (c->rules.blind)
		return err_set(e, ERR_SYS,
			       "out of memory while looking for what must not be shared");
	c->learned = true;
	return 0;
}

static int source_kind(struct mount_check *c, struct box_mount *m, mode_t mode, struct err *e)
{
	const char *what = S_ISSOCK(mode)   ? "a socket"
			   : S_ISFIFO(mode) ? "a FIFO"
			   : S_ISCHR(mode)  ? "a device"
					    : "a block device";

	if (S_ISDIR(mode)) {
		m->kind = BOX_MOUNT_DIR;
		return 0;
	}
	if (!S_ISREG(mode)) {
		mount_deny(
			c, m, "file kind", MOUNT_ALLOW_NONE,
			"only files and directories are shared; a device below /dev by --device");
		return err_set(e, ERR_REFUSED,
			       "refused by the rule file kind (%s): it is %s of the host; %s",
			       "host control socket", what,
			       S_ISCHR(mode) ? "see --device" : "no option allows it");
	}
	if (m->workspace)
		return err_set(
			e, ERR_USAGE,
			"it is a file; a workspace is a directory (a single file is shared with -v)");
	m->kind = BOX_MOUNT_FILE;
	return 0;
}

/* Completes *m from what is there now. */
static int source_check(struct mount_check *c, struct box_mount *m, struct err *e)
{
	char real[PATH_MAX], norm[PATH_MAX];
	const struct mount_rule *r;
	_cleanup_fd_ int fd = -1;
	struct mount_shown s;
	const char *src, *spelt;
	struct stat st;

	if (path_canonical(m->src, real) == 0)
		fd = path_open_nolinks(real, 0);
	if (fd < 0 || fstat(fd, &st) < 0)
		return source_missing(m, e);
	if (m->git && strcmp(m->src, real) != 0) /* a box may have put it there */
		return err_set(e, ERR_REFUSED,
			       "refused by the rule no links in a repository: it leads to %s",
			       mount_show(&s, real));
	if (mount_check_learn(c, e) < 0)
		return -1;
	r = mount_rules_path(&c->rules, real, m->rw);
	spelt = strcmp(m->src, real) && spelling(m, real, norm) ? norm : NULL;
	if (!r && spelt)
		r = mount_rules_path(&c->rules, spelt, m->rw);
	if (!r)
		r = mount_rules_fd(&c->rules, real, fd, m->rw);
	if (r) {
		deny_source(c, m, real, spelt, fd, r);
		return source_refused(m, real, r, e);
	}
	if (source_kind(c, m, st.st_mode, e) < 0)
		return -1;
	src = mount_rules_keep(&c->rules, real, e);
	if (!src)
		return -1;
	m->src = src;
	m->dev = st.st_dev;
	m->ino = st.st_ino;
	m->owner = st.st_uid;
	m->group = st.st_gid;
	return 0;
}

int mount_check_rootfs(struct mount_check *c, const char *dir, struct box_mount *ret, struct err *e)
{
	struct box_mount m = { .kind = BOX_MOUNT_DIR, .src = dir, .dst = "/", .said = dir };
	int r = source_check(c, &m, e);
	struct mount_shown s;

	if (r == 0 && m.kind != BOX_MOUNT_DIR)
		r = err_set(e, ERR_USAGE, "it is a file; a root file system is a directory");
	if (r < 0) {
		err_prefix(e, "--rootfs %s", mount_show(&s, dir));
		return err_at(e, STAGE_IMAGE);
	}
	*ret = m;
	return 0;
}

int mount_check_workspace(struct mount_check *c, const char *dir, struct box_mount *ret,
			  struct err *e)
{
	struct box_mount m;

	if (mount_parse_workspace(c, dir, &m, e) < 0)
		return -1;
	if (source_check(c, &m, e) < 0)
		return about(e, &m);
	*ret = m;
	return 0;
}

int mount_open_checked(const struct box_mount *m)
{
	_cleanup_fd_ int fd = path_open_nolinks(m->src, 0);
	struct stat st;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return -1;
	if (st.st_dev != m->dev || st.st_ino != m->ino ||
	    S_ISDIR(st.st_mode) != (m->kind == BOX_MOUNT_DIR) ||
	    (m->kind == BOX_MOUNT_FILE && !S_ISREG(st.st_mode))) {
		errno = ESTALE;
		return -1;
	}
	return fd_steal(&fd);
}

/* ---- mounts among each other ---- */

static int depth(const char *path)
{
	int n = 0;

	while ((path = strchr(path, '/')))
		path++, n++;
	return n;
}

static int shallow_first(const void *a, const void *b)
{
	const struct box_mount *x = a, *y = b;
	int d = depth(x->dst) - depth(y->dst);

	return d ? d : strcmp(x->dst, y->dst);
}

/* `m` is mounted inside `outer`, a host directory: its target must be there already. */
static int nested_check(struct mount_check *c, const struct box_mount *outer,
			const struct box_mount *m, struct err *e)
{
	_cleanup_fd_ int src = mount_open_checked(outer);
	_cleanup_fd_ int fd = -1;
	const char *rest = m->dst + strlen(outer->dst) + 1;
	struct mount_shown s, o;
	struct stat st;

	mount_show(&s, rest);
	mount_show(&o, outer->src);
	if (src < 0)
		return err_sys(e, "%s", o.text);
	fd = path_open_beneath(src, rest, 0);
	if (fd < 0 && errno == ENOENT)
		return err_set(
			e, ERR_USAGE,
			"there is no %s in %s; create it first (a box leaves nothing behind on the host)",
			s.text, o.text);
	if (fd < 0 && errno == ELOOP) {
		mount_deny(c, m, "no links in targets", MOUNT_ALLOW_NONE,
			   "it leads over a link in the directory around it: name the link's goal");
		return err_set(
			e, ERR_REFUSED,
			"refused by the rule no links in targets: %s leads over a link in %s; name its goal",
			s.text, o.text);
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "%s in %s", s.text, o.text);
	if (S_ISDIR(st.st_mode) != (m->kind != BOX_MOUNT_FILE))
		return err_set(e, ERR_USAGE, "%s in %s is %s directory, the source is %s", s.text,
			       o.text, S_ISDIR(st.st_mode) ? "a" : "no",
			       m->kind == BOX_MOUNT_FILE ? "a file" : "a directory");
	return 0;
}

/* One against those before it; the array is sorted, so an outer one comes first. */
static int pair_check(struct mount_check *c, const struct box_mount *mounts, size_t i,
		      struct err *e)
{
	const struct box_mount *m = &mounts[i], *outer = NULL;
	struct mount_shown s;

	for (size_t j = 0; j < i; j++) {
		if (!strcmp(mounts[j].dst, m->dst))
			return err_set(e, ERR_USAGE,
				       "another mount has the same target; give one of them");
		if (path_within(m->dst, mounts[j].dst))
			outer = &mounts[j]; /* the last one is the nearest */
	}
	if (!outer)
		return 0;
	if (outer->kind == BOX_MOUNT_TMPFS && m->kind == BOX_MOUNT_TMPFS)
		return 0;
	if (outer->kind == BOX_MOUNT_TMPFS) {
		mount_deny(c, m, "tmpfs over mount", MOUNT_ALLOW_NONE,
			   "choose a target outside of the --tmpfs that would cover it");
		return err_set(
			e, ERR_REFUSED,
			"refused by the rule tmpfs over mount: --tmpfs %s would cover it; choose a target outside",
			mount_show(&s, outer->dst));
	}
	if (outer->kind == BOX_MOUNT_FILE)
		return err_set(e, ERR_USAGE, "the target is below %s, which is a file",
			       mount_show(&s, outer->dst));
	return nested_check(c, outer, m, e);
}

static int size_check(struct mount_check *c, const struct box_spec *spec, const struct box_mount *m,
		      struct err *e)
{
	if (m->kind == BOX_MOUNT_TMPFS && spec->limits.memory != BOX_LIMIT_NONE &&
	    spec->limits.memory > 0 && m->size > spec->limits.memory) {
		mount_deny(c, m, "tmpfs within memory", MOUNT_ALLOW_MEMORY, NULL);
		return err_set(
			e, ERR_REFUSED,
			"refused by the rule tmpfs within memory: its size is more than the box's memory of %llu MiB; "
			"raise --memory or lower the size",
			(unsigned long long)(spec->limits.memory >> 20));
	}
	return 0;
}

/* A rw directory of an untrusted box: a FIFO in it is a channel to a host process. */
static int fifo_check(struct mount_check *c, const struct box_spec *spec, const struct box_mount *m,
		      struct err *e)
{
	bool complete;
	struct mount_shown s;

	if (spec->profile != BOX_PROFILE_UNTRUSTED || m->kind != BOX_MOUNT_DIR || !m->rw)
		return 0;
	if (mount_scan_fifo(m, &complete, e) < 0) {
		if (e->kind == ERR_REFUSED)
			mount_deny(c, m, "no FIFOs under untrusted", MOUNT_ALLOW_RO, NULL);
		return -1;
	}
	if (!complete)
		mount_note(
			c,
			"%s was not all searched for FIFOs of the host: it has more than %d entries, or directories that you may not read",
			mount_show(&s, m->src), MOUNT_SCAN_MAX);
	return 0;
}

static int below_check(struct mount_check *c, const struct box_spec *spec,
		       const struct box_mount *m, struct err *e)
{
	if (m->kind != BOX_MOUNT_DIR)
		return 0;
	if (mount_below_check(c, m, geteuid() != spec->outer_uid, e) < 0)
		return -1;
	mount_scan_top(c, m, spec->profile == BOX_PROFILE_UNTRUSTED);
	return 0;
}

/* The first error is the answer. What comes after it is looked at all the same, so that all that
 * refuses a mount is known at once. */
static void keep_first(struct err *first, const struct box_mount *m, int r, struct err *one)
{
	if (r == 0 || first->kind != ERR_NONE)
		return;
	about(one, m);
	*first = *one;
}

/* A message is one line about one thing; that there are others to mend is worth a word. Each rule
 * that refuses the one has its record (--json). */
static void tell_others(const struct mount_check *c, struct err *e)
{
	size_t n = strlen(e->msg), others = 0;

	/* Those of one mount are side by side. */
	for (size_t i = 1; i < c->n_denied; i++)
		others += strcmp(c->denied[i - 1].what, c->denied[i].what) != 0;
	if (e->kind == ERR_REFUSED && others > 0)
		snprintf(e->msg + n, sizeof(e->msg) - n, "; %zu other mount%s refused, too", others,
			 others == 1 ? " is" : "s are");
}

int mount_check_sources(struct mount_check *c, struct box_spec *spec, struct err *e)
{
	for (size_t i = 0; i < spec->n_mounts; i++) {
		struct box_mount *m = &spec->mounts[i];

		if (size_check(c, spec, m, e) < 0 ||
		    (m->kind != BOX_MOUNT_TMPFS && source_check(c, m, e) < 0))
			return about(e, m);
	}
	return 0;
}

int mount_check_all(struct mount_check *c, struct box_spec *spec, struct err *e)
{
	struct err first = { .kind = ERR_NONE }, one;

	c->spec = spec;
	for (size_t i = 0; i < spec->n_mounts; i++) {
		struct box_mount *m = &spec->mounts[i];

		if (m->yields)
			continue;
		keep_first(&first, m, mount_target(c, spec, m, &one), &one);
		keep_first(&first, m, size_check(c, spec, m, &one), &one);
		if (m->kind != BOX_MOUNT_TMPFS)
			keep_first(&first, m, source_check(c, m, &one), &one);
	}
	mount_yield(c, spec);
	qsort(spec->mounts, spec->n_mounts, sizeof(spec->mounts[0]), shallow_first);
	for (size_t i = 0; i < spec->n_mounts && first.kind == ERR_NONE; i++) {
		const struct box_mount *m = &spec->mounts[i];

		keep_first(&first, m, pair_check(c, spec->mounts, i, &one), &one);
		keep_first(&first, m, fifo_check(c, spec, m, &one), &one);
		keep_first(&first, m, below_check(c, spec, m, &one), &one);
	}
	if (first.kind == ERR_NONE)
		return 0;
	tell_others(c, &first);
	*e = first;
	return -1;
}
