/* What is written as tar is read again as it was, by our own reader: it has tests of its own, and integration/test_load_save.py has other readers. */
#include "unit.h"

#include <string.h>

#include "base/str.h"
#include "image/tar_write.h"

static struct buf made;
static size_t served;
static struct err e;

static int put(void *ctx, const void *data, size_t n, struct err *err)
{
	buf_add(&made, data, n);
	return made.failed ? err_set(err, ERR_SYS, "full") : 0;
}

static ssize_t serve(void *ctx, void *buf, size_t n, struct err *err)
{
	size_t k = made.len - served < n ? made.len - served : n;

	memcpy(buf, made.data + served, k);
	served += k;
	return (ssize_t)k;
}

static const struct tar_sink sink = { put, NULL };
static const struct tar_source source = { serve, NULL };

static void name(char field[TAR_PATH_CAP], size_t n)
{
	for (size_t i = 0; i < n; i++)
		field[i] = (char)(i % 50 == 20 ? '/' : 'a' + (int)(i % 26));
	field[n] = '\0';
}

static const struct {
	enum tar_type type;
	size_t path, link;
	uint64_t uid, size;
	int64_t mtime;
	uint32_t ns;
} rows[] = {
	{ TAR_FILE, 1, 0, 0, 0, 0, 0 },
	{ TAR_FILE, 100, 0, 07777777, 077777777777, 1700000000, 0 },
	{ TAR_FILE, 101, 0, 010000000, 0100000000000, 1700000000, 1 },
	{ TAR_FILE, 4000, 0, 4294967294, 0, 1700000000, 999999999 },
	{ TAR_DIR, 98, 0, 0, 0, -1, 0 },
	{ TAR_DIR, 99, 0, 0, 0, -1, 750000000 },
	{ TAR_DIR, 120, 0, 0, 0, -2, 250000000 },
	{ TAR_SYMLINK, 5, 100, 0, 0, 8589934591, 0 },
	{ TAR_SYMLINK, 5, 101, 0, 0, 8589934592, 500000000 },
	{ TAR_HARDLINK, 300, 300, 0, 0, 1, 0 },
	{ TAR_FIFO, 5, 0, 0, 0, 1, 0 },
};

START_TEST(test_entry)
{
	static struct tar_entry en;
	const struct tar_entry *got;
	struct tar *t;
	size_t n;

	en.type = rows[_i].type;
	name(en.path, rows[_i].path);
	name(en.link, rows[_i].link);
	en.mode = 0751;
	en.uid = en.gid = rows[_i].uid;
	en.size = rows[_i].size;
	en.mtime = rows[_i].mtime;
	en.mtime_ns = rows[_i].ns;
	buf_init(&made, 1 << 20);
	ck_assert_int_eq(tar_put(&sink, &en, &e), 0);
	ck_assert_uint_eq(made.len % 512, 0);
	ck_assert_int_eq(tar_open(&source, UINT64_MAX, &t, &e), 0);
	ck_assert_msg(tar_next(t, &got, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(got->type, en.type);
	n = strlen(got->path);
	ck_assert(got->path[n - 1] != '/' || en.type == TAR_DIR);
	ck_assert(n - (en.type == TAR_DIR && got->path[n - 1] == '/') == strlen(en.path) && !memcmp(got->path, en.path, strlen(en.path)));
	ck_assert_str_eq(got->link, en.link);
	ck_assert_uint_eq(got->mode, en.mode);
	ck_assert_uint_eq(got->uid, en.uid);
	ck_assert_uint_eq(got->size, en.size);
	ck_assert_int_eq(got->mtime, en.mtime);
	ck_assert_uint_eq(got->mtime_ns, en.mtime_ns);
	tar_free(&t);
	buf_free(&made);
}
END_TEST

/* Records of a pax header say their own length, which has more digits at some. */
START_TEST(test_xattrs)
{
	static struct tar_entry en = { .type = TAR_FILE, .path = "x", .size = 3, .n_xattrs = 1 };
	char value[1200] = "", key[] = "user.note";
	const struct tar_entry *got;
	const void *data;
	uint64_t at;
	struct tar *t;
	size_t n;

	memset(value, '\n', sizeof(value));
	for (size_t len = 0; len < sizeof(value); len++) {
		en.xattrs[0] = (struct tar_xattr){ key, value, len };
		buf_init(&made, 1 << 20);
		served = 0;
		ck_assert(tar_put(&sink, &en, &e) == 0 && put(NULL, "abc", 3, &e) == 0 && tar_put_padding(&sink, 3, &e) == 0 &&
			  tar_put_file(&sink, "y", "", 0, &e) == 0 && tar_put_end(&sink, &e) == 0);
		ck_assert_int_eq(tar_open(&source, UINT64_MAX, &t, &e), 0);
		ck_assert_msg(tar_next(t, &got, &e) == 0, "%zu: %s", len, e.msg);
		ck_assert_uint_eq(got->n_xattrs, 1);
		ck_assert_str_eq(got->xattrs[0].name, key);
		ck_assert_uint_eq(got->xattrs[0].n, len);
		ck_assert_int_eq(memcmp(got->xattrs[0].value, value, len), 0);
		ck_assert(tar_data(t, &at, &data, &n, &e) == 0 && n == 3 && !memcmp(data, "abc", 3));
		ck_assert(tar_next(t, &got, &e) == 0 && got && !strcmp(got->path, "y") && got->n_xattrs == 0);
		ck_assert(tar_next(t, &got, &e) == 0 && !got);
		tar_free(&t);
		buf_free(&made);
	}
}
END_TEST

/* A sparse file: its pieces where they were, and its size; as many as there may be, too. */
START_TEST(test_sparse)
{
	static struct tar_entry en = { .type = TAR_FILE, .mode = 0600, .size = UINT64_C(1) << 40 };
	static struct tar_piece pieces[TAR_SPARSE_MAX - 1];
	size_t n = _i == 0 ? 1 : _i == 1 ? 3 : TAR_SPARSE_MAX - 1, got_n;
	const struct tar_entry *got;
	const void *data;
	uint64_t at;
	struct tar *t;

	name(en.path, _i == 1 ? 300 : 7);
	buf_init(&made, 8 << 20);
	served = 0;
	for (size_t i = 0; i < n; i++)
		pieces[i] = (struct tar_piece){ i * 8192 + 4096, _i == 0 ? 0 : 5 };
	ck_assert_int_eq(tar_put_sparse(&sink, &en, pieces, n, &e), 0);
	for (size_t i = 0; i < n && _i > 0; i++)
		ck_assert_int_eq(put(NULL, "piece", 5, &e), 0);
	ck_assert_int_eq(tar_put_padding(&sink, _i == 0 ? 0 : 5 * n, &e), 0);
	ck_assert(tar_put_file(&sink, "y", "z", 1, &e) == 0 && tar_put_end(&sink, &e) == 0);
	ck_assert_int_eq(tar_open(&source, UINT64_MAX, &t, &e), 0);
	ck_assert_msg(tar_next(t, &got, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(got->path, en.path);
	ck_assert_uint_eq(got->size, en.size);
	ck_assert_uint_eq(got->mode, 0600);
	for (size_t i = 0; i < n && _i > 0; i++) {
		ck_assert(tar_data(t, &at, &data, &got_n, &e) == 0 && got_n > 0 && got_n <= 5 && at == pieces[i].offset);
		ck_assert_int_eq(memcmp(data, "piece", got_n), 0);
		/* A piece may come in two where the buffer ends. */
		if (got_n < 5)
			ck_assert(tar_data(t, &at, &data, &got_n, &e) == 0 && at > pieces[i].offset && at + got_n == pieces[i].offset + 5);
	}
	ck_assert(tar_data(t, &at, &data, &got_n, &e) == 0 && got_n == 0);
	ck_assert(tar_next(t, &got, &e) == 0 && got && !strcmp(got->path, "y") && got->size == 1);
	tar_free(&t);
	buf_free(&made);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_loop_test(tc, test_sparse, 0, 3);
	tcase_add_loop_test(tc, test_entry, 0, sizeof(rows) / sizeof(*rows));
	tcase_add_test(tc, test_xattrs);
}

int main(void)
{
	return unit_main("tar_write", fill);
}
