/* The tar reader: pax headers and sparse maps.
 *
 * A pax header is lines of "LENGTH KEY=VALUE\n", where the length counts itself; values are bytes.
 * A sparse map is pieces of content in ascending order; their lengths add up to what is stored. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "image/tar_impl.h"

struct record {
	const char *key;
	char *value; /* NUL-terminated by us; may hold NULs of its own */
	size_t n;
};

static int bad(struct err *e)
{
	return err_set(e, ERR_REFUSED, "an extended header is malformed");
}

/* Takes the record at *p off. */
static int next_record(char **p, char *end, struct record *ret, struct err *e)
{
	char *s = *p, *line_end, *eq;
	size_t len = 0;

	while (s < end && *s >= '0' && *s <= '9' && len <= TAR_META_MAX)
		len = len * 10 + (size_t)(*s++ - '0');
	if (s == *p || s >= end || *s != ' ' || len > (size_t)(end - *p) || *p + len <= s + 1)
		return bad(e);
	line_end = *p + len - 1;
	eq = memchr(s + 1, '=', (size_t)(line_end - s - 1));
	if (*line_end != '\n' || !eq || eq == s + 1 || memchr(s + 1, '\0', (size_t)(eq - s - 1)))
		return bad(e);
	*eq = *line_end = '\0';
	*ret = (struct record){ s + 1, eq + 1, (size_t)(line_end - eq - 1) };
	*p = line_end + 1;
	return 0;
}

static int take_u64(const struct record *r, uint64_t *ret, struct err *e)
{
	return strlen(r->value) != r->n || parse_u64(r->value, 0, INT64_MAX, ret, e) < 0 ? bad(e)
											 : 0;
}

/* Seconds with a sign and a fraction. */
static int take_time(struct tar *t, const struct record *r, struct err *e)
{
	bool negative = r->value[0] == '-';
	char *s = r->value + negative, *dot = strchr(s, '.');
	uint64_t v, ns = 0, unit = 100000000;

	if (strlen(r->value) != r->n)
		return bad(e);
	if (dot) {
		*dot = '\0';
		for (s = dot + 1; *s; s++, unit /= 10) {
			if (*s < '0' || *s > '9')
				return bad(e);
			ns += (uint64_t)(*s - '0') * unit;
		}
	}
	if (parse_u64(r->value + negative, 0, UINT64_C(1) << 40, &v, e) < 0)
		return bad(e);
	t->ext.mtime_value = negative ? -(int64_t)v : (int64_t)v;
	t->ext.mtime_ns = (uint32_t)ns;
	if (negative && ns > 0) {
		t->ext.mtime_value--;
		t->ext.mtime_ns = (uint32_t)(1000000000 - ns);
	}
	t->ext.mtime = true;
	return 0;
}

static int take_name(const struct record *r, char *dst, bool *said, struct err *e)
{
	if (*said)
		return err_set(e, ERR_REFUSED, "an entry has two sources of one name");
	if (r->n == 0) /* pax: as if it were not there */
		return 0;
	if (r->n >= TAR_PATH_CAP)
		return err_set(e, ERR_REFUSED, "a name is longer than %d bytes", TAR_PATH_CAP - 1);
	if (strlen(r->value) != r->n)
		return err_set(e, ERR_REFUSED, "a name has a NUL in it");
	memcpy(dst, r->value, r->n + 1);
	*said = true;
	return 0;
}

static int take_xattr(struct tar *t, const struct record *r, const char *name, struct err *e)
{
	struct tar_entry *en = &t->entry;

	if (!*name || strlen(name) > 255 || r->n > 65536)
		return err_set(e, ERR_REFUSED,
			       "an extended attribute is larger than a file can have");
	if (en->n_xattrs == TAR_XATTRS_MAX)
		return err_set(e, ERR_REFUSED, "an entry has more than %d extended attributes",
			       TAR_XATTRS_MAX);
	en->xattrs[en->n_xattrs++] = (struct tar_xattr){ name, r->value, r->n };
	return 0;
}

static int take_sparse(struct tar *t, const struct record *r, const char *key, struct err *e)
{
	t->ext.sparse = true;
	if (!strcmp(key, "major"))
		return take_u64(r, &t->ext.sparse_major, e);
	if (!strcmp(key, "minor"))
		return take_u64(r, &t->ext.sparse_minor, e);
	if (!strcmp(key, "realsize"))
		return take_u64(r, &t->ext.sparse_real, e);
	if (!strcmp(key, "name")) {
		/* The header's own name is a made-up one, so this is its only source. */
		if (t->ext.path && !t->ext.sparse_name)
			t->ext.path = false;
		t->ext.sparse_name = true;
		return take_name(r, t->entry.path, &t->ext.path, e);
	}
	return err_set(e, ERR_REFUSED,
		       "a sparse file is in GNU's format 0, only 1.0 and the old one are read");
}

static int take_record(struct tar *t, const struct record *r, struct err *e)
{
	static const char xattr[] = "SCHILY.xattr.", sparse[] = "GNU.sparse.";

	if (!strncmp(r->key, sparse, strlen(sparse)))
		return take_sparse(t, r, r->key + strlen(sparse), e);
	if (!strncmp(r->key, xattr, strlen(xattr)))
		return take_xattr(t, r, r->key + strlen(xattr), e);
	/* With GNU.sparse.name the `path` is the made-up name. */
	if (!strcmp(r->key, "path"))
		return t->ext.sparse_name ? 0 : take_name(r, t->entry.path, &t->ext.path, e);
	if (!strcmp(r->key, "linkpath"))
		return take_name(r, t->entry.link, &t->ext.link, e);
	if (!strcmp(r->key, "mtime"))
		return take_time(t, r, e);
	if (!strcmp(r->key, "size")) {
		if (t->ext.size)
			return err_set(e, ERR_REFUSED, "an entry has two sizes");
		t->ext.size = true;
		return take_u64(r, &t->ext.size_value, e);
	}
	if (!strcmp(r->key, "uid")) {
		t->ext.uid = true;
		return take_u64(r, &t->ext.uid_value, e);
	}
	if (!strcmp(r->key, "gid")) {
		t->ext.gid = true;
		return take_u64(r, &t->ext.gid_value, e);
	}
	return 0; /* comments, access times, names of users: nothing that is used */
}

/* A global header is for all entries behind it. Other tools ignore it; where it would matter who
 * does, it is refused. */
static int judge_global(const struct record *r, struct err *e)
{
	static const char *const fields[] = { "path", "linkpath", "size", "GNU.sparse.",
					      "SCHILY.xattr." };

	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (!strncmp(r->key, fields[i], strlen(fields[i])))
			return err_set(e, ERR_REFUSED, "a global header sets %s for all entries",
				       fields[i]);
	return 0;
}

static int take_records(struct tar *t, char *p, size_t n, bool global, struct err *e)
{
	char none[1] = "";
	struct record r = { none, none, 0 };

	for (char *end = p + n; p < end;)
		if (next_record(&p, end, &r, e) < 0 ||
		    (global ? judge_global(&r, e) : take_record(t, &r, e)) < 0)
			return -1;
	return 0;
}

int tar_pax(struct tar *t, uint64_t n, bool global, struct err *e)
{
	char *meta;
	int r;

	if (!global && t->ext.pax)
		return err_set(e, ERR_REFUSED, "an entry has two extended headers");
	if (n > TAR_META_MAX)
		return err_set(e, ERR_REFUSED, "an extended header has more than %u bytes",
			       TAR_META_MAX);
	meta = malloc((size_t)n + 1);
	if (!meta)
		return err_sys(e, "archive");
	meta[n] = '\0';
	r = tar_take_meta(t, meta, n, e);
	if (r == 0)
		r = take_records(t, meta, (size_t)n, global, e);
	if (global) {
		free(meta);
		return r;
	}
	free(t->meta);
	t->meta = meta;
	t->ext.pax = true;
	return r;
}

static int add_piece(struct tar *t, uint64_t offset, uint64_t len, struct err *e)
{
	const struct tar_piece *last = t->n_pieces ? &t->pieces[t->n_pieces - 1] : NULL;

	if (offset > t->entry.size || len > t->entry.size - offset ||
	    (last && offset < last->offset + last->len))
		return err_set(e, ERR_REFUSED,
			       "a sparse map is out of order or beyond the file's size");
	if (t->n_pieces == TAR_SPARSE_MAX)
		return err_set(e, ERR_REFUSED, "a sparse file has more than %d pieces",
			       TAR_SPARSE_MAX);
	if (!t->pieces || t->n_pieces == t->cap_pieces) {
		size_t cap = t->cap_pieces ? t->cap_pieces * 2 : 64;
		struct tar_piece *p = realloc(t->pieces, cap * sizeof(*p));

		if (!p)
			return err_sys(e, "archive");
		t->pieces = p;
		t->cap_pieces = cap;
	}
	t->pieces[t->n_pieces++] = (struct tar_piece){ offset, len };
	return 0;
}

static int check_map(const struct tar *t, struct err *e)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < t->n_pieces; i++)
		sum += t->pieces[i].len;
	if (sum != t->stored)
		return err_set(e, ERR_REFUSED, "a sparse map does not fit the content");
	return 0;
}

static int set_size(struct tar *t, uint64_t size, struct err *e)
{
	if (size > TAR_SIZE_MAX)
		return err_set(e, ERR_REFUSED, "a file is larger than %llu bytes",
			       (unsigned long long)TAR_SIZE_MAX);
	t->entry.size = size;
	return 0;
}

/* `n` pairs of 12-byte numbers; an empty one ends the map. 1 when it went on to the last. */
static int take_pairs(struct tar *t, const uint8_t *p, size_t n, struct err *e)
{
	uint64_t offset = 0, len = 0;

	for (size_t i = 0; i < n; i++, p += 24) {
		if (p[0] == '\0' && p[12] == '\0')
			return 0;
		if (tar_number(p, 12, &offset, e) < 0 || tar_number(p + 12, 12, &len, e) < 0 ||
		    add_piece(t, offset, len, e) < 0)
			return -1;
	}
	return 1;
}

int tar_sparse_gnu(struct tar *t, const uint8_t *header, struct err *e)
{
	uint8_t block[TAR_BLOCK_LEN];
	bool more = header[482] != 0;
	uint64_t real = 0;
	int r;

	if (tar_number(header + 483, 12, &real, e) < 0 || set_size(t, real, e) < 0)
		return -1;
	r = take_pairs(t, header + 386, 4, e);
	while (r >= 0 && more) {
		if (r == 0)
			return err_set(e, ERR_REFUSED, "a sparse map goes on behind its end");
		if (tar_take(t, block, sizeof(block), e) < 0)
			return -1;
		r = take_pairs(t, block, 21, e);
		more = block[504] != 0;
	}
	return r < 0 ? -1 : check_map(t, e);
}

/* The next line of the map, a decimal. `block` holds what was read of it. */
static int map_number(struct tar *t, uint8_t *block, size_t *at, uint64_t *ret, struct err *e)
{
	uint64_t v = 0;
	unsigned digits = 0;

	for (;;) {
		uint8_t c;

		if (*at == TAR_BLOCK_LEN) {
			if (t->stored < TAR_BLOCK_LEN)
				return bad(e);
			if (tar_take(t, block, TAR_BLOCK_LEN, e) < 0)
				return -1;
			t->stored -= TAR_BLOCK_LEN;
			*at = 0;
		}
		c = block[(*at)++];
		if (c == '\n' && digits > 0)
			break;
		if (c < '0' || c > '9' || ++digits > 18)
			return bad(e);
		v = v * 10 + (uint64_t)(c - '0');
	}
	*ret = v;
	return 0;
}

int tar_sparse_pax(struct tar *t, struct err *e)
{
	uint8_t block[TAR_BLOCK_LEN];
	size_t at = sizeof(block);
	uint64_t n = 0, offset = 0, len = 0;

	if (t->ext.sparse_major != 1 || t->ext.sparse_minor != 0)
		return err_set(e, ERR_REFUSED, "a sparse file is in another format than GNU's 1.0");
	if (set_size(t, t->ext.sparse_real, e) < 0 || map_number(t, block, &at, &n, e) < 0)
		return -1;
	for (; n > 0; n--)
		if (map_number(t, block, &at, &offset, e) < 0 ||
		    map_number(t, block, &at, &len, e) < 0 || add_piece(t, offset, len, e) < 0)
			return -1;
	return check_map(t, e);
}
