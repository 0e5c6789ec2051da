/* Fuzzes the grammar of --env-file: no text may crash it, a refusal is one line, and what was accepted is NAME=VALUE with no name twice, each pair
 * a piece of a line of the file.
 *
 * Input: the file. tools/fuzz builds and runs it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/env.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_pairs(const struct prepared *p, const char *text, size_t size)
{
	if (p->n_env > BOX_ENV_MAX || p->env[p->n_env])
		abort();
	for (size_t i = 0; i < p->n_env; i++) {
		const char *pair = p->env[i];
		size_t n = strcspn(pair, "=");

		if (pair < text || pair + strlen(pair) > text + size || pair[n] != '=' || strchr(pair, '\n'))
			abort();
		if (n == 0 || strspn(pair, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") != n)
			abort();
		if (pair[0] >= '0' && pair[0] <= '9')
			abort();
		for (size_t k = 0; k < i; k++)
			if (strncmp(p->env[k], pair, n + 1) == 0)
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct prepared p;
	struct err e = { .kind = ERR_NONE };
	char *text = malloc(size + 1);
	int rc;

	memcpy(text, data, size);
	text[size] = '\0';
	p.n_env = 0;
	p.env[0] = NULL;
	rc = env_file_text(&p, "file", text, size, &e);
	if ((rc == -1) != (e.kind != ERR_NONE) || rc < -1 || rc > 0)
		abort();
	if (rc == -1 && (!*e.msg || strchr(e.msg, '\n')))
		abort();
	if (memchr(data, '\0', size) && rc == 0)
		abort();
	check_pairs(&p, text, size);
	free(text);
	return 0;
}
