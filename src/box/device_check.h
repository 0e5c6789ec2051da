/* --device: which nodes of /dev a box may have. A table of names with a verdict and its reason;
 * what no row knows is refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "box/mount_check.h"
#include "box/spec.h"

struct device_rule {
	const char *pattern; /* below /dev; '*' stands for any characters but '/', '#' for one or
				more digits */
	bool allow;
	const char *why; /* a refusal's reason, or a note that goes with an allowed one; NULL for
			    none */
};
extern const struct device_rule device_rules[];
extern const size_t device_rules_n;

/* The first row that matches a name below /dev, or NULL. */
const struct device_rule *device_rule_of(const char *name);

/* Judges /dev/NODE: links resolved first (/dev/serial/by-id/...), then a character device below
 * /dev that a row allows. ret->path is canonical and lives as long as c; notes go to c. */
int device_check(struct mount_check *c, const char *path, struct box_device *ret, struct err *e);
