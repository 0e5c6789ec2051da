#include "box/self.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/locks.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

#define FILES_NEEDED 64
#define FILES_WANTED 1024 /* each shared directory takes one more */

extern char **environ;

static int self_copy(int exe, int copy)
{
	struct stat st;
	off_t left;

	if (fstat(exe, &st) < 0)
		return -1;
	for (left = st.st_size; left > 0;) {
		ssize_t n = sendfile(copy, exe, NULL, (size_t)left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		left -= n;
	}
	return fcntl(copy, F_ADD_SEALS, SEALS);
}

bool self_is_copy(void)
{
	_cleanup_fd_ int exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	return exe >= 0 && fcntl(exe, F_GET_SEALS) == SEALS;
}

int self_protect(char **argv, struct err *e)
{
	_cleanup_fd_ int exe = -1, copy = -1;
	int abi = locks_landlock_abi(e);

	if (abi < 0)
		return -1;
	if (abi >= 2)
		return 0;
	exe = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (exe < 0)
		return err_proc(e, "/proc/self/exe");
	if (fcntl(exe, F_GET_SEALS) == SEALS) /* this is the copy */
		return 0;
	copy = memfd_create("cloche", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (copy < 0 || self_copy(exe, copy) < 0)
		return err_sys(
			e,
			"copy cloche into sealed memory (this kernel has no Landlock, which would do instead)");
	fexecve(copy, argv, environ);
	return err_sys(
		e,
		"run cloche from sealed memory (this kernel has no Landlock, which would do instead)");
}

int self_limits(struct err *e)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return err_sys(e, "read the limit on open files");
	if (l.rlim_max < FILES_NEEDED)
		return err_set(
			e, ERR_MISSING,
			"cloche may have %llu open files here and needs %d; fix: raise the hard limit: "
			"ulimit -Hn 1024, or nofile in /etc/security/limits.conf",
			(unsigned long long)l.rlim_max, FILES_NEEDED);
	if (l.rlim_cur >= FILES_WANTED || l.rlim_cur == l.rlim_max)
		return 0;
	l.rlim_cur = l.rlim_max < FILES_WANTED ? l.rlim_max : FILES_WANTED;
	return setrlimit(RLIMIT_NOFILE, &l) < 0 ? err_sys(e, "raise the limit on open files") : 0;
}
