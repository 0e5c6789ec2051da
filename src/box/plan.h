/* A plan: what the child will do to build its file system, as an ordered list that the parent built
 * and checked.
 *
 * The parent builds (plan_build), `cloche run --plan` prints (plan_print), the child walks
 * (ops_run). No step is decided in the child. Strings point into the spec, static text, or the
 * plan's own arena; a plan is plain memory and survives clone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "box/spec.h"

#define PLAN_OPS_MAX 320
#define PLAN_ARENA 16384
#define PLAN_SOURCES_MAX 160

struct buf;

enum op_kind {
	OP_DIR,	  /* make a directory */
	OP_FILE,  /* make a file with this text */
	OP_LINK,  /* make a symbolic link */
	OP_LOWER, /* a host directory, read-only, through a lower-only overlay */
	OP_BIND,  /* a host file or directory, attached as it is with `flags` */
	OP_TMPFS, /* a tmpfs of its own, sized */
	OP_DEVPTS,
	OP_PROC,
	OP_MASK, /* hide what is there, if it is there: a file by /dev/null, a directory by an empty
		    one */
	OP_VIEW, /* a generated file over one of /proc's */
	OP_CGROUP,   /* the box's own cgroup, read-only; only when own_group */
	OP_READONLY, /* make what is there read-only, with all below it */
	OP_WRITABLE, /* a directory of the root that stays writable when the root becomes
			read-only */
	OP_LAYERS,   /* layers `text` of the source, under an upper side of the kind in `mode` */
	OP_KIND_N
};

/* The upper side of OP_LAYERS. */
enum op_upper { UPPER_NONE, UPPER_SCRATCH, UPPER_DRAFT };

/* A thing of the host that an op attaches. Checked ones (the caller's) are opened before the new
 * root covers anything; system paths when they are needed: no stage covers those. */
struct plan_source {
	const char *path;
	const struct box_mount *check; /* compare (dev, ino) to this, or NULL */
	uint64_t rdev; /* a device that the caller asked for: its number as checked; else 0 */
	bool tree;   /* wanted as a detached mount (bind); else as a directory to stand in (overlay)
		      */
	bool shared; /* fd is a mount of what the boxes of one sandbox share (holder.h) */
	int fd;	     /* mount made by the parent (id-mapped) or by the holder, or -1; in the child:
			what was opened */
};

struct op {
	enum op_kind kind;
	const char *path; /* in the box, no leading slash */
	const char *text; /* FILE, VIEW: content; LINK: target; TMPFS: mount options */
	uint32_t len;
	uint32_t mode;	/* permissions; MASK: S_IFDIR or S_IFREG */
	uint32_t flags; /* mount attributes or MS_ flags, by kind; a device's mount needs none */
	int16_t source; /* index, or -1 */
	bool ready;	/* the same for every box: carried out ahead where there is a skeleton
			   (skeleton.h) */
	bool laid;	/* carried out in the overlay's upper side before it is mounted: whatever
			   the image has at that name, a link say, is hidden */
	bool strange;	/* the path may lead through things that are not ours: resolve it inside the
			   root, step by step */
};

struct plan {
	struct op ops[PLAN_OPS_MAX];
	unsigned n_ops;
	struct plan_source sources[PLAN_SOURCES_MAX];
	unsigned n_sources;
	bool root_overlay; /* the root is an overlay over source 0; else a tmpfs, or an overlay over
			      the skeleton */
	const char *lowers; /* the overlay's lower directories, as they are called in source 0 */
	bool skeleton; /* the directory that the child begins in is one that holds every op marked
			  ready */
	bool draft;    /* the directory that the child begins in holds the upper side of its root */
	bool root_readonly;
	bool strict; /* a read-only directory of the host goes through an overlay or not at all */
	bool own_group;	       /* the child is born in a cgroup of its own; set with each clone */
	unsigned n_shared;     /* of the spec's, that have their op */
	unsigned n_binds;      /* in the child: how many had to do without */
	int no_overlay;	       /* in the child: 1 + the source that `strict` refused; 0 none */
	char root_options[96]; /* of the tmpfs that is the root or holds the overlay's upper */
	char arena[PLAN_ARENA];
	unsigned used;
};

/* Everything of the spec that is file system. Does not touch the file system but to generate views
 * of /proc. */
int plan_build(const struct box_spec *spec, struct plan *ret, struct err *e);
/* What the boxes of this spec share, as a root of its own: the i-th mount at the name `i`, and the
 * workspace, if they have it in memory, at the one behind. *ret_n: how many there are before it. */
int plan_build_shared(const struct box_spec *spec, bool overlays, struct plan *ret, size_t *ret_n,
		      struct err *e);
/* One line an op, in order; for people. */
void plan_print(const struct plan *p, const struct box_spec *spec, struct buf *out);
