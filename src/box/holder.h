/* What the boxes of one sandbox share, held by a process of its own for as long as the sandbox
 * lives: overlays of the host's directories, of which every box gets a mount.
 *
 * The kernel keeps names that were looked up with the file system they were looked up in, and a
 * fresh overlay has none: the first program in it pays for each name once more. Boxes of one
 * sandbox show the same directories in the same way, so they may as well show one overlay.
 *
 * The holder comes into being as a box does: a user namespace that belongs to the box's user
 * outside and maps that one id, a mount namespace in which the host's tree is gone. It has one
 * socket, on which its owner asks and is given detached mounts (open_tree(2)), a set for each box,
 * which init moves into place. A detached mount goes into any namespace whose owner may mount
 * there; the attributes are the mount's own, and who gets it gets nothing else of the holder's.
 *
 * What boxes can learn of each other through a shared overlay: that somebody watches (inotify) or
 * locks (flock) a file of the host's that nobody can change, and how soon a name is found that
 * another one has looked for. All of them are of one sandbox, which is one caller's, and most often
 * shares a workspace between them anyway. Sandboxes have holders of their own.
 *
 * What may go wrong: no namespace is to be had, or no overlay there, or the holder is killed. Then
 * boxes are built as those of `cloche run`, with overlays of their own; those that were given
 * mounts keep them. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "box/spec.h"

struct holder {
	int sock, pidfd; /* -1: none */
	size_t n;	 /* mounts a box */
};
#define HOLDER_NONE                                                                                \
	(struct holder)                                                                            \
	{                                                                                          \
		.sock = -1, .pidfd = -1                                                            \
	}

/* Starts one for boxes of this spec. 0 also when they have nothing to share. -1 with *e: there is
 * none, and boxes do without. The title (init.h) is wiped in the holder. The caller reaps it. */
int holder_start(struct holder *h, const struct box_spec *spec, char *title, size_t title_len,
		 struct err *e);
/* Fills spec->shared for one box; with nothing when there is no holder, or it does not answer,
 * which ends it. holder_take_back closes them here, once the box's owner has its own. */
void holder_lend(struct holder *h, struct box_spec *spec);
void holder_take_back(struct box_spec *spec);
/* For good. In a child that has only inherited it: holder_forget. */
void holder_end(struct holder *h);
void holder_forget(struct holder *h);
