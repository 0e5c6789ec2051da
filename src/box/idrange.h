/* More ids in a box than its user's: spec.range. Written into the maps of its user namespace from
 * outside, by root itself, or for an ordinary caller by newuidmap(1) and newgidmap(1), which look
 * into /etc/subuid and /etc/subgid whether they may. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "box/spec.h"

#define IDRANGE_UIDS "/usr/bin/newuidmap"
#define IDRANGE_GIDS "/usr/bin/newgidmap"

/* Maps the ids of the process's new user namespace. Parent only; the child waits meanwhile. */
int idrange_map(const struct box_spec *s, pid_t pid, struct err *e);

/* The pure part: a line of a map is `inside outside count`. Ids from 0 to n-1 follow `from`
 * outside, but `own`, which is `outer` there. Returns how many lines. */
struct idrange_line {
	uint32_t inside, outside, count;
};
size_t idrange_lines(uint32_t own, uint32_t outer, uint32_t from, uint32_t n,
		     struct idrange_line ret[3]);
