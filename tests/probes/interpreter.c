/* Run by binfmt_misc: says under which locks, and whether it sees the host. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	int seccomp = -1;

	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "Seccomp: %d", &seccomp);
	printf("seccomp %d, %s\n", seccomp, access("/etc/shadow", F_OK) == 0 ? "on the host" : "in the box");
	return 0;
}
