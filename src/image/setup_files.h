/* What a set-up box has in its /etc and /usr/sbin besides the image's own, for as long as it runs:
 * what apt and dpkg need to work as the root of one id. */
#pragma once

#include "image/host.h"

/* Adds to what `root`, whose layers are open, is furnished with; `store` holds its entries. Only
 * where the image has the directories: one that has no apt gets nothing. */
void image_setup_files(struct image_host *store, struct rootfs *root);
