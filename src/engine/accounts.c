#include "engine/accounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "box/mount_check.h"

#define FILE_MAX (1 << 20)

int account_id(const char **text, uint32_t *ret)
{
	unsigned long v;
	char *end;

	if (**text < '0' || **text > '9')
		return -1;
	errno = 0;
	v = strtoul(*text, &end, 10);
	if (errno != 0 || v > ACCOUNT_ID_MAX)
		return -1;
	*text = end;
	*ret = (uint32_t)v;
	return 0;
}

/* Field `n` of a line, counted from 0, or NULL. */
static const char *field(const char *line, unsigned n)
{
	for (; n > 0; n--) {
		line += strcspn(line, ":\n");
		if (*line++ != ':')
			return NULL;
	}
	return line;
}

static void copy_field(char *dst, size_t cap, const char *from)
{
	int n = from ? (int)strcspn(from, ":\n") : 0;

	snprintf(dst, cap, "%.*s", (size_t)n < cap ? n : 0, from ? from : "");
}

/* A whole line of passwd(5). */
static int read_line(const char *line, struct account *ret)
{
	const char *u = field(line, 2), *g = field(line, 3), *dir = field(line, 5);
	uint32_t id, group;

	if (!u || account_id(&u, &id) < 0 || *u != ':' || !g || account_id(&g, &group) < 0 ||
	    *g != ':')
		return -1;
	ret->uid = id;
	ret->gid = group;
	copy_field(ret->name, sizeof(ret->name), line);
	copy_field(ret->home, sizeof(ret->home), dir && *dir == '/' ? dir : NULL);
	return 0;
}

static const char *next_line(const char *line)
{
	line += strcspn(line, "\n");
	return line + (*line == '\n');
}

/* Is the first field of the line this? */
static bool is_called(const char *line, const char *name)
{
	size_t n = strlen(name);

	return strcspn(line, ":\n") == n && strncmp(line, name, n) == 0;
}

int account_by_name(const char *passwd, const char *name, struct account *ret)
{
	for (const char *line = passwd; *line; line = next_line(line))
		if (is_called(line, name))
			return read_line(line, ret);
	return -1;
}

int account_by_id(const char *passwd, uid_t uid, struct account *ret)
{
	struct account a;

	for (const char *line = passwd; *line; line = next_line(line))
		if (read_line(line, &a) == 0 && a.uid == uid) {
			*ret = a;
			return 0;
		}
	return -1;
}

int account_group(const char *group, const char *name, gid_t *ret)
{
	for (const char *line = group; *line; line = next_line(line)) {
		const char *g = field(line, 2);
		uint32_t id;

		if (!is_called(line, name))
			continue;
		if (!g || account_id(&g, &id) < 0 || (*g != ':' && *g != '\n' && *g != '\0'))
			return -1;
		*ret = id;
		return 0;
	}
	return -1;
}

/* Opened by a descriptor that was looked at: to open a device for reading may do something (a
 * watchdog starts to count). The text, to be freed; "" when there is none to be read. */
static char *read_text(const struct box_spec *s, const char *path)
{
	_cleanup_fd_ int root = -1, file = -1;
	char link[64], *text = NULL;
	struct stat st;

	if (s->root.kind == ROOTFS_LAYERS) {
		file = layers_open(&s->root.layers, path);
	} else {
		root = mount_open_checked(s->root_check);
		file = root < 0 ? -1 : path_open_in_root(root, path, O_CLOEXEC);
	}
	if (file >= 0 && fstat(file, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < FILE_MAX) {
		size_t cap = (size_t)st.st_size + 2;

		snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
		text = malloc(cap);
		if (text && fd_read_file_at(AT_FDCWD, link, text, cap) < 0)
			text[0] = '\0';
	}
	return text ? text : strdup("");
}

/* "12", and nothing behind it. */
static bool is_id(const char *text, uint32_t *ret)
{
	return account_id(&text, ret) == 0 && *text == '\0';
}

static int find_user(const struct box_spec *s, const char *user, bool lookup, struct account *a,
		     struct err *e)
{
	char *passwd;
	uint32_t id;
	int r = -1;

	if (is_id(user, &id)) {
		a->uid = id;
		a->gid = lookup ? 0 : id;
		passwd = lookup ? read_text(s, "etc/passwd") : NULL;
		if (passwd)
			(void)account_by_id(passwd, id, a);
		free(passwd);
		return 0;
	}
	passwd = *user >= '0' && *user <= '9' ? NULL : read_text(s, "etc/passwd");
	if (passwd)
		r = account_by_name(passwd, user, a);
	free(passwd);
	return r == 0 ? 0
		      : err_set(e, ERR_USAGE, "no such user in %.200s; give UID or UID:GID",
				s->root.name);
}

static int find_group(const struct box_spec *s, const char *group, gid_t *ret, struct err *e)
{
	char *text;
	uint32_t id;
	int r = -1;

	if (is_id(group, &id)) {
		*ret = id;
		return 0;
	}
	text = *group >= '0' && *group <= '9' ? NULL : read_text(s, "etc/group");
	if (text)
		r = account_group(text, group, ret);
	free(text);
	return r == 0 ? 0
		      : err_set(e, ERR_USAGE, "no such group in %.200s; give UID:GID",
				s->root.name);
}

int account_find(const struct box_spec *s, const char *user, bool lookup, struct account *ret,
		 struct err *e)
{
	const char *colon = strchr(user, ':');
	struct account a = { 0 };
	char name[256];

	copy_field(name, sizeof(name), user);
	if (find_user(s, name, lookup, &a, e) < 0 ||
	    (colon && find_group(s, colon + 1, &a.gid, e) < 0))
		return -1;
	*ret = a;
	return 0;
}
