/* cloche: static, everything on the start path of a box. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cli/title.h"
#include "cli/verbs.h"

int main(int argc, char **argv)
{
	/* A caller may start us with 0, 1 or 2 closed; nothing of ours may then land there. */
	for (int fd = open("/dev/null", O_RDWR | O_CLOEXEC); fd >= 0 && fd <= STDERR_FILENO;
	     fd = dup(fd))
		;
	if (argc > 0) {
		cli_title.argv = argv;
		cli_title.start = argv[0];
		cli_title.len = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
	}
	return cli_main(argc, argv);
}
