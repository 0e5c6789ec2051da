#include "session/runner.h"

#include <assert.h>
#include <stdint.h>

#include "session/runner_text.h"

/* As with -c: the same name in messages, and standard input is for the code's own programs. bash
 * reads the whole without a process more; what `sh` is may need one for that, but not for this. */
static const char runner_shell[] = ". " SPAWN_CODE_PATH;
static const char runner_bash[] = "eval \"$(<" SPAWN_CODE_PATH ")\"";

/* Python's runner has names of its own, and leaves none in __main__. */
static const char boot_python[] = "exec(__import__('sys').argv.pop(1), {'main': globals()})";

static const struct {
	const char *words[RUNNER_WORDS_MAX + 1];
} rows[] = {
	[SPAWN_PYTHON] = { { "python3", "-c", boot_python, runner_python, runner_python_fails } },
	[SPAWN_BASH] = { { "bash", "-c", runner_bash } },
	[SPAWN_SH] = { { "sh", "-c", runner_shell } },
	[SPAWN_NODE] = { { "node", "-e", runner_node } },
};
static_assert(sizeof(rows) / sizeof(rows[0]) == SPAWN_LANGUAGE_N, "a row for every language");

char *const *runner_argv(enum spawn_language l)
{
	return (char *const *)(uintptr_t)rows[l].words;
}
