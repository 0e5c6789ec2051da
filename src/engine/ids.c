/* An ordinary caller's box is the caller, whatever it is called inside: one id is mapped, and
 * nothing else exists.
 *
 * Root's box is never root. With no capability at all a process of the host's uid 0 writes
 * core_pattern and reads /etc/shadow: for those the kernel looks at the id alone. So the box gets
 * an id that no account has, above systemd's ranges (container ids end at 1879048191, see UIDS-GIDS
 * of systemd). All of root's boxes share it, as all of a user's boxes share the user's. */
#include "engine/ids.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define OUTER_ID 2113929216U /* 0x7e000000 */
#define PASSWD_MAX (1 << 20)
#define ID_MAX (UINT32_MAX - 2)

uint32_t ids_outer(const char *map)
{
	uint32_t want = OUTER_ID, best = 0;
	unsigned long long inside, outside, count;
	int used;

	while (sscanf(map, "%llu %llu %llu%n", &inside, &outside, &count, &used) == 3) {
		map += used;
		if (inside > UINT32_MAX || count > UINT32_MAX) /* not the kernel's words */
			break;
		if (want >= inside && want < inside + count)
			return want;
		if (count > 0 && inside + count - 1 <= ID_MAX && inside + count - 1 > 0)
			best = (uint32_t)(inside + count - 1);
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
		return err_proc(e, "/proc/self/uid_map");
	s->outer_uid = ids_outer(map);
	if (fd_read_file_at(AT_FDCWD, "/proc/self/gid_map", map, sizeof(map)) < 0)
		return err_proc(e, "/proc/self/gid_map");
	s->outer_gid = ids_outer(map);
	/* Root of a user namespace with a single id is no root of the host, but an ordinary caller
	 * under that name. */
	if (s->outer_uid == 0 || s->outer_gid == 0)
		s->outer_uid = s->outer_gid = 0;
	return 0;
}

/* An id as passwd(5) and --user have it: decimal, and not the two highest, which the kernel keeps
 * for itself. Moves *text on. */
static int id_read(const char **text, uint32_t *ret)
{
	unsigned long v;
	char *end;

	if (**text < '0' || **text > '9')
		return -1;
	errno = 0;
	v = strtoul(*text, &end, 10);
	if (errno != 0 || v > ID_MAX)
		return -1;
	*text = end;
	*ret = (uint32_t)v;
	return 0;
}

/* Field `n` of a line of passwd(5), counted from 0, or NULL. */
static const char *passwd_field(const char *line, unsigned n)
{
	for (; n > 0; n--) {
		line += strcspn(line, ":\n");
		if (*line++ != ':')
			return NULL;
	}
	return line;
}

int ids_passwd(const char *text, const char *name, uid_t *uid, gid_t *gid, char *home, size_t cap)
{
	size_t n = strlen(name);

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *u = passwd_field(line, 2), *g = passwd_field(line, 3),
			   *dir = passwd_field(line, 5);
		uint32_t id, group;

		if (strcspn(line, ":\n") != n || strncmp(line, name, n) != 0)
			continue;
		if (!u || id_read(&u, &id) < 0 || *u != ':' || !g || id_read(&g, &group) < 0 ||
		    *g != ':')
			return -1;
		*uid = id;
		*gid = group;
		if (dir && *dir == '/' && strcspn(dir, ":\n") < cap)
			snprintf(home, cap, "%.*s", (int)strcspn(dir, ":\n"), dir);
		return 0;
	}
	return -1;
}

static int user_of_rootfs(struct box_spec *s, const char *name, char *home, size_t cap,
			  struct err *e)
{
	_cleanup_fd_ int root = mount_open_checked(s->root_check), file = -1;
	char *text = malloc(PASSWD_MAX), path[64];
	struct stat st;
	ssize_t n = -1;
	int r = -1;

	if (root >= 0 && text)
		file = path_open_in_root(root, "etc/passwd", O_CLOEXEC);
	/* Nothing but a file is opened for reading: to open a device may do something (a watchdog
	 * starts to count). */
	if (file >= 0 && fstat(file, &st) == 0 && S_ISREG(st.st_mode)) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
		n = fd_read_file_at(AT_FDCWD, path, text, PASSWD_MAX);
	}
	if (n >= 0)
		r = ids_passwd(text, name, &s->uid, &s->gid, home, cap);
	free(text);
	return r < 0 ? err_set(e, ERR_USAGE,
			       "--user %.60s: no such user in %.200s; give UID or UID:GID", name,
			       s->root.name)
		     : 0;
}

static int user_number(struct box_spec *s, const char *text, struct err *e)
{
	const char *at = text;
	uint32_t uid = 0, gid = 0;
	bool bad = id_read(&at, &uid) < 0;

	gid = uid;
	if (!bad && *at == ':') {
		at++;
		bad = id_read(&at, &gid) < 0;
	}
	if (bad || *at != '\0')
		return err_set(e, ERR_USAGE,
			       "--user %.60s: give NAME, UID or UID:GID, ids from 0 to %u", text,
			       ID_MAX);
	s->uid = (uid_t)uid;
	s->gid = (gid_t)gid;
	return 0;
}

int ids_prepare(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;
	bool dir = s->root.kind == ROOTFS_DIR;
	char home[256] = "", clean[4096];
	struct err odd; /* a home that is no plain path is no home */

	s->uid = s->gid = dir ? 0 : 1000;
	if (r->user && r->user[0] >= '0' && r->user[0] <= '9') {
		if (user_number(s, r->user, e) < 0)
			return -1;
	} else if (r->user && dir) {
		if (user_of_rootfs(s, r->user, home, sizeof(home), e) < 0)
			return -1;
	} else if (r->user && image_host_user(r->user, &s->uid, &s->gid) < 0) {
		return err_set(
			e, ERR_USAGE,
			"--user %.60s: the host image has root, user and nobody; or give UID or UID:GID",
			r->user);
	}
	if (home[0] && path_normalise(home, clean, &odd) == 0)
		s->home = strdup(clean);
	if (!s->home)
		s->home = dir ? (s->uid ? "/home/user" : "/root") : image_host_home(s->uid);
	return outer(s, e);
}
