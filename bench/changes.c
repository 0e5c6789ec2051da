/* One call's worth of change tracking: the walk before, the walk after, the difference. Prints how long both took, in microseconds, by the clock of
 * the machine; the directory is argv[1]. */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>

#include "session/changes.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
	struct ses_changes *c = NULL;
	struct buf out;
	struct json j;
	struct err e;
	uint64_t cut;
	double began;
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd < 0)
		return 2;
	buf_init(&out, 1 << 20);
	json_init(&j, &out);
	began = now();
	if (ses_changes_begin(fd, &c, &e) < 0 || ses_changes_end(c, &j, &cut, &e) < 0) {
		fprintf(stderr, "%s\n", e.msg);
		return 1;
	}
	printf("%.0f %s\n", now() - began, out.data);
	ses_changes_free(&c);
	return 0;
}
