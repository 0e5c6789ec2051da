/* What the fuzzers of archives share: an archive served in pieces from memory, and headers whose checksum is made right, without which
 * nearly every change ends at the checksum. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/err.h"

struct served {
	uint8_t *data;
	size_t n, chunk;
};

static ssize_t serve(void *ctx, void *buf, size_t n, struct err *e)
{
	struct served *s = ctx;

	if (n > s->n)
		n = s->n;
	if (n > s->chunk)
		n = s->chunk;
	memcpy(buf, s->data, n);
	s->data += n;
	s->n -= n;
	return (ssize_t)n;
}

static void must(int holds)
{
	if (!holds)
		abort();
}

static void mend(uint8_t *h)
{
	char text[8];
	unsigned sum = 8 * ' ';

	for (int i = 0; i < 512; i++)
		sum += i >= 148 && i < 156 ? 0 : h[i];
	snprintf(text, sizeof(text), "%06o", sum & 0777777);
	memcpy(h + 148, text, 8);
}
