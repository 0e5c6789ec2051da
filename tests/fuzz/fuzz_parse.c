/* The small languages of options: whatever the text, a parser answers 0 with a value in range or -1 with a printable message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "base/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void judge(int rc, const struct err *e, int in_range)
{
	if (rc == 0 ? !in_range : rc != -1 || e->kind == ERR_NONE || !e->msg[0] || strlen(e->msg) >= sizeof(e->msg))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), shown[32];
	struct err e = { 0 };
	uint64_t v = 0;
	double cpus = 0;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	judge(parse_size(text, &v, &e), &e, v <= INT64_MAX);
	judge(parse_duration(text, &v, &e), &e, v <= 366ULL * 86400 * 1000000);
	v = 5;
	judge(parse_u64(text, 3, 70000, &v, &e), &e, v >= 3 && v <= 70000);
	cpus = 1;
	judge(parse_cpus(text, &cpus, &e), &e, cpus >= 0.01 && cpus <= 1024);
	str_printable(shown, sizeof(shown), text);
	for (const char *p = shown; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			abort();
	free(text);
	return 0;
}
