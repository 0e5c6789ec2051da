/* forker N: tries to have N children alive at once; prints how many there were. `forker bomb` forks without end in every child. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0, made = 0;

	if (argc > 1 && !strcmp(argv[1], "bomb"))
		for (;;)
			if (fork() < 0)
				usleep(1000);
	for (; made < n; made++) {
		pid_t pid = fork();

		if (pid < 0)
			break;
		if (!pid)
			for (;;)
				pause();
	}
	printf("%d\n", made);
	fflush(stdout);
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
	return 0;
}
