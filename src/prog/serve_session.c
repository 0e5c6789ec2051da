/* `cloche serve`, the part that does it. */
#include <unistd.h>

#include "cli/program.h"
#include "cli/serve.h"
#include "cli/verbs.h"
#include "prog/serve_verbs.h"
#include "session/serve.h"

int serve_session(int argc, char **argv)
{
	struct serve_options o = { .in = STDIN_FILENO, .out = STDOUT_FILENO };
	char cloche[PROGRAM_PATH_MAX];
	struct serve_words words;
	struct err e;
	int rc = serve_parse(argc, argv, &words);

	if (rc >= 0)
		return rc;
	if (program_path(PROGRAM_CLOCHE, cloche, &e) < 0)
		return cli_fail("serve", &e);
	o.cloche = cloche;
	o.boxes_max = words.boxes;
	o.queue_max = words.queue;
	return serve(&o);
}
