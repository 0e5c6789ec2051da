/* Where cgroups are, from the texts of /proc/self/cgroup and /proc/self/mountinfo: what both
 * versions have in common.
 *
 * /proc/self/cgroup names the caller's groups, relative to the root of its cgroup namespace; a line
 * of /proc/self/mountinfo shows a part of a hierarchy (field 4, relative to the same root) at a
 * place (field 5). Both together give a directory. What may go wrong: a group outside the namespace
 * ("/../.."), a mount that shows another branch (a container's own group bound over
 * /sys/fs/cgroup), names with escaped spaces. Such a group stays without a path. The texts are the
 * kernel's, yet names in them are anybody's: every length is checked. */
#include "box/limits_rungs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

bool cg_list_has(const char *list, size_t n, const char *word)
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

bool cg_map_path(const char *group, const char *root, const char *point, char ret[CG_PATH_MAX])
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
	if (p + rest >= CG_PATH_MAX)
		return false;
	memcpy(ret, point, p);
	memcpy(ret + p, group, rest + 1);
	return true;
}

bool cg_parse_mount(const char *line, size_t n, struct cg_mount *ret)
{
	const char *id, *f, *root, *point, *type, *source, *opts;
	size_t id_n, f_n, root_n, point_n, type_n, source_n, opts_n;

	if (!field(&line, &n, &id, &id_n) || !field(&line, &n, &f, &f_n) ||
	    !field(&line, &n, &f, &f_n) || !field(&line, &n, &root, &root_n) ||
	    !field(&line, &n, &point, &point_n) || !field(&line, &n, &f, &f_n))
		return false;
	do {
		/* optional fields, ended by a lone dash */
		if (!field(&line, &n, &f, &f_n))
			return false;
	} while (f_n != 1 || f[0] != '-');
	if (!field(&line, &n, &type, &type_n) || !field(&line, &n, &source, &source_n) ||
	    !field(&line, &n, &opts, &opts_n))
		return false;
	ret->version = 0;
	if (type_n == 6 && memcmp(type, "cgroup", 6) == 0)
		ret->version = 1;
	if (type_n == 7 && memcmp(type, "cgroup2", 7) == 0)
		ret->version = 2;
	if (ret->version == 0)
		return false;
	ret->id = 0;
	for (size_t i = 0; i < id_n && id[i] >= '0' && id[i] <= '9'; i++)
		ret->id = ret->id * 10 + (unsigned)(id[i] - '0');
	ret->opts = opts;
	ret->opts_n = opts_n;
	return unescape(root, root_n, ret->root, sizeof(ret->root)) && ret->root[0] == '/' &&
	       unescape(point, point_n, ret->point, sizeof(ret->point)) && ret->point[0] == '/';
}

/* Feeds mountinfo line by line through a buffer, no further than needed: the file of a busy host
 * has hundreds of kilobytes. Static: on the stack all of it would be cleared, and
 * stay in memory as long as the box. */
int cg_each_mount(void (*each)(void *ctx, const char *line, size_t n),
		  bool (*done)(const void *ctx), void *ctx)
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
				each(ctx, line, (size_t)(end - line));
			skip = false;
			have -= (size_t)(end + 1 - line);
			line = end + 1;
		}
		if (done(ctx))
			return 0;
		if (have == sizeof(buf)) { /* a line longer than any of ours can be */
			skip = true;
			have = 0;
		}
		memmove(buf, line, have);
	}
}

const char *cg_own_groups(bool anew, size_t *ret_n, struct err *e)
{
	static char text[8192];
	static ssize_t n = -1;

	if (anew || n < 0)
		n = fd_read_file_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text));
	if (n < 0) {
		err_sys(e, "reading /proc/self/cgroup");
		return NULL;
	}
	*ret_n = (size_t)n;
	return text;
}
