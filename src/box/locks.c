#include "box/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>

#include "base/fd.h"
#include "base/sys.h"

#ifndef SECCOMP_FILTER_FLAG_NEW_LISTENER
#define SECCOMP_FILTER_FLAG_NEW_LISTENER (1UL << 3)
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

static const char *const cap_names[] = {
	"CHOWN",
	"DAC_OVERRIDE",
	"DAC_READ_SEARCH",
	"FOWNER",
	"FSETID",
	"KILL",
	"SETGID",
	"SETUID",
	"SETPCAP",
	"LINUX_IMMUTABLE",
	"NET_BIND_SERVICE",
	"NET_BROADCAST",
	"NET_ADMIN",
	"NET_RAW",
	"IPC_LOCK",
	"IPC_OWNER",
	"SYS_MODULE",
	"SYS_RAWIO",
	"SYS_CHROOT",
	"SYS_PTRACE",
	"SYS_PACCT",
	"SYS_ADMIN",
	"SYS_BOOT",
	"SYS_NICE",
	"SYS_RESOURCE",
	"SYS_TIME",
	"SYS_TTY_CONFIG",
	"MKNOD",
	"LEASE",
	"AUDIT_WRITE",
	"AUDIT_CONTROL",
	"SETFCAP",
	"MAC_OVERRIDE",
	"MAC_ADMIN",
	"SYSLOG",
	"WAKE_ALARM",
	"BLOCK_SUSPEND",
	"AUDIT_READ",
	"PERFMON",
	"BPF",
	"CHECKPOINT_RESTORE",
};
#define CAP_NAMES (int)(sizeof(cap_names) / sizeof(cap_names[0]))

int locks_cap_number(const char *name)
{
	if (strncasecmp(name, "CAP_", 4) == 0)
		name += 4;
	for (int i = 0; i < CAP_NAMES; i++)
		if (strcasecmp(name, cap_names[i]) == 0)
			return i;
	return -1;
}

const char *locks_cap_name(int cap)
{
	return cap >= 0 && cap < CAP_NAMES ? cap_names[cap] : NULL;
}

uint64_t locks_cap_defaults(void)
{
	static const int caps[] = {
		CAP_CHOWN,   CAP_DAC_OVERRIDE, CAP_FSETID,	     CAP_FOWNER,
		CAP_MKNOD,   CAP_NET_RAW,      CAP_SETGID,	     CAP_SETUID,
		CAP_SETFCAP, CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
		CAP_KILL,    CAP_AUDIT_WRITE
	};
	uint64_t set = 0;

	for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
		set |= 1ULL << caps[i];
	return set;
}

/* Inside the namespace these reach what belongs to its ids, which is one: FOWNER, CHOWN and the
 * like have nothing to do there. */
uint64_t locks_cap_setup(void)
{
	return 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_SETFCAP;
}

int locks_bounding(uint64_t keep, struct err *e)
{
	for (int cap = 0; cap < 64; cap++) {
		if (keep >> cap & 1)
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
			if (errno == EINVAL && cap > CAP_NAMES - 2)
				break; /* past the kernel's last capability */
			return err_sys(e, "drop capability %d from the bounding set", cap);
		}
	}
	return 0;
}

int locks_caps(uint64_t keep, struct err *e)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[2] = { 0 }, now[2];
	int have, cap;

	/* Kept ones are inheritable and ambient, so that a command that is not uid 0 inside has
	 * them too. */
	for (int i = 0; i < 2; i++)
		set[i].effective = set[i].permitted = set[i].inheritable =
			(uint32_t)(keep >> (32 * i));
	if (syscall(SYS_capset, &head, set) < 0)
		return err_sys(e, "drop capabilities");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_sys(e, "clear ambient capabilities");
	for (int i = 0; keep && i < 64; i++)
		if (keep >> i & 1 && i < CAP_NAMES &&
		    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0) < 0)
			return err_sys(e, "keep capability %s", locks_cap_name(i));
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(e, "set no_new_privs");
	/* What was asked for is not what counts. */
	if (syscall(SYS_capget, &head, now) < 0 || memcmp(now, set, sizeof(set)) != 0)
		return err_set(e, ERR_MISSING, "the kernel did not drop the capabilities");
	for (cap = 0; cap < 64 && (have = prctl(PR_CAPBSET_READ, cap, 0, 0, 0)) >= 0; cap++)
		if (have != (int)(keep >> cap & 1))
			return err_set(
				e, ERR_MISSING,
				"the kernel did not drop capability %d from the bounding set", cap);
	if (cap < 64 && (errno != EINVAL || cap < CAP_NAMES - 1))
		return err_set(e, ERR_MISSING, "the kernel does not tell the bounding set");
	return 0;
}

/* Asked before the clone (self.c), so that init holds what cloche went by. An outer filter's EPERM
 * is an absence like any other; what else may fail is none, and no reason to do without a lock. */
int locks_landlock_abi(struct err *e)
{
	static int known = -1;
	int abi;

	if (known >= 0)
		return known;
	abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, SYS_LANDLOCK_CREATE_VERSION);
	if (abi < 0 && errno != ENOSYS && errno != EOPNOTSUPP && errno != EPERM)
		return err_sys(e, "ask the kernel for Landlock");
	known = abi < 0 ? 0 : abi;
	return known;
}

int locks_landlock(int *ret_abi, struct err *e)
{
	/* Handling any file right also forbids mount, umount and pivot_root; REFER must be handled
	 * and allowed, else renames and links across directories fail (landlock(7)). To execute, to
	 * write and to read is allowed below the box's root only: a file of the host that a magic
	 * link still leads to (/proc/self/exe is cloche itself until the command has executed) can
	 * be neither run nor overwritten, and a descriptor of a directory that a server of the host
	 * hands to the box through a socket does not lead on, by "..", to all that the caller may
	 * read. */
	const uint64_t inside = SYS_LANDLOCK_FS_REFER | SYS_LANDLOCK_FS_EXECUTE |
				SYS_LANDLOCK_FS_WRITE_FILE | SYS_LANDLOCK_FS_READ_FILE |
				SYS_LANDLOCK_FS_READ_DIR;
	struct sys_landlock_ruleset rs = {
		.handled_access_fs =
			inside | SYS_LANDLOCK_FS_MAKE_CHAR | SYS_LANDLOCK_FS_MAKE_BLOCK,
	};
	struct sys_landlock_path rule = { .allowed_access = inside };
	_cleanup_fd_ int set = -1, root = -1;
	int abi = locks_landlock_abi(e);

	*ret_abi = 0;
	if (abi < 0)
		return -1;
	if (abi < 2) /* ABI 1 can't allow REFER: it would break renames */
		return 0;
	if (abi >= 6)
		rs.scoped = SYS_LANDLOCK_SCOPE_ABSTRACT_UNIX | SYS_LANDLOCK_SCOPE_SIGNAL;
	set = (int)syscall(SYS_landlock_create_ruleset, &rs,
			   abi >= 6   ? sizeof(rs)
			   : abi >= 4 ? 16UL
				      : 8UL,
			   0);
	if (set < 0)
		return err_sys(e, "make the Landlock ruleset");
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	rule.parent_fd = root;
	if (root < 0 ||
	    syscall(SYS_landlock_add_rule, set, SYS_LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0)
		return err_sys(e, "add the Landlock rule");
	if (syscall(SYS_landlock_restrict_self, set, 0) < 0)
		return err_sys(e, "apply Landlock");
	*ret_abi = abi;
	return 0;
}

int locks_seccomp(const struct sock_filter *code, uint16_t len, int *ret_listener, struct err *e)
{
	struct sock_fprog prog = { .len = len, .filter = (struct sock_filter *)(uintptr_t)code };
	unsigned long flags =
		SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
	int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);

	if (fd < 0 && errno == EINVAL)
		fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
				  SECCOMP_FILTER_FLAG_NEW_LISTENER, &prog);
	if (fd < 0 && errno == EBUSY)
		return err_set(
			e, ERR_MISSING,
			"another seccomp listener is on this process already (cloche inside cloche?): start it "
			"outside");
	if (fd < 0)
		return err_sys(e, "load the seccomp filter with its listener");
	*ret_listener = fd;
	return 0;
}

int locks_apparmor_open(struct err *e)
{
	int fd = open("/proc/thread-self/attr/apparmor/exec", O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return err_set(
			e, ERR_MISSING,
			"--apparmor: this kernel has no AppArmor, or it is off: boot with apparmor=1, or leave the "
			"option out");
	return fd;
}

int locks_apparmor(int attr, const char *profile, struct err *e)
{
	char text[APPARMOR_NAME_MAX + 8];
	int n = snprintf(text, sizeof(text), "exec %s", profile);

	if (n < 0 || (size_t)n >= sizeof(text))
		return err_set(e, ERR_USAGE,
			       "--apparmor: the profile's name is longer than %d bytes",
			       APPARMOR_NAME_MAX);
	if (write(attr, text, (size_t)n) != n)
		return err_set(
			e, ERR_MISSING,
			"--apparmor: profile %s is not loaded: load it with apparmor_parser, see aa-status",
			profile);
	return 0;
}
