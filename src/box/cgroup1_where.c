/* cgroup v1: where the caller's own groups are, one a controller (cgroup_where.c says how). A
 * controller that has no path in this mount namespace is not used. */
#include "box/limits_rungs.h"

#include <assert.h>
#include <string.h>

const char *const cg1_name[] = { [CG1_MEMORY] = "memory", [CG1_PIDS] = "pids", [CG1_CPU] = "cpu" };
static_assert(sizeof(cg1_name) / sizeof(cg1_name[0]) == CG1_N, "a name for every controller");

void cg1_parse_groups(const char *text, size_t n, struct cg1_place place[CG1_N])
{
	while (n > 0) {
		const char *end = memchr(text, '\n', n);
		size_t line = end ? (size_t)(end - text) : n;
		const char *one = memchr(text, ':', line), *two = NULL;

		if (one)
			two = memchr(one + 1, ':', line - (size_t)(one + 1 - text));
		for (int c = 0; two && c < CG1_N; c++) {
			size_t path = line - (size_t)(two + 1 - text);

			if (place[c].found || path == 0 || two[1] != '/' || path >= CG_PATH_MAX ||
			    memchr(two + 1, '\0', path) ||
			    !cg_list_has(one + 1, (size_t)(two - one - 1), cg1_name[c]))
				continue;
			memcpy(place[c].group, two + 1, path);
			place[c].group[path] = '\0';
			place[c].found = true;
		}
		text += line;
		n -= line;
		if (end) {
			text++;
			n--;
		}
	}
}

void cg1_parse_mount(const char *line, size_t n, struct cg1_place place[CG1_N])
{
	char path[CG_PATH_MAX];
	struct cg_mount m;

	if (!cg_parse_mount(line, n, &m) || m.version != 1)
		return;
	for (int c = 0; c < CG1_N; c++) {
		if (!place[c].found || place[c].mounted ||
		    !cg_list_has(m.opts, m.opts_n, cg1_name[c]))
			continue;
		if (!cg_map_path(place[c].group, m.root, m.point, path))
			continue;
		memcpy(place[c].path, path, strlen(path) + 1);
		place[c].mount = m.id;
		place[c].mounted = true;
	}
}

static void each_mount(void *ctx, const char *line, size_t n)
{
	cg1_parse_mount(line, n, ctx);
}

static bool all_mounted(const void *ctx)
{
	const struct cg1_place *place = ctx;

	for (int c = 0; c < CG1_N; c++)
		if (place[c].found && !place[c].mounted)
			return false;
	return true;
}

int cg1_find(struct cg1_place place[CG1_N], struct err *e)
{
	size_t n;
	const char *text = cg_own_groups(false, &n, e);

	if (!text)
		return -1;
	cg1_parse_groups(text, n, place);
	if (!place[CG1_MEMORY].found || !place[CG1_PIDS].found)
		return err_set(e, ERR_MISSING, "no cgroup v1 hierarchy with memory and pids");
	if (cg_each_mount(each_mount, all_mounted, place) < 0)
		return err_sys(e, "reading /proc/self/mountinfo");
	for (int c = 0; c <= CG1_PIDS; c++)
		if (!place[c].mounted)
			return err_set(e, ERR_MISSING,
				       "the caller's %s group %.200s is not mounted here",
				       cg1_name[c], place[c].group);
	return 0;
}
