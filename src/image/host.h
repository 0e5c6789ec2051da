/* The `host` image: nothing to download. The host's /usr read-only, a synthesised /etc with nothing
 * of the host's users, everything else empty, writable and thrown away. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/rootfs.h"

#define IMAGE_HOST_ENTRIES 96

struct image_host {
	struct rootfs_entry entries[IMAGE_HOST_ENTRIES];
	size_t n;
	char text[4096]; /* generated files, link targets and names */
	size_t used;
	char resolver[4096];
};

/* Furnishes `store`; ret->entries point into it. With `network` the host's resolver settings and
 * service names come along. */
int image_host(struct image_host *store, uid_t uid, gid_t gid, bool network, struct rootfs *ret,
	       struct err *e);
/* What any other root gets of this into its /etc, of that mode: hosts, hostname and resolv.conf, in
 * place of what it has there. Furnishes `store`. */
void image_host_names(struct image_host *store, mode_t etc, bool network, struct rootfs *root);
/* "root", "user", "nobody" of the synthesised /etc/passwd. 0, or -1 when there is no such name. */
int image_host_user(const char *name, uid_t *ret_uid, gid_t *ret_gid);
/* HOME of a uid in the host image. */
const char *image_host_home(uid_t uid);
