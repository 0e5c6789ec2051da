/* The plan: what must come before what, that every row of the tables is there, and that a plan too long is an error and never a shorter plan. */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/str.h"
#include "base/sys.h"
#include "box/plan.h"

/* A run keeps its views as long as it lives. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

static const struct rootfs_entry entries[] = {
	{ ROOTFS_ENTRY_LOWER, "usr", "/usr", 0, 0 },
	{ ROOTFS_ENTRY_LINK, "bin", "usr/bin", 0, 0 },
	{ ROOTFS_ENTRY_DIR, "etc", NULL, 0, 0755 },
	{ ROOTFS_ENTRY_FILE, "etc/hosts", "127.0.0.1 localhost\n", 20, 0644 },
	{ ROOTFS_ENTRY_BIND, "etc/ld.so.cache", "/etc/ld.so.cache", 0, 0 },
	{ ROOTFS_ENTRY_DIR, "home", NULL, 0, 0755 },
	{ ROOTFS_ENTRY_DIR, "home/user", NULL, 0, 0755 },
	{ ROOTFS_ENTRY_DIR, "tmp", NULL, 0, 01777 },
	{ ROOTFS_ENTRY_DIR, "run", NULL, 0, 0755 },
};

static struct box_spec spec;
static struct plan plan;
static struct err e;

static void setup(void)
{
	spec = (struct box_spec){ .root = { .kind = ROOTFS_HOST, .name = "host", .entries = entries,
					    .n_entries = sizeof(entries) / sizeof(entries[0]) },
				  .home = "/home/user", .cwd = "/home/user" };
	spec.limits = (struct box_limits){ .memory = 512 << 20, .shm = 64 << 20, .root = 256 << 20 };
}

static void build(void)
{
	memset(&plan, 0xa5, sizeof(plan)); /* nothing may depend on zeros */
	ck_assert_msg(plan_build(&spec, &plan, &e) == 0, "%s", e.msg);
}

static struct box_mount *mount_add(enum box_mount_kind kind, const char *src, const char *dst, bool rw)
{
	struct box_mount *m = &spec.mounts[spec.n_mounts++];

	*m = (struct box_mount){ .kind = kind, .src = src, .dst = dst, .rw = rw, .size = 1 << 20 };
	return m;
}

/* Index of the first op of this kind and path from `from` on, or -1. */
static int find(enum op_kind kind, const char *path)
{
	for (unsigned i = 0; i < plan.n_ops; i++)
		if (plan.ops[i].kind == kind && strcmp(plan.ops[i].path, path) == 0)
			return (int)i;
	return -1;
}

static const struct op *must(enum op_kind kind, const char *path)
{
	int i = find(kind, path);

	ck_assert_msg(i >= 0, "no op %d on %s", (int)kind, path);
	return &plan.ops[i];
}

static const char *source_of(const struct op *op)
{
	ck_assert(op->source >= 0 && (unsigned)op->source < plan.n_sources);
	return plan.sources[op->source].path;
}

static bool mounts(const struct op *op)
{
	return op->kind == OP_LOWER || op->kind == OP_BIND || op->kind == OP_TMPFS || op->kind == OP_DEVPTS || op->kind == OP_PROC;
}

/* What holds of every plan: sources exist, what is mounted has a place made before it, in a place that nothing made later covers. */
static void check_plan(void)
{
	for (unsigned i = 0; i < plan.n_ops; i++) {
		const struct op *op = &plan.ops[i];
		bool made = false;

		ck_assert(op->kind >= 0 && op->kind < OP_KIND_N);
		ck_assert_ptr_nonnull(op->path);
		ck_assert_int_ne(op->path[0], '/');
		ck_assert(op->source == -1 || (op->source >= 0 && (unsigned)op->source < plan.n_sources));
		ck_assert_int_eq(op->source >= 0, op->kind == OP_LOWER || op->kind == OP_BIND);
		if (op->kind == OP_TMPFS || op->kind == OP_LINK || op->kind == OP_VIEW || op->kind == OP_DEVPTS || op->kind == OP_PROC)
			ck_assert_ptr_nonnull(op->text);
		if (mounts(op)) {
			for (unsigned k = 0; k < i; k++)
				made = made || ((plan.ops[k].kind == OP_DIR || plan.ops[k].kind == OP_FILE) &&
						strcmp(plan.ops[k].path, op->path) == 0);
			ck_assert_msg(made, "nothing makes the place for %s", op->path);
		}
		if (op->kind == OP_TMPFS) {
			ck_assert_msg(strstr(op->text, "size=") && strstr(op->text, "nr_inodes="), "%s", op->text);
			ck_assert_uint_eq(op->flags & (MS_NOSUID | MS_NODEV), MS_NOSUID | MS_NODEV);
		}
	}
	for (unsigned i = 0; i < plan.n_sources; i++) {
		ck_assert_int_eq(plan.sources[i].fd, -1);
		ck_assert_int_eq(plan.sources[i].path[0], '/');
	}
}

START_TEST(the_root)
{
	build();
	check_plan();
	ck_assert(!plan.root_overlay && !plan.root_readonly);
	ck_assert_str_eq(plan.root_options, "size=268435456,nr_inodes=66560,mode=0755");
	ck_assert_str_eq(source_of(must(OP_LOWER, "usr")), "/usr");
	ck_assert(!plan.sources[must(OP_LOWER, "usr")->source].tree);
	ck_assert_str_eq(must(OP_LINK, "bin")->text, "usr/bin");
	ck_assert_uint_eq(must(OP_FILE, "etc/hosts")->len, 20);
	ck_assert_uint_eq(must(OP_DIR, "tmp")->mode, 01777);
	ck_assert_uint_eq(must(OP_BIND, "etc/ld.so.cache")->flags,
			  SYS_MOUNT_ATTR_RDONLY | SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV);
	ck_assert(plan.sources[must(OP_BIND, "etc/ld.so.cache")->source].tree);
	for (unsigned i = 0; i < plan.n_ops; i++)
		ck_assert(!plan.ops[i].strange); /* all of it is our own making */
}
END_TEST

START_TEST(a_directory_as_root)
{
	const struct box_mount check = { .src = "/srv/rootfs" };

	spec.root = (struct rootfs){ .kind = ROOTFS_DIR, .name = "r", .dir = "/srv/rootfs" };
	spec.root_check = &check;
	build();
	check_plan();
	ck_assert(plan.root_overlay);
	ck_assert_str_eq(plan.sources[0].path, "/srv/rootfs");
	ck_assert_ptr_eq(plan.sources[0].check, &check);
	/* What the root brought as /dev stays below ours. */
	ck_assert_int_lt(find(OP_TMPFS, "dev"), find(OP_FILE, "dev/null"));
	ck_assert_int_ge(find(OP_TMPFS, "dev"), 0);
	/* And no link of its own is in the way of what we mount. */
	ck_assert(must(OP_DIR, "dev")->laid && must(OP_DIR, "proc")->laid && !must(OP_DIR, "dev/pts")->laid);
	ck_assert_str_eq(plan.lowers, ".");
}
END_TEST

START_TEST(an_image_as_root)
{
	static const struct rootfs_entry ours[] = {
		{ ROOTFS_ENTRY_DIR, "etc", NULL, 0, 0755 },
		{ ROOTFS_ENTRY_FILE, "etc/hosts", "127.0.0.1 localhost\n", 20, 0644 },
	};
	const struct box_mount check = { .src = "/srv/layers" };
	char db[] = "/var/lib/db", mine[] = "/mine", *volumes[] = { db, mine, NULL };
	_cleanup_buf_ struct buf out;

	spec.root = (struct rootfs){ .kind = ROOTFS_LAYERS, .name = "img", .dir = "/srv/layers", .lowers = "d1:d0",
				     .entries = ours, .n_entries = 2 };
	spec.root_check = &check;
	spec.cwd = "/app";
	spec.make_cwd = true;
	spec.volumes = volumes;
	mount_add(BOX_MOUNT_DIR, "/srv/rw", "/mine", true);
	for (int ro = 0; ro < 2; ro++) {
		spec.read_only = ro;
		build();
		check_plan();
		ck_assert(plan.root_overlay);
		ck_assert_str_eq(plan.lowers, "d1:d0");
		ck_assert_ptr_eq(plan.sources[0].check, &check);
		for (unsigned i = 0; i < plan.n_ops; i++)
			ck_assert(!plan.ops[i].ready && !(plan.ops[i].laid && plan.ops[i].strange));
		ck_assert(must(OP_DIR, "etc")->laid && must(OP_FILE, "etc/hosts")->laid);
		ck_assert(must(OP_DIR, "app")->strange && must(OP_DIR, "var/lib/db")->strange);
		/* Writable are the image's own places; what the caller mounts there is the caller's. Made so before that is mounted. */
		ck_assert_int_eq(find(OP_WRITABLE, "var/lib/db") >= 0, ro);
		ck_assert_int_eq(find(OP_WRITABLE, "home/user") >= 0, ro);
		ck_assert_int_eq(find(OP_WRITABLE, "tmp") >= 0, ro);
		ck_assert_int_eq(find(OP_WRITABLE, "run") >= 0, ro);
		ck_assert_int_lt(find(OP_WRITABLE, "mine"), 0);
		ck_assert_int_lt(find(OP_WRITABLE, "var/lib/db"), find(OP_BIND, "mine"));
		ck_assert_int_eq(plan.root_readonly, ro);
		ck_assert_int_lt(find(OP_TMPFS, "tmp"), 0);
	}
	buf_init(&out, 1 << 20);
	plan_print(&plan, &spec, &out);
	ck_assert_ptr_nonnull(strstr(out.data, "over the image's layers"));
	ck_assert_ptr_nonnull(strstr(out.data, "layer      d1\nlayer      d0\n"));
	ck_assert_ptr_nonnull(strstr(out.data, "writable   /var/lib/db\n"));
}
END_TEST

START_TEST(devices)
{
	static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
	static const struct {
		const char *path, *target;
	} links[] = { { "dev/fd", "/proc/self/fd" }, { "dev/stdin", "/proc/self/fd/0" }, { "dev/stdout", "/proc/self/fd/1" },
		      { "dev/stderr", "/proc/self/fd/2" }, { "dev/ptmx", "pts/ptmx" } };
	unsigned binds = 0;
	char path[32], host[32];

	build();
	for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
		snprintf(path, sizeof(path), "dev/%s", nodes[i]);
		snprintf(host, sizeof(host), "/dev/%s", nodes[i]);
		ck_assert_str_eq(source_of(must(OP_BIND, path)), host);
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
		ck_assert_str_eq(must(OP_LINK, links[i].path)->text, links[i].target);
	for (unsigned i = 0; i < plan.n_ops; i++)
		binds += plan.ops[i].kind == OP_BIND && strncmp(plan.ops[i].path, "dev/", 4) == 0;
	ck_assert_uint_eq(binds, sizeof(nodes) / sizeof(nodes[0])); /* and none besides */
	ck_assert_ptr_nonnull(strstr(must(OP_DEVPTS, "dev/pts")->text, "newinstance"));
	ck_assert_ptr_nonnull(strstr(must(OP_TMPFS, "dev/shm")->text, "size=67108864,"));
	/* Masks take their cover from the box's own null. */
	ck_assert_int_lt(find(OP_BIND, "dev/null"), find(OP_MASK, "proc/keys"));
}
END_TEST

START_TEST(devices_asked_for)
{
	spec.devices[spec.n_devices++].path = "/dev/kvm";
	spec.devices[spec.n_devices++].path = "/dev/dri/renderD128";
	spec.devices[spec.n_devices++].path = "/dev/a/b/c/d";
	build();
	check_plan();
	ck_assert_str_eq(source_of(must(OP_BIND, "dev/kvm")), "/dev/kvm");
	ck_assert_int_ge(find(OP_DIR, "dev/dri"), 0);
	ck_assert_int_lt(find(OP_DIR, "dev/dri"), find(OP_FILE, "dev/dri/renderD128"));
	ck_assert_int_lt(find(OP_FILE, "dev/dri/renderD128"), find(OP_BIND, "dev/dri/renderD128"));
	ck_assert_int_ge(find(OP_DIR, "dev/a"), 0);
	ck_assert_int_lt(find(OP_DIR, "dev/a"), find(OP_DIR, "dev/a/b"));
	ck_assert_int_lt(find(OP_DIR, "dev/a/b"), find(OP_DIR, "dev/a/b/c"));
	ck_assert_int_lt(find(OP_DIR, "dev/a/b/c"), find(OP_FILE, "dev/a/b/c/d"));
	ck_assert_int_eq(find(OP_DIR, "dev/kvm"), -1);
}
END_TEST

/* What a box of an ordinary user could read and must not; written here a second time, so that a row can't get lost. */
START_TEST(proc_is_masked)
{
	static const char *const files[] = { "keys", "kallsyms", "cmdline", "partitions", "diskstats", "config.gz", "modules",
					     "latency_stats", "sched_debug" };
	static const char *const dirs[] = { "fs", "acpi", "bus", "scsi", "asound", "driver" };
	int proc;
	char path[64];

	build();
	proc = find(OP_PROC, "proc");
	ck_assert_str_eq(must(OP_PROC, "proc")->text, "hidepid=2");
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "proc/%s", files[i]);
		ck_assert_uint_eq(must(OP_MASK, path)->mode, S_IFREG);
		ck_assert_int_gt(find(OP_MASK, path), proc);
	}
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "proc/%s", dirs[i]);
		ck_assert_uint_eq(must(OP_MASK, path)->mode, S_IFDIR);
		ck_assert_int_gt(find(OP_MASK, path), proc);
	}
	ck_assert_int_gt(find(OP_READONLY, "proc/sys"), proc);
	/* The view stands on the read-only mount, not below it. */
	ck_assert_int_gt(find(OP_VIEW, "proc/sys/kernel/random/boot_id"), find(OP_READONLY, "proc/sys"));
	ck_assert_int_gt(find(OP_VIEW, "proc/meminfo"), proc);
	ck_assert_int_eq(find(OP_VIEW, "proc/cpuinfo"), -1);
	spec.limits.cpus = 1;
	build();
	ck_assert_int_gt(find(OP_VIEW, "proc/cpuinfo"), proc);
	ck_assert_int_gt(find(OP_VIEW, "proc/stat"), proc);
}
END_TEST

START_TEST(without_proc)
{
	spec.no_proc = true;
	build();
	check_plan();
	ck_assert_int_ge(find(OP_DIR, "proc"), 0);
	for (unsigned i = 0; i < plan.n_ops; i++)
		ck_assert(plan.ops[i].kind != OP_PROC && plan.ops[i].kind != OP_MASK && plan.ops[i].kind != OP_VIEW);
}
END_TEST

/* Nothing but the box's own cgroup, which the child mounts only when it was born in one. */
START_TEST(nothing_of_sys)
{
	build();
	ck_assert_str_eq(must(OP_CGROUP, "sys/fs/cgroup")->path, "sys/fs/cgroup");
	ck_assert(!plan.own_group);
	for (unsigned i = 0; i < plan.n_ops; i++)
		ck_assert_msg(plan.ops[i].kind == OP_CGROUP ||
				      (strcmp(plan.ops[i].path, "sys") != 0 && strncmp(plan.ops[i].path, "sys/", 4) != 0),
			      "%s", plan.ops[i].path);
	for (unsigned i = 0; i < plan.n_sources; i++)
		ck_assert_msg(strncmp(plan.sources[i].path, "/sys", 4) != 0 && strncmp(plan.sources[i].path, "/proc", 5) != 0, "%s",
			      plan.sources[i].path);
}
END_TEST

START_TEST(volumes)
{
	struct box_mount *ro = mount_add(BOX_MOUNT_DIR, "/srv/ro", "/data/ro", false), *rw = mount_add(BOX_MOUNT_DIR, "/srv/rw", "/data/rw", true);
	struct box_mount *file = mount_add(BOX_MOUNT_FILE, "/srv/f", "/etc/f", false);
	struct box_mount *wfile = mount_add(BOX_MOUNT_FILE, "/srv/w", "/etc/w", true);
	const unsigned fixed = SYS_MOUNT_ATTR_NOSUID | SYS_MOUNT_ATTR_NODEV;
	const struct op *op;

	mount_add(BOX_MOUNT_TMPFS, NULL, "/scratch", true);
	build();
	check_plan();
	op = must(OP_LOWER, "data/ro"); /* the host's sockets are out of reach through an overlay */
	ck_assert_int_eq(find(OP_BIND, "data/ro"), -1);
	ck_assert_ptr_eq(plan.sources[op->source].check, ro);
	ck_assert(!plan.sources[op->source].tree && op->strange);
	op = must(OP_BIND, "data/rw");
	ck_assert_uint_eq(op->flags, fixed);
	ck_assert_ptr_eq(plan.sources[op->source].check, rw);
	ck_assert(plan.sources[op->source].tree && op->strange);
	op = must(OP_BIND, "etc/f");
	ck_assert_uint_eq(op->flags, fixed | SYS_MOUNT_ATTR_RDONLY);
	ck_assert_ptr_eq(plan.sources[op->source].check, file);
	op = must(OP_BIND, "etc/w");
	ck_assert_uint_eq(op->flags, fixed);
	ck_assert_ptr_eq(plan.sources[op->source].check, wfile);
	ck_assert_int_ge(find(OP_FILE, "etc/f"), 0);
	ck_assert_int_eq(find(OP_DIR, "etc/f"), -1);
	ck_assert_ptr_nonnull(strstr(must(OP_TMPFS, "scratch")->text, "size=1048576,"));
	/* Every step of the caller's is resolved inside the root, and comes after everything of ours. */
	for (int i = find(OP_DIR, "data/ro"); i < (int)plan.n_ops; i++)
		ck_assert(plan.ops[i].strange);
	ck_assert_int_lt(find(OP_PROC, "proc"), find(OP_DIR, "data/ro"));
	ck_assert_int_lt(find(OP_LOWER, "data/ro"), find(OP_BIND, "data/rw"));
}
END_TEST

START_TEST(read_only_root)
{
	spec.read_only = true;
	build();
	check_plan();
	ck_assert(plan.root_readonly);
	ck_assert_ptr_nonnull(strstr(must(OP_TMPFS, "tmp")->text, "mode=1777"));
	ck_assert_ptr_nonnull(strstr(must(OP_TMPFS, "run")->text, "size=268435456,"));
	ck_assert_int_ge(find(OP_TMPFS, "home/user"), 0);
	ck_assert_int_ge(find(OP_TMPFS, "dev/shm"), 0);
	/* A mount of the caller's in one of these places takes our own's. */
	mount_add(BOX_MOUNT_DIR, "/srv/t", "/tmp", true);
	mount_add(BOX_MOUNT_DIR, "/srv/d", "/run/data", true);
	build();
	check_plan();
	ck_assert_int_eq(find(OP_TMPFS, "tmp"), -1);
	ck_assert_int_ge(find(OP_BIND, "tmp"), 0);
	ck_assert_int_ge(find(OP_TMPFS, "run"), 0);
	ck_assert_int_lt(find(OP_TMPFS, "run"), find(OP_BIND, "run/data"));
	/* HOME may be the root itself, as nobody's is in some images. */
	spec.home = "/";
	build();
	check_plan();
	ck_assert_int_eq(find(OP_TMPFS, ""), -1);
}
END_TEST

START_TEST(writable_root_has_no_extra_tmpfs)
{
	unsigned n = 0;

	build();
	for (unsigned i = 0; i < plan.n_ops; i++)
		n += plan.ops[i].kind == OP_TMPFS;
	ck_assert_uint_eq(n, 1); /* dev/shm */
}
END_TEST

static void refused(void)
{
	e = (struct err){ 0 };
	assert_refused(plan_build(&spec, &plan, &e), &e, ERR_USAGE);
	ck_assert_int_eq(e.stage, STAGE_MOUNT);
	ck_assert_msg(strstr(e.msg, "-v") && strstr(e.msg, "--device"), "%s", e.msg);
}

START_TEST(as_much_as_a_spec_holds)
{
	for (int i = 0; i < BOX_MOUNTS_MAX; i++)
		mount_add(i % 2 ? BOX_MOUNT_TMPFS : BOX_MOUNT_DIR, i % 2 ? NULL : "/srv/x", "/x", i % 3);
	for (int i = 0; i < BOX_DEVICES_MAX; i++)
		spec.devices[spec.n_devices++].path = "/dev/dri/renderD128";
	spec.limits.cpus = 1;
	spec.read_only = true;
	build();
	check_plan();
}
END_TEST

/* Too many ops, too many sources, too much text: each by itself is refused, at whatever point it runs out, and nothing is written beyond. */
START_TEST(too_much_of_anything)
{
	static struct rootfs_entry many[PLAN_OPS_MAX + 8];
	static char deep[2000];

	for (size_t n = PLAN_OPS_MAX - 60; n < sizeof(many) / sizeof(many[0]); n++) {
		int r;

		for (size_t i = 0; i < n; i++)
			many[i] = (struct rootfs_entry){ ROOTFS_ENTRY_DIR, "d", NULL, 0, 0755 };
		spec.root.entries = many;
		spec.root.n_entries = n;
		r = plan_build(&spec, &plan, &e);
		ck_assert_int_eq(r == 0, plan.n_ops <= PLAN_OPS_MAX);
		if (r == 0)
			check_plan();
		else
			refused();
	}
	for (size_t i = 0; i < PLAN_SOURCES_MAX + 1; i++)
		many[i] = (struct rootfs_entry){ ROOTFS_ENTRY_LOWER, "l", "/l", 0, 0 };
	spec.root.n_entries = PLAN_SOURCES_MAX + 1;
	refused();
	setup();
	/* Paths of a few hundred directories each: their prefixes fill the arena before the ops run out. */
	memset(deep, 'a', sizeof(deep) - 1);
	memcpy(deep, "/dev/", 5);
	for (size_t i = 1000; i < sizeof(deep) - 1; i += 40)
		deep[i] = '/';
	for (int i = 0; i < 4; i++) {
		spec.devices[spec.n_devices++].path = deep;
		if (plan_build(&spec, &plan, &e) == 0)
			check_plan();
		else
			refused();
	}
	refused();
}
END_TEST

START_TEST(printed)
{
	_cleanup_buf_ struct buf out;
	unsigned lines = 0;

	mount_add(BOX_MOUNT_DIR, "/srv/ro", "/data/ro", false);
	mount_add(BOX_MOUNT_DIR, "/srv/rw", "/data/rw", true);
	spec.read_only = true;
	build();
	buf_init(&out, 1 << 20);
	plan_print(&plan, &spec, &out);
	for (const char *s = out.data; *s; s++)
		lines += *s == '\n';
	ck_assert_uint_eq(lines, plan.n_ops + 3); /* the root, one an op, pivot, read-only */
	ck_assert_ptr_nonnull(strstr(out.data, "overlay    /data/ro <- /srv/ro ro\n"));
	ck_assert_ptr_nonnull(strstr(out.data, "bind       /data/rw <- /srv/rw rw\n"));
	ck_assert_ptr_nonnull(strstr(out.data, "link       /bin -> usr/bin\n"));
	ck_assert_ptr_nonnull(strstr(out.data, "mask       /proc/keys\n"));
	ck_assert(strstr(out.data, "/data/rw") < strstr(out.data, "pivot "));
	ck_assert(strstr(out.data, "pivot ") < strstr(out.data, "read-only  /\n"));
}
END_TEST

START_TEST(printed_hostile_paths)
{
	static const struct rootfs_entry evil[] = {
		{ ROOTFS_ENTRY_LINK, "li\x1b[31mnk", "tar\nget\x1b]0;x\x07", 0, 0 },
		{ ROOTFS_ENTRY_FILE, "fi\rle", "\x1b\n", 2, 0644 },
	};
	_cleanup_buf_ struct buf out;
	static char big[4000] = "/";
	unsigned lines = 0;

	memset(big + 1, 'w', sizeof(big) - 2);
	spec.root.entries = evil;
	spec.root.n_entries = 2;
	mount_add(BOX_MOUNT_DIR, "/srv/\n\x1b[2J\x7f\xff\xe2\x80\xae", "/d\n\t\xc2\x9b", true);
	mount_add(BOX_MOUNT_DIR, big, big, false);
	build();
	buf_init(&out, 1 << 20);
	plan_print(&plan, &spec, &out);
	ck_assert(!out.failed);
	for (const unsigned char *s = (const unsigned char *)out.data; *s; s++) {
		lines += *s == '\n';
		ck_assert_msg((*s >= 0x20 && *s < 0x7f) || *s == '\n', "byte %#x", *s);
	}
	ck_assert_uint_eq(lines, plan.n_ops + 2);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, the_root);
	tcase_add_test(tc, a_directory_as_root);
	tcase_add_test(tc, an_image_as_root);
	tcase_add_test(tc, devices);
	tcase_add_test(tc, devices_asked_for);
	tcase_add_test(tc, proc_is_masked);
	tcase_add_test(tc, without_proc);
	tcase_add_test(tc, nothing_of_sys);
	tcase_add_test(tc, volumes);
	tcase_add_test(tc, read_only_root);
	tcase_add_test(tc, writable_root_has_no_extra_tmpfs);
	tcase_add_test(tc, as_much_as_a_spec_holds);
	tcase_add_test(tc, too_much_of_anything);
	tcase_add_test(tc, printed);
	tcase_add_test(tc, printed_hostile_paths);
}

int main(void)
{
	return unit_main("plan", fill);
}
