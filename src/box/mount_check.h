/* The caller's mounts: parsed, judged, and opened again in the child.
 *
 * Order of use, all in the parent but the last: mount_check_init; mount_parse_* for each option,
 * into spec->mounts; mount_check_all, which makes sources canonical, applies the rules of
 * mount_rules.h, checks targets and sorts; then, in the child, mount_open_checked. The strings of
 * the mounts belong to the struct mount_check and live until mount_check_free. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "box/denied.h"
#include "box/mount_rules.h"
#include "box/spec.h"

#define MOUNT_NOTES_MAX 8
#define MOUNT_DENIED_MAX 24
#define MOUNT_WORKSPACE "/workspace"
#define MOUNT_SCAN_MAX 20000

struct mount_check {
	struct mount_rules_ctx rules;
	char notes[MOUNT_NOTES_MAX]
		  [300]; /* lines for the outcome's notes: what is allowed and worth knowing */
	size_t n_notes;
	struct denial denied[MOUNT_DENIED_MAX]; /* refused mounts, and files that the box can't
						   see; their texts live as long as this */
	size_t n_denied;
	const struct box_spec *spec; /* of mount_check_all; NULL before */
	bool learned; /* the rules know the caller; put off until a path is judged, so that a box
			 without mounts pays nothing */
};

int mount_check_init(struct mount_check *c, struct err *e);
void mount_check_free(struct mount_check *c);
#define _cleanup_mount_check_ __attribute__((cleanup(mount_check_free)))
/* Adds one of cloche's own directories beyond the usual ones (CLOCHE_HOME, XDG_*,
 * ~/.local/share/cloche ..., /tmp/cloche-UID). */
int mount_check_state(struct mount_check *c, const char *dir, struct err *e);

/* Makes the rules know the caller, once. mount_check_all and mount_hint call it. */
int mount_check_learn(struct mount_check *c, struct err *e);

/* "SRC:DST[:ro|rw]"; read-write, or read-only when `untrusted`, unless it says. SRC may be
 * relative. Looks at nothing but the text. */
int mount_parse_volume(struct mount_check *c, const char *text, bool untrusted,
		       struct box_mount *ret, struct err *e);
/* "DST:SIZE"; SIZE needs a unit. */
int mount_parse_tmpfs(struct mount_check *c, const char *text, struct box_mount *ret,
		      struct err *e);
/* The directory of --workspace: read-write at /workspace. */
int mount_parse_workspace(struct mount_check *c, const char *dir, struct box_mount *ret,
			  struct err *e);

/* The directory of --workspace as mount_check_all judges it, for who works with its files from
 * outside; *ret is for mount_open_checked. */
int mount_check_workspace(struct mount_check *c, const char *dir, struct box_mount *ret,
			  struct err *e);
/* Judges and completes spec->mounts (needs root, limits.memory and profile of the spec), and sorts
 * them with the shallowest target first, so that the order of options changes nothing. Refusals are
 * ERR_REFUSED and name rule and option; the stage is `workspace` or `mount`. On failure
 * spec->mounts may be partly completed. */
int mount_check_all(struct mount_check *c, struct box_spec *spec, struct err *e);
/* The directory of --rootfs: judged as a read-only source; *ret gets canonical src, dev and ino. */
int mount_check_rootfs(struct mount_check *c, const char *dir, struct box_mount *ret,
		       struct err *e);

/* Opens m->src, O_PATH and close-on-exec, without following any link, when it is still what was
 * checked. -1 with errno: ESTALE when something else is there now. No heap. */
int mount_open_checked(const struct box_mount *m);

/* Looks for host FIFOs below a shared directory, at most MOUNT_SCAN_MAX entries, no links followed.
 * 0, and *ret_complete says whether all of it was seen; -1 with ERR_REFUSED naming the first one
 * found, or with ERR_SYS. */
int mount_scan_fifo(const struct box_mount *m, bool *ret_complete, struct err *e);
/* Notes on what lies at the top of a shared directory: credentials; host sockets, unless
 * `untrusted` shuts them. */
void mount_scan_top(struct mount_check *c, const struct box_mount *m, bool untrusted);
/* Adds a note; those beyond MOUNT_NOTES_MAX are dropped. */
void mount_note(struct mount_check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Where a target really is in the box, through the image's links: m->dst is set to it. Refuses the
 * places that cloche furnishes. */
int mount_target(struct mount_check *c, const struct box_spec *spec, struct box_mount *m,
		 struct err *e);

/* Leaves out the mount that yields where another one is in its way, or its target is none. */
void mount_yield(struct mount_check *c, struct box_spec *spec);
/* Judges and completes the sources alone, before there is a root; 0, or the first error. */
int mount_check_sources(struct mount_check *c, struct box_spec *spec, struct err *e);

/* What would allow a refused mount; it takes the place of the refused option. */
enum mount_allow {
	MOUNT_ALLOW_NONE,
	MOUNT_ALLOW_RO,	    /* the same, shared read-only */
	MOUNT_ALLOW_DEVICE, /* --device */
	MOUNT_ALLOW_MEMORY, /* as much memory as the tmpfs is large */
};
/* Puts down that a policy refuses m, with the reason why no option allows it when `how` is none.
 * Records beyond MOUNT_DENIED_MAX are dropped: the fault tells of the first. */
void mount_deny(struct mount_check *c, const struct box_mount *m, const char *policy,
		enum mount_allow how, const char *reason);
/* The same for a rule of the table; `real` is the canonical source. */
void mount_deny_rule(struct mount_check *c, const struct box_mount *m, const char *real,
		     const struct mount_rule *r);
/* The same for --device PATH, which no option allows. */
void mount_deny_device(struct mount_check *c, const char *path, const char *why);
/* The same for a directory that can't be shown by overlay, when untrusted takes nothing less. */
void mount_deny_strict(struct mount_check *c, const char *path);
/* Puts down a file that the box does not see: `what` is what was asked for, allow_with the option,
 * or NULL with a reason. All are copied. */
void mount_deny_read(struct mount_check *c, const char *policy, const char *what, const char *path,
		     const char *allow_with, const char *reason);
/* The rule as a denial names it, such as "above $HOME". */
const char *mount_rule_name(const struct mount_rule *r, char buf[64]);

/* When a word of the command (argv[i]) names a file that exists here and that the box can't see, or
 * sees elsewhere, writes one line of advice and returns true; what it can't see is a denial as
 * well. Uses the checked mounts. */
bool mount_hint(struct mount_check *c, const struct box_spec *spec, const char *arg, char *buf,
		size_t cap);

/* A path for a message: printable, and its end when it is long. */
struct mount_shown {
	char text[140];
};
const char *mount_show(struct mount_shown *s, const char *path);
