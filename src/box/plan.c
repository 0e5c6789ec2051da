/* Builds and prints a plan. The order is: what the root's source brings, /dev, /proc with its masks
 * and views, the caller's mounts from shallow to deep, and last what becomes read-only. The tables
 * below are the whole of what a box hides and shows. */
#include "box/plan.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/str.h"
#include "base/sys.h"
#include "box/views.h"

#define FIXED (MS_NOSUID | MS_NODEV)

/* The only device nodes of a box that asked for none. */
static const char *const dev_nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };

static const struct {
	const char *path, *target;
} dev_links[] = {
	{ "dev/fd", "/proc/self/fd" },	     { "dev/stdin", "/proc/self/fd/0" },
	{ "dev/stdout", "/proc/self/fd/1" }, { "dev/stderr", "/proc/self/fd/2" },
	{ "dev/ptmx", "pts/ptmx" },
};

/* Dangerous or telling files of /proc that others than root may read. What only root may open
 * (kcore, kmsg, timer_list, sysrq-trigger, slabinfo ...) needs no mask: no box runs as the host's
 * root, with or without capabilities. A name that this kernel lacks costs one look. */
static const struct {
	const char *path;
	bool dir;
} proc_masks[] = {
	{ "proc/keys", false },
	{ "proc/key-users", false },
	{ "proc/kallsyms", false },
	{ "proc/cmdline", false },
	{ "proc/partitions", false },
	{ "proc/diskstats", false },
	{ "proc/config.gz", false },
	{ "proc/modules", false },
	{ "proc/latency_stats", false },
	{ "proc/sched_debug", false },
	{ "proc/fs", true },
	{ "proc/pressure", true }, /* written to, it makes work for the kernel that no limit
					 counts */
	{ "proc/acpi", true },
	{ "proc/bus", true },
	{ "proc/scsi", true },
	{ "proc/asound", true },
	{ "proc/driver", true }, /* the clock of the board, and what graphics drivers tell */
};

/* Appends formatted text to the arena. NULL when it does not fit, and then the plan counts as too
 * long, which plan_build refuses at the end. */
static const char *plan_text(struct plan *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static const char *plan_text(struct plan *p, const char *fmt, ...)
{
	char *at = p->arena + p->used;
	size_t room = sizeof(p->arena) - p->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(at, room, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= room) {
		p->n_ops = PLAN_OPS_MAX + 1;
		return NULL;
	}
	p->used += (unsigned)n + 1;
	return at;
}

/* The next free op, or NULL: plan_build checks once, at the end, whether there was room (n_ops
 * beyond the maximum). */
static struct op *plan_op(struct plan *p, enum op_kind kind, const char *path)
{
	static struct op overflow;
	struct op *op = p->n_ops < PLAN_OPS_MAX ? &p->ops[p->n_ops] : &overflow;

	p->n_ops++;
	memset(op, 0, sizeof(*op));
	op->kind = kind;
	op->path = path;
	op->source = -1;
	return op;
}

/* An op of cloche's own furniture. Below /dev it goes into a file system of its own; the rest of it
 * is laid over what the image has. */
static struct op *plan_ready(struct plan *p, enum op_kind kind, const char *path, unsigned mode)
{
	struct op *op = plan_op(p, kind, path);

	op->mode = mode;
	op->ready = !p->root_overlay;
	op->laid = p->root_overlay && strncmp(path, "dev/", 4) != 0;
	return op;
}

static int plan_source(struct plan *p, const char *path, const struct box_mount *check, bool tree)
{
	struct plan_source *s;

	if (p->n_sources >= PLAN_SOURCES_MAX) {
		p->n_ops = PLAN_OPS_MAX + 1;
		return 0;
	}
	s = &p->sources[p->n_sources];
	*s = (struct plan_source){ .path = path, .check = check, .tree = tree, .fd = -1 };
	return (int)p->n_sources++;
}

/* The next of those that the holder made, if there is one. A copy is as good as a mount, and there
 * is none of it. */
static void plan_shared(struct plan *p, const struct box_spec *spec, const struct rootfs_entry *en,
			struct plan_source *s)
{
	if (en->copy || p->n_shared >= spec->n_shared)
		return;
	s->shared = true;
	s->fd = spec->shared[p->n_shared++];
}

static void plan_root_entry(struct plan *p, const struct box_spec *spec,
			    const struct rootfs_entry *en)
{
	struct op *op;

	switch (en->kind) {
	case ROOTFS_ENTRY_DIR:
		plan_ready(p, OP_DIR, en->path, en->mode);
		return;
	case ROOTFS_ENTRY_FILE:
		op = plan_ready(p, OP_FILE, en->path, en->mode);
		op->text = en->text;
		op->len = (uint32_t)en->len;
		return;
	case ROOTFS_ENTRY_LINK:
		plan_ready(p, OP_LINK, en->path, 0)->text = en->text;
		return;
	case ROOTFS_ENTRY_LOWER:
		plan_ready(p, OP_DIR, en->path, 0755);
		op = plan_op(p, OP_LOWER, en->path);
		break;
	case ROOTFS_ENTRY_BIND:
		plan_ready(p, OP_FILE, en->path, 0644);
		op = plan_op(p, OP_BIND, en->path);
		op->flags = SYS_MOUNT_ATTR_RDONLY | SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV;
		break;
	default:
		return;
	}
	op->ready = en->copy;
	op->source = (int16_t)plan_source(p, en->text, NULL, en->kind == ROOTFS_ENTRY_BIND);
	if (en->kind == ROOTFS_ENTRY_LOWER)
		plan_shared(p, spec, en, &p->sources[op->source]);
}

static void plan_tmpfs(struct plan *p, const char *path, uint64_t size, unsigned mode, bool strange)
{
	struct op *op = plan_op(p, OP_TMPFS, path);

	/* Inodes cost kernel memory too: one for each 4 KiB, as a real file system would have. */
	op->text = plan_text(p, "size=%llu,nr_inodes=%llu,mode=%o", (unsigned long long)size,
			     (unsigned long long)(size / 4096 + 64), mode);
	op->flags = FIXED;
	op->strange = strange;
}

static void plan_dev(struct plan *p, const struct box_spec *spec)
{
	bool ours = spec->root.kind == ROOTFS_HOST;

	plan_ready(p, OP_DIR, "dev", 0755);
	if (!ours) /* whatever the root brought stays below ours */
		plan_tmpfs(p, "dev", 1 << 20, 0755, false);
	for (size_t i = 0; i < sizeof(dev_nodes) / sizeof(dev_nodes[0]); i++) {
		const char *path = plan_text(p, "dev/%s", dev_nodes[i]);
		const char *host = plan_text(p, "/dev/%s", dev_nodes[i]);
		struct op *op;

		plan_ready(p, OP_FILE, path, 0666);
		op = plan_op(p, OP_BIND, path);
		op->source = (int16_t)plan_source(p, host, NULL, true);
	}
	for (size_t i = 0; i < sizeof(dev_links) / sizeof(dev_links[0]); i++)
		plan_ready(p, OP_LINK, dev_links[i].path, 0)->text = dev_links[i].target;
	plan_ready(p, OP_DIR, "dev/pts", 0755);
	plan_op(p, OP_DEVPTS, "dev/pts")->text = "newinstance,ptmxmode=0666,mode=0620,max=256";
	plan_ready(p, OP_DIR, "dev/shm", 01777);
	plan_tmpfs(p, "dev/shm", spec->limits.shm, 01777, false);
	for (size_t i = 0; i < spec->n_devices; i++) {
		const char *path = spec->devices[i].path + 1;
		struct op *op;

		for (const char *s = strchr(path + 4, '/'); s; s = strchr(s + 1, '/'))
			plan_op(p, OP_DIR, plan_text(p, "%.*s", (int)(s - path), path))->mode =
				0755;
		plan_op(p, OP_FILE, path)->mode = 0666;
		op = plan_op(p, OP_BIND, path);
		op->source = (int16_t)plan_source(p, spec->devices[i].path, NULL, true);
		p->sources[op->source].rdev = spec->devices[i].rdev;
	}
}

/* For what comes with the command, in memory whatever the root is. */
static void plan_code(struct plan *p, const struct box_spec *spec)
{
	uint64_t most = BOX_CODE_MAX + 4096;

	if (!spec->takes_code)
		return;
	plan_op(p, OP_DIR, BOX_CODE_DIR)->mode = 0700;
	plan_tmpfs(p, BOX_CODE_DIR, spec->limits.root < most ? spec->limits.root : most, 0700,
		   false);
}

static int plan_proc(struct plan *p, const struct box_spec *spec, struct err *e)
{
	struct box_view views[BOX_VIEWS_MAX];
	size_t n;

	plan_ready(p, OP_DIR, "proc", 0555);
	if (spec->no_proc)
		return 0;
	plan_op(p, OP_PROC, "proc")->text = "hidepid=2";
	for (size_t i = 0; i < sizeof(proc_masks) / sizeof(proc_masks[0]); i++)
		plan_op(p, OP_MASK, proc_masks[i].path)->mode =
			proc_masks[i].dir ? S_IFDIR : S_IFREG;
	plan_op(p, OP_READONLY, "proc/sys");
	if (views_make(spec, views, &n, e) < 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		struct op *op = plan_op(p, OP_VIEW, views[i].path);

		op->text = views[i].text;
		op->len = (uint32_t)views[i].len;
	}
	return 0;
}

/* Is something of the caller's mounted at exactly this place? Then our own tmpfs steps aside. */
static bool plan_covered(const struct box_spec *spec, const char *path)
{
	for (size_t i = 0; i < spec->n_mounts; i++)
		if (strcmp(spec->mounts[i].dst + 1, path) == 0)
			return true;
	return false;
}

/* Nothing else of /sys is there. */
static void plan_cgroup(struct plan *p, const struct box_spec *spec)
{
	if (plan_covered(spec, "sys") || plan_covered(spec, "sys/fs") ||
	    plan_covered(spec, "sys/fs/cgroup"))
		return;
	plan_op(p, OP_CGROUP, "sys/fs/cgroup")->strange = p->root_overlay;
}

static void plan_mount(struct plan *p, const struct box_spec *spec, const struct box_mount *m)
{
	const bool held = m->workspace && spec->workspace_size;
	const char *path = m->dst + 1;
	struct op *op;

	if (m->kind == BOX_MOUNT_TMPFS) {
		op = plan_op(p, OP_DIR, path);
		op->mode = 0755;
		op->strange = true;
		plan_tmpfs(p, path, m->size, 01777, true);
		return;
	}
	op = plan_op(p, m->kind == BOX_MOUNT_DIR ? OP_DIR : OP_FILE, path);
	op->mode = m->kind == BOX_MOUNT_DIR ? 0755 : 0644;
	op->strange = true;
	if (m->kind == BOX_MOUNT_DIR && !m->rw) {
		/* Through a read-only bind the host's sockets and FIFOs stay reachable; through an
		 * overlay they are not. */
		op = plan_op(p, OP_LOWER, path);
		op->source = (int16_t)plan_source(p, m->src, m, false);
	} else {
		op = plan_op(p, OP_BIND, path);
		op->flags = SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV |
			    (m->rw ? 0 : SYS_MOUNT_ATTR_RDONLY);
		op->source = (int16_t)plan_source(p, m->src, held ? NULL : m, true);
		p->sources[op->source].shared = held;
		if (held)
			p->sources[op->source].fd = spec->workspace_mount;
	}
	op->strange = true;
}

static void plan_make_dir(struct plan *p, const char *path)
{
	struct op *op = plan_op(p, OP_DIR, path);

	op->mode = 0755;
	op->strange = true;
}

/* HOME and /tmp are there, whatever the root brought, and what an image wants to find. */
static void plan_places(struct plan *p, const struct box_spec *spec)
{
	plan_make_dir(p, "tmp");
	plan_make_dir(p, spec->home + 1);
	if (spec->make_cwd && !plan_covered(spec, spec->cwd + 1))
		plan_make_dir(p, spec->cwd + 1);
	for (char *const *v = spec->volumes; v && *v; v++)
		if (!plan_covered(spec, *v + 1))
			plan_make_dir(p, *v + 1);
}

/* What was installed beside the host image's own programs, or is being installed. */
static void plan_deps(struct plan *p, const struct box_spec *spec)
{
	const struct rootfs *r = &spec->root;
	struct op *op;

	if (r->kind != ROOTFS_HOST || (!r->lowers && !spec->setup))
		return;
	plan_make_dir(p, &BOX_DEPS[1]);
	op = plan_op(p, OP_LAYERS, &BOX_DEPS[1]);
	op->text = r->lowers;
	if (r->lowers)
		op->source = (int16_t)plan_source(p, r->dir, spec->root_check, false);
	op->mode = spec->setup ? UPPER_DRAFT : spec->deps_writable ? UPPER_SCRATCH : UPPER_NONE;
	op->strange = true;
	/* An `import` of node's looks here, whatever file it stands in, and not at NODE_PATH. */
	plan_op(p, OP_LINK, "node_modules")->text = &BOX_DEPS "/node_modules"[1];
}

static void plan_writable(struct plan *p, const struct box_spec *spec, const char *path)
{
	if (*path != '\0' && !plan_covered(spec, path))
		plan_op(p, OP_WRITABLE, path)->strange = true;
}

/* What an image's places for data hold, and what its programs expect in /run, stays there. */
static void plan_readonly_image(struct plan *p, const struct box_spec *spec)
{
	plan_make_dir(p, "run");
	plan_writable(p, spec, "run");
	plan_writable(p, spec, "tmp");
	plan_writable(p, spec, spec->home + 1);
	for (char *const *v = spec->volumes; v && *v; v++)
		plan_writable(p, spec, *v + 1);
}

static void plan_readonly_root(struct plan *p, const struct box_spec *spec)
{
	const char *writable[] = { "tmp", "run", spec->home + 1 };

	p->root_readonly = true;
	if (spec->root.kind == ROOTFS_LAYERS) {
		plan_readonly_image(p, spec);
		return;
	}
	for (size_t i = 0; i < sizeof(writable) / sizeof(writable[0]); i++) {
		struct op *op;

		if (*writable[i] == '\0' || plan_covered(spec, writable[i]))
			continue;
		op = plan_op(p, OP_DIR, writable[i]);
		op->mode = i == 0 ? 01777 : 0755;
		op->strange = true;
		plan_tmpfs(p, writable[i], spec->limits.root, i == 0 ? 01777 : 0755, true);
	}
}

int plan_build(const struct box_spec *spec, struct plan *ret, struct err *e)
{
	struct plan *p = ret;

	if (spec->workspace_size && spec->workspace_mount < 0) {
		err_set(e, ERR_SYS,
			"the workspace can't be mounted any more: the process that holds it has ended");
		return err_at(e, STAGE_WORKSPACE);
	}
	p->n_ops = p->n_sources = p->used = p->n_shared = 0;
	p->root_readonly = p->skeleton = p->own_group = false;
	p->draft = spec->setup;
	p->strict = spec->profile == BOX_PROFILE_UNTRUSTED;
	p->n_binds = 0;
	p->root_overlay = spec->root.kind != ROOTFS_HOST;
	p->lowers = spec->root.kind == ROOTFS_LAYERS ? spec->root.lowers : ".";
	snprintf(p->root_options, sizeof(p->root_options), "size=%llu,nr_inodes=%llu,mode=0755",
		 (unsigned long long)spec->limits.root,
		 (unsigned long long)(spec->limits.root / 4096 + 1024));
	if (p->root_overlay)
		plan_source(p, spec->root.dir, spec->root_check, false);
	for (size_t i = 0; i < spec->root.n_entries; i++)
		plan_root_entry(p, spec, &spec->root.entries[i]);
	plan_dev(p, spec);
	plan_code(p, spec);
	if (plan_proc(p, spec, e) < 0)
		return err_at(e, STAGE_MOUNT);
	plan_cgroup(p, spec);
	if (p->root_overlay) /* the host image has them; another root may not */
		plan_places(p, spec);
	plan_deps(p, spec);
	if (spec->read_only)
		plan_readonly_root(p, spec);
	for (size_t i = 0; i < spec->n_mounts; i++)
		plan_mount(p, spec, &spec->mounts[i]);
	if (p->n_ops > PLAN_OPS_MAX) {
		err_set(e, ERR_USAGE,
			"too many mounts and devices for one box: give fewer -v, --tmpfs and --device");
		return err_at(e, STAGE_MOUNT);
	}
	return 0;
}

int plan_build_shared(const struct box_spec *spec, bool overlays, struct plan *ret, size_t *ret_n,
		      struct err *e)
{
	struct plan *p = ret;
	size_t n = 0;

	memset(p, 0, sizeof(*p));
	p->strict = true; /* boxes do as well as this without it */
	snprintf(p->root_options, sizeof(p->root_options), "size=64k,nr_inodes=64,mode=0755");
	overlays = overlays && spec->root.kind == ROOTFS_HOST;
	for (size_t i = 0; overlays && i < spec->root.n_entries && n < BOX_SHARED_MAX; i++) {
		const struct rootfs_entry *en = &spec->root.entries[i];
		const char *name;

		if (en->kind != ROOTFS_ENTRY_LOWER || en->copy)
			continue;
		name = plan_text(p, "%zu", n++);
		plan_op(p, OP_DIR, name)->mode = 0755;
		plan_op(p, OP_LOWER, name)->source = (int16_t)plan_source(p, en->text, NULL, false);
	}
	if (spec->workspace_size) {
		const char *name = plan_text(p, "%zu", n);

		plan_op(p, OP_DIR, name)->mode = 0755;
		plan_tmpfs(p, name, spec->workspace_size, 0700, false);
	}
	if (p->n_ops > PLAN_OPS_MAX)
		return err_set(e, ERR_SYS, "too many shared mounts");
	*ret_n = n;
	return 0;
}

static const char *const op_words[] = {
	[OP_DIR] = "directory",	    [OP_FILE] = "file",	    [OP_LINK] = "link",
	[OP_LOWER] = "overlay",	    [OP_BIND] = "bind",	    [OP_TMPFS] = "tmpfs",
	[OP_DEVPTS] = "devpts",	    [OP_PROC] = "proc",	    [OP_MASK] = "mask",
	[OP_VIEW] = "view",	    [OP_CGROUP] = "cgroup", [OP_READONLY] = "read-only",
	[OP_WRITABLE] = "writable", [OP_LAYERS] = "layers",
};
static_assert(sizeof(op_words) / sizeof(op_words[0]) == OP_KIND_N, "a word for every op");

void plan_print(const struct plan *p, const struct box_spec *spec, struct buf *out)
{
	char safe[512];

	buf_fmt(out, "%-10s / %s(%s)\n", p->root_overlay ? "overlay" : "tmpfs",
		!p->root_overlay		   ? ""
		: p->draft			   ? "over the image's layers, upper on disk; "
		: spec->root.kind == ROOTFS_LAYERS ? "over the image's layers, upper on tmpfs "
						   : "over the given directory, upper on tmpfs ",
		p->root_options);
	for (const char *s = spec->root.kind == ROOTFS_LAYERS ? p->lowers : ""; *s;) {
		int n = (int)strcspn(s, ":");

		buf_fmt(out, "%-10s %.*s\n", "layer", n, s);
		s += n + (s[n] == ':');
	}
	for (unsigned i = 0; i < p->n_ops; i++) {
		const struct op *op = &p->ops[i];

		buf_fmt(out, "%-10s /%s", op_words[op->kind],
			str_printable(safe, sizeof(safe), op->path));
		if (op->source >= 0)
			buf_fmt(out, " <- %s",
				str_printable(safe, sizeof(safe), p->sources[op->source].path));
		if (op->kind == OP_LINK)
			buf_fmt(out, " -> %s", str_printable(safe, sizeof(safe), op->text));
		if (op->kind == OP_LOWER ||
		    (op->kind == OP_BIND && op->flags & SYS_MOUNT_ATTR_RDONLY))
			buf_str(out, " ro");
		else if (op->kind == OP_BIND)
			buf_str(out, " rw");
		if (op->kind == OP_TMPFS || op->kind == OP_DEVPTS || op->kind == OP_PROC)
			buf_fmt(out, " (%s)", op->text);
		if (op->kind == OP_CGROUP)
			buf_str(out, " ro (its own group, where cgroup v2 holds the limits)");
		buf_str(out, "\n");
	}
	buf_str(out, "pivot      / the host's tree is detached\n");
	if (p->root_readonly)
		buf_str(out, "read-only  /\n");
}
