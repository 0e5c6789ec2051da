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
#include "engine/accounts.h"
#include "engine/env.h"

#define OUTER_ID 2113929216U /* 0x7e000000 */
#define ID_MAX ACCOUNT_ID_MAX

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

int ids_outside(uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[4096];

	if (uid == 0) {
		if (fd_read_file_at(AT_FDCWD, "/proc/self/uid_map", map, sizeof(map)) < 0)
			return err_proc(e, "/proc/self/uid_map");
		uid = ids_outer(map);
		if (fd_read_file_at(AT_FDCWD, "/proc/self/gid_map", map, sizeof(map)) < 0)
			return err_proc(e, "/proc/self/gid_map");
		gid = ids_outer(map);
		/* Root of a user namespace with a single id is no root of the host, but an ordinary
		 * caller under that name. */
		if (uid == 0 || gid == 0)
			uid = gid = 0;
	}
	*ret_uid = uid;
	*ret_gid = gid;
	return 0;
}

/* "UID[:GID]" of the host image. */
static int user_number(struct box_spec *s, const char *text, struct err *e)
{
	const char *at = text;
	uint32_t uid = 0, gid = 0;
	bool bad = account_id(&at, &uid) < 0;

	gid = uid;
	if (!bad && *at == ':') {
		at++;
		bad = account_id(&at, &gid) < 0;
	}
	if (bad || *at != '\0')
		return err_set(e, ERR_USAGE,
			       "--user %.60s: give NAME, UID or UID:GID, ids from 0 to %u", text,
			       ACCOUNT_ID_MAX);
	s->uid = (uid_t)uid;
	s->gid = (gid_t)gid;
	return 0;
}

static int user_of_host(const struct request *r, struct box_spec *s, struct err *e)
{
	s->uid = s->gid = 1000;
	if (r->user && r->user[0] >= '0' && r->user[0] <= '9')
		return user_number(s, r->user, e);
	if (r->user && image_host_user(r->user, &s->uid, &s->gid) < 0)
		return err_set(
			e, ERR_USAGE,
			"--user %.60s: the host image has root, user and nobody; or give UID or UID:GID",
			r->user);
	return 0;
}

/* Of a root with accounts of its own. */
static int user_of_root(const struct request *r, struct prepared *p, struct account *a,
			struct err *e)
{
	struct box_spec *s = &p->spec;
	bool image = s->root.kind == ROOTFS_LAYERS;
	const char *user = r->user;

	if (!user && image)
		user = p->image.record.user;
	if (!user || !*user)
		user = "0";
	if (account_find(s, user, image, a, e) == 0) {
		s->uid = a->uid;
		s->gid = a->gid;
		return 0;
	}
	if (r->user)
		return err_prefix(e, "--user %.60s", user);
	e->kind = ERR_MISSING;
	err_prefix(e, "the image says USER %.60s (--user takes its place)", user);
	return err_at(e, STAGE_IMAGE);
}

/* What is no plain path is no home. */
static const char *home_of(const char *dir, char clean[4096])
{
	struct err odd;

	return dir && *dir && path_normalise(dir, clean, &odd) == 0 ? clean : NULL;
}

int ids_prepare(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;
	struct account a = { 0 };
	char clean[4096];

	if (s->root.kind == ROOTFS_HOST) {
		if (user_of_host(r, s, e) < 0)
			return -1;
		s->home = image_host_home(s->uid);
		return ids_outside(&s->outer_uid, &s->outer_gid, e);
	}
	if (user_of_root(r, p, &a, e) < 0)
		return -1;
	snprintf(p->user, sizeof(p->user), "%s", a.name);
	s->home = home_of(image_env(&p->image, "HOME"), clean);
	if (!s->home)
		s->home = home_of(a.home, clean);
	/* Many an image has accounts without a home there, and what they keep goes nowhere. */
	if (s->home && s->root.kind == ROOTFS_LAYERS && !s->home[1])
		s->home = NULL;
	s->home = s->home ? env_keep(p, s->home) : s->uid ? "/home/user" : "/root";
	return ids_outside(&s->outer_uid, &s->outer_gid, e);
}
