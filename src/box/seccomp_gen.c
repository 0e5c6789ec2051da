/* Build-time generator: seccomp_gen OUTPUT.c
 *
 * Resolves the policy's names for both architectures with libseccomp, builds every program that a
 * request without rules can ask for with the very builder that runs later, and writes it all down
 * as constant data. It runs on the machine that builds cloche and is no part of the product. It
 * stops with a message when a name is unknown, stands twice, or a table would be inconsistent. */
#include <errno.h>
#include <seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box/seccomp_table.h"

/* Calls newer than some libseccomp (2.5.4 knows those of Linux 6.6). From 424 on the numbers are
 * common to all architectures but the uprobe ones; source: arch/x86/entry/syscalls/syscall_64.tbl
 * and scripts/syscall.tbl of Linux 6.18. */
static const struct {
	int nr;
	const char *name;
	bool x86_only;
} newer[] = {
	{ 335, "uretprobe", true },	     { 336, "uprobe", true },
	{ 451, "cachestat", false },	     { 452, "fchmodat2", false },
	{ 453, "map_shadow_stack", false },  { 454, "futex_wake", false },
	{ 455, "futex_wait", false },	     { 456, "futex_requeue", false },
	{ 457, "statmount", false },	     { 458, "listmount", false },
	{ 459, "lsm_get_self_attr", false }, { 460, "lsm_set_self_attr", false },
	{ 461, "lsm_list_modules", false },  { 462, "mseal", false },
	{ 463, "setxattrat", false },	     { 464, "getxattrat", false },
	{ 465, "listxattrat", false },	     { 466, "removexattrat", false },
	{ 467, "open_tree_attr", false },    { 468, "file_getattr", false },
	{ 469, "file_setattr", false },
};

static const uint32_t scmp_arch[SC_ARCH_N] = {
	[SC_X86_64] = SCMP_ARCH_X86_64, [SC_AARCH64] = SCMP_ARCH_AARCH64
};

#define TEXT_MAX 16384
static char text[TEXT_MAX] = ""; /* offset 0 is the empty name */
static size_t text_len = 1;
static uint16_t name_at[SC_ARCH_N][SC_NR_MAX];
static uint8_t table[SC_ARCH_N][SC_NR_MAX];
static bool named[SC_ARCH_N][SC_NR_MAX];

static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("seccomp_gen: ", stderr);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

/* Offset of a name in the shared text; both architectures share it. */
static uint16_t intern(const char *name)
{
	size_t n = strlen(name) + 1;

	for (size_t at = 1; at < text_len; at += strlen(text + at) + 1)
		if (strcmp(text + at, name) == 0)
			return (uint16_t)at;
	if (n > sizeof(text) - text_len)
		die("names need more than %d bytes", TEXT_MAX);
	memcpy(text + text_len, name, n);
	text_len += n;
	return (uint16_t)(text_len - n);
}

static void find_names(enum sc_arch arch)
{
	for (int nr = 0; nr < SC_NR_MAX; nr++) {
		char *name = seccomp_syscall_resolve_num_arch(scmp_arch[arch], nr);

		if (name != NULL)
			name_at[arch][nr] = intern(name);
		free(name);
	}
	for (size_t i = 0; i < sizeof(newer) / sizeof(newer[0]); i++) {
		const char *known = text + name_at[arch][newer[i].nr];

		if (newer[i].x86_only && arch != SC_X86_64)
			continue;
		if (*known != '\0' && strcmp(known, newer[i].name) != 0)
			die("libseccomp calls %d %s, not %s", newer[i].nr, known, newer[i].name);
		name_at[arch][newer[i].nr] = intern(newer[i].name);
	}
}

static int number(enum sc_arch arch, const char *name)
{
	for (int nr = 0; nr < SC_NR_MAX; nr++)
		if (name_at[arch][nr] != 0 && strcmp(text + name_at[arch][nr], name) == 0)
			return nr;
	return -1;
}

static void fill_tables(void)
{
	for (size_t i = 0; i < sc_n_groups; i++) {
		char *names = strdup(sc_groups[i].names), *save = NULL;

		for (char *name = strtok_r(names, " ", &save); name != NULL;
		     name = strtok_r(NULL, " ", &save)) {
			int found = 0;

			for (int arch = 0; arch < SC_ARCH_N; arch++) {
				int nr = number((enum sc_arch)arch, name);

				if (nr < 0)
					continue;
				if (named[arch][nr])
					die("%s stands twice in the policy", name);
				named[arch][nr] = true;
				table[arch][nr] = sc_groups[i].class;
				found++;
			}
			if (found == 0)
				die("the policy names %s, which is no system call", name);
		}
		free(names);
	}
}

static void write_text(FILE *f)
{
	fprintf(f, "const char sc_name_text[] =\n\t\"\\0\"");
	for (size_t at = 1; at < text_len; at += strlen(text + at) + 1)
		fprintf(f, "\n\t\"%s\\0\"", text + at);
	fprintf(f, ";\n\n");
}

static void write_table(FILE *f, const char *what, size_t size, const void *data)
{
	fprintf(f, "const uint%zu_t %s[SC_ARCH_N][SC_NR_MAX] = {", size * 8, what);
	for (size_t i = 0; i < SC_ARCH_N * SC_NR_MAX; i++) {
		unsigned v = size == 1 ? ((const uint8_t *)data)[i] : ((const uint16_t *)data)[i];

		fprintf(f, "%s%s%u,", i % SC_NR_MAX == 0 ? (i == 0 ? "\n\t{" : "\n\t},\n\t{") : "",
			i % 16 == 0 ? "\n\t\t" : " ", v);
	}
	fprintf(f, "\n\t},\n};\n\n");
}

static void write_programs(FILE *f)
{
	uint16_t len[SC_ARCH_N][SC_VARIANTS];

	for (int arch = 0; arch < SC_ARCH_N; arch++) {
		for (unsigned v = 0; v < SC_VARIANTS; v++) {
			struct sc_request rq = { .untrusted = v & 1,
						 .setup = v & 2,
						 .hide_memfd = v & 4 };
			static struct sc_program p;
			struct err e;

			if (sc_build_table((enum sc_arch)arch, table[arch], &rq, &p, &e) < 0)
				die("%s", e.msg);
			fprintf(f, "static const struct sock_filter program_%d_%u[] = {", arch, v);
			for (int i = 0; i < p.len; i++)
				fprintf(f, "%s{ 0x%x, %u, %u, 0x%x },", i % 4 == 0 ? "\n\t" : " ",
					p.code[i].code, p.code[i].jt, p.code[i].jf, p.code[i].k);
			fprintf(f, "\n};\n\n");
			len[arch][v] = p.len;
		}
	}
	fprintf(f, "const struct sc_prebuilt_program sc_programs[SC_ARCH_N][SC_VARIANTS] = {\n");
	for (int arch = 0; arch < SC_ARCH_N; arch++) {
		fprintf(f, "\t{\n");
		for (unsigned v = 0; v < SC_VARIANTS; v++)
			fprintf(f, "\t\t{ program_%d_%u, %u },\n", arch, v, len[arch][v]);
		fprintf(f, "\t},\n");
	}
	fprintf(f, "};\n");
}

int main(int argc, char **argv)
{
	FILE *f;

	if (argc != 2)
		die("usage: seccomp_gen OUTPUT.c");
	for (int arch = 0; arch < SC_ARCH_N; arch++)
		find_names((enum sc_arch)arch);
	fill_tables();

	f = fopen(argv[1], "we");
	if (f == NULL)
		die("%s: %s", argv[1], strerror(errno));
	fprintf(f,
		"/* Written by seccomp_gen from seccomp_policy.c: call names, classes, and programs. Do not edit. */\n"
		"#include \"box/seccomp_table.h\"\n\n");
	write_text(f);
	write_table(f, "sc_name_at", sizeof(name_at[0][0]), name_at);
	write_table(f, "sc_table", sizeof(table[0][0]), table);
	write_programs(f);
	if (ferror(f) || fclose(f) != 0)
		die("%s: %s", argv[1], strerror(errno));
	return 0;
}
