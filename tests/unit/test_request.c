/* From a request to a spec: defaults, contradictions, what follows from what, and that every refusal is one line with its kind and stage. */
#include "request_env.h"

#include "box/locks.h"
#include "box/seccomp.h"

#define MIB (1ULL << 20)

START_TEST(defaults)
{
	const struct box_spec *s = &pr.spec;

	prepares();
	ck_assert_int_eq(s->root.kind, ROOTFS_HOST);
	ck_assert_ptr_eq(s->argv, command);
	ck_assert_str_eq(s->hostname, "cloche");
	ck_assert_str_eq(s->cwd, "/home/user");
	ck_assert_uint_eq(s->uid, 1000);
	ck_assert_uint_eq(s->gid, 1000);
	ck_assert(!s->n_mounts && !s->n_devices && !s->n_rules && !s->n_ulimits && !s->apparmor);
	ck_assert(!s->read_only && !s->no_proc && !s->tty && !s->interactive);
	ck_assert_uint_eq(s->cap_keep, 0);
	ck_assert_int_eq(s->network, BOX_NET_NONE);
	ck_assert_int_eq(s->profile, BOX_PROFILE_DEFAULT);
	ck_assert_uint_eq(s->limits.memory, 512 * MIB);
	ck_assert_uint_eq(s->limits.pids, 256);
	ck_assert(s->limits.cpus >= 0 && s->limits.cpus <= 0);
	ck_assert_uint_eq(s->limits.timeout_us, 0);
	ck_assert_uint_eq(s->limits.kill_after_us, 0);
	ck_assert_uint_eq(s->limits.output, 64 * MIB);
	ck_assert_uint_eq(s->limits.file_size, BOX_LIMIT_NONE);
	ck_assert_uint_eq(s->limits.workspace_max, BOX_LIMIT_NONE);
	ck_assert_uint_eq(s->limits.shm, 64 * MIB);
	ck_assert_uint_eq(s->limits.root, 256 * MIB);
	ck_assert(!s->limits.require && !s->limits.supervised);
	ck_assert_uint_eq(pr.n_notes, 0);
}
END_TEST

/* Memory file systems follow the memory: what was not asked for never contradicts what was. */
START_TEST(sizes_that_follow)
{
	static const uint64_t memory[] = { 4 * MIB, 5 * MIB, 32 * MIB, 64 * MIB, 128 * MIB, 1024 * MIB, 1ULL << 40 };

	for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++) {
		fresh();
		rq.limits.memory = memory[i];
		prepares();
		ck_assert_uint_eq(pr.spec.limits.root, memory[i] / 2);
		ck_assert_uint_eq(pr.spec.limits.shm, memory[i] / 2 < 64 * MIB ? memory[i] / 2 : 64 * MIB);
		rq.limits.shm = memory[i];
		prepares();
		ck_assert_uint_eq(pr.spec.limits.shm, memory[i]);
		rq.limits.shm = memory[i] + 1;
		refused(ERR_USAGE, STAGE_SPEC, "--shm-size is larger than --memory");
	}
	fresh();
	rq.limits.shm = 0; /* to a tmpfs that is no limit */
	refused(ERR_USAGE, STAGE_SPEC, "--shm-size");
}
END_TEST

START_TEST(limits_that_make_no_sense)
{
	rq.limits.memory = 4 * MIB - 1;
	refused(ERR_USAGE, STAGE_SPEC, "--memory");
	rq.limits.memory = 0;
	refused(ERR_USAGE, STAGE_SPEC, "--memory");
	fresh();
	rq.limits.pids = 0;
	refused(ERR_USAGE, STAGE_SPEC, "--pids");
	fresh();
	rq.limits.require = rq.limits.supervised = true;
	refused(ERR_USAGE, STAGE_SPEC, "--require-limits and --supervised contradict each other");
	fresh();
	rq.limits.kill_after_us = 1;
	refused(ERR_USAGE, STAGE_SPEC, "--kill-after needs --timeout");
	rq.limits.timeout_us = 1;
	prepares();
	fresh();
	rq.limits.workspace_max = 1;
	refused(ERR_USAGE, STAGE_SPEC, "--workspace-max needs --workspace");
	rq.workspace = dir;
	prepares();
	ck_assert_uint_eq(pr.spec.limits.workspace_max, 1);
}
END_TEST

START_TEST(flags)
{
	static const struct {
		const char *network, *proc;
		enum box_network net;
		bool no_proc;
	} rows[] = {
		{ "none", "full", BOX_NET_NONE, false }, { "host", "none", BOX_NET_HOST, true },
		{ NULL, NULL, BOX_NET_NONE, false },     { "Host", "None", BOX_NET_NONE, false }, /* what is not known is the closed one */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		fresh();
		rq.network = rows[i].network;
		rq.proc = rows[i].proc;
		rq.tty = rq.interactive = rq.read_only = i % 2;
		rq.apparmor = i ? "prof" : NULL;
		prepares();
		ck_assert_int_eq(pr.spec.network, rows[i].net);
		ck_assert_int_eq(pr.spec.no_proc, rows[i].no_proc);
		ck_assert(pr.spec.tty == i % 2 && pr.spec.interactive == i % 2 && pr.spec.read_only == i % 2);
		ck_assert_ptr_eq(pr.spec.apparmor, rq.apparmor);
	}
}
END_TEST

START_TEST(untrusted)
{
	char volume[128], rw[128];

	snprintf(volume, sizeof(volume), "%s:/v", dir);
	snprintf(rw, sizeof(rw), "%s:/w:rw", dir);
	rq.profile = "untrusted";
	add(&rq.volumes, volume);
	add(&rq.volumes, rw);
	prepares();
	ck_assert_int_eq(pr.spec.profile, BOX_PROFILE_UNTRUSTED);
	ck_assert(pr.spec.read_only);
	ck_assert_uint_eq(pr.spec.n_mounts, 2);
	for (size_t i = 0; i < 2; i++)
		ck_assert_int_eq(pr.spec.mounts[i].rw, strcmp(pr.spec.mounts[i].dst, "/w") == 0);
	fresh();
	add(&rq.volumes, volume);
	prepares();
	ck_assert(pr.spec.mounts[0].rw); /* by default -v is read-write */

	fresh();
	rq.profile = "untrusted";
	rq.network = "host";
	refused(ERR_USAGE, STAGE_SPEC, "untrusted and --network host contradict each other");
	rq.network = "none";
	prepares();
	add(&rq.cap_add, "NET_RAW");
	refused(ERR_USAGE, STAGE_SPEC, "keeps no capability");
	fresh();
	rq.profile = "untrusted";
	add(&rq.cap_drop, "NET_RAW"); /* not: keep the other thirteen */
	prepares();
	ck_assert_uint_eq(pr.spec.cap_keep, 0);
	add(&rq.cap_drop, "NONE");
	prepares();
	ck_assert_uint_eq(pr.spec.cap_keep, 0);
}
END_TEST

static uint64_t caps(const char *const *added, const char *const *dropped)
{
	fresh();
	for (; *added; added++)
		add(&rq.cap_add, *added);
	for (; *dropped; dropped++)
		add(&rq.cap_drop, *dropped);
	prepares();
	return pr.spec.cap_keep;
}
#define WORDS(...) ((const char *const[]){ __VA_ARGS__ __VA_OPT__(,) NULL })
#define CAP(name) (1ULL << locks_cap_number(name))

START_TEST(capabilities)
{
	uint64_t docker = locks_cap_defaults();

	ck_assert_int_eq(__builtin_popcountll(docker), 14);
	ck_assert_uint_eq(caps(WORDS(), WORDS()), 0);
	ck_assert_uint_eq(caps(WORDS(), WORDS("ALL")), 0);
	ck_assert_uint_eq(caps(WORDS(), WORDS("all", "CHOWN")), 0);
	ck_assert_uint_eq(caps(WORDS(), WORDS("CHOWN", "ALL")), 0);
	ck_assert_uint_eq(caps(WORDS("NET_RAW"), WORDS()), CAP("NET_RAW"));
	ck_assert_uint_eq(caps(WORDS("cap_net_raw", "Cap_Sys_Ptrace"), WORDS("ALL")), CAP("NET_RAW") | CAP("SYS_PTRACE"));
	ck_assert_uint_eq(caps(WORDS(), WORDS("CHOWN")), docker & ~CAP("CHOWN"));
	ck_assert_uint_eq(caps(WORDS(), WORDS("CHOWN", "KILL")), docker & ~CAP("CHOWN") & ~CAP("KILL"));
	ck_assert_uint_eq(caps(WORDS(), WORDS("SYS_ADMIN")), docker); /* which is none of them */
	ck_assert_uint_eq(caps(WORDS(), WORDS("NONE")), docker);
	ck_assert_uint_eq(caps(WORDS("SYS_NICE"), WORDS("none", "CHOWN")), (docker & ~CAP("CHOWN")) | CAP("SYS_NICE"));
	ck_assert_uint_eq(caps(WORDS(), WORDS("NONE", "ALL")), 0);
	ck_assert_uint_eq(caps(WORDS("SYS_NICE"), WORDS("CHOWN")), (docker & ~CAP("CHOWN")) | CAP("SYS_NICE"));
}
END_TEST

START_TEST(set_up)
{
	fresh();
	rq.limits.workspace_max = 1 << 20;
	refused(ERR_USAGE, STAGE_SPEC, "--workspace-max");
	rq.setup = true;
	rq.draft = 77;
	prepares();
	ck_assert(pr.spec.setup && pr.spec.draft == 77 && pr.spec.limits.workspace_max == 1 << 20);
	ck_assert_uint_eq(pr.spec.cap_keep, CAP("DAC_OVERRIDE") | CAP("SETFCAP"));
	fresh();
	prepares();
	ck_assert(!pr.spec.setup && pr.spec.cap_keep == 0);
}
END_TEST

START_TEST(capabilities_that_are_none)
{
	static const char *const bad[] = { "", "CAP_", "NET", "NET_RAW ", "cap_cap_net_raw", "63", "NET_RAW,CHOWN", "x\ny", "\x1b[2J" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fresh();
		add(&rq.cap_add, bad[i]);
		refused(ERR_USAGE, STAGE_SPEC, "--cap-add");
		fresh();
		add(&rq.cap_drop, bad[i]);
		refused(ERR_USAGE, STAGE_SPEC, "or ALL");
	}
	fresh();
	add(&rq.cap_add, "ALL"); /* nothing adds all */
	refused(ERR_USAGE, STAGE_SPEC, "no such capability");
}
END_TEST

START_TEST(roots)
{
	rq.image = "host";
	prepares();
	ck_assert_int_eq(pr.spec.root.kind, ROOTFS_HOST);
	rq.rootfs = dir;
	refused(ERR_USAGE, STAGE_SPEC, "--image and --rootfs contradict each other");
	fresh();
	rq.rootfs = dir;
	prepares();
	ck_assert_int_eq(pr.spec.root.kind, ROOTFS_DIR);
	ck_assert_str_eq(pr.spec.root.dir, dir);
	ck_assert_str_eq(pr.spec.root.name, dir);
	ck_assert_ptr_eq(pr.spec.root_check, &pr.rootfs);
	ck_assert_uint_eq(pr.spec.uid, 0);
	ck_assert_str_eq(pr.spec.home, "/root");
	fresh();
	rq.rootfs = "/nonexistent";
	e.kind = ERR_NONE;
	ck_assert_int_eq(request_prepare(&rq, &pr, &e), -1);
	ck_assert_int_eq(e.stage, STAGE_IMAGE);
	fresh();
	rq.image = "debian\n:12";
	refused(ERR_USAGE, STAGE_SPEC, "--image: image debian?:12: ");
	fresh();
	rq.entrypoint = "x";
	refused(ERR_USAGE, STAGE_SPEC, "--entrypoint needs an image");
	fresh();
	rq.platform = "linux/arm64";
	rq.rootfs = dir;
	refused(ERR_USAGE, STAGE_SPEC, "--platform needs an image");
}
END_TEST

START_TEST(working_directory)
{
	static const struct {
		const char *cwd, *is;
	} rows[] = { { "/", "/" }, { "/tmp", "/tmp" }, { "//tmp/./x/", "/tmp/x" }, { "/no/such/place", "/no/such/place" } };
	static const char *const bad[] = { "", "tmp", "./x", "/a/../b", "/a\nb", "/\x1b[2J" };

	rq.workspace = dir;
	prepares();
	ck_assert_str_eq(pr.spec.cwd, "/workspace");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		rq.cwd = rows[i].cwd;
		prepares();
		ck_assert_str_eq(pr.spec.cwd, rows[i].is);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fresh();
		rq.cwd = bad[i];
		refused(ERR_USAGE, STAGE_SPEC, "-w ");
	}
}
END_TEST

START_TEST(mounts)
{
	char v[160];

	rq.workspace = dir;
	add(&rq.tmpfs, "/b/c:1m");
	add(&rq.tmpfs, "/a:2m");
	prepares();
	ck_assert_uint_eq(pr.spec.n_mounts, 3);
	ck_assert_str_eq(pr.spec.mounts[2].dst, "/b/c"); /* shallow first */
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(pr.spec.mounts[i].workspace, strcmp(pr.spec.mounts[i].dst, "/workspace") == 0);
	fresh();
	rq.workspace = "/nonexistent";
	ck_assert_int_eq(request_prepare(&rq, &pr, &e), -1);
	ck_assert_int_eq(e.stage, STAGE_WORKSPACE);
	fresh();
	snprintf(v, sizeof(v), "%s/no\nne:/x", dir);
	add(&rq.volumes, v);
	ck_assert_int_eq(request_prepare(&rq, &pr, &e), -1);
	ck_assert_int_eq(e.stage, STAGE_MOUNT);
	ck_assert_ptr_null(strchr(e.msg, '\n'));
	fresh();
	add(&rq.volumes, "nonsense");
	refused(ERR_USAGE, STAGE_MOUNT, "nonsense");
	fresh();
	add(&rq.tmpfs, "/x:1");
	refused(ERR_USAGE, STAGE_MOUNT, "--tmpfs");
	fresh();
	add(&rq.volumes, "/etc/shadow:/x");
	ck_assert_int_eq(request_prepare(&rq, &pr, &e), -1);
	ck_assert_int_eq(e.kind, ERR_REFUSED);
	ck_assert_int_eq(e.stage, STAGE_MOUNT);
}
END_TEST

START_TEST(lists)
{
	add(&rq.rules, "allow=ptrace");
	add(&rq.rules, "deny=ptrace");
	add(&rq.ulimits, "stack=8388608");
	prepares();
	ck_assert_uint_eq(pr.spec.n_rules, 2);
	ck_assert_int_eq(pr.spec.rules[0].nr, sc_number(sc_native(), "ptrace"));
	ck_assert_int_eq(pr.spec.rules[1].action, BOX_RULE_DENY);
	ck_assert_uint_eq(pr.spec.n_ulimits, 1);
	ck_assert_uint_eq(pr.spec.ulimits[0].soft, 8388608);

	fresh();
	add(&rq.rules, "allow=no\nsuch");
	refused(ERR_USAGE, STAGE_SPEC, "allow=no?such");
	fresh();
	add(&rq.rules, "allow=mount");
	ck_assert_int_eq(request_prepare(&rq, &pr, &e), -1);
	ck_assert_int_eq(e.stage, STAGE_SPEC);
	fresh();
	add(&rq.ulimits, "nofi\nle=x");
	refused(ERR_USAGE, STAGE_SPEC, "--ulimit");
	fresh();
	add(&rq.devices, "/dev/null");
	refused(ERR_REFUSED, STAGE_MOUNT, "/dev/null");
	fresh();
	add(&rq.devices, "/dev/no\nne");
	refused(ERR_USAGE, STAGE_MOUNT, "/dev/no?ne");
}
END_TEST

/* One more than fits is an error and no overflow; just as many as fit is none. */
START_TEST(too_many)
{
	struct request_list l = { .n = 0 };

	for (int i = 0; i < REQUEST_MANY; i++)
		ck_assert_int_eq(request_add(&l, "x", "env", &e), 0);
	assert_refused(request_add(&l, "x", "env", &e), &e, ERR_USAGE);
	ck_assert_msg(strstr(e.msg, "--env") && strstr(e.msg, "64"), "%s", e.msg);
	ck_assert_uint_eq(l.n, REQUEST_MANY);

	for (int i = 0; i < BOX_ULIMITS_MAX; i++)
		add(&rq.ulimits, "nofile=64");
	prepares();
	add(&rq.ulimits, "nofile=64");
	refused(ERR_USAGE, STAGE_SPEC, "at most 16");
	fresh();
	for (int i = 0; i < BOX_RULES_MAX; i++)
		add(&rq.rules, "allow=ptrace");
	prepares();
	fresh();
	for (int i = 0; i < BOX_DEVICES_MAX + 1; i++)
		add(&rq.devices, "/dev/kvm");
	refused(ERR_USAGE, STAGE_SPEC, "--device");
	fresh();
	for (int i = 0; i < REQUEST_MANY; i++) {
		static char text[REQUEST_MANY][24];

		snprintf(text[i], sizeof(text[i]), "/t%d:4k", i);
		add(&rq.tmpfs, text[i]);
	}
	prepares();
	ck_assert_uint_eq(pr.spec.n_mounts, BOX_MOUNTS_MAX);
	rq.workspace = dir;
	refused(ERR_USAGE, STAGE_MOUNT, "more than 64 mounts");
}
END_TEST

/* Words of any length and bytes, in every option that takes words: an error that is one printable line, or none. */
START_TEST(hostile_words)
{
	static char big[5000];
	const char *const words[] = { "\n", "a\nb", "\x1b]0;x\x07", "\xff\xfe\x80", "%s%n%d", big, ":", "=", "/", "/\n", "::::", "a=b:c" };
	struct request_list *many[] = { &rq.volumes, &rq.tmpfs, &rq.env, &rq.env_files, &rq.devices, &rq.cap_add, &rq.cap_drop,
					&rq.ulimits, &rq.rules };
	const char **single[] = { &rq.image, &rq.rootfs, &rq.workspace, &rq.cwd, &rq.user, &rq.network, &rq.proc };
	char safe[sizeof(e.msg)];
	unsigned failed = 0;

	memset(big, '\n', sizeof(big) - 1);
	for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++)
		for (size_t i = 0; i < sizeof(many) / sizeof(many[0]) + sizeof(single) / sizeof(single[0]); i++) {
			fresh();
			if (i < sizeof(many) / sizeof(many[0]))
				add(many[i], words[w]);
			else
				*single[i - sizeof(many) / sizeof(many[0])] = words[w];
			memset(&e, 0x5a, sizeof(e));
			if (request_prepare(&rq, &pr, &e) == 0)
				continue;
			failed++;
			ck_assert_msg(e.kind > ERR_NONE && e.kind < ERR_KIND_N, "option %zu, word %zu", i, w);
			ck_assert_msg(e.stage > STAGE_NONE && e.stage < STAGE_N, "%s", e.msg);
			ck_assert_uint_gt(strlen(e.msg), 0);
			ck_assert_str_eq(str_printable(safe, sizeof(safe), e.msg), e.msg);
		}
	ck_assert_uint_gt(failed, 100);
}
END_TEST

START_TEST(preparing_again_starts_anew)
{
	rq.limits.memory = 64 * MIB;
	rq.read_only = rq.tty = true;
	add(&rq.env, "A=1");
	add(&rq.rules, "allow=ptrace");
	add(&rq.tmpfs, "/x:1m");
	prepares();
	fresh();
	prepares();
	ck_assert(!pr.spec.read_only && !pr.spec.tty && !pr.spec.n_rules && !pr.spec.n_mounts);
	for (char *const *v = pr.spec.env; *v; v++)
		ck_assert_str_ne(*v, "A=1");
}
END_TEST

/* A word of the command that names a file the box does not see: a note says how to show it. */
/* The command and its last word; does it install packages? */
static const struct {
	const char *words[4];
	bool hint;
} installers[] = {
	{ { "apt-get", "install", "x" }, true },
	{ { "/usr/bin/apt", "update" }, true },
	{ { "sh", "-c", "apk add git" }, true },
	{ { "bash", "-c", "cd /tmp && (dnf -y install x)" }, true },
	{ { "sh", "-c", "true;\n /usr/bin/yum install x" }, true },
	{ { "ls", "apt" }, false },
	{ { "sh", "-c", "echo apt-get" }, false },
	{ { "apt-cache", "search", "x" }, false },
	{ { "sh", "apt" }, false },
	{ { "sh", "-c", "" }, false },
	{ { "sh", "-c", "/ // &&&|;( ) apt" }, false },
};

START_TEST(hints_on_packages)
{
	rq.argv = (char *const *)(uintptr_t)installers[_i].words;
	prepares();
	request_hints(&pr);
	ck_assert_uint_eq(pr.n_notes, installers[_i].hint);
	ck_assert(!installers[_i].hint || strstr(pr.notes[0], "cloche setup --image IMAGE"));
	rq.setup = true;
	prepares();
	request_hints(&pr);
	ck_assert_uint_eq(pr.n_notes, 0);
}
END_TEST

START_TEST(hints)
{
	char path[160], *argv[] = { (char[]){ "cat" }, path, (char[]){ "-v" }, NULL };

	strcpy(path, file_put("data.txt", "x", 1));
	rq.argv = argv;
	prepares();
	request_hints(&pr);
	ck_assert_uint_eq(pr.n_notes, 1);
	ck_assert_msg(strstr(pr.notes[0], "data.txt"), "%s", pr.notes[0]);
	for (int i = 0; i < 20; i++) /* never more than there is room for */
		request_hints(&pr);
	ck_assert_uint_eq(pr.n_notes, sizeof(pr.notes) / sizeof(pr.notes[0]));
	unlink(path);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, defaults);
	tcase_add_test(tc, sizes_that_follow);
	tcase_add_test(tc, limits_that_make_no_sense);
	tcase_add_test(tc, flags);
	tcase_add_test(tc, untrusted);
	tcase_add_test(tc, capabilities);
	tcase_add_test(tc, set_up);
	tcase_add_test(tc, capabilities_that_are_none);
	tcase_add_test(tc, roots);
	tcase_add_test(tc, working_directory);
	tcase_add_test(tc, mounts);
	tcase_add_test(tc, lists);
	tcase_add_test(tc, too_many);
	tcase_add_test(tc, hostile_words);
	tcase_add_test(tc, preparing_again_starts_anew);
	tcase_add_test(tc, hints);
	tcase_add_loop_test(tc, hints_on_packages, 0, sizeof(installers) / sizeof(installers[0]));
}

int main(void)
{
	return unit_main("request", fill);
}
