/* A range makes a box's ids others than the caller's, so it is given only when asked for. Root's
 * boxes have one of their own, beyond the id that all of them share (ids.c): no account has these
 * either.
 *
 * What may go wrong: limits that count by user. The supervised rung holds processes by
 * RLIMIT_NPROC, which each id of a range would have for itself; so a range needs kernel limits. */
#include "engine/range.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/idrange.h"

#define FILE_MAX 65536
#define ROOTS_RANGE 2130706432U /* 0x7f000000 */

#define CAP(name) (1ULL << CAP_##name)
/* To become another id, to give it files, and to end its processes. */
#define RANGE_CAPS                                                                                 \
	(CAP(SETUID) | CAP(SETGID) | CAP(CHOWN) | CAP(DAC_OVERRIDE) | CAP(FOWNER) | CAP(KILL))

static bool number(const char **at, char end, uint32_t *ret)
{
	char *stop;
	unsigned long v;

	if (**at < '0' || **at > '9')
		return false;
	v = strtoul(*at, &stop, 10);
	if (v >= UINT32_MAX || (*stop != end && !(end == '\n' && *stop == '\0')))
		return false;
	*at = stop + (*stop != '\0');
	*ret = (uint32_t)v;
	return true;
}

bool range_find(const char *text, const char *who, uint32_t *ret_start, uint32_t *ret_n)
{
	size_t len = strlen(who);

	for (const char *line = text; *line;) {
		const char *next = strchr(line, '\n'), *at = line + len + 1;
		uint32_t start, n;

		if (strncmp(line, who, len) == 0 && line[len] == ':' && number(&at, ':', &start) &&
		    number(&at, '\n', &n) && start > 0 && n > 0 && n < UINT32_MAX - start) {
			*ret_start = start;
			*ret_n = n;
			return true;
		}
		line = next ? next + 1 : line + strlen(line);
	}
	return false;
}

bool range_of_file(const char *file, const char *name, uint32_t id, uint32_t *ret_start,
		   uint32_t *ret_n)
{
	static char text[FILE_MAX];
	char digits[16];

	if (fd_read_file_at(AT_FDCWD, file, text, sizeof(text)) < 0)
		return false;
	snprintf(digits, sizeof(digits), "%u", id);
	return (name && *name && range_find(text, name, ret_start, ret_n)) ||
	       range_find(text, digits, ret_start, ret_n);
}

/* Does this user namespace have them? */
static bool exists(uint32_t from, uint32_t n)
{
	unsigned long long inside, outside, count;
	char map[4096], *at = map;
	int used;

	if (fd_read_file_at(AT_FDCWD, "/proc/self/uid_map", map, sizeof(map)) < 0)
		return false;
	for (; sscanf(at, "%llu %llu %llu%n", &inside, &outside, &count, &used) == 3; at += used)
		if (from >= inside && from + n <= inside + count)
			return true;
	return false;
}

static int of_root(struct box_range *ret, struct err *e)
{
	if (!exists(ROOTS_RANGE, RANGE_IDS))
		return err_set(
			e, ERR_MISSING,
			"--uid-range: root's boxes take the ids from %u on, which this container does not have: "
			"leave it out, or run cloche outside",
			ROOTS_RANGE);
	*ret = (struct box_range){ .n = RANGE_IDS, .uid = ROOTS_RANGE, .gid = ROOTS_RANGE };
	return 0;
}

static int of_caller(struct box_range *ret, struct err *e)
{
	const struct passwd *pw = getpwuid(geteuid());
	const char *name = pw ? pw->pw_name : NULL;
	uint32_t n_uids, n_gids;

	if (access(IDRANGE_UIDS, X_OK) < 0 || access(IDRANGE_GIDS, X_OK) < 0)
		return err_set(e, ERR_MISSING,
			       "--uid-range: %s and %s are not there; fix: sudo apt install uidmap",
			       IDRANGE_UIDS, IDRANGE_GIDS);
	if (!range_of_file("/etc/subuid", name, geteuid(), &ret->uid, &n_uids) ||
	    !range_of_file("/etc/subgid", name, geteuid(), &ret->gid, &n_gids))
		return err_set(
			e, ERR_MISSING,
			"--uid-range: /etc/subuid and /etc/subgid have no ids for you; fix: sudo usermod "
			"--add-subuids 100000-165535 --add-subgids 100000-165535 %s",
			name ? name : "USER");
	ret->n = n_uids < n_gids ? n_uids : n_gids;
	if (ret->n > RANGE_IDS)
		ret->n = RANGE_IDS;
	return 0;
}

int range_prepare(const struct request *r, struct box_spec *s, struct err *e)
{
	struct box_range range;

	if (!r->uid_range)
		return 0;
	if (s->profile == BOX_PROFILE_UNTRUSTED)
		return err_set(
			e, ERR_USAGE,
			"--security-profile untrusted and --uid-range contradict each other: leave one out");
	if (r->limits.supervised)
		return err_set(
			e, ERR_USAGE,
			"--supervised and --uid-range contradict each other: without the kernel's limits each "
			"id would have its own");
	if ((geteuid() == 0 ? of_root(&range, e) : of_caller(&range, e)) < 0)
		return err_at(e, STAGE_NAMESPACE);
	s->range = range;
	s->limits.require = true;
	if (r->cap_drop.n == 0)
		s->cap_keep |= RANGE_CAPS;
	return 0;
}
