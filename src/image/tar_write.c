/* Headers of tar: what fits stands in ustar's fields, anything else in a pax header before it. */
#include "image/tar_write.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

#define BLOCK 512
#define NAME_SIZE 100
#define ID_MAX 07777777u
#define SIZE_FIELD_MAX UINT64_C(077777777777)
#define PAX_MAX (4u << 20)
#define MAP_MAX (4u << 20)

struct header {
	char name[NAME_SIZE], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8];
	char type, link[NAME_SIZE], magic[8], user[32], group[32], major[8], minor[8], prefix[155];
	char rest[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a header is a block");

static const char zeros[2 * BLOCK];

/* "LEN KEY=VALUE\n", where LEN counts itself. */
static void pax(struct buf *out, const char *prefix, const char *key, const void *value, size_t n)
{
	size_t rest = strlen(prefix) + strlen(key) + n + 3, len = rest, before = 0;
	char digits[24];

	while (len != before) {
		before = len;
		len = rest + (size_t)snprintf(digits, sizeof(digits), "%zu", before);
	}
	buf_fmt(out, "%zu %s%s=", len, prefix, key);
	buf_add(out, value, n);
	buf_add(out, "\n", 1);
}

static void pax_number(struct buf *out, const char *key, uint64_t value)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)value);
	pax(out, "", key, digits, strlen(digits));
}

/* Seconds before 1970 and parts of one. */
static void pax_time(struct buf *out, int64_t s, uint32_t ns)
{
	bool negative = s < 0;
	char text[48];
	size_t n;

	if (negative && ns > 0) { /* -0.25 is the second -1 and 0.75 */
		s++;
		ns = 1000000000 - ns;
	}
	snprintf(text, sizeof(text), "%s%lld.%09u", negative ? "-" : "",
		 (long long)(negative ? -s : s), ns);
	for (n = strlen(text); text[n - 1] == '0'; n--)
		;
	pax(out, "", "mtime", text, text[n - 1] == '.' ? n - 1 : n);
}

/* A field that is too small stays 0: the pax header has it. */
static void octal(char *field, size_t cap, uint64_t value, uint64_t max)
{
	char text[24];

	snprintf(text, sizeof(text), "%0*llo", (int)cap - 1,
		 (unsigned long long)(value <= max ? value : 0));
	memcpy(field, text, cap);
}

static char type_of(enum tar_type type)
{
	static const char types[] = {
		[TAR_FILE] = '0', [TAR_HARDLINK] = '1', [TAR_SYMLINK] = '2', [TAR_DIR] = '5',
		[TAR_CHAR] = '3', [TAR_BLOCK] = '4',	[TAR_FIFO] = '6'
	};

	return types[type];
}

static void fill(struct header *h, const char *path, const struct tar_entry *en, char type,
		 uint64_t size)
{
	unsigned sum = 0;
	size_t n;

	memset(h, 0, sizeof(*h));
	n = strlen(path);
	memcpy(h->name, path, n < NAME_SIZE ? n : NAME_SIZE);
	n = strlen(en->link);
	memcpy(h->link, en->link, n < NAME_SIZE ? n : NAME_SIZE);
	octal(h->mode, sizeof(h->mode), en->mode, ID_MAX);
	octal(h->uid, sizeof(h->uid), en->uid, ID_MAX);
	octal(h->gid, sizeof(h->gid), en->gid, ID_MAX);
	octal(h->size, sizeof(h->size), size, SIZE_FIELD_MAX);
	octal(h->mtime, sizeof(h->mtime), en->mtime > 0 ? (uint64_t)en->mtime : 0, SIZE_FIELD_MAX);
	octal(h->major, sizeof(h->major), 0, 0);
	octal(h->minor, sizeof(h->minor), 0, 0);
	h->type = type;
	memcpy(h->magic, "ustar\00000", 8);
	memset(h->checksum, ' ', sizeof(h->checksum));
	for (size_t i = 0; i < sizeof(*h); i++)
		sum += ((const unsigned char *)h)[i];
	snprintf(h->checksum, sizeof(h->checksum), "%06o", sum & 0777777);
}

static void extend(struct buf *out, const char *path, const struct tar_entry *en, uint64_t stored)
{
	if (strlen(path) > NAME_SIZE)
		pax(out, "", "path", path, strlen(path));
	if (strlen(en->link) > NAME_SIZE)
		pax(out, "", "linkpath", en->link, strlen(en->link));
	if (en->uid > ID_MAX)
		pax_number(out, "uid", en->uid);
	if (en->gid > ID_MAX)
		pax_number(out, "gid", en->gid);
	if (stored > SIZE_FIELD_MAX)
		pax_number(out, "size", stored);
	if (en->mtime < 0 || en->mtime_ns > 0 || en->mtime > (int64_t)SIZE_FIELD_MAX)
		pax_time(out, en->mtime, en->mtime_ns);
	for (size_t i = 0; i < en->n_xattrs; i++)
		pax(out, "SCHILY.xattr.", en->xattrs[i].name, en->xattrs[i].value, en->xattrs[i].n);
}

static int put(const struct tar_sink *sink, const void *data, size_t n, struct err *e)
{
	return n > 0 ? sink->write(sink->ctx, data, n, e) : 0;
}

int tar_put_padding(const struct tar_sink *sink, uint64_t size, struct err *e)
{
	return put(sink, zeros, (size_t)(-size % BLOCK), e);
}

/* The header of an entry of whose content `stored` bytes follow; `more` is what its pax header says
 * already. */
static int put_header(const struct tar_sink *sink, const struct tar_entry *en, const char *path,
		      uint64_t stored, struct buf *more, struct err *e)
{
	static const struct tar_entry none = { .mode = 0644 }; /* large */
	struct header h;

	extend(more, path, en, stored);
	if (more->failed)
		return err_set(e, ERR_REFUSED, "its extended attributes are too large");
	if (more->len > 0) {
		fill(&h, "PaxHeaders.0/entry", &none, 'x', more->len);
		if (put(sink, &h, sizeof(h), e) < 0 || put(sink, more->data, more->len, e) < 0 ||
		    tar_put_padding(sink, more->len, e) < 0)
			return -1;
	}
	fill(&h, path, en, type_of(en->type), stored);
	return put(sink, &h, sizeof(h), e);
}

int tar_put(const struct tar_sink *sink, const struct tar_entry *en, struct err *e)
{
	char path[TAR_PATH_CAP + 1];
	_cleanup_buf_ struct buf more = { 0 };

	snprintf(path, sizeof(path), "%s%s", en->path, en->type == TAR_DIR ? "/" : "");
	buf_init(&more, PAX_MAX);
	return put_header(sink, en, path, en->size, &more, e);
}

int tar_put_sparse(const struct tar_sink *sink, const struct tar_entry *en,
		   const struct tar_piece *pieces, size_t n, struct err *e)
{
	_cleanup_buf_ struct buf more = { 0 }, map = { 0 };
	uint64_t stored = 0;

	buf_init(&more, PAX_MAX);
	buf_init(&map, MAP_MAX);
	/* Readers take the file to end with the last piece. */
	buf_fmt(&map, "%zu\n", n + 1);
	for (size_t i = 0; i < n; i++) {
		buf_fmt(&map, "%llu\n%llu\n", (unsigned long long)pieces[i].offset,
			(unsigned long long)pieces[i].len);
		stored += pieces[i].len;
	}
	buf_fmt(&map, "%llu\n0\n", (unsigned long long)en->size);
	buf_add(&map, zeros, (size_t)(-map.len % BLOCK));
	if (map.failed)
		return err_set(e, ERR_REFUSED, "its holes are too many");
	pax_number(&more, "GNU.sparse.major", 1);
	pax_number(&more, "GNU.sparse.minor", 0);
	pax(&more, "", "GNU.sparse.name", en->path, strlen(en->path));
	pax_number(&more, "GNU.sparse.realsize", en->size);
	if (put_header(sink, en, en->path, map.len + stored, &more, e) < 0)
		return -1;
	return put(sink, map.data, map.len, e);
}

int tar_put_file(const struct tar_sink *sink, const char *path, const void *data, size_t n,
		 struct err *e)
{
	struct tar_entry en = { .type = TAR_FILE, .mode = 0644, .size = n };

	snprintf(en.path, sizeof(en.path), "%s", path);
	return tar_put(sink, &en, e) < 0 || put(sink, data, n, e) < 0 ||
			       tar_put_padding(sink, n, e) < 0
		       ? -1
		       : 0;
}

int tar_put_end(const struct tar_sink *sink, struct err *e)
{
	return put(sink, zeros, sizeof(zeros), e);
}
