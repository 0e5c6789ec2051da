/* The table of all options, in the order of docs/OPTIONS.md. */
#include "session/options_impl.h"

#include <string.h>

#include "box/limits.h"

#define MIB_MAX 8388608 /* 8 TiB */
#define DAY 86400

const struct ses_option ses_option_table[] = {
	{ "image", KIND_STRING, "\"host\"", .word = "image", .since = "0.3",
	  .help = "root file system: an OCI image, or `host`, which shows this machine's /usr read-only and works offline" },
	{ "pull", KIND_CHOICE, "\"missing\"", .choices = "missing|always|never", .since = "0.3",
	  .help = "when to download the image; `never` touches no network" },
	{ "platform", KIND_STRING, "null", .null_is = "this machine's", .word = "platform",
	  .since = "0.3", .help = "the image for this platform, such as \"linux/arm64\"" },
	{ "image_timeout_s", KIND_SECONDS, "600", .min = 0.001, .max = 366 * DAY,
	  .word = "pull-timeout", .since = "0.3",
	  .help = "how long downloading the image may take" },
	{ "pyc_cache", KIND_BOOL, "true", .word = "no-pyc-cache", .negated = true, .since = "0.3",
	  .help = "compile the image's Python library ahead, once, and use what was compiled" },
	{ "setup", KIND_COMMAND, "null", .here = true, .since = "0.3",
	  .help = "installs what the code needs: run once over the image, with the network; the result is kept, and later sandboxes find it" },
	{ "setup_memory_mb", KIND_MIB, "null", .null_is = "4 times memory_mb", .min = 4,
	  .max = MIB_MAX, .since = "0.3", .help = "memory of the box that `setup` runs in" },
	{ "setup_timeout_s", KIND_SECONDS, "300", .min = 0.001, .max = 366 * DAY, .since = "0.3",
	  .help = "how long `setup` may take" },
	{ "deps_readonly", KIND_BOOL, "true", .word = "deps-writable", .negated = true,
	  .since = "0.3",
	  .help = "what `setup` installed on `host` is read-only; false: each call may write over it, and what it wrote goes with its box" },
	{ "workspace", KIND_PATH, "null", .null_is = "one in memory that goes with the sandbox",
	  .here = true, .since = "0.3",
	  .help = "directory of this machine that all calls share read-write at /workspace, made if it is missing, and never removed" },
	{ "workspace_max_bytes", KIND_BYTES, "null", .min = 1, .max = SES_NUMBER_MAX,
	  .word = "workspace-max", .since = "0.3",
	  .help = "size of a workspace in memory (none: half of `memory_mb`); of a directory, what ends a call: fault `workspace_full`" },
	{ "git", KIND_BOOL, "false", .word = "git", .since = "0.3",
	  .help = "the workspace is a linked worktree: share what commits need of its repository" },
	{ "track_files", KIND_BOOL, "true", .since = "0.3",
	  .help = "tell which files of the workspace each call created, modified, deleted or renamed" },
	{ "mounts", KIND_MOUNTS, "{}", .word = "volume", .since = "0.3",
	  .help = "directories and files of this machine; read-write unless \"ro\" is said, under `untrusted` read-only unless \"rw\"" },
	{ "tmpfs", KIND_TMPFS, "null",
	  .null_is =
		  "64 MiB at /tmp, but at most half of the memory, and none where a mount is at /tmp or below",
	  .word = "tmpfs", .since = "0.3",
	  .help = "memory file systems, whose content counts as memory and goes with the call; {} for none" },
	{ "memory_mb", KIND_MIB, "512", .min = 4, .max = MIB_MAX, .word = "memory", .since = "0.3",
	  .help = "memory of the whole box: fault `oom` beyond it" },
	{ "cpus", KIND_NUMBER, "null", .min = 0.01, .max = 1024, .word = "cpus", .since = "0.3",
	  .help = "cpus, such as 0.5 or 2" },
	{ "pids", KIND_INTEGER, "256", .min = 1, .max = 4194304 - LIMIT_INIT_PIDS, .word = "pids",
	  .since = "0.3", .help = "processes and threads at once" },
	{ "timeout_s", KIND_SECONDS, "30", .min = 0.001, .max = 366 * DAY, .since = "0.3",
	  .help = "deadline of a call that has none of its own: fault `timeout`. It can't be left out" },
	{ "max_output_bytes", KIND_BYTES, "67108864", .min = 1, .max = 1099511627776.0,
	  .word = "max-output", .since = "0.3",
	  .help = "what is kept of each stream: its first and last half; the program runs on" },
	{ "shm_mb", KIND_MIB, "null", .null_is = "64, but at most half of the memory", .min = 1,
	  .max = MIB_MAX, .word = "shm-size", .since = "0.3", .help = "size of /dev/shm" },
	{ "rlimits", KIND_RLIMITS, "{}", .since = "0.3",
	  .help = "limits of each process: bytes of its address space, bytes of a file it writes, descriptors it has open" },
	{ "enforce_limits", KIND_BOOL, "true", .word = "supervised", .negated = true,
	  .since = "0.3",
	  .help = "false: make no cgroup, and sample instead (best effort, not for hostile code)" },
	{ "require_limits", KIND_BOOL, "false", .word = "require-limits", .since = "0.3",
	  .help = "run nothing unless the kernel holds memory and pids" },
	{ "network", KIND_BOOL, "false", .word = "network", .since = "0.3",
	  .help = "false: loopback alone. true: all of this machine's network, its own services on 127.0.0.1 included" },
	{ "egress_allow", KIND_LATER, "null", .since = "later",
	  .help = "hosts that the box may reach" },
	{ "user", KIND_USER, "null", .null_is = "the image's own; on `host` uid 1000",
	  .word = "user", .since = "0.3",
	  .help = "user inside: a name of the image, a uid, or UID:GID. Outside it is always you" },
	{ "uid_range", KIND_BOOL, "false", .word = "uid-range", .since = "0.3",
	  .help = "give the box 65536 user ids, for programs that change to others" },
	{ "env", KIND_ENV, "{}", .since = "0.3",
	  .help = "variables of every call, and of `setup`; nothing of this machine's environment is passed on" },
	{ "cap_drop", KIND_CAPS, "[\"ALL\"]", .word = "cap-drop", .since = "0.3",
	  .help = "capabilities to drop of docker's fourteen, inside the box's own user namespace; [] keeps them all" },
	{ "cap_add", KIND_STRINGS, "[]", .word = "cap-add", .since = "0.3",
	  .help = "capabilities to keep, inside the box's own user namespace" },
	{ "security_profile", KIND_CHOICE, "null", .null_is = "default",
	  .choices = "default|untrusted", .word = "security-profile", .since = "0.3",
	  .help = "`untrusted`: no capability, root and mounts read-only, unix sockets of the host unreachable everywhere" },
	{ "read_only", KIND_BOOL, "false", .word = "read-only", .since = "0.3",
	  .help = "make the root read-only, with memory file systems at /tmp, /run and HOME" },
	{ "seccomp_rules", KIND_STRINGS, "[]", .word = "seccomp-rule", .since = "0.3",
	  .help = "\"allow=CALL\" or \"deny=CALL\" for one system call each; the escape set stays shut" },
	{ "apparmor", KIND_STRING, "null", .word = "apparmor", .since = "0.3",
	  .help = "run calls and set-ups under this AppArmor profile, which must be loaded" },
	{ "devices", KIND_STRINGS, "[]", .word = "device", .since = "0.3",
	  .help = "character devices below /dev to give" },
	{ "profiles", KIND_PROFILES, "[]", .here = true, .since = "0.3",
	  .help = "profiles of cloche.yaml: \"vcpu:NAME\" (cpus, memory), \"vdisk:NAME\" (a memory file system), \"vgpio:NAME\" (devices)" },
	{ "name", KIND_LABEL, "null", .here = true, .since = "0.3",
	  .help = "a label of the sandbox, which `info` tells" },
	{ "prewarm", KIND_LATER, "0", .here = true, .since = "later",
	  .help = "boxes made ready ahead of their calls" },
	{ "persist", KIND_LATER, "false", .here = true, .since = "later",
	  .help = "one box that lives on, for all calls" },
	{ "persist_ttl_s", KIND_LATER, "null", .here = true, .since = "later",
	  .help = "how long that box lives" },
};
const size_t ses_option_n = sizeof(ses_option_table) / sizeof(ses_option_table[0]);

const struct ses_callback ses_callbacks[] = {
	{ "on_stdout", "0.3",
	  "called with the bytes of standard output as they come, of calls and of `setup`; nothing is dropped" },
	{ "on_stderr", "0.3", "the same for standard error" },
};
const size_t ses_callbacks_n = sizeof(ses_callbacks) / sizeof(ses_callbacks[0]);

const struct ses_option *ses_option_find(const char *name)
{
	for (size_t i = 0; i < ses_option_n; i++)
		if (strcmp(ses_option_table[i].name, name) == 0)
			return &ses_option_table[i];
	return NULL;
}
