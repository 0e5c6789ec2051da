/* memory MODE MIB HOLD_MS: uses MIB of memory, says "used", holds it, says "survived".
 *
 * MODE: gradual (1 MiB at a time), once (one mapping, then touched), child (a child does it, the parent would go on), threads (four at
 * once), second (a second thread, after the first one has ended), file PATH (written to that file instead). */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static char *map(size_t n)
{
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(3);
	}
	return p;
}

static void *gradual(void *arg)
{
	for (size_t i = 0, n = *(size_t *)arg; i < n; i++) {
		memset(map(MIB), 'x', MIB);
		usleep(2000);
	}
	return NULL;
}

static int hold;

static void *second(void *arg)
{
	usleep(50000); /* the first thread is gone by then */
	gradual(arg);
	printf("used\n");
	fflush(stdout);
	usleep(hold * 1000);
	printf("survived\n");
	fflush(stdout);
	_exit(0);
}

static void file(const char *path, size_t n)
{
	char *block = map(MIB);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	memset(block, 'x', MIB);
	for (size_t i = 0; i < n; i++) {
		if (fd < 0 || write(fd, block, MIB) != MIB) {
			perror(path);
			exit(4);
		}
		usleep(1000);
	}
}

int main(int argc, char **argv)
{
	static size_t n;

	if (argc < 4)
		return 2;
	n = strtoul(argv[2], NULL, 10);
	hold = (int)strtol(argv[3], NULL, 10);
	if (!strcmp(argv[1], "gradual")) {
		gradual(&n);
	} else if (!strcmp(argv[1], "once")) {
		memset(map(n * MIB), 'x', n * MIB);
	} else if (!strcmp(argv[1], "child")) {
		pid_t pid = fork();

		if (!pid) {
			gradual(&n);
			usleep(hold * 1000);
			_exit(0);
		}
		waitpid(pid, NULL, 0);
		usleep(500000); /* the whole box ends, not only the child that asked for too much */
		printf("parent went on\n");
		return 0;
	} else if (!strcmp(argv[1], "threads")) {
		pthread_t t[4];

		n /= 4;
		for (int i = 0; i < 4; i++)
			pthread_create(&t[i], NULL, gradual, &n);
		for (int i = 0; i < 4; i++)
			pthread_join(t[i], NULL);
	} else if (!strcmp(argv[1], "second")) {
		pthread_t t;

		pthread_create(&t, NULL, second, &n);
		pthread_exit(NULL);
	} else if (!strcmp(argv[1], "file") && argc > 4) {
		file(argv[4], n);
	} else {
		return 2;
	}
	printf("used\n");
	fflush(stdout);
	usleep(hold * 1000);
	printf("survived\n");
	return 0;
}
