/* What the boxes of one sandbox share, held by a process of its own for as long as the sandbox
 * lives: overlays of the host's directories, and the workspace where that is the sandbox's own, a
 * tmpfs. Every box gets mounts of them.
 *
 * The kernel keeps names that were looked up with the file system they were looked up in, and a
 * fresh overlay has none: the first program in it pays for each name once more. Boxes of one
 * sandbox show the same directories in the same way, so they may as well show one overlay. And a
 * tmpfs has a size, which the kernel holds, and leaves nothing on a disk.
 *
 * The holder comes into being as a box does: a user namespace that belongs to the box's user
 * outside and maps that one id, a mount namespace in which the host's tree is gone. It has one
 * socket, on which whoever makes boxes asks; each time with a socket for the answer, so that none
 * gets another one's. An answer is detached mounts (open_tree(2)), which init moves into place. A
 * detached mount goes into any namespace whose owner may mount there; the attributes are the
 * mount's own, and who gets it gets nothing else of the holder's.
 *
 * What boxes can learn of each other through a shared overlay: that somebody opens (inotify) or
 * locks (flock) a file of the host's that nobody can change, and how soon a name is found that
 * another one has looked for. All of them are of one sandbox, which is one caller's, and most often
 * shares a workspace between them anyway. Sandboxes have holders of their own.
 *
 * What may go wrong: no namespace is to be had, or no overlay there, or the holder is killed. Then
 * boxes have overlays of their own, as those of `cloche run`; what was given stays. A workspace
 * that was there can't be mounted any more, and boxes that want it fail; its files are there for
 * whoever holds a mount of it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "box/spec.h"

struct holder {
	int sock;	/* to ask on; -1: none */
	int pidfd;	/* where it was started, else -1 */
	size_t n;	/* overlays a box */
	bool workspace; /* and the workspace */
};
#define HOLDER_NONE                                                                                \
	(struct holder)                                                                            \
	{                                                                                          \
		.sock = -1, .pidfd = -1                                                            \
	}

/* Starts one for boxes of this spec, with the workspace where spec->workspace_size is set. 0 also
 * when they have nothing to share. -1 with *e: there is none. The title (init.h) is wiped in the
 * holder. The caller reaps it. */
int holder_start(struct holder *h, const struct box_spec *spec, char *title, size_t title_len,
		 struct err *e);
/* Fills spec->shared or spec->workspace_mount, or both, for one box; leaves them where the holder
 * has nothing of the kind, or does not answer. */
void holder_lend(const struct holder *h, struct box_spec *spec);
/* Closes them, where no box will. */
void holder_take_back(struct box_spec *spec);
void holder_end(struct holder *h);
