#include "box/mount_below.h"

#include <limits.h>
#include <string.h>

#include "base/mountinfo.h"
#include "base/path.h"
#include "box/mount_check.h"

#define TOLD_MAX 8

static const char *const kernels_own[] = {
	"proc",	      "sysfs",	    "cgroup",	"cgroup2", "devtmpfs",	"devpts",  "debugfs",
	"tracefs",    "securityfs", "configfs", "bpf",	   "efivarfs",	"pstore",  "binfmt_misc",
	"rpc_pipefs", "nsfs",	    "mqueue",	"fusectl", "selinuxfs", "smackfs",
};

static int refuse(struct mount_check *c, const struct box_mount *m, const struct mountinfo *info,
		  struct err *e)
{
	struct mount_shown shown;

	mount_deny(c, m, "no kernel file system below", MOUNT_ALLOW_NONE,
		   "unmount what is mounted below it, or name a directory that does not hold it");
	return err_set(e, ERR_REFUSED,
		       "refused: %s is mounted at %s and would come along; unmount it, or name a "
		       "directory that does not hold it",
		       info->type, mount_show(&shown, info->target));
}

/* Only the directory's own mount is shown, and `at` is another: the box finds an empty directory
 * there. */
static void hidden(struct mount_check *c, const struct box_mount *m, const char *at)
{
	char dst[PATH_MAX], text[DENIAL_TEXT] = "";
	struct mount_shown shown;

	if (path_join(dst, sizeof(dst), m->dst, at + strlen(m->src) + 1) < 0)
		return;
	mount_note(c, "%s is a mount of its own, which the box does not see: share it as well",
		   mount_show(&shown, at));
	if (denial_volume(text, sizeof(text), at, dst, m->rw ? "rw" : "ro"))
		mount_deny_read(c, "submount", dst, at, text, NULL);
	else
		mount_deny_read(c, "submount", dst, at, NULL, "share it as well, by -v");
}

/* Is this one shown by a mount of the caller's after all? */
static bool is_shared(const struct mount_check *c, const char *at)
{
	for (size_t i = 0; i < c->spec->n_mounts; i++)
		if (c->spec->mounts[i].src && strcmp(c->spec->mounts[i].src, at) == 0)
			return true;
	return false;
}

int mount_below_check(struct mount_check *c, const struct box_mount *m, bool hides, struct err *e)
{
	_cleanup_mountinfo_ struct mountinfo info;
	unsigned told = 0;

	if (mountinfo_open(&info, "/proc/self/mountinfo") < 0)
		return err_sys(e, "read /proc/self/mountinfo");
	while (mountinfo_next(&info)) {
		if (!path_within(info.target, m->src) || strcmp(info.target, m->src) == 0)
			continue;
		for (size_t i = 0; i < sizeof(kernels_own) / sizeof(kernels_own[0]); i++)
			if (strcmp(info.type, kernels_own[i]) == 0)
				return refuse(c, m, &info, e);
		if (hides && told < TOLD_MAX && !is_shared(c, info.target)) {
			hidden(c, m, info.target);
			told++;
		}
	}
	return 0;
}
