/* What may go wrong: sources that can't be reached. apt says so, and the command then runs all the
 * same: a package that lies in the image needs no list. */
#include "engine/apt_lists.h"

#include <stdint.h>
#include <string.h>

#include "base/fd.h"

#define LISTS "/var/lib/apt/lists/"

static const char script[] = "for list in " LISTS "*_Packages*; do\n"
			     "	[ ! -e \"$list\" ] || exec \"$@\"\n"
			     "done\n"
			     "apt-get -q update\n"
			     "\"$@\"\n"
			     "code=$?\n"
			     "rm -rf " LISTS "*\n"
			     "exit $code\n";

bool apt_lists_wanted(const struct image_use *u, char *const *argv)
{
	const struct layers all = { u->layers, u->n_layers };
	const char *name = strrchr(argv[0], '/');
	int fd;

	name = name ? name + 1 : argv[0];
	if (strcmp(name, "apt-get") != 0 && strcmp(name, "apt") != 0)
		return false;
	for (char *const *a = argv + 1; *a; a++)
		if (strcmp(*a, "update") == 0)
			return false;
	fd = layers_open(&all, "usr/bin/apt-get");
	if (fd < 0)
		return false;
	fd_close(&fd);
	return true;
}

char *const *apt_lists_command(char *const *argv)
{
	static const char *const front[] = { "/bin/sh", "-c", script, "sh" };
	static const char *words[APT_LISTS_WORDS_MAX + 1];
	size_t n = 0;

	for (size_t i = 0; i < sizeof(front) / sizeof(front[0]); i++)
		words[n++] = front[i];
	for (; *argv && n < APT_LISTS_WORDS_MAX; argv++)
		words[n++] = *argv;
	words[n] = NULL;
	return *argv ? NULL : (char *const *)(uintptr_t)words;
}
