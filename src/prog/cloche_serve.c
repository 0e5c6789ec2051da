/* cloche-serve: sessions and their configuration, over the host's libraries. It takes the verbs of
 * cloche that need them, by the same tables; cloche executes it (cli/program.h). */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alone.h"
#include "prog/serve_verbs.h"
#include "session/options.h"

/* A row a verb: argv[0] is the verb; returns the exit code. */
static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{ "config", serve_config },
	{ "serve", serve_session },
	{ "files", serve_files },
};

int main(int argc, char **argv)
{
	alone();
	/* A caller may start us with 0, 1 or 2 closed; nothing of ours may then land there. */
	for (int fd = open("/dev/null", O_RDWR | O_CLOEXEC); fd >= 0 && fd <= STDERR_FILENO;
	     fd = dup(fd))
		;
	for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	/* For the documents and the bindings' checks. */
	if (argc == 3 && !strcmp(argv[1], "--options"))
		return ses_options_print(argv[2]);
	fputs("cloche-serve: cloche runs this; see cloche help\n", stderr);
	return 2;
}
