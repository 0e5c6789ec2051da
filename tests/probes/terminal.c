/* Prints facts of its terminal; then, with an argument, reports each SIGWINCH and SIGINT until two have come. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static volatile sig_atomic_t last;

static void note(int sig)
{
	last = sig;
}

static void size(const char *what)
{
	struct winsize w = { 0 };

	ioctl(0, TIOCGWINSZ, &w);
	printf("%s=%dx%d\n", what, w.ws_col, w.ws_row);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char name[64] = "?";
	sigset_t waiting, old;
	struct sigaction sa = { .sa_handler = note };
	int tty, n = 0;

	(void)argv;
	sigemptyset(&waiting);
	sigaddset(&waiting, SIGINT);
	sigaddset(&waiting, SIGWINCH);
	sigprocmask(SIG_BLOCK, &waiting, &old);
	sigaction(SIGWINCH, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	printf("isatty=%d%d%d\n", isatty(0), isatty(1), isatty(2));
	tty = open("/dev/tty", O_RDWR);
	printf("controlling=%d\n", tty >= 0);
	printf("foreground=%d\n", tcgetpgrp(0) == getpgrp());
	ttyname_r(0, name, sizeof(name));
	printf("name=%s\n", name);
	size("size");
	if (argc < 2)
		return 0;
	printf("waiting\n");
	fflush(stdout);
	for (; n < 2; n++) {
		sigsuspend(&old);
		if (last == SIGWINCH)
			size("resized");
		else
			printf("interrupted\n");
		fflush(stdout);
	}
	return 0;
}
