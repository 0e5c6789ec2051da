/* Which host paths are refused. The table is walked row by row: each row refuses what it names, and a neighbour with nearly the same name
 * passes, so that a refusal is never a failure of something else. */
#include "mount_env.h"

/* EXACT and BELOW name paths of the host: matched by name here, and by the whole check where they exist. */
static void walk_absolute(const struct mount_rule *r)
{
	const struct mount_rule *got = mount_rules_path(&mc.rules, r->pattern, true);
	struct stat st;

	/* /etc has two rows: never itself, and nothing below it read-write. */
	ck_assert_msg(got && (got->class == r->class || !mount_class_rw_only(got->class)), "%s: %s", r->pattern, got ? got->pattern : "passed");
	got = mount_rules_path(&mc.rules, fmt("%s%s", r->pattern, r->pattern[1] ? "/x" : "x"), true);
	ck_assert_msg(r->kind == RULE_BELOW ? got && got->class == r->class : got != r, "below %s", r->pattern);
	ck_assert_msg(mount_rules_path(&mc.rules, fmt("%sx", r->pattern), true) != r, "%sx is not %s", r->pattern, r->pattern);
	if (mount_class_rw_only(r->class))
		ck_assert_msg(mount_rules_path(&mc.rules, r->pattern, false) != r, "%s, read-only", r->pattern);
	if (r->except) {
		ck_assert_ptr_null(mount_rules_path(&mc.rules, fmt("%s/x", r->except), true));
		ck_assert_ptr_eq(mount_rules_path(&mc.rules, r->except, true), r);
		ck_assert_ptr_eq(mount_rules_path(&mc.rules, fmt("%sx", r->except), true), r);
	}
	if (stat(r->pattern, &st) == 0)
		refused(r->pattern, true, "refused by the rule");
}

static void walk_names(const struct mount_rule *r)
{
	const char *bases[] = { home, proj };
	char path[512], class[64];

	snprintf(class, sizeof(class), "(%s)", mount_class_name(r->class));
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", bases[i], r->pattern);
		ck_assert_int_eq(make_dirs(path), 0);
		make_file(fmt("%s/below", path));
		make_file(fmt("%sx", path));
		refused(path, false, class);
		refused(fmt("%s/below", path), false, class);
		refused(fmt("%s/../%s", path, strrchr(path, '/') + 1), false, class);
		passes(fmt("%sx", path), false);
		ck_assert_int_eq(symlink(path, fmt("%s/innocent", dir)), 0);
		refused(fmt("%s/innocent", dir), false, class);
		refused(fmt("%s/innocent/below", dir), false, class);
		unlink(fmt("%s/innocent", dir));
		remove_all(path);
	}
	/* A link of that name, wherever it leads, by its spelling and from the other side. */
	make_file(fmt("%s/elsewhere", dir));
	snprintf(path, sizeof(path), "%s/%s", home, r->pattern);
	ck_assert_int_eq(symlink(fmt("%s/elsewhere", dir), path), 0);
	refused(path, false, class);
	refused(fmt("%s/elsewhere", dir), false, class);
	unlink(path);
	passes(fmt("%s/elsewhere", dir), true);
}

/* A directory on the way to the names is refused only while it holds the rest. */
static void walk_holder(const struct mount_rule *r)
{
	char top[512], path[512];
	const char *slash = strchr(r->pattern, '/');

	if (!slash)
		return;
	snprintf(top, sizeof(top), "%s/o/%.*s", dir, (int)(slash - r->pattern), r->pattern);
	snprintf(path, sizeof(path), "%s/o/%s", dir, r->pattern);
	ck_assert_int_eq(make_dirs(path), 0);
	refused(top, false, "refused by the rule");
	remove_all(path);
	make_file(fmt("%sx", path));
	passes(top, true);
	remove_all(fmt("%s/o", dir));
}

static void walk_home(const struct mount_rule *r)
{
	char path[512];
	bool ro_too = !mount_class_rw_only(r->class);

	snprintf(path, sizeof(path), "%s/%s", home, r->pattern);
	ck_assert_int_eq(make_dirs(path), 0);
	make_file(fmt("%s/below", path));
	ck_assert_int_eq(make_dirs(fmt("%sx", path)), 0);
	refused(path, true, mount_class_name(r->class));
	refused(fmt("%s/below", path), true, mount_class_name(r->class));
	passes(fmt("%sx", path), true);
	if (ro_too)
		refused(path, false, mount_class_name(r->class));
	else
		passes(path, false);
	ck_assert_int_eq(make_dirs(fmt("%s/%s", proj, r->pattern)), 0);
	passes(fmt("%s/%s", proj, r->pattern), true);
	remove_all(path);
	remove_all(fmt("%sx", path));
}

static void walk_env(const struct mount_rule *r)
{
	make_file(fmt("%s/named/by", proj));
	make_file(fmt("%s/named/by2", proj));
	passes(fmt("%s/named/by", proj), false);
	setenv(r->pattern, fmt("%s/none:%s/named/by", proj, proj), 1);
	refused(fmt("%s/named/by", proj), false, mount_class_name(r->class));
	refused(fmt("%s/named/../named/by", proj), false, r->pattern);
	passes(fmt("%s/named/by2", proj), false);
	setenv(r->pattern, fmt("%s/named", proj), 1);
	refused(fmt("%s/named/by", proj), false, mount_class_name(r->class));
	unsetenv(r->pattern);
}

START_TEST(every_rule_refuses_and_its_neighbour_passes)
{
	unsigned walked[RULE_KIND_N] = { 0 };

	for (size_t i = 0; i < mount_rules_n; i++) {
		const struct mount_rule *r = &mount_rules[i];

		walked[r->kind]++;
		if (r->kind == RULE_EXACT || r->kind == RULE_BELOW) {
			walk_absolute(r);
		} else if (r->kind == RULE_NAMES) {
			walk_names(r);
			walk_holder(r);
		} else if (r->kind == RULE_IN_HOME) {
			walk_home(r);
		} else if (r->kind == RULE_ENV) {
			walk_env(r);
		}
	}
	for (size_t i = 0; i < RULE_KIND_N; i++)
		ck_assert_uint_gt(walked[i], 0);
	/* The matcher's shortcut counts on it. */
	for (size_t i = 0; i < mount_rules_n; i++)
		if (mount_rules[i].kind == RULE_NAMES && strchr(mount_rules[i].pattern, '/'))
			ck_assert_int_eq(mount_rules[i].pattern[0], '.');
}
END_TEST

START_TEST(every_class_has_name_and_advice)
{
	for (int i = 0; i < CLASS_N; i++) {
		ck_assert_ptr_nonnull(mount_class_name(i));
		ck_assert(strstr(mount_class_advice(i), "option") || strstr(mount_class_advice(i), ":ro"));
	}
}
END_TEST

/* What is made for boxes, and nothing around it. */
START_TEST(temporary_workspaces)
{
	static const char *const others[] = { "owner-1-2.0", "owner-1-2.0/workspace-3/x", "owner-1-2.0/workspace-", "owner-1-2.0/workspace-x",
					      "owner-1-2.0/other", "workspace-3", "x/owner-1-2.0/workspace-3", "xowner-1-2.0/workspace-3" };
	char at[512];

	snprintf(at, sizeof(at), "%s/cloche/owner-1-2.0/workspace-3", runtime);
	ck_assert_int_eq(make_dirs(at), 0);
	passes(at, true);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		snprintf(at, sizeof(at), "%s/cloche/%s", runtime, others[i]);
		ck_assert_int_eq(make_dirs(at), 0);
		refused(at, false, "cloche's own state");
	}
}
END_TEST

START_TEST(places)
{
	char state[256], other[256];

	snprintf(state, sizeof(state), "%s/.local/share/cloche", home);
	refused(home, false, "the home directory");
	refused(fmt("%s/h", dir), false, "the home directory");
	refused(dir, false, "the home directory");
	passes(proj, true);
	ck_assert_int_eq(make_dirs(fmt("%s/images", state)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/.config/cloche", home)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/cloche", runtime)), 0);
	refused(state, false, "cloche's own state");
	refused(fmt("%s/images", state), false, "cloche's own state");
	refused(fmt("%s/.local/share", home), false, "cloche's own state");
	refused(fmt("%s/.config", home), false, "cloche's own state");
	refused(runtime, false, "cloche's own state");
	refused(fmt("%s/r", dir), false, "cloche's own state");
	ck_assert_int_eq(make_dirs(fmt("%s/app", runtime)), 0);
	refused(fmt("%s/app", runtime), false, "host system path");
	/* CLOCHE_HOME protects the new place and leaves the old one protected. */
	snprintf(other, sizeof(other), "%s/box/cl", proj);
	ck_assert_int_eq(make_dirs(fmt("%s/runtime", other)), 0);
	passes(other, false);
	setenv("CLOCHE_HOME", other, 1);
	refused(fmt("%s/runtime", other), false, "cloche's own state");
	refused(fmt("%s/box", proj), false, "above cloche's own directories");
	refused(proj, false, "cloche's own state");
	refused(state, false, "cloche's own state");
	unsetenv("CLOCHE_HOME");
	mount_check_free(&mc);
	ck_assert_int_eq(mount_check_init(&mc, &e), 0);
	spec.n_mounts = 0;
	ck_assert_int_eq(mount_check_state(&mc, other, &e), 0);
	ck_assert_int_eq(volume(fmt("%s:/x", other)), 0);
	assert_refused(mount_check_all(&mc, &spec, &e), &e, ERR_REFUSED);
}
END_TEST

/* What a hard link or a link shows is the same thing under another name. */
START_TEST(identity_not_only_names)
{
	make_file(fmt("%s/.netrc", home));
	ck_assert_int_eq(link(fmt("%s/.netrc", home), fmt("%s/notes", proj)), 0);
	refused(fmt("%s/notes", proj), false, "source control credentials");
	/* ~/.ssh is itself a link: its goal is as secret. */
	ck_assert_int_eq(make_dirs(fmt("%s/keys", dir)), 0);
	ck_assert_int_eq(symlink(fmt("%s/keys", dir), fmt("%s/.ssh", home)), 0);
	refused(fmt("%s/keys", dir), false, "private keys");
	refused(fmt("%s/.ssh", home), false, "private keys");
	/* HOME reached over a link in its path. */
	ck_assert_int_eq(symlink(fmt("%s/h", dir), fmt("%s/link", dir)), 0);
	refused(fmt("%s/link/home", dir), false, "the home directory");
	refused(fmt("%s/proj/..", home), false, "the home directory");
	setenv("HOME", fmt("%s/link/home", dir), 1);
	refused(home, false, "the home directory");
	refused("/proc/self/root", false, "refused by the rule");
	refused("/proc/self/cwd", false, "refused by the rule");
}
END_TEST

START_TEST(moved_directories)
{
	ck_assert_int_eq(make_dirs(fmt("%s/cfg/gcloud", proj)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/cfg/gcloudx", proj)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/cargo/credentials.toml", proj)), 0);
	ck_assert_int_eq(make_dirs(fmt("%s/cargo/registry", proj)), 0);
	passes(fmt("%s/cfg/gcloud", proj), false);
	passes(fmt("%s/cargo", proj), false);
	setenv("XDG_CONFIG_HOME", fmt("%s/cfg", proj), 1);
	setenv("CARGO_HOME", fmt("%s/cargo", proj), 1);
	refused(fmt("%s/cfg/gcloud", proj), false, "cloud credentials");
	refused(fmt("%s/cfg", proj), false, "refused by the rule");
	passes(fmt("%s/cfg/gcloudx", proj), false);
	refused(fmt("%s/cargo", proj), false, "package manager token");
	passes(fmt("%s/cargo/registry", proj), false);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, every_rule_refuses_and_its_neighbour_passes);
	tcase_add_test(tc, every_class_has_name_and_advice);
	tcase_add_test(tc, places);
	tcase_add_test(tc, temporary_workspaces);
	tcase_add_test(tc, identity_not_only_names);
	tcase_add_test(tc, moved_directories);
}

int main(void)
{
	return unit_main("mount_rules", fill);
}
