/* Fuzzes --git: the `.git` of a worktree, which a box can write, and the files of the repository that must name it in turn. Whatever they hold:
 * a refusal in one printable line, or mounts that lie in the one repository there is, each at a normalised target, none outside of it.
 *
 * Input: three texts separated by NUL bytes: .git, gitdir, commondir; "@" stands for the directory that all lies in. tools/fuzz builds and runs it. */
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "box/git_share.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char base[] = "/tmp/fuzz-git-XXXXXX";
static char work[64], repo[64];

static const char *const dirs[] = { "w", "repo", "repo/objects", "repo/objects/info", "repo/refs", "repo/logs", "repo/worktrees", "repo/worktrees/w" };
static const char *const files[] = { "repo/worktrees/w/commondir", "repo/worktrees/w/gitdir", "repo/config", "w/.git" };

static void tidy(void)
{
	char path[128];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", base, files[i]);
		unlink(path);
	}
	for (size_t i = sizeof(dirs) / sizeof(dirs[0]); i > 0; i--) {
		snprintf(path, sizeof(path), "%s/%s", base, dirs[i - 1]);
		rmdir(path);
	}
	rmdir(base);
}

static void write_file(const char *name, const char *text, size_t n)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", base, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	if (fd < 0)
		abort();
	for (size_t i = 0; i < n; i++)
		if (text[i] == '@' ? write(fd, base, strlen(base)) < 0 : write(fd, text + i, 1) < 0)
			abort();
	close(fd);
}

static void prepare(void)
{
	char path[128];

	if (!mkdtemp(base))
		abort();
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", base, dirs[i]);
		if (mkdir(path, 0700) < 0)
			abort();
	}
	snprintf(work, sizeof(work), "%s/w", base);
	snprintf(repo, sizeof(repo), "%s/repo", base);
	write_file("repo/config", "[core]\n", 7);
	atexit(tidy);
}

static void judge(const struct box_spec *s)
{
	char again[PATH_MAX];
	struct err e;

	for (size_t i = 0; i < s->n_mounts; i++) {
		const struct box_mount *m = &s->mounts[i];
		size_t n = strlen(repo);
		bool own = strncmp(m->src, repo, n) == 0 && (m->src[n] == '/' || !m->src[n]);

		if (!own && (strncmp(m->src, work, strlen(work)) != 0 || strcmp(m->src + strlen(work), "/.git") != 0 || m->rw))
			abort();
		if (!m->git || path_normalise(m->dst, again, &e) < 0 || strcmp(m->dst, again) != 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct mount_check mc;
	static struct box_spec spec;
	const char *names[] = { "w/.git", "repo/worktrees/w/gitdir", "repo/worktrees/w/commondir" };
	const char *at = (const char *)data, *end = at + size;
	struct err e = { 0 };

	if (!work[0])
		prepare();
	if (size > 16384)
		return 0;
	for (int i = 0; i < 3; i++) {
		const char *nul = at < end ? memchr(at, 0, (size_t)(end - at)) : NULL;
		const char *stop = nul ? nul : end;

		write_file(names[i], at, (size_t)(stop - at));
		at = nul ? nul + 1 : end;
	}
	spec.n_mounts = 0;
	if (mount_check_init(&mc, &e) < 0)
		abort();
	if (git_share(&mc, work, &spec, &e) == 0) {
		judge(&spec);
	} else {
		if (e.kind == ERR_NONE || !e.msg[0])
			abort();
		for (const char *p = e.msg; *p; p++)
			if ((unsigned char)*p < 0x20 || *p == 0x7f)
				abort();
	}
	mount_check_free(&mc);
	return 0;
}
