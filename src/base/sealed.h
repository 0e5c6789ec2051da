/* Bytes handed from one process to another in a sealed memory file: who reads it knows that it no
 * longer changes. The reader does not trust who made it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* A sealed memfd with these bytes. */
int sealed_make(const char *name, const void *data, size_t n, int *ret, struct err *e);
/* Maps one, privately: refuses what is no sealed memfd, or larger than max. *ret is not terminated,
 * and NULL when n is 0; munmap(2) it. */
int sealed_map(int fd, size_t max, char **ret, size_t *ret_n, struct err *e);

/* Lists of strings, each NULL-terminated (a list may be NULL). */
#define SEALED_LISTS_MAX 4
int sealed_words_make(char *const *const lists[], unsigned n, size_t max, int *ret, struct err *e);
/* What it fills stays for the life of the process, and is mapped: no heap. */
int sealed_words_read(int fd, size_t max, unsigned n, char **ret[], size_t ret_counts[],
		      struct err *e);
