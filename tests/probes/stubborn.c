/* stubborn MARK: leaves processes that are hard to end, says "ready", then loops: each ignores TERM, INT and HUP; one is in a session of its
 * own by a double fork, one is stopped, one stands in a process group of its own. MARK is in their argv, so that the host can look
 * for them. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void deaf(void)
{
	signal(SIGTERM, SIG_IGN);
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	deaf();
	if (!fork()) {
		setsid();
		if (fork())
			_exit(0);
		for (;;)
			pause();
	}
	if (!fork()) {
		raise(SIGSTOP);
		for (;;)
			pause();
	}
	if (!fork()) {
		setpgid(0, 0);
		for (;;)
			pause();
	}
	usleep(100000);
	printf("ready %s\n", argv[1]);
	fflush(stdout);
	for (;;)
		pause();
}
