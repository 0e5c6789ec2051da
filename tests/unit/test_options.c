/* The table of a sandbox's options: what is taken, what it becomes for `cloche spawn`, what is refused by which name. */
#include "options_env.h"

START_TEST(defaults)
{
	takes("{}");
	ck_assert_str_eq(o.image, "host");
	ck_assert_str_eq(o.pull, "missing");
	ck_assert(!o.workspace && !o.setup && !o.name && !o.platform && o.track_files && o.n_env == 0 && o.env[0] == NULL);
	ck_assert_uint_eq(o.timeout_us, 30000000);
	ck_assert_uint_eq(o.setup_timeout_us, 300000000);
	ck_assert(has("--pull-timeout=600"));
	ck_assert_uint_eq(o.output, 64 << 20);
	ck_assert_uint_eq(o.workspace_max, UINT64_MAX);
	ck_assert(has("--memory=512m") && has("--pids=256") && has("--tmp-size=64m") && has("--cap-drop=ALL") && has("--max-output=67108864b"));
	/* what is off says nothing */
	ck_assert(!names("network") && !names("supervised") && !names("no-pyc-cache") && !names("deps-writable") && !names("require-limits"));
	ck_assert(!names("env") && !names("workspace") && !names("image") && !names("pull") && !names("user") && !names("cpus"));
	ck_assert_uint_eq(json_object_size(o.effective), ses_option_n);
	ses_options_free(&o);
	ck_assert_int_eq(ses_options_parse(NULL, &o, &e), 0);
}
END_TEST

/* What each becomes. */
static const struct {
	const char *given, *word;
} becomes[] = {
	{ "{\"platform\": \"linux/arm64\"}", "--platform=linux/arm64" },
	{ "{\"pull\": \"never\"}", "--pull=never" },
	{ "{\"image_timeout_s\": 0.25}", "--pull-timeout=0.25" },
	{ "{\"pyc_cache\": false}", "--no-pyc-cache" },
	{ "{\"deps_readonly\": false}", "--deps-writable" },
	{ "{\"workspace_max_bytes\": 1000}", "--workspace-max=1000b" },
	{ "{\"git\": true}", "--git" },
	{ "{\"mounts\": {\"/a b\": \"/c\"}}", "--volume=/a b:/c" },
	{ "{\"mounts\": {\"/a\": [\"/c\", \"ro\"]}}", "--volume=/a:/c:ro" },
	{ "{\"mounts\": {\"/a\": [\"/c\", \"rw\"]}}", "--volume=/a:/c:rw" },
	{ "{\"tmpfs\": {\"/tmp\": \"512m\"}}", "--tmpfs=/tmp:512m" },
	{ "{\"memory_mb\": 64}", "--memory=64m" },
	{ "{\"memory_mb\": 64}", "--tmp-size=32m" },
	{ "{\"memory_mb\": 5}", "--tmp-size=2m" },
	{ "{\"memory_mb\": null}", "--memory=512m" },
	{ "{\"cpus\": 1.5}", "--cpus=1.5" },
	{ "{\"cpus\": 10}", "--cpus=10" },
	{ "{\"cpus\": 0.01}", "--cpus=0.01" },
	{ "{\"pids\": 7}", "--pids=7" },
	{ "{\"max_output_bytes\": 1}", "--max-output=1b" },
	{ "{\"shm_mb\": 8}", "--shm-size=8m" },
	{ "{\"rlimits\": {\"address_space\": 4096, \"file_size\": 5, \"open_files\": 64}}", "--ulimit=as=4096" },
	{ "{\"rlimits\": {\"address_space\": null, \"file_size\": 5, \"open_files\": 64}}", "--file-size=5" },
	{ "{\"rlimits\": {\"open_files\": 64}}", "--open-files=64" },
	{ "{\"enforce_limits\": false}", "--supervised" },
	{ "{\"require_limits\": true}", "--require-limits" },
	{ "{\"network\": true}", "--network=host" },
	{ "{\"user\": \"node\"}", "--user=node" },
	{ "{\"user\": 1000}", "--user=1000" },
	{ "{\"user\": \"-q\"}", "--user=-q" },
	{ "{\"uid_range\": true}", "--uid-range" },
	{ "{\"cap_drop\": []}", "--cap-drop=NONE" },
	{ "{\"cap_drop\": [\"CHOWN\", \"KILL\"]}", "--cap-drop=KILL" },
	{ "{\"cap_add\": [\"NET_RAW\"]}", "--cap-add=NET_RAW" },
	{ "{\"security_profile\": \"untrusted\"}", "--security-profile=untrusted" },
	{ "{\"read_only\": true}", "--read-only" },
	{ "{\"seccomp_rules\": [\"deny=sync\"]}", "--seccomp-rule=deny=sync" },
	{ "{\"apparmor\": \"p\"}", "--apparmor=p" },
	{ "{\"devices\": [\"/dev/null\"]}", "--device=/dev/null" },
};

START_TEST(words)
{
	takes(becomes[_i].given);
	ck_assert_msg(has(becomes[_i].word), "%s: no %s", becomes[_i].given, becomes[_i].word);
}
END_TEST

START_TEST(words_that_are_not_there)
{
	takes("{\"tmpfs\": {}}");
	ck_assert(!names("tmp-size") && !names("tmpfs"));
	takes("{\"tmpfs\": {\"/x\": \"1m\"}}");
	ck_assert(!names("tmp-size"));
	takes("{\"cap_drop\": []}");
	ck_assert(!has("--cap-drop=ALL"));
	takes("{\"prewarm\": 0, \"persist\": false, \"egress_allow\": null, \"persist_ttl_s\": null}");
}
END_TEST

static const struct {
	const char *given, *option;
} wrong[] = {
	{ "[]", "" },
	{ "{\"memory\": 512}", "memory" },
	{ "{\"image\": \"\"}", "image" },
	{ "{\"image\": 5}", "image" },
	{ "{\"image\": \"a\\u0000b\"}", "image" },
	{ "{\"pull\": \"Never\"}", "pull" },
	{ "{\"pull\": \"\"}", "pull" },
	{ "{\"pull\": \"missing|always\"}", "pull" },
	{ "{\"platform\": 1}", "platform" },
	{ "{\"image_timeout_s\": 0}", "image_timeout_s" },
	{ "{\"pyc_cache\": 1}", "pyc_cache" },
	{ "{\"setup\": \"\"}", "setup" },
	{ "{\"setup\": [\"pip\"]}", "setup" },
	{ "{\"setup_memory_mb\": 3}", "setup_memory_mb" },
	{ "{\"setup_timeout_s\": \"1\"}", "setup_timeout_s" },
	{ "{\"deps_readonly\": \"no\"}", "deps_readonly" },
	{ "{\"workspace\": \"work\"}", "workspace" },
	{ "{\"workspace\": \"\"}", "workspace" },
	{ "{\"workspace_max_bytes\": 0}", "workspace_max_bytes" },
	{ "{\"workspace_max_bytes\": 1.5}", "workspace_max_bytes" },
	{ "{\"git\": \"true\"}", "git" },
	{ "{\"track_files\": 0}", "track_files" },
	{ "{\"mounts\": [\"/a:/b\"]}", "mounts" },
	{ "{\"mounts\": {\"a\": \"/b\"}}", "mounts" },
	{ "{\"mounts\": {\"/a:/etc\": \"ro\"}}", "mounts" },
	{ "{\"mounts\": {\"/a\": \"/b:ro\"}}", "mounts" },
	{ "{\"mounts\": {\"/a\": [\"/b\"]}}", "mounts" },
	{ "{\"mounts\": {\"/a\": [\"/b\", \"rx\"]}}", "mounts" },
	{ "{\"mounts\": {\"/a\": [\"/b\", \"r\\u0000\"]}}", "mounts" },
	{ "{\"mounts\": {\"/a\": [\"/b\", \"ro\", \"ro\"]}}", "mounts" },
	{ "{\"mounts\": {\"/a\": null}}", "mounts" },
	{ "{\"mounts\": {\"/a\": \"/b\\u0000c\"}}", "mounts" },
	{ "{\"tmpfs\": {\"/tmp\": 512}}", "tmpfs" },
	{ "{\"tmpfs\": {\"/t:mp\": \"512m\"}}", "tmpfs" },
	{ "{\"tmpfs\": {\"/tmp\": \"5:12m\"}}", "tmpfs" },
	{ "{\"tmpfs\": \"/tmp\"}", "tmpfs" },
	{ "{\"memory_mb\": 3}", "memory_mb" },
	{ "{\"memory_mb\": 512.0}", "memory_mb" },
	{ "{\"memory_mb\": true}", "memory_mb" },
	{ "{\"memory_mb\": -512}", "memory_mb" },
	{ "{\"memory_mb\": \"512\"}", "memory_mb" },
	{ "{\"memory_mb\": 9223372036854775807}", "memory_mb" },
	{ "{\"cpus\": 0}", "cpus" },
	{ "{\"cpus\": true}", "cpus" },
	{ "{\"cpus\": 1e300}", "cpus" },
	{ "{\"pids\": 0}", "pids" },
	{ "{\"pids\": 4194304}", "pids" },
	{ "{\"timeout_s\": 0}", "timeout_s" },
	{ "{\"timeout_s\": -1}", "timeout_s" },
	{ "{\"timeout_s\": null}", "timeout_s" },
	{ "{\"timeout_s\": true}", "timeout_s" },
	{ "{\"timeout_s\": 1e9}", "timeout_s" },
	{ "{\"max_output_bytes\": 0}", "max_output_bytes" },
	{ "{\"shm_mb\": 0}", "shm_mb" },
	{ "{\"rlimits\": {\"nofile\": 5}}", "rlimits" },
	{ "{\"rlimits\": {\"open_files\": 0}}", "rlimits" },
	{ "{\"rlimits\": {\"open_files\": true}}", "rlimits" },
	{ "{\"rlimits\": 5}", "rlimits" },
	{ "{\"enforce_limits\": 0}", "enforce_limits" },
	{ "{\"require_limits\": \"yes\"}", "require_limits" },
	{ "{\"network\": \"host\"}", "network" },
	{ "{\"user\": \"\"}", "user" },
	{ "{\"user\": -1}", "user" },
	{ "{\"user\": 4294967296}", "user" },
	{ "{\"user\": true}", "user" },
	{ "{\"env\": {\"\": \"x\"}}", "env" },
	{ "{\"env\": {\"A=B\": \"x\"}}", "env" },
	{ "{\"env\": {\"A\\nB\": \"x\"}}", "env" },
	{ "{\"env\": {\"1A\": \"x\"}}", "env" },
	{ "{\"env\": {\"A B\": \"x\"}}", "env" },
	{ "{\"env\": {\"A\": \"x\\u0000y\"}}", "env" },
	{ "{\"env\": {\"A\": 1}}", "env" },
	{ "{\"env\": {\"A\": null}}", "env" },
	{ "{\"env\": [\"A=1\"]}", "env" },
	{ "{\"cap_drop\": \"ALL\"}", "cap_drop" },
	{ "{\"cap_drop\": [1]}", "cap_drop" },
	{ "{\"cap_drop\": [\"\"]}", "cap_drop" },
	{ "{\"cap_add\": \"NET_RAW\"}", "cap_add" },
	{ "{\"security_profile\": \"none\"}", "security_profile" },
	{ "{\"security_profile\": true}", "security_profile" },
	{ "{\"read_only\": \"ro\"}", "read_only" },
	{ "{\"seccomp_rules\": {\"allow\": []}}", "seccomp_rules" },
	{ "{\"apparmor\": \"\"}", "apparmor" },
	{ "{\"devices\": \"/dev/null\"}", "devices" },
	{ "{\"profiles\": \"vcpu:x\"}", "profiles" },
	{ "{\"profiles\": [\"vcpu:x\"]}", "profiles" },
	{ "{\"profiles\": [\"x\"]}", "profiles" },
	{ "{\"profiles\": [\"defaults:x\"]}", "profiles" },
	{ "{\"profiles\": [\"vcpu\"]}", "profiles" },
	{ "{\"name\": \"a/b\"}", "name" },
	{ "{\"name\": \"\"}", "name" },
	{ "{\"on_stdout\": null}", "on_stdout" },
};

START_TEST(refusals)
{
	refuses(wrong[_i].given, SES_OPTION, wrong[_i].option);
}
END_TEST

static const struct {
	const char *given, *option;
} later[] = {
	{ "{\"prewarm\": 1}", "prewarm" },	     { "{\"prewarm\": \"auto\"}", "prewarm" },
	{ "{\"persist\": true}", "persist" },	     { "{\"persist_ttl_s\": 3600}", "persist_ttl_s" },
	{ "{\"egress_allow\": []}", "egress_allow" }, { "{\"egress_allow\": [\"x.example\"]}", "egress_allow" },
};

START_TEST(what_comes_later)
{
	refuses(later[_i].given, SES_UNSUPPORTED, later[_i].option);
}
END_TEST

static bool lists(const char *all, const char *name)
{
	char item[80], between[sizeof(e.allowed) + 4];

	snprintf(item, sizeof(item), ", %s,", name);
	snprintf(between, sizeof(between), ", %s,", all);
	return strstr(between, item) != NULL;
}

static const char *given_setup(char given[32800], size_t n)
{
	size_t at = (size_t)sprintf(given, "{\"setup\": \"");

	memset(given + at, 'x', n);
	strcpy(given + at + n, "\"}");
	return given;
}

/* One letter more than it may have. */
START_TEST(a_long_set_up)
{
	char given[32800];

	takes(given_setup(given, 32768));
	refuses(given_setup(given, 32769), SES_OPTION, "setup");
	ck_assert_str_eq(e.message, "setup: it is longer than 32768 bytes");
	ck_assert_str_eq(e.allowed, "a shell command of at most 32768 bytes");
}
END_TEST

START_TEST(messages)
{
	refuses("{\"memory_mb\": 3}", SES_OPTION, "memory_mb");
	ck_assert_str_eq(e.message, "memory_mb: an integer of MiB from 4 to 8388608 is wanted, not 3");
	ck_assert_str_eq(e.allowed, "an integer of MiB from 4 to 8388608");
	refuses("{\"pull\": \"x\"}", SES_OPTION, "pull");
	ck_assert_str_eq(e.allowed, "one of missing, always, never");
	refuses("{\"cap_drop\": \"ALL\"}", SES_OPTION, "cap_drop");
	ck_assert_str_eq(e.message, "cap_drop: an array of strings, such as [\"ALL\"] is wanted, not the string \"ALL\"");
	refuses("{\"timeout\": 3}", SES_OPTION, "timeout");
	ck_assert_str_eq(e.message, "there is no option \"timeout\"; did you mean timeout_s?");
	for (size_t i = 0; i < ses_option_n; i++)
		ck_assert_msg(lists(e.allowed, ses_option_table[i].name), "%s is not in %s", ses_option_table[i].name, e.allowed);
	ck_assert(!lists(e.allowed, "timeout"));
	refuses("{\"image\": \"\", \"x\\u001b[2J\": 1}", SES_OPTION, "image");
	refuses("{\"x\\u001b[2J\": 1}", SES_OPTION, "x\033[2J");
	ck_assert_ptr_null(strchr(e.message, '\033'));
	refuses("{\"apparmor\": [\"\\u001b\"]}", SES_OPTION, "apparmor");
}
END_TEST

START_TEST(environment)
{
	takes("{\"env\": {\"A\": \"1\", \"B_C\": \"x=y\\nz\", \"E\": \"\"}}");
	ck_assert_uint_eq(o.n_env, 3);
	ck_assert_str_eq(o.env[0], "A=1");
	ck_assert_str_eq(o.env[1], "B_C=x=y\nz");
	ck_assert_str_eq(o.env[2], "E=");
	ck_assert_ptr_null(o.env[3]);
	/* a secret is in no process's argv */
	for (size_t i = 0; i < o.words.n; i++)
		ck_assert_ptr_null(strstr(o.words.v[i], "x=y"));
}
END_TEST

START_TEST(spawn_words)
{
	struct ses_words w;

	takes("{\"image\": \"debian:12\", \"workspace\": \"/w\"}");
	ck_assert_str_eq(o.workspace, "/w");
	ck_assert_int_eq(ses_options_spawn(&o, &(struct ses_place){ .workspace = "/w" }, &w, &e), 0);
	ck_assert_str_eq(w.v[0], "spawn");
	ck_assert_str_eq(w.v[1], "--image=debian:12");
	ck_assert_str_eq(w.v[2], "--workspace=/w");
	ck_assert_uint_eq(w.n, o.words.n + 3);
	ck_assert_ptr_null(w.v[w.n]);
	ses_words_free(&w);
	ck_assert_int_eq(ses_options_spawn(&o, &(struct ses_place){ .image = "local/x" }, &w, &e), 0);
	ck_assert_str_eq(w.v[1], "--image=local/x");
	ses_words_free(&w);
}
END_TEST

static bool word_of(const struct ses_words *w, const char *word)
{
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->v[i], word) == 0)
			return true;
	return false;
}

START_TEST(setup_words)
{
	struct ses_words w;
	char *name, *other;

	takes("{\"setup\": \"pip install x\", \"memory_mb\": 100, \"env\": {\"K\": \"secret\"}, \"cpus\": 2, \"apparmor\": \"p\"}");
	ck_assert_int_eq(ses_options_setup(&o, NULL, o.setup, 0, &w, &name, &e), 0);
	ck_assert_str_eq(w.v[0], "setup");
	ck_assert(word_of(&w, "--image=host") && word_of(&w, "--memory=400m") && word_of(&w, "--timeout=300000ms") && !word_of(&w, "--env=K") &&
		  word_of(&w, "--cpus=2") && word_of(&w, "--apparmor=p"));
	ck_assert_str_eq(w.v[w.n - 1], "pip install x");
	ck_assert_str_eq(w.v[w.n - 4], "--");
	for (size_t i = 0; i < w.n; i++)
		ck_assert_ptr_null(strstr(w.v[i], "secret"));
	ck_assert_int_eq(strncmp(name, "local/setup-", 12), 0);
	ses_words_free(&w);
	/* the same again has the same name; another base, command or variable another one */
	ck_assert_int_eq(ses_options_setup(&o, "host", "pip install x", 5, &w, &other, &e), 0);
	ck_assert_str_eq(name, other);
	ck_assert(word_of(&w, "--timeout=1ms"));
	ses_words_free(&w);
	free(other);
	ck_assert_int_eq(ses_options_setup(&o, name, o.setup, 0, &w, &other, &e), 0);
	ck_assert_str_ne(name, other);
	ck_assert(strncmp(w.v[1], "--image=local/setup-", 20) == 0);
	ses_words_free(&w);
	free(other);
	takes("{\"setup\": \"pip install x\", \"env\": {\"K\": \"other\"}, \"setup_memory_mb\": 77, \"setup_timeout_s\": 1.5}");
	ck_assert_int_eq(ses_options_setup(&o, NULL, o.setup, 0, &w, &other, &e), 0);
	ck_assert_str_ne(name, other);
	ck_assert(word_of(&w, "--memory=77m") && word_of(&w, "--timeout=1500ms") && word_of(&w, "--pull=missing") &&
		  word_of(&w, "--pull-timeout=600") && !word_of(&w, "--apparmor=p"));
	ses_words_free(&w);
	free(other);
	takes("{\"setup\": \"pip install x\", \"env\": {\"K\": \"secret\"}, \"platform\": \"linux/arm64\", \"pull\": \"never\"}");
	ck_assert_int_eq(ses_options_setup(&o, NULL, o.setup, 0, &w, &other, &e), 0);
	ck_assert_str_ne(name, other);
	ck_assert(word_of(&w, "--platform=linux/arm64") && word_of(&w, "--pull=never"));
	ses_words_free(&w);
	free(other);
	free(name);
}
END_TEST

static void blames(enum err_kind kind, enum err_stage stage, const char *msg, enum ses_error_type type, const char *option, const char *says)
{
	struct err why = { .kind = kind, .stage = stage };

	snprintf(why.msg, sizeof(why.msg), "%s", msg);
	ck_assert_msg(ses_options_blame(&why, "rule", &e), "%s", msg);
	ck_assert_int_eq(e.type, type);
	ck_assert_str_eq(e.option, option);
	ck_assert_str_eq(e.message, says);
	ck_assert_str_eq(e.rule, "rule");
}

START_TEST(what_the_spawner_refuses)
{
	struct err why = { .kind = ERR_SYS, .stage = STAGE_MOUNT, .msg = "--memory: no" };

	blames(ERR_USAGE, STAGE_SPEC, "--shm-size is larger than --memory", SES_OPTION, "shm_mb", "shm_mb is larger than memory_mb");
	blames(ERR_USAGE, STAGE_SPEC, "--require-limits and --supervised contradict each other", SES_OPTION, "require_limits",
	       "require_limits and enforce_limits contradict each other");
	blames(ERR_REFUSED, STAGE_MOUNT, "-v /etc:/x: refused by the rule /etc", SES_MOUNT_REFUSED, "mounts",
	       "mounts /etc:/x: refused by the rule /etc");
	blames(ERR_REFUSED, STAGE_WORKSPACE, "--workspace /: refused", SES_MOUNT_REFUSED, "workspace", "workspace /: refused");
	blames(ERR_USAGE, STAGE_MOUNT, "-v /none:/x: no such file", SES_OPTION, "mounts", "mounts /none:/x: no such file");
	blames(ERR_USAGE, STAGE_SPEC, "--ulimit as=x: bad", SES_OPTION, "rlimits", "rlimits as=x: bad");
	blames(ERR_REFUSED, STAGE_MOUNT, "a device", SES_MOUNT_REFUSED, "mounts", "a device");
	/* what is not the options' fault, and text of another's that looks like an option */
	ck_assert(!ses_options_blame(&why, NULL, &e));
	why = (struct err){ .kind = ERR_REFUSED, .stage = STAGE_IMAGE, .msg = "a:--memory b" };
	ck_assert(!ses_options_blame(&why, NULL, &e));
	blames(ERR_USAGE, STAGE_SPEC, "something (--user takes its place)", SES_OPTION, "user", "something (user takes its place)");
	blames(ERR_USAGE, STAGE_SPEC, "something else", SES_OPTION, "", "something else");
	/* a call's */
	blames(ERR_REFUSED, STAGE_WORKSPACE, "--workspace /x: share it with -v DIR:/workspace:ro -w /workspace", SES_MOUNT_REFUSED, "workspace",
	       "workspace /x: share it with mounts DIR:/workspace:ro cwd /workspace");
	blames(ERR_USAGE, STAGE_SPEC, "-w /workspace", SES_OPTION, "", "cwd /workspace");
}
END_TEST

/* An image that can't be had, with a set-up and without. */
START_TEST(what_a_download_says)
{
	static const struct {
		const char *told, *open, *setup;
	} rows[] = {
		{ "cloche pull: r/x:1: the time is up (or give more by --timeout)", "image: r/x:1: the time is up (or give more by image_timeout_s)",
		  "setup: r/x:1: the time is up (or give more by image_timeout_s)" },
		{ "image r/x:1 is not in the store; --pull never does not fetch it, --pull missing does",
		  "image r/x:1 is not in the store; pull never does not fetch it, pull missing does",
		  "setup: image r/x:1 is not in the store; pull never does not fetch it, pull missing does" },
		{ "the deadline passed (--timeout)", "the deadline passed (timeout_s)", "setup: the deadline passed (setup_timeout_s)" },
		{ "see cloche pull: no", "see cloche pull: no", "setup: see cloche pull: no" },
		{ "cloche pull: ", "image: ", "setup: " },
		{ "", "", "setup: " },
	};
	char out[200], few[5];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		ses_options_say(rows[i].told, out, sizeof(out));
		ck_assert_str_eq(out, rows[i].open);
		ses_options_say_setup(rows[i].told, false, out, sizeof(out));
		ck_assert_str_eq(out, rows[i].setup);
	}
	ses_options_say(rows[0].told, few, sizeof(few));
	ck_assert_str_eq(few, "imag");
	/* A set-up that was asked for with a deadline of its own; a download's is still the option's. */
	ses_options_say_setup("the deadline passed (--timeout)", true, out, sizeof(out));
	ck_assert_str_eq(out, "setup: the deadline passed (timeout_s)");
	ses_options_say_setup(rows[0].told, true, out, sizeof(out));
	ck_assert_str_eq(out, rows[0].setup);
}
END_TEST

static void refuses_workspace(const char *path, const char *why)
{
	struct stat got;
	char text[600];

	ck_assert_int_eq(ses_workspace_make(path, &got, &e), -1);
	snprintf(text, sizeof(text), "workspace %s: %s", path, why);
	ck_assert_str_eq(e.message, text);
	ck_assert_int_eq(e.type, SES_OPTION);
	ck_assert_str_eq(e.option, "workspace");
	ck_assert_str_eq(e.allowed, "an absolute path");
}

START_TEST(a_workspace_that_is_missing)
{
	char own[100], path[300], under[310];
	struct stat st, got;

	config(NULL);
	snprintf(own, sizeof(own), "%s-home", home);
	setenv("HOME", own, 1);
	snprintf(path, sizeof(path), "%s/a//b", own);
	ck_assert_msg(ses_workspace_make(path, &got, &e) == 0, "%s", e.message);
	ck_assert(stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_ino == got.st_ino);
	ck_assert_int_eq(ses_workspace_make(path, &got, &e), 0);
	ck_assert(st.st_ino == got.st_ino && st.st_dev == got.st_dev);
	/* what can't be reached is not the machine's fault */
	snprintf(under, sizeof(under), "%s/f", path);
	ck_assert_int_eq(symlink("f", under), 0);
	snprintf(under, sizeof(under), "%s/f/x", path);
	refuses_workspace(under, "Too many levels of symbolic links");
	snprintf(under, sizeof(under), "%s/f", path);
	refuses_workspace(under, "Too many levels of symbolic links");
	ck_assert(unlink(under) == 0 && symlink("none", under) == 0);
	refuses_workspace(under, "No such file or directory");
	ck_assert_int_eq(unlink(under), 0);
	refuses_workspace("/proc/self/status/x", "Not a directory");
	ck_assert_int_eq(rmdir(path), 0);
	snprintf(path, sizeof(path), "%s/a", own);
	ck_assert_int_eq(rmdir(path), 0);
	/* what would be refused is not made */
	snprintf(path, sizeof(path), "%s/.ssh/x", own);
	ck_assert_int_eq(ses_workspace_make(path, &got, &e), -1);
	ck_assert_msg(e.type == SES_MOUNT_REFUSED && strcmp(e.option, "workspace") == 0 && e.rule[0], "%s", e.message);
	ck_assert_int_eq(rmdir(own), 0); /* it is empty */
	snprintf(path, sizeof(path), "%s/../x", own);
	ck_assert_int_eq(ses_workspace_make(path, &got, &e), -1);
	ck_assert_int_eq(e.type, SES_OPTION);
	ck_assert_int_eq(ses_workspace_make("/proc/none/x", &got, &e), -1);
	ck_assert_int_eq(ses_workspace_make("/", &got, &e), 0);
}
END_TEST

/* Each row can be told, its default is right by its own rule, and its word is one of cloche run's. */
START_TEST(the_table)
{
	for (size_t i = 0; i < ses_option_n; i++) {
		const struct ses_option *row = &ses_option_table[i];
		json_t *v = json(row->dflt);
		char expects[300];

		ck_assert_msg(ses_option_check(row, v, &e) == 0, "%s: %s", row->name, e.message);
		ses_option_expects(row, expects);
		ck_assert(expects[0] && row->help[0] && row->since[0]);
		ck_assert_ptr_eq(ses_option_find(row->name), row);
		json_decref(v);
	}
	ck_assert_ptr_null(ses_option_find(""));
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, NULL, cleanup);
	tcase_add_test(tc, defaults);
	tcase_add_loop_test(tc, words, 0, (int)(sizeof(becomes) / sizeof(becomes[0])));
	tcase_add_test(tc, words_that_are_not_there);
	tcase_add_loop_test(tc, refusals, 0, (int)(sizeof(wrong) / sizeof(wrong[0])));
	tcase_add_loop_test(tc, what_comes_later, 0, (int)(sizeof(later) / sizeof(later[0])));
	tcase_add_test(tc, messages);
	tcase_add_test(tc, a_long_set_up);
	tcase_add_test(tc, what_a_download_says);
	tcase_add_test(tc, environment);
	tcase_add_test(tc, spawn_words);
	tcase_add_test(tc, setup_words);
	tcase_add_test(tc, what_the_spawner_refuses);
	tcase_add_test(tc, a_workspace_that_is_missing);
	tcase_add_test(tc, the_table);
}

int main(void)
{
	return unit_main("options", fill);
}
