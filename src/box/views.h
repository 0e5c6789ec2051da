/* Generated files that stand over some of /proc's: memory and cpu as the box has them, not as the
 * host does. sysinfo(2) still tells the host's memory; it can't be changed from here and is stated
 * in the docs. */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "box/spec.h"

#define BOX_VIEWS_MAX 4

struct box_view {
	const char *path; /* "proc/meminfo" */
	const char *text; /* static or heap that lives as long as the process: one start makes them
			     once */
	size_t len;
};

int views_make(const struct box_spec *spec, struct box_view ret[BOX_VIEWS_MAX], size_t *ret_n,
	       struct err *e);
/* How many cpus a box with this spec sees: ceil(cpus), at most the caller's own affinity. */
unsigned views_cpus(const struct box_spec *spec);
/* The pure parts, for tests: keep the first `cpus` processors of a /proc/cpuinfo, the first `cpus`
 * cpu lines of a /proc/stat. Return the new length; work in place. */
size_t views_cut_cpuinfo(char *text, size_t len, unsigned cpus);
size_t views_cut_stat(char *text, size_t len, unsigned cpus);
