/* --git: which parts of a repository are shared, and how; what is not believed; and that nothing which stands in `.git` does harm. */
#include "mount_env.h"

#include "box/git_share.h"

static char tree[160], repo[160], own[200];

static void put(const char *path, const char *text, size_t n)
{
	_cleanup_fd_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_msg(fd >= 0 && fd_write_all(fd, text, n) == 0, "%s: %s", path, strerror(errno));
}
#define PUT(path, text) put(path, text, strlen(text))

/* PROJ/tree, a linked worktree of PROJ/repo, as git makes them. */
static void worktree(void)
{
	static const char *const dirs[] = { "objects/info", "refs", "logs", "hooks", "worktrees/tree" };

	snprintf(tree, sizeof(tree), "%s/tree", proj);
	snprintf(repo, sizeof(repo), "%s/repo/.git", proj);
	snprintf(own, sizeof(own), "%s/worktrees/tree", repo);
	ck_assert_int_eq(make_dirs(tree), 0);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		ck_assert_int_eq(make_dirs(fmt("%s/%s", repo, dirs[i])), 0);
	PUT(fmt("%s/config", repo), "[core]\n");
	PUT(fmt("%s/commondir", own), "../..\n");
	PUT(fmt("%s/gitdir", own), fmt("%s/.git\n", tree));
	PUT(fmt("%s/.git", tree), fmt("gitdir: %s\n", own));
	fresh();
}

static int share(void)
{
	fresh();
	ck_assert_int_eq(workspace(tree), 0);
	return git_share(&mc, tree, &spec, &e);
}

static const struct box_mount *at(const char *dst)
{
	for (size_t i = 0; i < spec.n_mounts; i++)
		if (strcmp(spec.mounts[i].dst, dst) == 0)
			return &spec.mounts[i];
	ck_abort_msg("nothing at %s", dst);
	return NULL;
}

START_TEST(parts)
{
	worktree();
	ck_assert(git_is_linked(tree));
	ck_assert_msg(share() == 0, "%s", e.msg);
	ck_assert_msg(mount_check_all(&mc, &spec, &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(spec.n_mounts, 10);
	ck_assert(!at(repo)->rw && at(fmt("%s/objects", repo))->rw && at(fmt("%s/refs", repo))->rw && at(fmt("%s/logs", repo))->rw);
	ck_assert(!at(fmt("%s/objects/info", repo))->rw && at(own)->rw);
	ck_assert(!at(fmt("%s/commondir", own))->rw && !at(fmt("%s/gitdir", own))->rw && !at("/workspace/.git")->rw);
	/* Where the box looks for a relative one. */
	PUT(fmt("%s/.git", tree), "gitdir: ../repo/.git/worktrees/tree");
	PUT(fmt("%s/gitdir", own), "../../../../tree/.git");
	ck_assert_msg(share() == 0, "%s", e.msg);
	ck_assert_str_eq(at("/repo/.git/objects")->src, fmt("%s/objects", repo));
	ck_assert(at("/repo/.git/worktrees/tree")->rw);
}
END_TEST

START_TEST(links)
{
	static const char *const names[] = { "objects", "objects/info", "refs", "logs", "worktrees/tree/commondir", "worktrees/tree/gitdir" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[256], away[256];

		worktree();
		snprintf(path, sizeof(path), "%s/%s", repo, names[i]);
		snprintf(away, sizeof(away), "%s/away", proj);
		/* Replaced after it was looked at: what is mounted is judged again. */
		ck_assert_msg(share() == 0, "%s", e.msg);
		ck_assert_int_eq(rename(path, away), 0);
		ck_assert_int_eq(symlink(away, path), 0);
		assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
		ck_assert_msg(strstr(e.msg, "no links in a repository") && strstr(e.msg, "--git"), "%s", e.msg);
		ck_assert_int_eq(share(), -1);
		ck_assert_int_eq(unlink(path), 0);
		ck_assert_int_eq(rename(away, path), 0);
		ck_assert_msg(share() == 0, "%s", e.msg);
	}
}
END_TEST

START_TEST(not_believed)
{
	worktree();
	PUT(fmt("%s/gitdir", own), fmt("%s/elsewhere/.git", proj));
	assert_refused(share(), &e, ERR_REFUSED);
	worktree();
	PUT(fmt("%s/commondir", own), fmt("%s/evil", proj));
	assert_refused(share(), &e, ERR_REFUSED);
	worktree();
	PUT(fmt("%s/config", repo), "[extensions]\n\tworktreeconfig = true\n");
	assert_refused(share(), &e, ERR_USAGE);
	PUT(fmt("%s/config.worktree", own), "");
	ck_assert_msg(share() == 0, "%s", e.msg);
	ck_assert(!at(fmt("%s/config.worktree", own))->rw);
}
END_TEST

/* The file is a box's to write. Whatever stands in it is refused in one line, or leads to the one repository. */
START_TEST(any_text)
{
	static const char *const pieces[] = { "gitdir: ", "gitdir:", "/", "//", "..", "../", ".", "worktrees", "/worktrees/", "tree", "\n", "\r\n",
					      "\t", "\x7f", "repo/.git", "/proc/self/fd/3", "\xff", " ", "a" };
	char text[8192];
	unsigned seed = 1;

	worktree();
	for (int round = 0; round < 400; round++) {
		size_t n = 0, want = round % 50 == 0 ? sizeof(text) - 300 : 200;

		if (round % 3)
			n = (size_t)snprintf(text, sizeof(text), "gitdir: ");
		while (n < want) {
			const char *p;

			seed = seed * 1103515245 + 12345;
			if (seed >> 16 & 1 && round % 50)
				break;
			p = (seed >> 20) % 16 == 0 ? own : pieces[(seed >> 20) % (sizeof(pieces) / sizeof(pieces[0]))];
			memcpy(text + n, p, strlen(p));
			n += strlen(p);
		}
		if (round % 7 == 0)
			text[n++] = '\0';
		put(fmt("%s/.git", tree), text, n);
		if (share() < 0)
			ck_assert(e.msg[0] && (e.kind == ERR_USAGE || e.kind == ERR_REFUSED || e.kind == ERR_SYS));
		else
			ck_assert_msg(strcmp(spec.mounts[1].src, repo) == 0, "%s", spec.mounts[1].src);
	}
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, parts);
	tcase_add_test(tc, links);
	tcase_add_test(tc, not_believed);
	tcase_add_test(tc, any_text);
}

int main(void)
{
	return unit_main("git_share", fill);
}
