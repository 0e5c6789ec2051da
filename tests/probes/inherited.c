/* Prints what a process got from its parents: descriptors, signals, umask, session, terminal. One `name=value` a line. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void signals(const char *name, int ignored)
{
	sigset_t blocked;

	sigprocmask(SIG_SETMASK, NULL, &blocked);
	printf("%s=", name);
	for (int s = 1; s < 32; s++) {
		struct sigaction sa;

		if (s == SIGKILL || s == SIGSTOP || sigaction(s, NULL, &sa))
			continue;
		if (ignored ? sa.sa_handler == SIG_IGN : sigismember(&blocked, s) == 1)
			printf("%d ", s);
	}
	printf("\n");
}

int main(void)
{
	const char *between = "";
	char byte;
	int tty;

	printf("fds=");
	for (int fd = 0; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) != -1) {
			printf("%s%d", between, fd);
			between = ",";
		}
	printf("\n");
	signals("ignored", 1);
	signals("blocked", 0);
	mode_t old = umask(0);
	printf("umask=%03o\n", (unsigned)old);
	printf("session_leader=%s\n", getsid(0) == getpid() ? "yes" : "no");
	tty = open("/dev/tty", O_RDWR);
	printf("tty=%s\n", tty >= 0 ? "yes" : "no");
	printf("stdin_kind=%s\n", read(0, &byte, 1) == 0 ? "empty" : "full");
	printf("pid1_visible=%s\n", access("/proc/1/environ", R_OK) ? "no" : "yes");
	errno = 0;
	printf("nice=%d\n", getpriority(PRIO_PROCESS, 0));
	return 0;
}
