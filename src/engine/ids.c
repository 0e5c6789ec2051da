/* An ordinary caller's box is the caller, whatever it is called inside: one id is mapped, and nothing else exists.
 *
 * Root's box is never root. With no capability at all a process of the host's uid 0 writes core_pattern and reads /etc/shadow: for those the kernel
 * looks at the id alone. So the box gets an id that no account has, another one for each box, above systemd's ranges (container ids end at
 * 1879048191, see UIDS-GIDS of systemd). */
#include "engine/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define OUTER_FIRST 2113929216U /* 0x7e000000 */
#define OUTER_COUNT 65536U
#define PASSWD_MAX (1 << 20)

uint32_t ids_outer(const char *map, uint32_t salt)
{
	uint32_t want = OUTER_FIRST + salt % OUTER_COUNT, best = 0;
	unsigned long long inside, outside, count;
	int used;

	while (sscanf(map, "%llu %llu %llu%n", &inside, &outside, &count, &used) == 3) {
		map += used;
		if (want >= inside && want < inside + count)
			return want;
		if (count > 1 && inside + count - 1 <= UINT32_MAX)
			best = (uint32_t)(inside + count - 1);
		else if (inside != 0 && count == 1 && inside <= UINT32_MAX)
			best = (uint32_t)inside;
	}
	return best;
}

static int outer(struct box_spec *s, struct err *e)
{
	char map[4096];

	s->outer_uid = geteuid();
	s->outer_gid = getegid();
	if (s->outer_uid != 0)
		return 0;
	if (fd_read_file_at(AT_FDCWD, "/proc/self/uid_map", map, sizeof(map)) < 0)
		return err_sys(e, "read /proc/self/uid_map");
	s->outer_uid = ids_outer(map, (uint32_t)getpid());
	if (fd_read_file_at(AT_FDCWD, "/proc/self/gid_map", map, sizeof(map)) < 0)
		return err_sys(e, "read /proc/self/gid_map");
	s->outer_gid = ids_outer(map, (uint32_t)getpid());
	/* Root of a user namespace with a single id is no root of the host, but an ordinary caller under that name. */
	if (s->outer_uid == 0 || s->outer_gid == 0)
		s->outer_uid = s->outer_gid = 0;
	return 0;
}

/* Finds "name:" in a passwd file of a root file system. */
static int passwd_find(const char *text, const char *name, uid_t *uid, gid_t *gid, char *home, size_t cap)
{
	size_t n = strlen(name);

	for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		unsigned u, g;
		int at = 0;

		if (strncmp(line, name, n) != 0 || line[n] != ':')
			continue;
		line = strchr(line + n + 1, ':');
		if (!line || sscanf(line, ":%u:%u:%*[^:\n]:%n", &u, &g, &at) < 2)
			return -1;
		*uid = u;
		*gid = g;
		if (at > 0 && line[at] == '/' && strcspn(line + at, ":\n") < cap)
			snprintf(home, cap, "%.*s", (int)strcspn(line + at, ":\n"), line + at);
		return 0;
	}
	return -1;
}

static int user_of_rootfs(struct box_spec *s, const char *name, char *home, size_t cap, struct err *e)
{
	_cleanup_fd_ int root = mount_open_checked(s->root_check), file = -1;
	char *text = malloc(PASSWD_MAX), path[64];
	ssize_t n = -1;
	int r = -1;

	if (root >= 0 && text)
		file = path_open_in_root(root, "etc/passwd", O_CLOEXEC);
	if (file >= 0) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
		n = fd_read_file_at(AT_FDCWD, path, text, PASSWD_MAX);
	}
	if (n >= 0)
		r = passwd_find(text, name, &s->uid, &s->gid, home, cap);
	free(text);
	return r < 0 ? err_set(e, ERR_USAGE, "--user %s: no such user in %s; give UID or UID:GID", name, s->root.name) : 0;
}

static int user_number(struct box_spec *s, const char *text, struct err *e)
{
	unsigned long uid, gid;
	char *end;

	uid = strtoul(text, &end, 10);
	gid = uid;
	if (*end == ':' && end[1] >= '0' && end[1] <= '9')
		gid = strtoul(end + 1, &end, 10);
	if (*end != '\0' || strlen(text) > 21 || uid > UINT32_MAX - 2 || gid > UINT32_MAX - 2)
		return err_set(e, ERR_USAGE, "--user %s: give NAME, UID or UID:GID, ids from 0 to %u", text, UINT32_MAX - 2);
	s->uid = (uid_t)uid;
	s->gid = (gid_t)gid;
	return 0;
}

int ids_prepare(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;
	bool dir = s->root.kind == ROOTFS_DIR;
	char home[256] = "";

	s->uid = s->gid = dir ? 0 : 1000;
	if (r->user && r->user[0] >= '0' && r->user[0] <= '9') {
		if (user_number(s, r->user, e) < 0)
			return -1;
	} else if (r->user && dir) {
		if (user_of_rootfs(s, r->user, home, sizeof(home), e) < 0)
			return -1;
	} else if (r->user && image_host_user(r->user, &s->uid, &s->gid) < 0) {
		return err_set(e, ERR_USAGE, "--user %s: the host image has root, user and nobody; or give UID or UID:GID", r->user);
	}
	if (home[0])
		s->home = strdup(home);
	if (!s->home)
		s->home = dir ? (s->uid ? "/home/user" : "/root") : image_host_home(s->uid);
	return outer(s, e);
}
