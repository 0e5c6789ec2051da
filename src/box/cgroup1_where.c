/* cgroup v1: where the caller's own groups are, from the texts of /proc/self/cgroup and
 * /proc/self/mountinfo.
 *
 * /proc/self/cgroup names a group per controller, relative to the root of the caller's cgroup
 * namespace; a line of /proc/self/mountinfo shows a part of a hierarchy (field 4, relative to the
 * same root) at a place (field 5). Both together give a directory. What may go wrong: a group
 * outside the namespace ("/../.."), a mount that shows another branch (a container's own group
 * bound over /sys/fs/cgroup), names with escaped spaces. Such a controller stays without a path,
 * and the rung is not used. The texts are the kernel's, yet names in them are anybody's: every
 * length is checked. */
#include "box/limits_rungs.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

const char *const cg1_name[] = { [CG1_MEMORY] = "memory", [CG1_PIDS] = "pids", [CG1_CPU] = "cpu" };
static_assert(sizeof(cg1_name) / sizeof(cg1_name[0]) == CG1_N, "a name for every controller");

static bool list_has(const char *list, size_t n, const char *word)
{
	size_t len = strlen(word);

	while (n > 0) {
		const char *comma = memchr(list, ',', n);
		size_t item = comma ? (size_t)(comma - list) : n;

		if (item == len && memcmp(list, word, len) == 0)
			return true;
		if (!comma)
			return false;
		list += item + 1;
		n -= item + 1;
	}
	return false;
}

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

			if (place[c].found || path == 0 || two[1] != '/' || path >= CG1_PATH_MAX ||
			    memchr(two + 1, '\0', path) ||
			    !list_has(one + 1, (size_t)(two - one - 1), cg1_name[c]))
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

/* The next field, separated by single spaces; false at the end. */
static bool field(const char **at, size_t *n, const char **ret, size_t *len)
{
	const char *space;

	if (*n == 0)
		return false;
	space = memchr(*at, ' ', *n);
	*ret = *at;
	*len = space ? (size_t)(space - *at) : *n;
	*at += *len + (space ? 1 : 0);
	*n -= *len + (space ? 1 : 0);
	return *len > 0;
}

/* Undoes the kernel's \ooo escapes. False when it does not fit or makes no sense. */
static bool unescape(const char *s, size_t n, char *ret, size_t cap)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned v = 0;

		if (k + 1 >= cap || s[i] == '\0')
			return false;
		if (s[i] != '\\') {
			ret[k++] = s[i];
			continue;
		}
		if (n - i < 4)
			return false;
		for (int d = 1; d <= 3; d++) {
			if (s[i + (size_t)d] < '0' || s[i + (size_t)d] > '7')
				return false;
			v = v * 8 + (unsigned)(s[i + (size_t)d] - '0');
		}
		if (v == 0 || v > 255)
			return false;
		ret[k++] = (char)v;
		i += 3;
	}
	ret[k] = '\0';
	return k > 0;
}

static bool outside(const char *path)
{
	return strcmp(path, "/..") == 0 || strncmp(path, "/../", 4) == 0;
}

/* The group's directory: mount point, plus what of the group lies below the mount's root. */
static bool map_path(const char *group, const char *root, const char *point, char ret[CG1_PATH_MAX])
{
	size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root), p = strlen(point), rest;

	if (outside(group) || outside(root))
		return false;
	if (strncmp(group, root, n) != 0 || (group[n] != '\0' && group[n] != '/'))
		return false;
	group += n;
	if (strcmp(group, "/") == 0)
		group++;
	rest = strlen(group);
	if (p + rest >= CG1_PATH_MAX)
		return false;
	memcpy(ret, point, p);
	memcpy(ret + p, group, rest + 1);
	return true;
}

void cg1_parse_mount(const char *line, size_t n, struct cg1_place place[CG1_N])
{
	const char *id, *f, *root, *point, *type, *source, *opts;
	size_t id_n, f_n, root_n, point_n, type_n, source_n, opts_n;
	char root_text[CG1_PATH_MAX], point_text[CG1_PATH_MAX], path[CG1_PATH_MAX];
	unsigned mount = 0;

	if (!field(&line, &n, &id, &id_n) || !field(&line, &n, &f, &f_n) ||
	    !field(&line, &n, &f, &f_n) || !field(&line, &n, &root, &root_n) ||
	    !field(&line, &n, &point, &point_n) || !field(&line, &n, &f, &f_n))
		return;
	do {
		/* optional fields, ended by a lone dash */
		if (!field(&line, &n, &f, &f_n))
			return;
	} while (f_n != 1 || f[0] != '-');
	if (!field(&line, &n, &type, &type_n) || !field(&line, &n, &source, &source_n) ||
	    !field(&line, &n, &opts, &opts_n))
		return;
	if (type_n != 6 || memcmp(type, "cgroup", 6) != 0)
		return;
	for (size_t i = 0; i < id_n && id[i] >= '0' && id[i] <= '9'; i++)
		mount = mount * 10 + (unsigned)(id[i] - '0');
	if (!unescape(root, root_n, root_text, sizeof(root_text)) || root_text[0] != '/' ||
	    !unescape(point, point_n, point_text, sizeof(point_text)) || point_text[0] != '/')
		return;
	for (int c = 0; c < CG1_N; c++) {
		if (!place[c].found || place[c].mounted || !list_has(opts, opts_n, cg1_name[c]))
			continue;
		if (!map_path(place[c].group, root_text, point_text, path))
			continue;
		memcpy(place[c].path, path, strlen(path) + 1);
		place[c].mount = mount;
		place[c].mounted = true;
	}
}

static bool all_mounted(const struct cg1_place place[CG1_N])
{
	for (int c = 0; c < CG1_N; c++)
		if (place[c].found && !place[c].mounted)
			return false;
	return true;
}

/* Feeds mountinfo line by line through a buffer, no further than needed: the file of a busy host
 * has hundreds of kilobytes. Static, as in cg1_find: on the stack all of it would be cleared, and
 * stay in memory as long as the box. */
static int read_mounts(struct cg1_place place[CG1_N])
{
	_cleanup_fd_ int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	static char buf[16384];
	size_t have = 0;
	bool skip = false;

	if (fd < 0)
		return -1;
	for (;;) {
		ssize_t n = read(fd, buf + have, sizeof(buf) - have);
		char *line = buf, *end;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return (int)n;
		have += (size_t)n;
		while ((end = memchr(line, '\n', have))) {
			if (!skip)
				cg1_parse_mount(line, (size_t)(end - line), place);
			skip = false;
			have -= (size_t)(end + 1 - line);
			line = end + 1;
		}
		if (all_mounted(place))
			return 0;
		if (have == sizeof(buf)) { /* a line longer than any of ours can be */
			skip = true;
			have = 0;
		}
		memmove(buf, line, have);
	}
}

int cg1_find(struct cg1_place place[CG1_N], struct err *e)
{
	static char text[8192];
	ssize_t n = fd_read_file_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));

	if (n < 0)
		return err_sys(e, "reading /proc/self/cgroup");
	cg1_parse_groups(text, (size_t)n, place);
	if (!place[CG1_MEMORY].found || !place[CG1_PIDS].found)
		return err_set(e, ERR_MISSING, "no cgroup v1 hierarchy with memory and pids");
	if (read_mounts(place) < 0)
		return err_sys(e, "reading /proc/self/mountinfo");
	for (int c = 0; c <= CG1_PIDS; c++)
		if (!place[c].mounted)
			return err_set(e, ERR_MISSING,
				       "the caller's %s group %.200s is not mounted here",
				       cg1_name[c], place[c].group);
	return 0;
}

size_t limits_parse_pids(const char *text, size_t n, pid_t *ret, size_t max)
{
	size_t k = 0;
	long v = -1;

	for (size_t i = 0; i <= n; i++) {
		char c = i < n ? text[i] : ' ';

		if (c >= '0' && c <= '9') {
			v = (v < 0 ? 0 : v) * 10 + (c - '0');
			if (v > 0x7fffffff)
				return k;
			continue;
		}
		if (c != ' ' && c != '\n')
			return k;
		if (v > 0 && k < max)
			ret[k++] = (pid_t)v;
		v = -1;
	}
	return k;
}

bool cg1_is_ours(const char *name, pid_t *ret_pid)
{
	static const char prefix[] = "cloche-";
	long pid = 0;
	size_t i, at;

	if (strncmp(name, prefix, sizeof(prefix) - 1) != 0)
		return false;
	at = sizeof(prefix) - 1;
	for (i = at; name[i] >= '0' && name[i] <= '9'; i++) {
		pid = pid * 10 + (name[i] - '0');
		if (pid > 0x7fffffff)
			return false;
	}
	if (i == at || pid == 0 || name[i] != '-')
		return false;
	at = ++i;
	while (name[i] >= '0' && name[i] <= '9')
		i++;
	if (i == at || name[i] != '\0' || i - at > 10)
		return false;
	*ret_pid = (pid_t)pid;
	return true;
}
