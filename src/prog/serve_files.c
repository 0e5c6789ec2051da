/* `cloche-serve files`: what the loop starts to work with a sandbox's files. */
#include <string.h>

#include "cli/program.h"
#include "prog/serve_verbs.h"
#include "session/worker.h"

/* files DIR own|held|DEVICE:INODE MAX|none [TO|held] | files --remove NAME */
int serve_files(int argc, char **argv)
{
	static char image[PROGRAM_PATH_MAX];
	struct worker_options o = { .image = image };
	struct err ignored;

	if (argc == 3 && strcmp(argv[1], "--remove") == 0)
		return worker_remove(argv[2]);
	if (argc < 4)
		return 2;
	o.dir = argv[1];
	o.max = strcmp(argv[3], "none") ? argv[3] : NULL;
	o.held = strcmp(argv[2], "held") == 0;
	o.place = o.held || !strcmp(argv[2], "own") ? NULL : argv[2];
	o.to = argv[4];
	o.to_held = o.to && strcmp(o.to, "held") == 0;
	if (program_path(PROGRAM_IMAGE, image, &ignored) < 0)
		*image = '\0';
	return worker_run(&o);
}
