/* What all operations on a workspace's files share: its owner, paths and their errors, parents.
 *
 * How: the directory of a path's last component is opened beneath the workspace without links
 * (base/path.h), and everything is then done by one name in that open directory. A box that renames
 * directories meanwhile can make it another directory of the workspace, never one outside: it has
 * no way to move a directory out of what it was given. */
#include "session/workspace.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

static const char *const type_names[] = {
	[SES_FILE] = "file", [SES_DIRECTORY] = "directory", [SES_SYMLINK] = "symlink",
	[SES_FIFO] = "fifo", [SES_SOCKET] = "socket",	    [SES_DEVICE] = "device",
};
static_assert(sizeof(type_names) / sizeof(type_names[0]) == SES_TYPE_N, "a name for every type");

const char *ses_type_name(enum ses_type type)
{
	return type_names[type];
}

enum ses_type ses_type_of(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return SES_FILE;
	case S_IFDIR:
		return SES_DIRECTORY;
	case S_IFLNK:
		return SES_SYMLINK;
	case S_IFIFO:
		return SES_FIFO;
	case S_IFSOCK:
		return SES_SOCKET;
	default:
		return SES_DEVICE;
	}
}

int ses_workspace(int dirfd, struct ses_workspace *ret, struct err *e)
{
	struct stat st;

	if (fstat(dirfd, &st) < 0)
		return err_sys(e, "the workspace");
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_PATH, "the workspace is no directory");
	*ret = (struct ses_workspace){
		.fd = dirfd,
		.give = geteuid() == 0,
		.uid = st.st_uid,
		.gid = st.st_gid,
	};
	return 0;
}
