#include "box/user.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"

static int map_write(int self, const char *file, uint64_t inside, uint64_t outside, struct err *e)
{
	char text[64];

	snprintf(text, sizeof(text), "%llu %llu 1", (unsigned long long)inside,
		 (unsigned long long)outside);
	return fd_write_file_at(self, file, text) < 0
		       ? err_sys(e, "write /proc/self/%s (%s)", file, text)
		       : 0;
}

int user_map(const struct box_spec *s, struct err *e)
{
	_cleanup_fd_ int self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (self < 0)
		return err_proc(e, "/proc/self");
	if (fd_write_file_at(self, "setgroups", "deny") < 0)
		return err_sys(e, "write /proc/self/setgroups");
	if (map_write(self, "uid_map", s->uid, s->outer_uid, e) < 0)
		return -1;
	return map_write(self, "gid_map", s->gid, s->outer_gid, e);
}

int user_become(const struct box_spec *s, struct err *e)
{
	if (setresgid(s->gid, s->gid, s->gid) < 0 || setresuid(s->uid, s->uid, s->uid) < 0)
		return err_sys(e, "become uid %u of the box", s->uid);
	return 0;
}
