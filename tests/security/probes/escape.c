/* Attempts that must end the box, made as hard to see as possible: by a grandchild, by a storm under signals, by a crowd, by a process
 * that is gone before anyone looks. And a family of processes that does not want to die. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

static int try_mount(void) { return mount("probe", "/tmp", "tmpfs", 0, NULL); }

/* A trace in the shared directory of having lived on for a second after the attempt. */
static void survive(const char *trace)
{
	sleep(1);
	int fd = open(trace, O_CREAT | O_WRONLY, 0644);
	if (fd >= 0)
		close(fd);
	puts("SURVIVED");
	fflush(stdout);
}

/* grandchild COMM TRACE: a daemon-like grandchild with a name of its choice calls mount; the others only wait */
int cmd_grandchild(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	if (fork() == 0) {
		setsid();
		if (fork() == 0) {
			signal(SIGTERM, SIG_IGN);
			signal(SIGHUP, SIG_IGN);
			prctl(PR_SET_NAME, argv[1]);
			try_mount();
			survive(argv[2]);
			_exit(0);
		}
		sleep(2);
		_exit(0);
	}
	sleep(2);
	survive(argv[2]);
	return 0;
}

static void on_alarm(int sig) { (void)sig; }

/* storm N TRACE: N calls of mount under a timer that interrupts them all the time */
int cmd_storm(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval every = { { 0, 30 }, { 0, 30 } }, never = { { 0, 0 }, { 0, 0 } };

	if (argc < 3)
		return 2;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < atoi(argv[1]); i++)
		try_mount();
	setitimer(ITIMER_REAL, &never, NULL);
	survive(argv[2]);
	return 0;
}

/* crowd N TRACE: N processes call it in the same moment */
int cmd_crowd(int argc, char **argv)
{
	int gate[2], n = argc < 3 ? 0 : atoi(argv[1]);
	char x;

	if (n <= 0 || pipe(gate) < 0)
		return 2;
	for (int i = 0; i < n; i++)
		if (fork() == 0) {
			close(gate[1]);
			if (read(gate[0], &x, 1) == 0)
				try_mount();
			sleep(5);
		}
	close(gate[1]);
	close(gate[0]);
	survive(argv[2]);
	return 0;
}

static void *mount_thread(void *unused)
{
	try_mount();
	return unused;
}

/* hit-and-run TRACE: the thread that calls is gone at once, with its whole process; again and again */
int cmd_hit_and_run(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	for (int i = 0; i < 200; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t t;
			pthread_create(&t, NULL, mount_thread, NULL);
			usleep((unsigned)(i % 20) * 5);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
	survive(argv[1]);
	return 0;
}

/* stubborn MARKER: processes that left the session, ignore signals, are stopped, or are nobody's child. The first one returns at once
 * when asked ("stubborn MARKER leave"), else it stays. */
int cmd_stubborn(int argc, char **argv)
{
	for (int kind = 0; kind < 4; kind++) {
		if (fork() != 0)
			continue;
		if (kind != 0)
			setsid();
		for (int sig = 1; sig < 32; sig++)
			signal(sig, SIG_IGN);
		if (kind == 2 && fork() != 0)
			_exit(0);
		if (kind == 3)
			raise(SIGSTOP);
		for (;;)
			sleep(300);
	}
	signal(SIGPIPE, SIG_IGN); /* nor does it end because nobody hears it */
	usleep(50000);
	puts("ready");
	fflush(stdout);
	if (argc > 2 && !strcmp(argv[2], "leave"))
		return 0;
	for (;;)
		sleep(300);
}
