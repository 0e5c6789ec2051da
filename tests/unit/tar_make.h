/* Archives made in memory, honest and not. A header is made whole and valid; `tar_patch` then spoils a field and mends the checksum, so that it is
 * the field that is judged. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "image/tar.h"

struct tar_made {
	uint8_t *data;
	size_t n, cap;
	size_t last;   /* where the last header stands */
	size_t served; /* by tar_serve */
	size_t chunk;  /* bytes served at once; 0: all that is asked for */
};

static inline void tar_bytes(struct tar_made *m, const void *data, size_t n)
{
	while (m->n + n + 1024 > m->cap) {
		m->cap = m->cap ? m->cap * 2 : 16384;
		m->data = realloc(m->data, m->cap);
		if (!m->data)
			abort();
	}
	if (data)
		memcpy(m->data + m->n, data, n);
	else
		memset(m->data + m->n, 0, n);
	m->n += n;
}

static inline void tar_pad(struct tar_made *m)
{
	tar_bytes(m, NULL, -m->n & 511);
}

static inline void tar_mend(struct tar_made *m)
{
	uint8_t *h = m->data + m->last;
	unsigned sum = 0;

	memset(h + 148, ' ', 8);
	for (int i = 0; i < 512; i++)
		sum += h[i];
	snprintf((char *)h + 148, 8, "%06o", sum);
}

static inline void tar_patch(struct tar_made *m, size_t at, const void *data, size_t n)
{
	memcpy(m->data + m->last + at, data, n);
	tar_mend(m);
}

/* A header by itself. Names beyond their fields are cut: use tar_long or tar_pax_add before. */
static inline void tar_header(struct tar_made *m, char type, const char *path, const char *link, unsigned mode, uint64_t size)
{
	char *h;

	m->last = m->n;
	tar_bytes(m, NULL, 512);
	h = (char *)m->data + m->last;
	memcpy(h, path, strnlen(path, 100));
	memcpy(h + 157, link, strnlen(link, 100));
	snprintf(h + 100, 8, "%07o", mode);
	snprintf(h + 108, 8, "%07o", 1234u);
	snprintf(h + 116, 8, "%07o", 1235u);
	snprintf(h + 124, 12, "%011llo", (unsigned long long)size);
	snprintf(h + 136, 12, "%011o", 1000000000u);
	h[156] = type;
	memcpy(h + 257, "ustar\00000", 8);
	tar_mend(m);
}

static inline void tar_gnu(struct tar_made *m)
{
	tar_patch(m, 257, "ustar  ", 8);
}

/* An L or K header and its name. */
static inline void tar_long(struct tar_made *m, char type, const char *name)
{
	tar_header(m, type, "././@LongLink", "", 0644, strlen(name) + 1);
	tar_bytes(m, name, strlen(name) + 1);
	tar_pad(m);
}

/* One record of a pax header that is being gathered in `text`. */
static inline size_t tar_pax_add(char *text, size_t at, const char *key, const void *value, size_t n)
{
	size_t body = strlen(key) + n + 3, len = body + 1;

	for (size_t digits = 1; digits < 8; digits++) {
		char num[16];

		len = body + digits;
		if ((size_t)snprintf(num, sizeof(num), "%zu", len) == digits)
			break;
	}
	at += (size_t)sprintf(text + at, "%zu %s=", len, key);
	memcpy(text + at, value, n);
	at += n;
	text[at++] = '\n';
	return at;
}

static inline void tar_pax_bytes(struct tar_made *m, char type, const char *text, size_t n)
{
	tar_header(m, type, "PaxHeaders/x", "", 0644, n);
	tar_bytes(m, text, n);
	tar_pad(m);
}

/* A pax header of one record. */
static inline void tar_pax_one(struct tar_made *m, const char *key, const char *value)
{
	char text[8192];

	tar_pax_bytes(m, 'x', text, tar_pax_add(text, 0, key, value, strlen(value)));
}

static inline void tar_file(struct tar_made *m, const char *path, unsigned mode, const char *content)
{
	tar_header(m, '0', path, "", mode, strlen(content));
	tar_bytes(m, content, strlen(content));
	tar_pad(m);
}

static inline void tar_end(struct tar_made *m)
{
	tar_bytes(m, NULL, 1024);
}

static inline ssize_t tar_serve(void *ctx, void *buf, size_t n, struct err *e)
{
	struct tar_made *m = ctx;

	if (n > m->n - m->served)
		n = m->n - m->served;
	if (m->chunk && n > m->chunk)
		n = m->chunk;
	memcpy(buf, m->data + m->served, n);
	m->served += n;
	return (ssize_t)n;
}
