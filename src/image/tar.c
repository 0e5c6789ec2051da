/* The tar reader: the stream and its headers.
 *
 * How: blocks of 512 bytes come through one buffer. tar_next skips what is left of the last entry,
 * then reads headers until one is an entry: L, K and x headers before it fill t->ext, which wins
 * over the header's own fields. tar_data hands out pieces of the buffer, without a copy.
 *
 * Why not libarchive: under a UTF-8 locale it normalises pax names, so that two files of a layer
 * become one; under the C locale every such name is a warning like all others; and what stands
 * behind the end marker it never shows.
 *
 * What may go wrong: a size that makes this reader and another one see different entries. So sizes
 * are exact or refused, numbers have no junk around them, checksums count. */
#include "image/tar.h"

#include <stdlib.h>
#include <string.h>

#include "image/tar_impl.h"

enum dialect { V7, USTAR, GNU };

/* Where things are in a header. Text: offset and length. */
#define NAME 0, 100
#define LINK 157, 100
#define PREFIX 345, 155
#define MODE 100
#define UID 108
#define GID 116
#define SIZE 124
#define MTIME 136
#define CHECKSUM 148
#define TYPE 156
#define MAGIC 257

static int read_more(struct tar *t, struct err *e)
{
	size_t want = t->left < TAR_BUFFER ? (size_t)t->left : TAR_BUFFER;
	ssize_t n;

	if (want == 0)
		return err_set(e, ERR_REFUSED, "the archive is larger than allowed");
	n = t->source.read(t->source.ctx, t->buffer, want, e);
	if (n < 0)
		return -1;
	t->at = 0;
	t->have = (size_t)n;
	t->left -= (uint64_t)n;
	return n > 0;
}

/* 1 when bytes are in the buffer, 0 at the end of the source, -1. */
static int buffered(struct tar *t, struct err *e)
{
	return t->at < t->have ? 1 : read_more(t, e);
}

static int cut_short(struct err *e)
{
	return err_set(e, ERR_REFUSED, "the archive ends in the middle");
}

int tar_take(struct tar *t, void *dst, size_t n, struct err *e)
{
	while (n > 0) {
		int r = buffered(t, e);
		size_t some = t->have - t->at < n ? t->have - t->at : n;

		if (r <= 0)
			return r < 0 ? -1 : cut_short(e);
		if (dst) {
			memcpy(dst, t->buffer + t->at, some);
			dst = (uint8_t *)dst + some;
		}
		t->at += some;
		n -= some;
	}
	return 0;
}

static unsigned padding(uint64_t n)
{
	return (unsigned)(-n & (TAR_BLOCK_LEN - 1));
}

int tar_take_meta(struct tar *t, void *dst, uint64_t n, struct err *e)
{
	if (n > TAR_META_MAX)
		return err_set(e, ERR_REFUSED, "an extended header has more than %u bytes",
			       TAR_META_MAX);
	return tar_take(t, dst, (size_t)n, e) < 0 ? -1 : tar_take(t, NULL, padding(n), e);
}

int tar_number(const uint8_t *field, size_t n, uint64_t *ret, struct err *e)
{
	uint64_t v = 0;
	size_t i = 0;

	if (field[0] & 0x80) {
		/* The next bit is the sign. */
		if (field[0] & 0x40)
			goto bad;
		for (v = field[0] & 0x3f, i = 1; i < n; i++) {
			if (v >> 55)
				goto bad;
			v = v << 8 | field[i];
		}
		*ret = v;
		return 0;
	}
	while (i < n && field[i] == ' ')
		i++;
	for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
		v = v << 3 | (uint64_t)(field[i] - '0'); /* 12 digits at most: 36 bits */
	for (; i < n; i++)
		if (field[i] != ' ' && field[i] != '\0')
			goto bad;
	*ret = v;
	return 0;
bad:
	return err_set(e, ERR_REFUSED, "a number of a header is malformed");
}

static bool is_zero(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static int check_sum(const uint8_t *h, struct err *e)
{
	uint64_t want;
	int64_t sum = 0, old = 0; /* some old writers summed signed characters */
	bool number = tar_number(h + CHECKSUM, 8, &want, e) == 0;

	for (size_t i = 0; i < TAR_BLOCK_LEN; i++) {
		int c = i >= CHECKSUM && i < TYPE ? ' ' : h[i];

		sum += c;
		old += (signed char)c;
	}
	if (!number || ((int64_t)want != sum && (int64_t)want != old))
		return err_set(e, ERR_REFUSED,
			       "it is no tar archive, or a header is damaged (wrong checksum)");
	return 0;
}

static enum dialect dialect(const uint8_t *h)
{
	if (!memcmp(h + MAGIC, "ustar\0", 6))
		return USTAR;
	return !memcmp(h + MAGIC, "ustar  ", 8) ? GNU : V7;
}

/* A text field, which may fill its room without a NUL. */
static size_t field_text(const uint8_t *h, size_t offset, size_t len, char *dst)
{
	size_t n = strnlen((const char *)h + offset, len);

	memcpy(dst, h + offset, n);
	dst[n] = '\0';
	return n;
}

static void take_names(struct tar *t, const uint8_t *h)
{
	struct tar_entry *en = &t->entry;
	size_t n = 0;

	if (!t->ext.path && !t->ext.gnu_path) {
		if (dialect(h) == USTAR) {
			n = field_text(h, PREFIX, en->path);
			if (n > 0)
				en->path[n++] = '/';
		}
		field_text(h, NAME, en->path + n);
	}
	if (!t->ext.link && !t->ext.gnu_link)
		field_text(h, LINK, en->link);
}

/* The type, or -1: what is no entry here. */
static int take_type(struct tar *t, const uint8_t *h, struct err *e)
{
	static const char types[] = {
		[TAR_FILE] = '0', [TAR_HARDLINK] = '1', [TAR_SYMLINK] = '2', [TAR_DIR] = '5',
		[TAR_CHAR] = '3', [TAR_BLOCK] = '4',	[TAR_FIFO] = '6'
	};
	struct tar_entry *en = &t->entry;
	const char *path = en->path;
	char c = (char)h[TYPE];

	/* v7 had no directories of their own; 7 is a file that wants to be contiguous. */
	if (c == '\0')
		c = *path && path[strlen(path) - 1] == '/' ? '5' : '0';
	if (c == '7' || (c == 'S' && dialect(h) == GNU))
		c = '0';
	for (size_t i = 0; i < sizeof(types); i++) {
		if (types[i] == c) {
			en->type = (enum tar_type)i;
			return 0;
		}
	}
	if (c == 'M')
		return err_set(e, ERR_REFUSED, "it is one of several volumes");
	return err_set(e, ERR_REFUSED, "an entry is of the unknown type 0x%02x", (unsigned)h[TYPE]);
}

static int take_numbers(struct tar *t, const uint8_t *h, struct err *e)
{
	struct tar_entry *en = &t->entry;
	uint64_t mode, mtime;

	if (tar_number(h + MODE, 8, &mode, e) < 0 || tar_number(h + UID, 8, &en->uid, e) < 0 ||
	    tar_number(h + GID, 8, &en->gid, e) < 0)
		return -1;
	if (t->ext.uid)
		en->uid = t->ext.uid_value;
	if (t->ext.gid)
		en->gid = t->ext.gid_value;
	en->mode = (uint32_t)(mode & 07777);
	en->mtime = t->ext.mtime_value;
	en->mtime_ns = t->ext.mtime_ns;
	/* A time before 1970 is a negative base-256 number: no reason to refuse an archive. */
	if (!t->ext.mtime && h[MTIME] != 0xff) {
		if (tar_number(h + MTIME, 12, &mtime, e) < 0)
			return -1;
		en->mtime = (int64_t)mtime;
	}
	if (tar_number(h + SIZE, 12, &t->stored, e) < 0)
		return -1;
	if (t->ext.size)
		t->stored = t->ext.size_value;
	if (t->stored > TAR_SIZE_MAX)
		return err_set(e, ERR_REFUSED, "a file is larger than %llu bytes",
			       (unsigned long long)TAR_SIZE_MAX);
	return 0;
}

/* A file without holes is one piece. */
static int take_content(struct tar *t, const uint8_t *h, struct err *e)
{
	struct tar_entry *en = &t->entry;

	t->padding = padding(t->stored);
	en->size = 0;
	if (en->type != TAR_FILE) {
		if (t->stored > 0 || t->ext.sparse)
			return err_set(e, ERR_REFUSED, "an entry that is no file has content");
		return 0;
	}
	if (h[TYPE] == 'S' && t->ext.sparse)
		return err_set(e, ERR_REFUSED, "a file has two sparse maps");
	if (h[TYPE] == 'S')
		return tar_sparse_gnu(t, h, e);
	if (t->ext.sparse)
		return tar_sparse_pax(t, e);
	en->size = t->stored;
	t->n_pieces = 0; /* see tar_data */
	return 0;
}

static int take_entry(struct tar *t, const uint8_t *h, struct err *e)
{
	struct tar_entry *en = &t->entry;

	take_names(t, h);
	if (take_type(t, h, e) < 0)
		return -1;
	if (!*en->path)
		return err_set(e, ERR_REFUSED, "an entry has no name");
	if (en->type == TAR_FILE && en->path[strlen(en->path) - 1] == '/')
		return err_set(e, ERR_REFUSED, "a file has the name of a directory");
	if (en->type != TAR_HARDLINK && en->type != TAR_SYMLINK)
		en->link[0] = '\0';
	else if (!*en->link)
		return err_set(e, ERR_REFUSED, "a link has no target");
	return take_numbers(t, h, e) < 0 ? -1 : take_content(t, h, e);
}

/* The name in an L or K header. */
static int take_long(struct tar *t, uint64_t size, char *dst, bool *said, struct err *e)
{
	if (*said)
		return err_set(e, ERR_REFUSED, "an entry has two long names");
	if (size == 0 || size > TAR_PATH_CAP)
		return err_set(e, ERR_REFUSED, "a name is longer than %d bytes", TAR_PATH_CAP - 1);
	if (tar_take_meta(t, dst, size, e) < 0)
		return -1;
	if (dst[size - 1] != '\0') {
		if (size == TAR_PATH_CAP)
			return err_set(e, ERR_REFUSED, "a name is longer than %d bytes",
				       TAR_PATH_CAP - 1);
		dst[size] = '\0';
	}
	/* GNU tar counts one NUL at the end; more text behind one would be a second name. */
	if (!is_zero((uint8_t *)dst + strlen(dst), (size_t)size - strlen(dst)))
		return err_set(e, ERR_REFUSED, "a name has a NUL in it");
	*said = true;
	return 0;
}

/* 1 when the header belonged to a later one. */
static int take_extension(struct tar *t, const uint8_t *h, struct err *e)
{
	uint64_t size;
	int r;

	if (!strchr("LKxg", h[TYPE] ? h[TYPE] : '0'))
		return 0;
	if (tar_number(h + SIZE, 12, &size, e) < 0)
		return -1;
	if (h[TYPE] == 'L')
		r = take_long(t, size, t->entry.path, &t->ext.gnu_path, e);
	else if (h[TYPE] == 'K')
		r = take_long(t, size, t->entry.link, &t->ext.gnu_link, e);
	else
		r = tar_pax(t, size, h[TYPE] == 'g', e);
	if (r == 0 && ((t->ext.path && t->ext.gnu_path) || (t->ext.link && t->ext.gnu_link)))
		return err_set(e, ERR_REFUSED, "an entry has two sources of one name");
	return r < 0 ? -1 : 1;
}

/* Behind the first zero block nothing but zeros may come, and not without end. */
static int take_tail(struct tar *t, struct err *e)
{
	size_t n = 0;
	int r;

	t->ended = true;
	if (t->ext.pax || t->ext.gnu_path || t->ext.gnu_link)
		return err_set(e, ERR_REFUSED, "an extended header belongs to no entry");
	while ((r = buffered(t, e)) > 0) {
		if (!is_zero(t->buffer + t->at, t->have - t->at))
			return err_set(e, ERR_REFUSED,
				       "there is something behind the end of the archive");
		n += t->have - t->at;
		if (n > TAR_TAIL_MAX)
			return err_set(e, ERR_REFUSED, "the archive ends in more than %u zeros",
				       TAR_TAIL_MAX);
		t->at = t->have;
	}
	return r;
}

/* What is left of the entry. 1: where only padding was left, the source has ended. */
static int skip(struct tar *t, struct err *e)
{
	uint64_t n = t->stored;
	unsigned padding = t->padding;
	int r;

	t->stored = t->padding = 0;
	for (; n > SIZE_MAX; n -= SIZE_MAX)
		if (tar_take(t, NULL, SIZE_MAX, e) < 0)
			return -1;
	if (tar_take(t, NULL, (size_t)n, e) < 0)
		return -1;
	for (; padding > 0; padding--) {
		r = buffered(t, e);
		if (r < 0)
			return -1;
		if (r == 0)
			return t->lax_end ? 1 : cut_short(e);
		t->at++;
	}
	return 0;
}

int tar_next(struct tar *t, const struct tar_entry **ret, struct err *e)
{
	uint8_t h[TAR_BLOCK_LEN] = { 0 };
	int r;

	*ret = NULL;
	if (t->ended)
		return 0;
	r = skip(t, e);
	if (r != 0) {
		t->ended = r > 0;
		return r < 0 ? -1 : 0;
	}
	memset(&t->ext, 0, sizeof(t->ext));
	t->entry.n_xattrs = 0;
	t->piece = t->n_pieces = 0;
	t->done = 0;
	for (;;) {
		r = buffered(t, e);
		if (r == 0 && t->lax_end && !t->ext.pax && !t->ext.gnu_path && !t->ext.gnu_link) {
			t->ended = true;
			return 0;
		}
		if (r == 0)
			return err_set(e, ERR_REFUSED, "the archive has no end: it was cut short");
		if (r < 0 || tar_take(t, h, sizeof(h), e) < 0)
			return -1;
		if (is_zero(h, sizeof(h)))
			return take_tail(t, e);
		if (check_sum(h, e) < 0)
			return -1;
		r = take_extension(t, h, e);
		if (r < 0)
			return -1;
		if (r == 0)
			break;
	}
	if (take_entry(t, h, e) < 0)
		return -1;
	t->lax_end = t->lax;
	*ret = &t->entry;
	return 0;
}

int tar_data(struct tar *t, uint64_t *ret_offset, const void **ret, size_t *ret_n, struct err *e)
{
	const struct tar_piece whole = { 0, t->entry.size }, *p = &whole;
	size_t n;
	int r;

	*ret_n = 0;
	while (t->piece < t->n_pieces && t->done == t->pieces[t->piece].len) {
		t->piece++;
		t->done = 0;
	}
	if (t->stored == 0)
		return 0;
	/* The pieces' lengths add up to what is stored: there is one. */
	if (t->n_pieces > 0)
		p = &t->pieces[t->piece];
	r = buffered(t, e);
	if (r <= 0)
		return r < 0 ? -1 : cut_short(e);
	n = t->have - t->at;
	if (n > p->len - t->done)
		n = (size_t)(p->len - t->done);
	*ret_offset = p->offset + t->done;
	*ret = t->buffer + t->at;
	*ret_n = n;
	t->at += n;
	t->done += n;
	t->stored -= n;
	return 0;
}

void tar_lax_end(struct tar *t)
{
	t->lax = true;
}

int tar_open(const struct tar_source *source, uint64_t max, struct tar **ret, struct err *e)
{
	struct tar *t = calloc(1, sizeof(*t));

	if (!t)
		return err_sys(e, "archive");
	t->source = *source;
	/* One byte more shows an end that is exactly at the maximum. */
	t->left = max + (max < UINT64_MAX);
	*ret = t;
	return 0;
}

void tar_free(struct tar **t)
{
	if (!*t)
		return;
	free((*t)->meta);
	free((*t)->pieces);
	free(*t);
	*t = NULL;
}
