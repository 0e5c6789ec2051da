/* Tar archives from hostile hands. Input: the first byte is the size of the pieces it is served in; the rest is the archive. Checksums of what looks
 * like a header are mended first, so that the fuzzer gets past them.
 *
 * Whatever it is: entries keep what the header promises, pieces of content are in order and within the size, and a refusal is one line. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/tar.h"
#include "tar_served.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int content(struct tar *t, const struct tar_entry *en, struct err *e)
{
	uint64_t at = 0, offset;
	const void *p;
	size_t n;

	do {
		if (tar_data(t, &offset, &p, &n, e) < 0)
			return -1;
		if (n == 0)
			return 0;
		must(offset >= at && offset + n <= en->size && ((const char *)p)[n - 1] < 256);
		at = offset + n;
	} while (1);
}

static int entry(struct tar *t, const struct tar_entry *en, size_t i, struct err *e)
{
	size_t bytes = 0;

	must(en->path[0] && strnlen(en->path, TAR_PATH_CAP) < TAR_PATH_CAP && en->type <= TAR_FIFO && en->mode <= 07777);
	must((en->type == TAR_HARDLINK || en->type == TAR_SYMLINK) == (en->link[0] != '\0'));
	must(en->n_xattrs <= TAR_XATTRS_MAX && en->mtime_ns < 1000000000 && en->size <= TAR_SIZE_MAX && (en->type == TAR_FILE || en->size == 0));
	for (size_t k = 0; k < en->n_xattrs; k++)
		for (size_t b = 0; b < en->xattrs[k].n; b++)
			bytes += ((const uint8_t *)en->xattrs[k].value)[b]; /* all of it can be read */
	(void)bytes;
	return i % 3 == 2 ? 0 : content(t, en, e); /* some are skipped */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct served s;
	struct tar_source source = { serve, &s };
	const struct tar_entry *en;
	struct err e = { 0 };
	struct tar *t = NULL;
	uint8_t *copy;
	int r = 0;

	if (size < 2 || size > 65536 || !(copy = malloc(size - 1)))
		return 0;
	memcpy(copy, data + 1, size - 1);
	for (size_t at = 0; at + 512 <= size - 1; at += 512)
		if (!memcmp(copy + at + 257, "ustar", 5))
			mend(copy + at);
	s = (struct served){ copy, size - 1, data[0] ? data[0] * 16u : 1 };
	if (tar_open(&source, UINT64_MAX, &t, &e) < 0)
		abort();
	for (size_t i = 0; (r = tar_next(t, &en, &e)) == 0 && en; i++)
		if ((r = entry(t, en, i, &e)) < 0)
			break;
	if (r < 0) {
		must(e.kind == ERR_REFUSED && e.msg[0]);
		for (const char *c = e.msg; *c; c++)
			must((unsigned char)*c >= 0x20 && *c != 0x7f);
	} else {
		must(s.n == 0); /* an archive that was taken was read to its end */
	}
	tar_free(&t);
	free(copy);
	return 0;
}
