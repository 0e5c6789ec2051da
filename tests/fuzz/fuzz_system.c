/* Fuzzes what is read from files of the system and of a root file system: mountinfo, passwd, id maps, cpu views, cgroups. No text may crash a reader,
 * and what it takes from the text is within bounds.
 *
 * Input: one byte that chooses the reader, then the file. tools/fuzz builds and runs it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mountinfo.h"
#include "box/limits_rungs.h"
#include "box/views.h"
#include "engine/accounts.h"
#include "engine/ids.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_mountinfo(const char *text, size_t size)
{
	static int file = -1;
	struct mountinfo m;
	char path[32];

	if (file < 0)
		file = memfd_create("mountinfo", 0);
	if (file < 0 || ftruncate(file, 0) < 0 || pwrite(file, text, size, 0) != (ssize_t)size)
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	if (mountinfo_open(&m, path) < 0)
		abort();
	while (mountinfo_next(&m))
		if (strnlen(m.target, sizeof(m.target)) == sizeof(m.target) || strnlen(m.type, sizeof(m.type)) == sizeof(m.type))
			abort();
	mountinfo_close(&m);
}

static void read_passwd(const char *text)
{
	struct account a = { .uid = 7, .gid = 7 };
	gid_t gid = 7;

	if (account_by_name(text, "node", &a) < 0 && account_by_id(text, 1000, &a) < 0) {
		if (a.uid != 7 || a.gid != 7 || a.home[0] || a.name[0])
			abort();
	} else if ((a.home[0] && a.home[0] != '/') || strpbrk(a.home, ":\n") || strpbrk(a.name, ":\n") || a.uid == (uid_t)-1 ||
		   a.gid == (gid_t)-1) {
		abort();
	}
	if (account_group(text, "node", &gid) < 0 ? gid != 7 : gid == (gid_t)-1)
		abort();
}

static void cut_views(char *text, size_t size, unsigned cpus)
{
	char *copy = malloc(size + 1);

	memcpy(copy, text, size + 1);
	if (views_cut_cpuinfo(text, size, cpus) > size || views_cut_stat(copy, size, cpus) > size)
		abort();
	free(copy);
}

static void read_groups(const char *text, size_t size)
{
	struct cg1_place v1[CG1_N] = { 0 };
	struct cg2_place v2 = { 0 };
	const char *line = memchr(text, '\n', size);
	uint64_t v = 0;
	pid_t pids[4];

	cg1_parse_groups(text, size, v1);
	cg2_parse_groups(text, size, &v2);
	line = line ? line + 1 : text;
	cg1_parse_mount(line, size - (size_t)(line - text), v1);
	cg2_parse_mount(line, size - (size_t)(line - text), &v2);
	if (strnlen(v2.path, sizeof(v2.path)) == sizeof(v2.path) || v2.top > strlen(v2.path))
		abort();
	for (int i = 0; i < CG1_N; i++)
		if (strnlen(v1[i].path, sizeof(v1[i].path)) == sizeof(v1[i].path))
			abort();
	if (cg2_parse_controllers(text) > (CG2_MEMORY | CG2_PIDS | CG2_CPU | CG2_IO))
		abort();
	(void)group_counter(text, "oom_kill", &v);
	if (limits_parse_pids(text, size, pids, 4) > 4)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0)
		return 0;
	text = malloc(size);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	switch (data[0] % 5) {
	case 0:
		read_mountinfo(text, size - 1);
		break;
	case 1:
		read_passwd(text);
		break;
	case 2:
		(void)ids_outer(text);
		break;
	case 3:
		read_groups(text, size - 1);
		break;
	default:
		cut_views(text, size - 1, data[0] / 5);
	}
	free(text);
	return 0;
}
