/* Fuzzes what the rungs read about cgroups: /proc/self/cgroup, mountinfo, lists of controllers, counters, cgroup.procs. Names of groups are
 * anybody's. A path that comes out is absolute, ended, and holds the mount point that it is said to begin with.
 *
 * Input: the text of /proc/self/cgroup, an empty line, the text of mountinfo. tools/fuzz builds and runs it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "box/limits_rungs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void path_is_sound(const char path[CG_PATH_MAX])
{
	if (path[0] != '/' || strnlen(path, CG_PATH_MAX) == CG_PATH_MAX)
		abort();
}

static void where(const char *groups, size_t n, const char *mounts, size_t left)
{
	static struct cg1_place v1[CG1_N];
	static struct cg2_place v2;

	memset(v1, 0, sizeof(v1));
	memset(&v2, 0, sizeof(v2));
	cg1_parse_groups(groups, n, v1);
	cg2_parse_groups(groups, n, &v2);
	while (left > 0) {
		const char *end = memchr(mounts, '\n', left);
		size_t line = end ? (size_t)(end - mounts) : left;

		cg1_parse_mount(mounts, line, v1);
		cg2_parse_mount(mounts, line, &v2);
		mounts += line + (end != NULL);
		left -= line + (end != NULL);
	}
	for (int c = 0; c < CG1_N; c++)
		if (v1[c].mounted)
			path_is_sound(v1[c].path);
	if (v2.mounted) {
		path_is_sound(v2.path);
		if (v2.top == 0 || v2.top > strlen(v2.path))
			abort();
	}
}

static void words(const char *text)
{
	char shown[24];
	uint64_t v;
	pid_t pid = 0, pids[4];

	cg2_words(cg2_parse_controllers(text), shown, sizeof(shown));
	if (strnlen(shown, sizeof(shown)) == sizeof(shown))
		abort();
	group_counter(text, "oom_kill", &v);
	if (group_is_ours(text, &pid) && pid <= 0)
		abort();
	if (limits_parse_pids(text, strlen(text), pids, 4) > 4)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *gap;
	size_t n;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	words(text);
	gap = strstr(text, "\n\n");
	n = gap ? (size_t)(gap + 1 - text) : size;
	where(text, n, gap ? gap + 2 : "", gap ? size - n - 1 : 0);
	free(text);
	return 0;
}
