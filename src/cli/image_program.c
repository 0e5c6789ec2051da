#include "cli/image_program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "cli/verbs.h"

#define NAME "cloche-image"
#define WORDS_MAX 4096

int image_program_path(char ret[IMAGE_PROGRAM_PATH_MAX], struct err *e)
{
	static const char *const places[] = { NAME, "../lib/cloche/" NAME };
	char dir[IMAGE_PROGRAM_PATH_MAX], path[IMAGE_PROGRAM_PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	if (n < 0)
		return err_proc(e, "/proc/self/exe");
	dir[n] = '\0';
	*strrchr(dir, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (path_join(path, sizeof(path), dir, places[i]) < 0 || access(path, X_OK) < 0)
			continue;
		memcpy(ret, path, strlen(path) + 1);
		return 0;
	}
	return err_set(
		e, ERR_MISSING,
		"the program " NAME
		" does this, and it is not beside cloche in %.200s; fix: `make install` puts both there",
		*dir ? dir : "/");
}

int image_program_become(char **argv)
{
	char path[IMAGE_PROGRAM_PATH_MAX], *words[WORDS_MAX];
	struct err e;
	size_t n = 0;

	if (image_program_path(path, &e) < 0)
		return cli_fail(argv[0], &e);
	words[n++] = path;
	for (size_t i = 0; argv[i] && n < WORDS_MAX; i++)
		words[n++] = argv[i];
	if (n == WORDS_MAX) {
		err_set(&e, ERR_USAGE, "more than %d words", WORDS_MAX - 2);
		return cli_fail(argv[0], &e);
	}
	words[n] = NULL;
	execv(path, words);
	err_sys(&e, "can't execute %.200s", path);
	return cli_fail(argv[0], &e);
}
