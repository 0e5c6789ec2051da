/* The tar reader: every dialect it reads, and each way to be read in two ways, refused. */
#include "unit.h"

#include "tar_make.h"

static struct tar_made made;
static struct tar *t;
static const struct tar_entry *en;
static struct err e;

static void start(uint64_t max)
{
	struct tar_source source = { tar_serve, &made };

	tar_free(&t);
	made.served = 0;
	ck_assert_int_eq(tar_open(&source, max, &t, &e), 0);
}

static void next(void)
{
	ck_assert_msg(tar_next(t, &en, &e) == 0, "%s", e.msg);
}

static void next_is(enum tar_type type, const char *path)
{
	next();
	ck_assert_ptr_nonnull(en);
	ck_assert_int_eq(en->type, type);
	ck_assert_str_eq(en->path, path);
}

/* The content, with '-' for holes. */
static void content_is(const char *want)
{
	char got[4096];
	uint64_t offset;
	const void *p;
	size_t n;

	ck_assert_uint_lt(en->size, sizeof(got));
	memset(got, '-', sizeof(got));
	got[en->size] = '\0';
	do {
		ck_assert_msg(tar_data(t, &offset, &p, &n, &e) == 0, "%s", e.msg);
		if (n)
			memcpy(got + offset, p, n);
	} while (n);
	ck_assert_str_eq(got, want);
}

START_TEST(test_plain)
{
	static const size_t chunks[] = { 0, 1, 7, 511, 512, 513 };

	tar_header(&made, '5', "d/", "", 01777, 0);
	tar_file(&made, "d/f", 0644, "hello");
	tar_header(&made, '0', "empty", "", 0, 0);
	tar_header(&made, '1', "hard", "d/f", 0644, 0);
	tar_header(&made, '2', "soft", "/d/../x", 0777, 0);
	tar_header(&made, '3', "c", "", 0600, 0);
	tar_header(&made, '4', "b", "", 0600, 0);
	tar_header(&made, '6', "p", "", 04755, 0);
	tar_file(&made, "skipped", 0644, "not read");
	tar_file(&made, "last", 0644, "x");
	tar_end(&made);
	made.chunk = chunks[_i];
	start(made.n);
	next_is(TAR_DIR, "d/");
	ck_assert_uint_eq(en->mode, 01777);
	ck_assert_uint_eq(en->uid, 1234);
	ck_assert_uint_eq(en->gid, 1235);
	ck_assert_int_eq(en->mtime, 1000000000);
	next_is(TAR_FILE, "d/f");
	content_is("hello");
	next_is(TAR_FILE, "empty");
	content_is("");
	next_is(TAR_HARDLINK, "hard");
	ck_assert_str_eq(en->link, "d/f");
	next_is(TAR_SYMLINK, "soft");
	ck_assert_str_eq(en->link, "/d/../x");
	next_is(TAR_CHAR, "c");
	ck_assert_str_eq(en->link, "");
	next_is(TAR_BLOCK, "b");
	next_is(TAR_FIFO, "p");
	ck_assert_uint_eq(en->mode, 04755);
	next_is(TAR_FILE, "skipped");
	next_is(TAR_FILE, "last");
	next();
	ck_assert_ptr_null(en);
	next(); /* and stays at the end */
	ck_assert_ptr_null(en);
	start(made.n - 1); /* a byte less than it has */
	while (tar_next(t, &en, &e) == 0)
		ck_assert_ptr_nonnull(en);
	ck_assert_ptr_nonnull(strstr(e.msg, "larger than allowed"));
}
END_TEST

START_TEST(test_dialects)
{
	char path[256], text[4096], longest[4096];
	size_t n;

	memset(path, 'n', sizeof(path)); /* ustar's prefix; both fields full */
	memset(path, 'p', 155);
	tar_file(&made, "name", 0644, "");
	tar_patch(&made, 345, path, 155);
	tar_patch(&made, 0, path + 155, 100);
	tar_file(&made, "gnu", 0644, ""); /* GNU has other things there */
	tar_patch(&made, 345, "12345", 5);
	tar_gnu(&made);
	tar_header(&made, '\0', "v7dir/", "", 0755, 0);
	tar_patch(&made, 257, "\0\0\0\0\0\0\0\0", 8);
	tar_header(&made, '\0', "v7file", "", 0755, 0);
	tar_patch(&made, 257, "\0\0\0\0\0\0\0\0", 8);
	tar_header(&made, '7', "contiguous", "", 0755, 0);
	memset(longest, 'l', sizeof(longest));
	longest[4095] = '\0';
	tar_long(&made, 'L', longest);
	tar_long(&made, 'K', longest);
	tar_header(&made, '2', "cut", "cut", 0755, 0);
	n = tar_pax_add(text, 0, "path", "e\314\201", 3); /* bytes, not characters: as they are */
	n = tar_pax_add(text, n, "mtime", "-1.25", 5);
	n = tar_pax_add(text, n, "uid", "4000000000", 10);
	n = tar_pax_add(text, n, "gid", "3", 1);
	n = tar_pax_add(text, n, "linkpath", "", 0);
	n = tar_pax_add(text, n, "SCHILY.xattr.user.a", "v\0=\n", 4);
	n = tar_pax_add(text, n, "SCHILY.xattr.user.b", "", 0);
	n = tar_pax_add(text, n, "comment", "x", 1);
	tar_pax_bytes(&made, 'x', text, n);
	tar_header(&made, '2', "cut", "kept", 0755, 0);
	n = tar_pax_add(text, 0, "comment", "a commit's name", 15);
	tar_pax_bytes(&made, 'g', text, n);
	tar_file(&made, "\303\251", 0644, "");
	tar_end(&made);
	start(made.n);
	next();
	ck_assert_uint_eq(strlen(en->path), 256);
	next_is(TAR_FILE, "gnu");
	next_is(TAR_DIR, "v7dir/");
	next_is(TAR_FILE, "v7file");
	next_is(TAR_FILE, "contiguous");
	next_is(TAR_SYMLINK, longest);
	ck_assert_str_eq(en->link, longest);
	next_is(TAR_SYMLINK, "e\314\201");
	ck_assert_str_eq(en->link, "kept");
	ck_assert_int_eq(en->mtime, -2);
	ck_assert_uint_eq(en->mtime_ns, 750000000);
	ck_assert_uint_eq(en->uid, 4000000000u);
	ck_assert_uint_eq(en->gid, 3);
	ck_assert_uint_eq(en->n_xattrs, 2);
	ck_assert_str_eq(en->xattrs[0].name, "user.a");
	ck_assert_uint_eq(en->xattrs[0].n, 4);
	ck_assert_int_eq(memcmp(en->xattrs[0].value, "v\0=\n", 4), 0);
	next_is(TAR_FILE, "\303\251");
	ck_assert_uint_eq(en->n_xattrs, 0);
	ck_assert_uint_eq(en->uid, 1234);
	next();
	ck_assert_ptr_null(en);
}
END_TEST

/* A source of any length: the headers made, and what lies between is whatever is in the buffer. */
static uint64_t head, between, gone;
static ssize_t serve_large(void *ctx, void *buf, size_t n, struct err *err)
{
	uint64_t off = gone < head ? gone : gone - between, left = gone < head ? head - gone : made.n - off;

	if (gone >= head && gone < head + between) {
		left = head + between - gone;
		off = UINT64_MAX;
	}
	if (n > left)
		n = (size_t)left;
	if (off != UINT64_MAX)
		memcpy(buf, made.data + off, n);
	gone += n;
	return (ssize_t)n;
}

/* Sizes over 2, 4 and 8 GiB, in octal, pax and base-256; read and skipped. */
START_TEST(test_large)
{
	static const uint64_t sizes[] = { UINT64_C(3) << 30, (UINT64_C(5) << 30) + 512, (UINT64_C(9) << 30) + 1024 };
	struct tar_source source = { serve_large, NULL };
	uint64_t seen = 0, offset;
	uint8_t wide[12] = { 0x80 };
	char num[32];
	const void *p;
	size_t n;

	between = sizes[_i / 2];
	snprintf(num, sizeof(num), "%llu", (unsigned long long)between);
	if (_i / 2 == 1)
		tar_pax_one(&made, "size", num);
	tar_header(&made, '0', "large", "", 0644, _i / 2 == 0 ? between : 0);
	for (int i = 0; i < 8; i++)
		wide[11 - i] = (uint8_t)(between >> (8 * i));
	if (_i / 2 == 2)
		tar_patch(&made, 124, wide, 12);
	head = made.n;
	tar_file(&made, "after", 0644, "here");
	tar_end(&made);
	ck_assert_int_eq(tar_open(&source, UINT64_MAX, &t, &e), 0);
	next_is(TAR_FILE, "large");
	ck_assert_uint_eq(en->size, between);
	if (_i % 2 == 0) {
		do {
			ck_assert_int_eq(tar_data(t, &offset, &p, &n, &e), 0);
			ck_assert(n == 0 || offset == seen);
			seen += n;
		} while (n);
		ck_assert_uint_eq(seen, between);
	}
	next_is(TAR_FILE, "after");
	content_is("here");
}
END_TEST

static void old_sparse(const char *map, bool more, unsigned real, const char *content)
{
	char num[16];
	unsigned a, b;
	int used;

	tar_header(&made, 'S', "sparse", "", 0644, strlen(content));
	tar_gnu(&made);
	snprintf(num, sizeof(num), "%011o", real);
	tar_patch(&made, 483, num, 12);
	for (size_t at = 386; sscanf(map, "%u %u%n", &a, &b, &used) == 2; at += 24, map += used) {
		snprintf(num, sizeof(num), "%011o", a);
		tar_patch(&made, at, num, 12);
		snprintf(num, sizeof(num), "%011o", b);
		tar_patch(&made, at + 12, num, 12);
	}
	if (more)
		tar_patch(&made, 482, "\1", 1);
}

static void new_sparse(const char *major, const char *real, const char *map, const char *content)
{
	char text[1024], block[1024] = "";
	size_t n = tar_pax_add(text, 0, "GNU.sparse.major", major, strlen(major));

	n = tar_pax_add(text, n, "GNU.sparse.minor", "0", 1);
	n = tar_pax_add(text, n, "GNU.sparse.name", "sparse", 6);
	n = tar_pax_add(text, n, "GNU.sparse.realsize", real, strlen(real));
	tar_pax_bytes(&made, 'x', text, n);
	n = (strlen(map) + 511) / 512 * 512;
	memcpy(block, map, strlen(map));
	tar_header(&made, '0', "GNUSparseFile.1/sparse", "", 0644, n + strlen(content));
	tar_bytes(&made, block, n);
	tar_bytes(&made, content, strlen(content));
	tar_pad(&made);
}

START_TEST(test_sparse)
{
	uint8_t block[512] = { 0 };

	old_sparse("2 3 7 1 10 0", false, 10, "abcd");
	tar_bytes(&made, "abcd", 4);
	tar_pad(&made);
	old_sparse("0 1 2 1 4 1 6 1", true, 12, "abcdef");
	snprintf((char *)block, 12, "%011o", 8);
	snprintf((char *)block + 12, 12, "%011o", 2);
	tar_bytes(&made, block, 512);
	tar_bytes(&made, "abcdef", 6);
	tar_pad(&made);
	new_sparse("1", "10", "2\n2\n3\n7\n1\n", "abcd");
	new_sparse("1", "5", "0\n", "");
	new_sparse("1", "6", "2\n0\n2\n6\n0\n", "ab");
	tar_file(&made, "after", 0644, "x");
	tar_end(&made);
	start(made.n);
	next_is(TAR_FILE, "sparse");
	content_is("--abc--d--");
	next_is(TAR_FILE, "sparse");
	content_is("a-b-c-d-ef--");
	next_is(TAR_FILE, "sparse");
	content_is("--abc--d--");
	next_is(TAR_FILE, "sparse");
	content_is("-----");
	next_is(TAR_FILE, "sparse");
	content_is("ab----");
	next_is(TAR_FILE, "after");
	content_is("x");
	start(made.n); /* and when they are skipped */
	for (int i = 0; i < 6; i++)
		next();
	ck_assert_str_eq(en->path, "after");
}
END_TEST

/* Each makes one archive that is wrong in one way. The end is added. */
static void bad_sum(void) { tar_file(&made, "a", 0644, ""); made.data[0] ^= 1; }
static void bad_random(void) { tar_bytes(&made, "PK\3\4", 4); tar_pad(&made); }
static void bad_type(void) { tar_header(&made, 'Z', "a", "", 0, 0); }
static void bad_volume(void) { tar_header(&made, 'M', "a", "", 0, 0); tar_gnu(&made); }
static void bad_sparse_ustar(void) { tar_header(&made, 'S', "a", "", 0, 0); }
static void bad_no_name(void) { tar_header(&made, '0', "", "", 0, 0); }
static void bad_no_target(void) { tar_header(&made, '2', "a", "", 0, 0); }
static void bad_file_slash(void) { tar_header(&made, '0', "a/", "", 0, 0); }
static void bad_dir_size(void) { tar_header(&made, '5', "a", "", 0, 512); tar_file(&made, "hidden", 0, ""); }
static void bad_link_size(void) { tar_header(&made, '1', "a", "b", 0, 512); tar_file(&made, "hidden", 0, ""); }
static void bad_symlink_size(void) { tar_header(&made, '2', "a", "b", 0, 1); }
static void bad_device_size(void) { tar_header(&made, '3', "a", "", 0, 512); tar_file(&made, "hidden", 0, ""); }
static void bad_digit(void) { tar_header(&made, '0', "a", "", 0, 0); tar_patch(&made, 124, "0000000008\0", 11); }
static void bad_minus(void) { tar_header(&made, '0', "a", "", 0, 0); tar_patch(&made, 124, "-1\0", 3); }
static void bad_negative(void) { tar_header(&made, '0', "a", "", 0, 0); tar_patch(&made, 124, "\377\377\377\377\377\377\377\377\377\377\376\000", 12); }
static void bad_huge(void) { tar_header(&made, '0', "a", "", 0, 0); tar_patch(&made, 124, "\200\377\377\377\377\377\377\377\377\377\377\377", 12); }
static void bad_4t(void) { tar_header(&made, '0', "a", "", 0, 0); tar_patch(&made, 124, "\200\0\0\0\0\0\4\0\0\0\0\1", 12); }
static void bad_cut_data(void) { tar_header(&made, '0', "a", "", 0, 5000); }
static void two_long(void) { tar_long(&made, 'L', "a"); tar_long(&made, 'L', "b"); tar_file(&made, "c", 0, ""); }
static void long_nul(void) { tar_header(&made, 'L', "", "", 0, 5); tar_bytes(&made, "a\0b\0\0", 5); tar_pad(&made); tar_file(&made, "c", 0, ""); }
static void long_empty(void) { tar_header(&made, 'L', "", "", 0, 0); tar_file(&made, "c", 0, ""); }
static void long_huge(void) { tar_header(&made, 'L', "", "", 0, 4097); tar_bytes(&made, NULL, 4608); }
static void long_full(void) { tar_header(&made, 'L', "", "", 0, 4096); for (int i = 0; i < 4096; i++) tar_bytes(&made, "x", 1); tar_file(&made, "c", 0, ""); }
static void long_last(void) { tar_long(&made, 'L', "a"); }
static void pax_last(void) { tar_pax_one(&made, "path", "a"); }
static void two_pax(void) { tar_pax_one(&made, "uid", "1"); tar_pax_one(&made, "uid", "1"); tar_file(&made, "c", 0, ""); }
static void long_and_pax(void) { tar_long(&made, 'L', "a"); tar_pax_one(&made, "path", "b"); tar_file(&made, "c", 0, ""); }
static void pax_and_long(void) { tar_pax_one(&made, "linkpath", "b"); tar_long(&made, 'K', "a"); tar_header(&made, '2', "c", "d", 0, 0); }
static void pax_raw(const char *text, size_t n) { tar_pax_bytes(&made, 'x', text, n); tar_file(&made, "c", 0, ""); }
static void pax_no_length(void) { pax_raw("path=a\n", 7); }
static void pax_short(void) { pax_raw("5 a=b\n", 6); }
static void pax_long(void) { pax_raw("99 a=b\n", 7); }
static void pax_no_value(void) { pax_raw("5 ab\n", 5); }
static void pax_no_key(void) { pax_raw("5 =a\n", 5); }
static void pax_no_end(void) { pax_raw("6 a=bc", 6); }
static void pax_zero(void) { pax_raw("0 a=b\n", 6); }
static void pax_wrap(void) { pax_raw("18446744073709551622 a=b\n", 25); }
static void pax_two_paths(void) { pax_raw("8 path=a\n9 path=ab\n", 19); }
static void pax_two_paths2(void) { pax_raw("9 path=a\n9 path=b\n", 18); }
static void pax_nul(void) { pax_raw("11 path=a\0b\n", 12); }
static void pax_nul2(void) { pax_raw("11 path=a\0\n", 11); }
static void pax_size_text(void) { tar_pax_one(&made, "size", "1x"); tar_file(&made, "c", 0, ""); }
static void pax_size_minus(void) { tar_pax_one(&made, "size", "-1"); tar_file(&made, "c", 0, ""); }
static void pax_size_huge(void) { tar_pax_one(&made, "size", "18446744073709551616"); tar_file(&made, "c", 0, ""); }
static void pax_two_sizes(void) { pax_raw("9 size=1\n9 size=2\n", 18); }
static void pax_time(void) { tar_pax_one(&made, "mtime", "1.x"); tar_file(&made, "c", 0, ""); }
static void pax_xattr(void) { tar_pax_one(&made, "SCHILY.xattr.", "1"); tar_file(&made, "c", 0, ""); }
static void pax_format0(void) { tar_pax_one(&made, "GNU.sparse.map", "0,1"); tar_file(&made, "c", 0, "x"); }
static void pax_dir_sparse(void) { tar_pax_one(&made, "GNU.sparse.major", "1"); tar_header(&made, '5', "c", "", 0, 0); }
static void global(const char *key)
{
	char text[64];

	tar_pax_bytes(&made, 'g', text, tar_pax_add(text, 0, key, "evil", 4));
	tar_file(&made, "c", 0, "");
}
static void global_path(void) { global("path"); }
static void global_link(void) { global("linkpath"); }
static void global_size(void) { global("size"); }
static void global_sparse(void) { global("GNU.sparse.name"); }
static void global_xattr(void) { global("SCHILY.xattr.user.x"); }
static void meta_huge(void) { tar_header(&made, 'x', "", "", 0, TAR_META_MAX + 1); tar_bytes(&made, NULL, TAR_META_MAX + 512); }
static void sparse_overlap(void) { old_sparse("0 3 2 1", false, 10, "abcd"); tar_bytes(&made, "abcd", 4); tar_pad(&made); }
static void sparse_back(void) { old_sparse("5 3 0 1", false, 10, "abcd"); tar_bytes(&made, "abcd", 4); tar_pad(&made); }
static void sparse_beyond(void) { old_sparse("8 4", false, 10, "abcd"); tar_bytes(&made, "abcd", 4); tar_pad(&made); }
static void sparse_less(void) { old_sparse("0 3", false, 10, "abcd"); tar_bytes(&made, "abcd", 4); tar_pad(&made); }
static void sparse_more(void) { old_sparse("0 5", false, 10, "abcd"); tar_bytes(&made, "abcd", 4); tar_pad(&made); }
static void sparse_goes_on(void) { old_sparse("0 4", true, 10, "abcd"); tar_bytes(&made, NULL, 512); }
static void sparse_2(void) { new_sparse("2", "4", "1\n0\n4\n", "abcd"); }
static void sparse_wrap(void) { new_sparse("1", "4", "1\n1\n9223372036854775807\n", "abcd"); }
static void sparse_text(void) { new_sparse("1", "4", "1\nx\n4\n", "abcd"); }
static void sparse_count(void) { new_sparse("1", "4", "99\n0\n4\n", "abcd"); }
static void sparse_real(void) { new_sparse("1", "9223372036854775807", "1\n0\n4\n", "abcd"); }
static void sparse_xl(void) { tar_pax_one(&made, "GNU.sparse.major", "1"); old_sparse("0 4", false, 10, "abcd"); tar_bytes(&made, "abcd", 4); tar_pad(&made); }
static void behind_end(void) { tar_end(&made); tar_file(&made, "late", 0644, ""); }
static void behind_one(void) { tar_bytes(&made, NULL, 512); tar_file(&made, "late", 0644, ""); }
static void zeros(void) { tar_bytes(&made, NULL, TAR_TAIL_MAX + 1); }

static const struct {
	void (*make)(void);
	const char *says;
} bad[] = {
	{ bad_sum, "checksum" }, { bad_random, "no tar archive" }, { bad_type, "unknown type 0x5a" },
	{ bad_volume, "several volumes" }, { bad_sparse_ustar, "unknown type 0x53" }, { bad_no_name, "no name" },
	{ bad_no_target, "no target" }, { bad_file_slash, "name of a directory" }, { bad_dir_size, "has content" },
	{ bad_link_size, "has content" }, { bad_symlink_size, "has content" }, { bad_device_size, "has content" },
	{ bad_digit, "malformed" }, { bad_minus, "malformed" }, { bad_negative, "malformed" }, { bad_huge, "malformed" },
	{ bad_4t, "larger than" }, { bad_cut_data, "in the middle" }, { two_long, "two long names" }, { long_nul, "NUL" },
	{ long_empty, "a name is longer" }, { long_huge, "a name is longer" }, { long_full, "a name is longer" },
	{ long_last, "no entry" }, { pax_last, "no entry" }, { two_pax, "two extended" }, { long_and_pax, "two sources" },
	{ pax_and_long, "two sources" }, { pax_no_length, "malformed" }, { pax_short, "malformed" },
	{ pax_long, "malformed" }, { pax_no_value, "malformed" }, { pax_no_key, "malformed" }, { pax_no_end, "malformed" },
	{ pax_zero, "malformed" }, { pax_wrap, "malformed" }, { pax_two_paths, "malformed" },
	{ pax_two_paths2, "two sources" }, { pax_nul, "malformed" }, { pax_nul2, "NUL" }, { pax_size_text, "malformed" },
	{ pax_size_minus, "malformed" }, { pax_size_huge, "malformed" }, { pax_two_sizes, "two sizes" },
	{ pax_time, "malformed" }, { pax_xattr, "extended attribute" }, { pax_format0, "format 0" },
	{ pax_dir_sparse, "has content" }, { global_path, "global header" }, { global_link, "global header" },
	{ global_size, "global header" }, { global_sparse, "global header" }, { global_xattr, "global header" },
	{ meta_huge, "more than 1048576" }, { sparse_overlap, "out of order" }, { sparse_back, "out of order" },
	{ sparse_beyond, "beyond" }, { sparse_less, "does not fit" }, { sparse_more, "does not fit" },
	{ sparse_goes_on, "goes on" }, { sparse_2, "another format" }, { sparse_wrap, "malformed" },
	{ sparse_text, "malformed" }, { sparse_count, "malformed" }, { sparse_real, "larger than" },
	{ sparse_xl, "two sparse maps" }, { behind_end, "behind the end" }, { behind_one, "behind the end" },
	{ zeros, "zeros" },
};

START_TEST(test_bad)
{
	bad[_i].make();
	tar_end(&made);
	start(made.n);
	e.kind = ERR_NONE;
	do {
		if (tar_next(t, &en, &e) < 0)
			break;
		ck_assert_msg(en != NULL, "%s: taken", bad[_i].says);
	} while (true);
	ck_assert_int_eq(e.kind, ERR_REFUSED);
	ck_assert_msg(strstr(e.msg, bad[_i].says) != NULL, "want \"%s\": %s", bad[_i].says, e.msg);
}
END_TEST

/* Cut anywhere, an archive is refused; a lone zero block ends one as well as two. */
START_TEST(test_cut)
{
	size_t whole;

	tar_pax_one(&made, "uid", "7");
	tar_file(&made, "a", 0644, "hello");
	tar_long(&made, 'L', "b");
	tar_file(&made, "b", 0644, "");
	whole = made.n + 512;
	tar_end(&made);
	for (made.n = 0; made.n <= whole; made.n += 64) {
		int r;

		start(made.n);
		do
			r = tar_next(t, &en, &e);
		while (r == 0 && en);
		ck_assert_int_eq(r, made.n == whole ? 0 : -1);
	}
}
END_TEST

/* Where the digest is known, an archive may end behind an entry's last byte, and nowhere else. */
START_TEST(test_lax_end)
{
	size_t a, b, whole;

	tar_pax_one(&made, "uid", "7");
	tar_file(&made, "a", 0644, "hello");
	a = made.n;
	tar_long(&made, 'L', "b");
	tar_file(&made, "b", 0644, "");
	b = made.n;
	whole = made.n + 512;
	tar_end(&made);
	for (made.n = 0; made.n <= whole; made.n++) {
		bool fine = (made.n > a - 512 + 4 && made.n <= a) || made.n == b || made.n == whole;
		int r;

		start(made.n);
		tar_lax_end(t);
		do
			r = tar_next(t, &en, &e);
		while (r == 0 && en);
		ck_assert_msg(r == (fine ? 0 : -1), "%zu bytes: %d", made.n, r);
	}
}
END_TEST

static ssize_t fails(void *ctx, void *buf, size_t n, struct err *err)
{
	return err_set(err, ERR_SYS, "the disk is gone");
}

START_TEST(test_source_fails)
{
	struct tar_source source = { fails, NULL };

	ck_assert_int_eq(tar_open(&source, 1, &t, &e), 0);
	assert_refused(tar_next(t, &en, &e), &e, ERR_SYS);
	ck_assert_str_eq(e.msg, "the disk is gone");
}
END_TEST

static void teardown(void)
{
	tar_free(&t);
	free(made.data);
}

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_add_loop_test(tc, test_plain, 0, 6);
	tcase_add_test(tc, test_dialects);
	tcase_add_loop_test(tc, test_large, 0, 6);
	tcase_add_test(tc, test_sparse);
	tcase_add_loop_test(tc, test_bad, 0, sizeof(bad) / sizeof(*bad));
	tcase_add_test(tc, test_cut);
	tcase_add_test(tc, test_lax_end);
	tcase_add_test(tc, test_source_fails);
}

int main(void)
{
	return unit_main("tar", fill);
}
