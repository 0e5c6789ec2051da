/* Unpacks one layer into a directory of its own, in the form that overlayfs takes as a lower layer
 * (`userxattr`): a whiteout is the character device 0:0, an opaque directory has
 * user.overlay.opaque=y. Both mean the same wherever they stand in the archive: they hide what is
 * below this layer, never what this layer gives.
 *
 * Policy, the same for every caller:
 * - names are relative, without ".."; 255 bytes a part, 4095 a name, 256 parts; bytes otherwise
 * - nothing is made, removed or changed but below the directory; no link of this layer is followed:
 * an entry below a link or a file is refused
 * - a later entry replaces an earlier one of the same name; a directory over a directory keeps what
 *   is in it
 * - a hard link is to a file that this layer has given before, or to one of a layer below, which is
 *   then copied
 * - a directory that the archive does not name is as the layers below have it, else 0755; where
 * they have a link (/lib), it is followed inside the layers
 * - set-user-id and set-group-id bits of files are cleared, as boxes never honour them and the
 * files lie on the host; sticky and set-group-id bits of directories are kept
 * - devices are left out; FIFOs are made
 * - of extended attributes, user.* is kept but for user.overlay.*; where the file system takes none
 *   they are left out
 * - owners are those of the archive when asked for (as root), else all is the caller's */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "image/tar.h"

struct img_unpack_limits {
	uint64_t entries;	/* directories made on the way included */
	uint64_t bytes;		/* of content, holes not counted */
	uint64_t archive_bytes; /* of the plain archive */
};
extern const struct img_unpack_limits img_unpack_default;

struct img_unpack_how {
	struct img_unpack_limits limits;
	bool keep_owners;
	const int *lowers; /* directories of the layers below, topmost first, as unpacked here; they
			      stay the caller's. None: the layer has to stand by itself */
	size_t n_lowers;
	bool lax_end; /* as tar_lax_end: the caller compares the archive's digest */
	/* No layer, but the files of a workspace: names are nothing but names (there are no
	 * whiteouts), and what no such archive of ours has is refused: devices, FIFOs, a name given
	 * twice. Others may change the directory meanwhile: nothing outside it is touched then,
	 * either. */
	bool files;
};

/* What was done, and what was left out. */
struct img_unpacked {
	uint64_t entries, bytes;
	uint64_t whiteouts, devices, set_ids, xattrs; /* the last three: left out */
	uint64_t borrowed; /* taken from layers below, or made because they lack it: when not 0,
			      what was unpacked fits these only, and is not to be shared by the
			      digest of the layer alone */
	bool opaque_root;  /* nothing of the layers below is left: overlayfs has no word for it */
};

/* dirfd is an empty directory that no one else changes; after an error its content is undefined,
 * and the caller removes it. Changes the umask meanwhile, so the process has one thread. Needs user
 * extended attributes on the file system when the layer has opaque directories. 0, or -1:
 * ERR_REFUSED names the entry, ERR_SYS the call. */
int img_unpack(int dirfd, const struct tar_source *source, const struct img_unpack_how *how,
	       struct img_unpacked *ret, struct err *e);
