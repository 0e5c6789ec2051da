#include "box/mount_below.h"

#include <string.h>

#include "base/mountinfo.h"
#include "base/path.h"
#include "box/mount_check.h"

static const char *const kernels_own[] = {
	"proc",	      "sysfs",	    "cgroup",	"cgroup2", "devtmpfs",	"devpts",  "debugfs",
	"tracefs",    "securityfs", "configfs", "bpf",	   "efivarfs",	"pstore",  "binfmt_misc",
	"rpc_pipefs", "nsfs",	    "mqueue",	"fusectl", "selinuxfs", "smackfs",
};

int mount_below_check(const struct box_mount *m, struct err *e)
{
	_cleanup_mountinfo_ struct mountinfo info;
	struct mount_shown shown;

	if (mountinfo_open(&info, "/proc/self/mountinfo") < 0)
		return err_sys(e, "read /proc/self/mountinfo");
	while (mountinfo_next(&info)) {
		if (!path_within(info.target, m->src) || strcmp(info.target, m->src) == 0)
			continue;
		for (size_t i = 0; i < sizeof(kernels_own) / sizeof(kernels_own[0]); i++)
			if (strcmp(info.type, kernels_own[i]) == 0)
				return err_set(
					e, ERR_REFUSED,
					"refused: %s is mounted at %s and would come along; unmount it, or name a "
					"directory that does not hold it",
					info.type, mount_show(&shown, info.target));
	}
	return 0;
}
