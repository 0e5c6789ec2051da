#include "session/child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"

#define STACK 65536
#define ABOVE 64 /* where descriptors stand while those below are set */

/* A sanitizer's notes of the child's stack would outlive it: the memory is another's soon. */
#define ON_ITS_STACK __attribute__((no_sanitize("address")))

struct job {
	const struct child_how *how;
	pid_t parent;
	int num; /* errno, told to the parent in its own memory */
	const char *step;
};

ON_ITS_STACK static int failed(struct job *j, const char *step)
{
	j->num = errno;
	j->step = step;
	return 127;
}

ON_ITS_STACK static int set_fds(const struct child_how *how)
{
	int at[CHILD_FDS_MAX];

	for (unsigned i = 0; i < how->n_fds; i++) {
		int fd = how->fds[i] >= 0 ? how->fds[i] : open("/dev/null", O_RDWR | O_CLOEXEC);

		at[i] = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, ABOVE);
		if (at[i] < 0)
			return -1;
	}
	for (unsigned i = 0; i < how->n_fds; i++)
		if (dup2(at[i], (int)i) < 0)
			return -1;
	return 0;
}

/* Handlers and ignored signals of the loop are not the child's. */
ON_ITS_STACK static void plain_signals(void)
{
	sigset_t none;

	for (int i = 1; i <= 64; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

ON_ITS_STACK static int run(void *arg)
{
	struct job *j = arg;

	if (set_fds(j->how) < 0)
		return failed(j, "its descriptors");
	if (j->how->die_with_us && (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
				    (getppid() != j->parent && (errno = ESRCH))))
		return failed(j, "its life");
	plain_signals();
	execve(j->how->path, j->how->argv, j->how->env);
	return failed(j, "execute it");
}

int child_start(const struct child_how *how, int *ret_pidfd, struct err *e)
{
	struct job j = { .how = how, .parent = getpid() };
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigset_t all, old;
	int pidfd = -1;
	pid_t pid;

	if (stack == MAP_FAILED)
		return err_sys(e, "start %s", how->path);
	/* No handler of ours may run in the child, on whose memory it would work. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid = clone(run, stack + STACK, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &j, &pidfd);
	sigprocmask(SIG_SETMASK, &old, NULL);
	munmap(stack, STACK);
	if (pid < 0)
		return err_fork(e, how->path);
	if (j.step) {
		waitpid(pid, NULL, 0);
		close(pidfd);
		errno = j.num;
		return err_sys(e, "start %s: %s", how->path, j.step);
	}
	*ret_pidfd = pidfd;
	return 0;
}

int child_reap(int pidfd)
{
	siginfo_t info = { 0 };

	while (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED) < 0)
		if (errno != EINTR)
			return -1;
	return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

void child_kill(int pidfd)
{
	if (pidfd >= 0)
		sys_pidfd_send_signal(pidfd, SIGKILL);
}

void child_end(int pidfd)
{
	if (pidfd < 0)
		return;
	sys_pidfd_send_signal(pidfd, SIGTERM);
	sys_pidfd_send_signal(pidfd, SIGINT);
}
