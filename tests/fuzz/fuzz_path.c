/* Lexical normalisation: what it accepts is absolute, free of "..", "//" and control characters, and normalising it again changes nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), once[4096], twice[4096];
	struct err e = { 0 };

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	if (path_normalise(text, once, &e) == 0) {
		size_t n = strlen(once);

		if (once[0] != '/' || strstr(once, "//") || strstr(once, "/../") || strstr(once, "/./") ||
		    (n > 1 && once[n - 1] == '/') || (n >= 3 && !strcmp(once + n - 3, "/..")))
			abort();
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)once[i] < 0x20 || once[i] == 0x7f)
				abort();
		if (path_normalise(once, twice, &e) < 0 || strcmp(once, twice) || !path_within(once, "/") || !path_within(once, once))
			abort();
	} else if (e.kind == ERR_NONE) {
		abort();
	}
	free(text);
	return 0;
}
