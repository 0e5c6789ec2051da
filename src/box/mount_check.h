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
#include "box/mount_rules.h"
#include "box/spec.h"

#define MOUNT_NOTES_MAX 8
#define MOUNT_WORKSPACE "/workspace"
#define MOUNT_SCAN_MAX 20000

struct mount_check {
	struct mount_rules_ctx rules;
	char notes[MOUNT_NOTES_MAX]
		  [300]; /* lines for the outcome's notes: what is allowed and worth knowing */
	size_t n_notes;
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
 * 0, and *ret_complete says whether all was seen; -1 with ERR_REFUSED naming the first one found.
 */
int mount_scan_fifo(const struct box_mount *m, bool *ret_complete, struct err *e);
/* Notes on what lies at the top of a shared directory: credentials; host sockets, unless
 * `untrusted` shuts them. */
void mount_scan_top(struct mount_check *c, const struct box_mount *m, bool untrusted);
/* Adds a note; those beyond MOUNT_NOTES_MAX are dropped. */
void mount_note(struct mount_check *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* When a word of the command (argv[i]) names a file that exists here and that the box can't see, or
 * sees elsewhere, writes one line of advice and returns true. Uses the checked mounts. */
bool mount_hint(struct mount_check *c, const struct box_spec *spec, const char *arg, char *buf,
		size_t cap);

/* A path for a message: printable, and its end when it is long. */
struct mount_shown {
	char text[140];
};
const char *mount_show(struct mount_shown *s, const char *path);
