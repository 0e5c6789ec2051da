#include "cli/run_opts.h"

#include "base/str.h"
#include "box/limits.h"
#include "cli/run.h"
#include "cli/verbs.h"

enum {
	O_IMAGE,
	O_PULL,
	O_PLATFORM,
	O_PULL_TIMEOUT,
	O_NO_PYC,
	O_DEPS,
	O_ENTRYPOINT,
	O_ROOTFS,
	O_USER,
	O_UID_RANGE,
	O_CWD,
	O_ENV,
	O_ENV_FILE,
	O_STDIN,
	O_TTY,
	O_NETWORK,
	O_READ_ONLY,
	O_PROC,
	O_DEVICE,
	O_WORKSPACE,
	O_GIT,
	O_VOLUME,
	O_TMPFS,
	O_MEMORY,
	O_PIDS,
	O_CPUS,
	O_IO_WEIGHT,
	O_TIMEOUT,
	O_KILL_AFTER,
	O_MAX_OUTPUT,
	O_FILE_SIZE,
	O_OPEN_FILES,
	O_WORKSPACE_MAX,
	O_SHM,
	O_TMP,
	O_ULIMIT,
	O_REQUIRE,
	O_SUPERVISED,
	O_PROFILE,
	O_RULE,
	O_CAP_ADD,
	O_CAP_DROP,
	O_APPARMOR,
	O_JSON,
	O_PLAN,
	O_TIMING,
	O_QUIET
};

static const struct opt_row rows[] = {
	{ "image", 0, OPT_STR, false, "NAME", "host", "Box",
	  "root file system: an image, such as debian:12; `host` shows this machine's /usr read-only",
	  "rootfs", "0.1", O_IMAGE },
	{ "pull", 0, OPT_CHOICE, false, "missing|always|never", "missing", "Box",
	  "when to download the image; `never` touches no network", NULL, "0.2", O_PULL },
	{ "platform", 0, OPT_STR, false, "OS/ARCH[/VARIANT]", NULL, "Box",
	  "the image for this platform, such as linux/arm64", "rootfs", "0.2", O_PLATFORM },
	{ "pull-timeout", 0, OPT_DURATION, false, "TIME", "600s", "Box",
	  "give up downloading the image after this long; 0: never", "rootfs", "0.3",
	  O_PULL_TIMEOUT },
	{ "no-pyc-cache", 0, OPT_FLAG, false, NULL, NULL, "Box",
	  "do not compile the image's Python library ahead, once, nor use what was compiled", NULL,
	  "0.2", O_NO_PYC },
	{ "deps-writable", 0, OPT_FLAG, false, NULL, NULL, "Box",
	  "what `cloche setup` installed on the host image may be written over, and is itself again after",
	  NULL, "0.3", O_DEPS },
	{ "entrypoint", 0, OPT_STR, false, "WORD", NULL, "Box",
	  "run this in place of the image's entrypoint and command; empty: only what is given",
	  "rootfs", "0.2", O_ENTRYPOINT, true },
	{ "rootfs", 0, OPT_DIR, false, "DIR", NULL, "Box",
	  "use a directory as root file system; it is never written to", NULL, "0.1", O_ROOTFS },
	{ "user", 'u', OPT_STR, false, "NAME|UID[:GID]", "user", "Box",
	  "user inside (an image's own by default); outside it is always you, or nobody when you are root",
	  NULL, "0.1", O_USER },
	{ "uid-range", 0, OPT_FLAG, false, NULL, NULL, "Box",
	  "give the box 65536 user ids, for programs that change to others", NULL, "0.2",
	  O_UID_RANGE },
	{ "workdir", 'w', OPT_STR, false, "DIR", "/workspace or HOME", "Box",
	  "working directory inside", NULL, "0.1", O_CWD },
	{ "env", 'e', OPT_STR, true, "NAME[=VALUE]", NULL, "Box",
	  "set a variable; without =VALUE copy it from here", NULL, "0.1", O_ENV },
	{ "env-file", 0, OPT_PATH, true, "FILE", NULL, "Box", "read NAME=VALUE lines", NULL, "0.1",
	  O_ENV_FILE },
	{ "interactive", 'i', OPT_FLAG, false, NULL, NULL, "Box",
	  "forward standard input (empty otherwise)", NULL, "0.1", O_STDIN },
	{ "tty", 't', OPT_FLAG, false, NULL, NULL, "Box", "give the command a terminal of its own",
	  "json", "0.1", O_TTY },
	{ "network", 0, OPT_CHOICE, false, "none|host", "none", "Box",
	  "network: loopback alone, or all of this machine's", NULL, "0.1", O_NETWORK },
	{ "read-only", 0, OPT_FLAG, false, NULL, NULL, "Box",
	  "make the root read-only, with memory file systems at /tmp, /run and HOME", NULL, "0.1",
	  O_READ_ONLY },
	{ "proc", 0, OPT_CHOICE, false, "full|none", "full", "Box",
	  "mount /proc, or leave it out where the kernel gives none", NULL, "0.1", O_PROC },
	{ "device", 0, OPT_PATH, true, "/dev/NODE", NULL, "Box", "give one character device", NULL,
	  "0.1", O_DEVICE },
	{ "workspace", 0, OPT_DIR, false, "DIR", NULL, "Files",
	  "share a directory read-write at /workspace and start there", NULL, "0.1", O_WORKSPACE },
	{ "git", 0, OPT_FLAG, false, NULL, NULL, "Files",
	  "the workspace is a linked worktree: share what commits need of its repository", NULL,
	  "0.1", O_GIT },
	{ "volume", 'v', OPT_STR, true, "SRC:DST[:ro|rw]", NULL, "Files",
	  "share a directory or file (rw; ro under untrusted)", NULL, "0.1", O_VOLUME },
	{ "tmpfs", 0, OPT_STR, true, "DST:SIZE", NULL, "Files",
	  "memory file system of this size, such as /scratch:64m", NULL, "0.1", O_TMPFS },
	{ "memory", 'm', OPT_SIZE, false, "SIZE", "512m", "Limits",
	  "memory of the whole box; beyond it the box is ended", NULL, "0.1", O_MEMORY },
	{ "pids", 0, OPT_NUMBER, false, "N", "256", "Limits", "processes and threads at once", NULL,
	  "0.1", O_PIDS },
	{ "cpus", 0, OPT_CPUS, false, "N", NULL, "Limits", "cpus, such as 0.5 or 2", NULL, "0.1",
	  O_CPUS },
	{ "io-weight", 0, OPT_NUMBER, false, "N", NULL, "Limits",
	  "share of a busy disk, 1 to 10000 (others have 100), where cgroup v2 has weights", NULL,
	  "0.1", O_IO_WEIGHT },
	{ "timeout", 0, OPT_DURATION, false, "TIME", NULL, "Limits",
	  "end the box after this long (10, 500ms, 5m)", NULL, "0.1", O_TIMEOUT },
	{ "kill-after", 0, OPT_DURATION, false, "TIME", NULL, "Limits",
	  "at the deadline send TERM, and KILL this much later", NULL, "0.1", O_KILL_AFTER },
	{ "max-output", 0, OPT_SIZE, false, "SIZE", "64m", "Limits",
	  "what --json keeps of each stream: first and last half", NULL, "0.1", O_MAX_OUTPUT },
	{ "file-size", 0, OPT_SIZE, false, "SIZE", NULL, "Limits",
	  "largest file that can be written", NULL, "0.1", O_FILE_SIZE },
	{ "open-files", 0, OPT_NUMBER, false, "N", "1024", "Limits",
	  "open descriptors of one process", NULL, "0.1", O_OPEN_FILES },
	{ "workspace-max", 0, OPT_SIZE, false, "SIZE", NULL, "Limits",
	  "end the box when the workspace grows beyond this", NULL, "0.1", O_WORKSPACE_MAX },
	{ "shm-size", 0, OPT_SIZE, false, "SIZE", "64m", "Limits", "size of /dev/shm", NULL, "0.1",
	  O_SHM },
	{ "tmp-size", 0, OPT_SIZE, false, "SIZE", NULL, "Limits",
	  "give /tmp a memory file system of its own; left out where something is mounted there",
	  NULL, "0.3", O_TMP },
	{ "ulimit", 0, OPT_STR, true, "NAME=SOFT[:HARD]", NULL, "Limits",
	  "lower another resource limit, such as stack=8388608", NULL, "0.1", O_ULIMIT },
	{ "require-limits", 0, OPT_FLAG, false, NULL, NULL, "Limits",
	  "refuse to start unless the kernel holds memory and pids", "supervised", "0.1",
	  O_REQUIRE },
	{ "supervised", 0, OPT_FLAG, false, NULL, NULL, "Limits",
	  "make no cgroup; sample instead (best effort)", NULL, "0.1", O_SUPERVISED },
	{ "security-profile", 0, OPT_CHOICE, false, "default|untrusted", "default", "Locks",
	  "untrusted: root read-only, -v read-only, unix sockets of the host unreachable everywhere",
	  NULL, "0.1", O_PROFILE },
	{ "seccomp-rule", 0, OPT_STR, true, "allow=CALL|deny=CALL", NULL, "Locks",
	  "allow or deny one system call; the escape set stays shut", NULL, "0.1", O_RULE },
	{ "cap-add", 0, OPT_STR, true, "CAP", NULL, "Locks",
	  "keep a capability inside the box's own user namespace", NULL, "0.1", O_CAP_ADD },
	{ "cap-drop", 0, OPT_STR, true, "CAP|ALL|NONE", "ALL", "Locks",
	  "drop single ones of docker's default set, or all, or none", NULL, "0.1", O_CAP_DROP },
	{ "apparmor", 0, OPT_STR, false, "PROFILE", NULL, "Locks",
	  "run under a loaded AppArmor profile", NULL, "0.1", O_APPARMOR },
	{ "json", 0, OPT_FLAG, false, NULL, NULL, "Output",
	  "print one JSON object with everything, output included", NULL, "0.1", O_JSON },
	{ "plan", 0, OPT_FLAG, false, NULL, NULL, "Output",
	  "print what would be mounted and locked, and run nothing", NULL, "0.1", O_PLAN },
	{ "timing", 0, OPT_FLAG, false, NULL, NULL, "Output",
	  "tell where the time of the start went", NULL, "0.1", O_TIMING },
	{ "quiet", 'q', OPT_FLAG, false, NULL, NULL, "Output",
	  "no notes on stderr; faults are still told", NULL, "0.1", O_QUIET },
};

static const char *const examples[] = {
	"cloche run -- python3 -c 'print(sum(range(100)))'",
	"cloche run --workspace . --memory 256m --pids 64 --timeout 10 -- ./build.sh",
	"cloche run --json -- sh -c 'echo hello; echo oh >&2'",
	"cloche run --security-profile untrusted -v .:/src -- python3 /src/script.py",
	"cloche run --image python:3.12-slim -- python3 -c 'print(1)'",
	"cloche run --rootfs ./rootfs -it -- sh",
	NULL,
};

const struct opt_verb cli_run_verb = {
	.name = "run",
	.summary = "Run a command in a box of its own, thrown away after",
	.operands = "[--] [COMMAND [ARG...]]",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.takes_command = true,
	.examples = examples,
	.run = cli_run,
};

static int set_size(uint64_t *to, const char *value, struct err *e)
{
	return parse_size(value, to, e);
}

static int option_limit(struct box_limits *l, int id, const char *value, struct err *e)
{
	uint64_t n;

	switch (id) {
	case O_MEMORY:
		return set_size(&l->memory, value, e);
	case O_PIDS:
		return parse_u64(value, 1, 4194304 - LIMIT_INIT_PIDS, &l->pids, e);
	case O_CPUS:
		return parse_cpus(value, &l->cpus, e);
	case O_IO_WEIGHT:
		if (parse_u64(value, 1, 10000, &n, e) < 0)
			return -1;
		l->io_weight = (unsigned)n;
		return 0;
	case O_TIMEOUT:
		return parse_duration(value, &l->timeout_us, e);
	case O_KILL_AFTER:
		return parse_duration(value, &l->kill_after_us, e);
	case O_MAX_OUTPUT:
		return set_size(&l->output, value, e);
	case O_FILE_SIZE:
		return set_size(&l->file_size, value, e);
	case O_OPEN_FILES:
		return parse_u64(value, 16, 1048576, &l->open_files, e);
	case O_WORKSPACE_MAX:
		return set_size(&l->workspace_max, value, e);
	default:
		return set_size(&l->shm, value, e);
	}
}

enum run_pull run_pull_of(const char *value)
{
	return value[0] == 'a' ? PULL_ALWAYS : value[0] == 'n' ? PULL_NEVER : PULL_MISSING;
}

int run_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	struct run_options *o = ctx;
	struct request *r = &o->request;
	struct request_list *many[] = {
		[O_ENV] = &r->env,	  [O_ENV_FILE] = &r->env_files, [O_DEVICE] = &r->devices,
		[O_VOLUME] = &r->volumes, [O_TMPFS] = &r->tmpfs,	[O_ULIMIT] = &r->ulimits,
		[O_RULE] = &r->rules,	  [O_CAP_ADD] = &r->cap_add,	[O_CAP_DROP] = &r->cap_drop,
		[O_QUIET] = NULL
	};
	const char **one[] = { [O_IMAGE] = &r->image,
			       [O_PLATFORM] = &r->platform,
			       [O_PULL_TIMEOUT] = &o->pull_timeout,
			       [O_ENTRYPOINT] = &r->entrypoint,
			       [O_ROOTFS] = &r->rootfs,
			       [O_USER] = &r->user,
			       [O_CWD] = &r->cwd,
			       [O_NETWORK] = &r->network,
			       [O_PROC] = &r->proc,
			       [O_WORKSPACE] = &r->workspace,
			       [O_APPARMOR] = &r->apparmor,
			       [O_QUIET] = NULL };
	bool *flag[] = { [O_NO_PYC] = &r->no_bytecode,
			 [O_DEPS] = &r->deps_writable,
			 [O_STDIN] = &r->interactive,
			 [O_TTY] = &r->tty,
			 [O_READ_ONLY] = &r->read_only,
			 [O_UID_RANGE] = &r->uid_range,
			 [O_GIT] = &r->git,
			 [O_REQUIRE] = &r->limits.require,
			 [O_SUPERVISED] = &r->limits.supervised,
			 [O_JSON] = &o->json,
			 [O_PLAN] = &o->plan,
			 [O_TIMING] = &o->timing,
			 [O_QUIET] = &o->quiet };

	if (many[row->id])
		return request_add(many[row->id], value, row->name, e);
	if (one[row->id]) {
		*one[row->id] = value;
		return *value || row->empty ? 0 : err_set(e, ERR_USAGE, "the value is empty");
	}
	if (flag[row->id]) {
		*flag[row->id] = true;
		return 0;
	}
	if (row->id == O_TMP)
		return parse_size(value, &r->tmp, e);
	if (row->id == O_PULL) {
		o->pull = run_pull_of(value);
		return 0;
	}
	if (row->id == O_PROFILE) {
		r->profile = value[0] == 'u' ? value : NULL;
		return 0;
	}
	return option_limit(&r->limits, row->id, value, e);
}
