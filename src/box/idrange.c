#include "box/idrange.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

size_t idrange_lines(uint32_t own, uint32_t outer, uint32_t from, uint32_t n,
		     struct idrange_line ret[3])
{
	uint32_t below = own < n ? own : n, above = own < n ? n - own - 1 : 0;
	size_t k = 0;

	if (below > 0)
		ret[k++] = (struct idrange_line){ 0, from, below };
	ret[k++] = (struct idrange_line){ own, outer, 1 };
	if (above > 0)
		ret[k++] = (struct idrange_line){ own + 1, from + own + 1, above };
	return k;
}

static int by_root(const char *file, pid_t pid, const struct idrange_line *l, size_t n,
		   struct err *e)
{
	char path[64], text[256];
	size_t at = 0;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	for (size_t i = 0; i < n; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%u %u %u\n", l[i].inside,
				       l[i].outside, l[i].count);
	return fd_write_file_at(AT_FDCWD, path, text) < 0 ? err_sys(e, "write the box's %s", file)
							  : 0;
}

/* Its own complaint would be a second line beside ours. */
static int run(const char *program, char *const argv[])
{
	char path[] = "PATH=/usr/bin:/bin", *const env[] = { path, NULL };
	posix_spawn_file_actions_t quiet;
	int status = 0, r;
	pid_t pid;

	r = posix_spawn_file_actions_init(&quiet);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY,
						     0);
	if (r == 0)
		r = posix_spawn(&pid, program, &quiet, NULL, argv, env);
	posix_spawn_file_actions_destroy(&quiet);
	if (r != 0)
		return -1;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static int by_helper(const char *program, const char *file, pid_t pid, const struct idrange_line *l,
		     size_t n, struct err *e)
{
	char words[11][16], *argv[12];
	size_t k = 0;

	snprintf(words[k++], sizeof(words[0]), "%s", strrchr(program, '/') + 1);
	snprintf(words[k++], sizeof(words[0]), "%d", (int)pid);
	for (size_t i = 0; i < n; i++) {
		snprintf(words[k++], sizeof(words[0]), "%u", l[i].inside);
		snprintf(words[k++], sizeof(words[0]), "%u", l[i].outside);
		snprintf(words[k++], sizeof(words[0]), "%u", l[i].count);
	}
	for (size_t i = 0; i < k; i++)
		argv[i] = words[i];
	argv[k] = NULL;
	if (run(program, argv) == 0)
		return 0;
	return err_set(
		e, ERR_MISSING,
		"%s maps nothing of your rows in %s; fix: an account of yours in /etc/passwd, and sudo chmod u+s %s",
		program, file, program);
}

int idrange_map(const struct box_spec *s, pid_t pid, struct err *e)
{
	struct idrange_line uids[3], gids[3];
	size_t n_uids = idrange_lines(s->uid, s->outer_uid, s->range.uid, s->range.n, uids);
	size_t n_gids = idrange_lines(s->gid, s->outer_gid, s->range.gid, s->range.n, gids);
	int r;

	if (geteuid() == 0)
		r = by_root("uid_map", pid, uids, n_uids, e) < 0 ||
		    by_root("gid_map", pid, gids, n_gids, e) < 0;
	else
		r = by_helper(IDRANGE_UIDS, "/etc/subuid", pid, uids, n_uids, e) < 0 ||
		    by_helper(IDRANGE_GIDS, "/etc/subgid", pid, gids, n_gids, e) < 0;
	return r ? err_at(e, STAGE_NAMESPACE) : 0;
}
