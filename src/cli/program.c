#include "cli/program.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/path.h"
#include "cli/verbs.h"

#define WORDS_MAX 4096

int program_path(const char *name, char ret[PROGRAM_PATH_MAX], struct err *e)
{
	static const char *const places[] = { "", "../lib/cloche", "../../bin" };
	char dir[PROGRAM_PATH_MAX], at[PROGRAM_PATH_MAX], path[PROGRAM_PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

	if (n < 0)
		return err_proc(e, "/proc/self/exe");
	dir[n] = '\0';
	*strrchr(dir, '/') = '\0';
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (path_join(at, sizeof(at), dir, places[i]) < 0 ||
		    path_join(path, sizeof(path), *places[i] ? at : dir, name) < 0 ||
		    access(path, X_OK) < 0)
			continue;
		memcpy(ret, path, strlen(path) + 1);
		return 0;
	}
	return err_set(
		e, ERR_MISSING,
		"the program %s does this, and it is not beside cloche in %.200s; fix: `make install` puts both there",
		name, *dir ? dir : "/");
}

int program_become(const char *name, char **argv)
{
	char path[PROGRAM_PATH_MAX], *words[WORDS_MAX];
	struct err e;
	size_t n = 0;

	if (program_path(name, path, &e) < 0)
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
