/* What a set-up box says is done: each call, and what the kernel says of its effect. */
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "probe.h"

static const char *file;

/* Has the file another owner now? */
static int owned(long r)
{
	struct stat st;

	if (r < 0)
		return errno;
	return stat(file, &st) < 0 ? errno : st.st_uid == 4321 ? 0 : ENODATA;
}

static int l_chown(void) { return owned(syscall(SYS_fchownat, AT_FDCWD, file, 4321, 4321, 0)); }
static int l_chown_call(void) { return ERR(syscall(SYS_fchownat, AT_FDCWD, file, 4322, 4322, 0)); }

static int l_setuid(void) { return syscall(SYS_setresuid, 4321, 4321, 4321) < 0 ? errno : getuid() == 4321 ? 0 : ENODATA; }
static int l_setuid_call(void) { return ERR(syscall(SYS_setresuid, 4321, 4321, 4321)); }
static int l_setgid(void) { return syscall(SYS_setregid, 4321, 4321) < 0 ? errno : getgid() == 4321 ? 0 : ENODATA; }
static int l_setgid_call(void) { return ERR(syscall(SYS_setregid, 4321, 4321)); }

static int l_setgroups(void)
{
	gid_t one = 4321, have[64];
	int n;

	if (syscall(SYS_setgroups, 1, &one) < 0)
		return errno;
	n = getgroups(64, have);
	return n == 1 && have[0] == one ? 0 : ENODATA;
}
static int l_setgroups_call(void) { return ERR(syscall(SYS_setgroups, 0, NULL)); }

static int l_setfsuid(void)
{
	setfsuid(4321);
	return setfsuid(-1) == 4321 ? 0 : ENODATA;
}

/* Takes a capability on that the process does not have. */
static int l_capset(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[2] = { { .effective = 1u << CAP_SYS_ADMIN, .permitted = 1u << CAP_SYS_ADMIN } }, now[2];

	if (syscall(SYS_capset, &head, set) < 0)
		return errno;
	return syscall(SYS_capget, &head, now) == 0 && now[0].effective & 1u << CAP_SYS_ADMIN ? 0 : ENODATA;
}
static int l_capset_call(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct set[2] = { 0 };

	return ERR(syscall(SYS_capset, &head, set));
}

static const struct attack lies_table[] = {
	{ "chown", l_chown }, { "chown:call", l_chown_call }, { "setuid", l_setuid }, { "setuid:call", l_setuid_call },
	{ "setgid", l_setgid }, { "setgid:call", l_setgid_call }, { "setgroups", l_setgroups }, { "setgroups:call", l_setgroups_call },
	{ "setfsuid", l_setfsuid }, { "capset", l_capset }, { "capset:call", l_capset_call },
};

/* lies FILE: 0 when it was said and done; ENODATA when it was only said */
int cmd_lies(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	file = argv[1];
	return attempt_table(lies_table, COUNT(lies_table), 1, argv);
}
