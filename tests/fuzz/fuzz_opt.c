/* Fuzzes the option parser and the parsers of values: no argument vector may crash it, and the contract holds for each: the error is set if and
 * only if -1 is returned, it is one printable line, and what was accepted was in the table.
 *
 * Input: arguments separated by NUL. Build and run:
 *	clang -std=gnu17 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Isrc -o fuzz_opt
 *		tests/fuzz/fuzz_opt.c src/cli/opt.c src/base/str.c src/base/err.c
 *	./fuzz_opt -max_total_time=5 -max_len=512 -only_ascii=0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "cli/opt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ARGS_MAX 64

static const struct opt_row rows[] = {
	{ .name = "image", .type = OPT_CHOICE, .value = "host|none", .conflicts = "rootfs", .group = "g", .help = "h" },
	{ .name = "rootfs", .letter = 'r', .type = OPT_DIR, .group = "g", .help = "h" },
	{ .name = "volume", .letter = 'v', .type = OPT_STR, .many = true, .group = "g", .help = "h" },
	{ .name = "memory", .letter = 'm', .type = OPT_SIZE, .many = true, .group = "g", .help = "h" },
	{ .name = "timeout", .letter = 'T', .type = OPT_DURATION, .many = true, .group = "g", .help = "h" },
	{ .name = "pids", .letter = 'p', .type = OPT_NUMBER, .many = true, .group = "g", .help = "h" },
	{ .name = "cpus", .letter = 'c', .type = OPT_CPUS, .many = true, .group = "g", .help = "h" },
	{ .name = "tty", .letter = 't', .type = OPT_FLAG, .conflicts = "json,image", .group = "g", .help = "h" },
	{ .name = "json", .type = OPT_FLAG, .group = "g", .help = "h" },
	{ .name = "file", .letter = 'f', .type = OPT_PATH, .group = "g", .help = "h" },
};

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	size_t *calls = ctx;

	++*calls;
	if (row < rows || row >= rows + sizeof(rows) / sizeof(rows[0]))
		abort();
	if ((row->type == OPT_FLAG) != (value == NULL) || (value && !*value))
		abort();
	if (value && strcmp(value, "no") == 0)
		return err_set(e, ERR_REFUSED, "no");
	return 0;
}

static void check_line(const struct err *e)
{
	char safe[sizeof(e->msg)];

	if (!memchr(e->msg, '\0', sizeof(e->msg)) || !*e->msg)
		abort();
	str_printable(safe, sizeof(safe), e->msg);
	if (strcmp(safe, e->msg) != 0)
		abort();
}

static void parse(const char *text, size_t size, bool takes_command)
{
	const struct opt_verb verb = { .name = "v", .rows = rows, .n_rows = sizeof(rows) / sizeof(rows[0]), .takes_command = takes_command };
	char *copy = malloc(size + 1), *argv[ARGS_MAX + 1], *before[ARGS_MAX];
	struct err e = { .kind = ERR_NONE };
	size_t calls = 0;
	int argc = 0, rest = -1, rc;

	memcpy(copy, text, size);
	copy[size] = '\0';
	argv[argc++] = copy;
	for (char *p = copy; argc < ARGS_MAX; ) {
		p += strlen(p) + 1;
		if (p > copy + size)
			break;
		argv[argc++] = p;
	}
	argv[argc] = NULL;
	memcpy(before, argv, (size_t)argc * sizeof(*argv));
	rc = opt_parse(&verb, argc, argv, on_option, &calls, &rest, &e);
	if (rc < -1 || rc > 1 || (rc == -1) != (e.kind != ERR_NONE) || (rc != 0 && rest != -1))
		abort();
	if (rc == -1)
		check_line(&e);
	if (rc == 0 && (rest < 1 || rest > argc || calls > (size_t)argc * size))
		abort();
	/* Reordered at most: the same pointers, and untouched where a command follows. */
	if (takes_command && memcmp(before, argv, (size_t)argc * sizeof(*argv)) != 0)
		abort();
	for (int i = 0; i < argc; i++) {
		bool found = false;

		for (int k = 0; k < argc; k++)
			found = found || argv[k] == before[i];
		if (!found)
			abort();
	}
	free(copy);
}

static void values(const char *text)
{
	struct err e;
	uint64_t v;
	double d;
	char small[8];

	if (parse_size(text, &v, &e) < 0)
		check_line(&e);
	else if (v > INT64_MAX)
		abort();
	if (parse_duration(text, &v, &e) < 0)
		check_line(&e);
	else if (v > UINT64_C(366) * 24 * 3600 * 1000000)
		abort();
	if (parse_u64(text, 3, 1000, &v, &e) < 0)
		check_line(&e);
	else if (v < 3 || v > 1000)
		abort();
	if (parse_cpus(text, &d, &e) < 0)
		check_line(&e);
	else if (!(d >= 0.01 && d <= 1024))
		abort();
	if (strlen(str_printable(small, sizeof(small), text)) >= sizeof(small))
		abort();
	str_nearest(text, (const char *const[]){ "memory", "timeout", text, NULL });
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	values(text);
	parse(text, size, true);
	parse(text, size, false);
	free(text);
	return 0;
}
