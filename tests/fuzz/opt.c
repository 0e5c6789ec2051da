/* The option parser over the real tables: words split at NUL. It accepts or complains; what it hands on belongs to a row and fits its type. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/opt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS_MAX 32

static const struct opt_row rows[] = {
	{ .name = "flag", .letter = 'f', .type = OPT_FLAG, .group = "g", .help = "h", .since = "0" },
	{ .name = "quiet", .letter = 'q', .type = OPT_FLAG, .group = "g", .help = "h", .since = "0", .conflicts = "flag" },
	{ .name = "env", .letter = 'e', .type = OPT_STR, .value = "K=V", .many = true, .group = "g", .help = "h", .since = "0" },
	{ .name = "size", .letter = 's', .type = OPT_SIZE, .value = "SIZE", .group = "g", .help = "h", .since = "0" },
	{ .name = "time", .type = OPT_DURATION, .value = "DUR", .group = "g", .help = "h", .since = "0" },
	{ .name = "number", .letter = 'n', .type = OPT_NUMBER, .value = "N", .group = "g", .help = "h", .since = "0" },
	{ .name = "cpus", .type = OPT_CPUS, .value = "N", .group = "g", .help = "h", .since = "0" },
	{ .name = "kind", .type = OPT_CHOICE, .value = "one|two|three", .group = "g", .help = "h", .since = "0" },
};
static const struct opt_verb verb = {
	.name = "fuzz", .summary = "s", .operands = "-- COMMAND", .rows = rows, .n_rows = sizeof(rows) / sizeof(rows[0]), .takes_command = true,
};

static int given(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	uint64_t v;
	double d;

	(void)ctx;
	if (row < rows || row >= rows + sizeof(rows) / sizeof(rows[0]) || (row->type == OPT_FLAG) != !value)
		abort();
	if ((row->type == OPT_SIZE && parse_size(value, &v, e) < 0) || (row->type == OPT_DURATION && parse_duration(value, &v, e) < 0) ||
	    (row->type == OPT_CPUS && parse_cpus(value, &d, e) < 0) ||
	    (row->type == OPT_CHOICE && strcmp(value, "one") && strcmp(value, "two") && strcmp(value, "three")))
		abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), *argv[WORDS_MAX + 2];
	struct err e = { 0 };
	int argc = 0, rest = -1, rc;

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	argv[argc++] = (char *)(uintptr_t)"fuzz";
	for (size_t at = 0; at <= size && argc <= WORDS_MAX; at += strlen(text + at) + 1)
		argv[argc++] = text + at;
	argv[argc] = NULL;
	rc = opt_parse(&verb, argc, argv, given, NULL, &rest, &e);
	if (rc == 0 ? rest < 1 || rest > argc : rc == -1 ? e.kind == ERR_NONE || !e.msg[0] : rc != 1)
		abort();
	free(text);
	return 0;
}
