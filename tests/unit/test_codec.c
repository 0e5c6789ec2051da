/* Codecs of layers: each form gives back what went in with the right sums, in pieces of every size; what is cut, longer, bigger or damaged is
 * refused. */
#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "image/codec.h"
#include "image/encode.h"
#include "image/sha256.h"

#define EMPTY_SUM "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC_SUM "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define ROOM (4u << 20)

/* A stream under construction, and a reader that hands it out in pieces. */
struct bytes {
	uint8_t *data;
	size_t n, at, piece;
	bool fails;
};

static ssize_t read_piece(void *ctx, void *buf, size_t n, struct err *e)
{
	struct bytes *b = ctx;

	if (n > b->n - b->at)
		n = b->n - b->at;
	if (b->piece > 0 && n > b->piece)
		n = b->piece;
	if (n == 0 && b->fails)
		return err_set(e, ERR_MISSING, "the source said so");
	memcpy(buf, b->data + b->at, n);
	b->at += n;
	return (ssize_t)n;
}

static struct bytes bytes_new(void)
{
	struct bytes b = { .data = malloc(ROOM) };

	ck_assert_ptr_nonnull(b.data);
	return b;
}

static void add(struct bytes *b, const void *data, size_t n)
{
	ck_assert_uint_le(b->n + n, ROOM);
	memcpy(b->data + b->n, data, n);
	b->n += n;
}

static void add_gzip(struct bytes *b, const void *data, size_t n)
{
	z_stream z = { 0 };

	ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (void *)(uintptr_t)data;
	z.avail_in = (uInt)n;
	z.next_out = b->data + b->n;
	z.avail_out = (uInt)(ROOM - b->n);
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	b->n = ROOM - z.avail_out;
	deflateEnd(&z);
}

static void add_zstd(struct bytes *b, const void *data, size_t n)
{
	size_t r = ZSTD_compress(b->data + b->n, ROOM - b->n, data, n, 3);

	ck_assert(!ZSTD_isError(r));
	b->n += r;
}

/* A frame header alone, asking for a window of 2^log bytes, and an empty last block. */
static void add_window(struct bytes *b, unsigned log)
{
	uint8_t frame[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x00, (uint8_t)((log - 10) << 3), 0x01, 0x00, 0x00 };

	add(b, frame, sizeof(frame));
}

/* Decodes all of it: 0 and what came out, or -1. */
static int decode(struct bytes *b, uint64_t max_in, uint64_t max_out, size_t step, struct bytes *ret, struct img_decoded *done, struct err *e)
{
	struct tar_source source = { read_piece, b };
	_cleanup_decoder_ struct img_decoder *d = NULL;
	ssize_t n;

	b->at = 0;
	ck_assert_int_eq(img_decoder_open(&source, max_in, max_out, &d, e), 0);
	while ((n = img_decoder_read(d, ret->data + ret->n, step, e)) > 0)
		ret->n += (size_t)n;
	if (n < 0) {
		struct err again;

		ck_assert_int_eq(img_decoder_finish(d, done, &again), -1);
		ck_assert_str_eq(again.msg, e->msg);
		return -1;
	}
	return img_decoder_finish(d, done, e);
}

static void sample(uint8_t *data, size_t n)
{
	uint32_t x = 1;

	for (size_t i = 0; i < n; i++) {
		x = x * 1103515245u + 12345u;
		data[i] = i % 1000 < 500 ? (uint8_t)(x >> 24) : 'a';
	}
}

START_TEST(sums)
{
	struct img_sha256 s = { NULL };
	char sum[IMG_DIGEST_LEN + 1];
	struct err e;

	ck_assert_int_eq(img_sha256_of("", 0, sum, &e), 0);
	ck_assert_str_eq(sum, EMPTY_SUM);
	ck_assert_int_eq(img_digest_check(sum, &e), 0);
	ck_assert_int_eq(img_sha256_begin(&s, &e), 0);
	ck_assert_int_eq(img_sha256_add(&s, "a", 1, &e), 0);
	ck_assert_int_eq(img_sha256_sofar(&s, sum, &e), 0);
	ck_assert_str_ne(sum, ABC_SUM);
	ck_assert_int_eq(img_sha256_add(&s, "bc", 2, &e), 0);
	ck_assert_int_eq(img_sha256_end(&s, sum, &e), 0);
	ck_assert_str_eq(sum, ABC_SUM);
	ck_assert_ptr_null(s.ctx);
}
END_TEST

/* Every form, with pieces of input and output from a byte to all of it. */
START_TEST(each_form_gives_back_what_went_in)
{
	static uint8_t data[100000];
	static const size_t pieces[] = { 1, 3, 4095, 0 }, steps[] = { 1, 511, 65536 };
	char sum[IMG_DIGEST_LEN + 1], in_sum[IMG_DIGEST_LEN + 1];
	struct err e;

	sample(data, sizeof(data));
	ck_assert_int_eq(img_sha256_of(data, sizeof(data), sum, &e), 0);
	for (int form = 0; form < 6; form++) {
		struct bytes b = bytes_new();
		struct img_decoded done;

		if (form == 0) {
			add(&b, data, sizeof(data));
		} else if (form == 1) {
			add_gzip(&b, data, sizeof(data));
		} else if (form == 2) { /* members, an empty one among them */
			add_gzip(&b, data, 70000);
			add_gzip(&b, "", 0);
			add_gzip(&b, data + 70000, sizeof(data) - 70000);
		} else if (form == 3) {
			add_zstd(&b, data, sizeof(data));
		} else if (form == 4) { /* frames, with some to be skipped before, between and behind */
			add(&b, "\x50\x2a\x4d\x18\x03\0\0\0xyz", 11);
			add_zstd(&b, data, 50000);
			add(&b, "\x5f\x2a\x4d\x18\0\0\0\0", 8);
			add_zstd(&b, "", 0);
			add_zstd(&b, data + 50000, sizeof(data) - 50000);
			add(&b, "\x55\x2a\x4d\x18\x01\0\0\0x", 9);
		} else {
			add_zstd(&b, data, sizeof(data));
			add_window(&b, IMG_ZSTD_WINDOW);
		}
		ck_assert_int_eq(img_sha256_of(b.data, b.n, in_sum, &e), 0);
		for (size_t p = 0; p < 4; p++) {
			for (size_t s = 0; s < 3; s++) {
				struct bytes out = bytes_new();

				b.piece = pieces[p];
				ck_assert_msg(decode(&b, b.n, sizeof(data), steps[s], &out, &done, &e) == 0, "form %d: %s", form, e.msg);
				ck_assert_uint_eq(out.n, sizeof(data));
				ck_assert(!memcmp(out.data, data, sizeof(data)));
				ck_assert_str_eq(done.out_digest, sum);
				ck_assert_str_eq(done.in_digest, in_sum);
				ck_assert_uint_eq(done.in, b.n);
				ck_assert_uint_eq(done.out, sizeof(data));
				ck_assert_int_eq(done.codec, form == 0 ? IMG_CODEC_PLAIN : form < 3 ? IMG_CODEC_GZIP : IMG_CODEC_ZSTD);
				free(out.data);
			}
		}
		free(b.data);
	}
}
END_TEST

START_TEST(short_streams)
{
	static const struct {
		const char *data;
		size_t n;
		const char *says; /* NULL: taken as they are */
	} rows[] = {
		{ "", 0, NULL },
		{ "a", 1, NULL },
		{ "\x28\xb5\x2f", 3, NULL },
		{ "\x1f", 1, NULL },
		{ "\x1f\x8b", 2, "ends early" },
		{ "\x1f\x8b\x08\x00", 4, "ends early" },
		{ "\x1f\x8b\x09\x00\0\0\0\0\0\0", 10, "damaged" },
		{ "\x28\xb5\x2f\xfd", 4, "ends early" },
		{ "\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 20, "damaged" },
		{ "\x50\x2a\x4d\x18\x03\0\0\0xy", 10, "ends early" },
		{ "\x50\x2a\x4d\x18\xff\xff\xff\xffxy", 10, "ends early" },
		{ "BZh91AY", 7, "bzip2" },
		{ "\xfd" "7zXZ\0", 6, "xz" },
		{ "\x27\xb5\x2f\xfd\0\0\0\0", 8, NULL }, /* zstd's 0.7: not known, so plain */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct bytes b = bytes_new(), out = bytes_new();
		struct img_decoded done;
		struct err e;

		add(&b, rows[i].data, rows[i].n);
		if (rows[i].says) {
			assert_refused(decode(&b, ROOM, ROOM, 4096, &out, &done, &e), &e, ERR_REFUSED);
			ck_assert_msg(strstr(e.msg, rows[i].says) != NULL, "row %zu: %s", i, e.msg);
		} else {
			ck_assert_msg(decode(&b, ROOM, ROOM, 4096, &out, &done, &e) == 0, "row %zu: %s", i, e.msg);
			ck_assert_uint_eq(out.n, rows[i].n);
			ck_assert_int_eq(done.codec, IMG_CODEC_PLAIN);
		}
		free(b.data);
		free(out.data);
	}
}
END_TEST

/* Cut at every byte: refused each time but where a member or frame ends. */
START_TEST(what_is_cut_is_refused)
{
	uint8_t data[3000];

	sample(data, sizeof(data));
	for (int form = 0; form < 2; form++) {
		struct bytes b = bytes_new(), out = bytes_new();
		struct img_decoded done;
		size_t whole, first;
		struct err e;

		(form ? add_zstd : add_gzip)(&b, data, sizeof(data));
		first = b.n;
		(form ? add_zstd : add_gzip)(&b, data, 100);
		whole = b.n;
		for (b.n = 6; b.n < whole; b.n++) {
			out.n = 0;
			if (b.n == first) {
				ck_assert_int_eq(decode(&b, ROOM, ROOM, 4096, &out, &done, &e), 0);
				ck_assert_uint_eq(out.n, sizeof(data));
			} else {
				assert_refused(decode(&b, ROOM, ROOM, 4096, &out, &done, &e), &e, ERR_REFUSED);
			}
		}
		out.n = 0;
		ck_assert_int_eq(decode(&b, ROOM, ROOM, 4096, &out, &done, &e), 0);
		free(b.data);
		free(out.data);
	}
}
END_TEST

START_TEST(what_is_behind_is_refused)
{
	static const struct {
		const char *data;
		size_t n;
	} tails[] = { { "x", 1 }, { "\0", 1 }, { "\0\0\0\0\0\0\0\0", 8 }, { "\x1f\x8c", 2 }, { "garbage that is longer", 22 },
		      { "\x27\xb5\x2f\xfd\0\0\0\0", 8 } };

	for (int form = 0; form < 2; form++) {
		for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
			for (size_t piece = 0; piece < 2; piece++) {
				struct bytes b = bytes_new(), out = bytes_new();
				struct img_decoded done;
				struct err e;

				(form ? add_zstd : add_gzip)(&b, "content", 7);
				add(&b, tails[i].data, tails[i].n);
				b.piece = piece;
				assert_refused(decode(&b, ROOM, ROOM, 4096, &out, &done, &e), &e, ERR_REFUSED);
				ck_assert_ptr_nonnull(strstr(e.msg, "behind the end"));
				free(b.data);
				free(out.data);
			}
		}
		/* The other form's member is not this form's. */
		for (int other = 0; other < 2; other++) {
			struct bytes b = bytes_new(), out = bytes_new();
			struct img_decoded done;
			struct err e;

			(form ? add_zstd : add_gzip)(&b, "content", 7);
			(other ? add_zstd : add_gzip)(&b, "content", 7);
			ck_assert_int_eq(decode(&b, ROOM, ROOM, 4096, &out, &done, &e), form == other ? 0 : -1);
			free(b.data);
			free(out.data);
		}
	}
}
END_TEST

/* A flipped bit anywhere does not go by: the stream is refused, or its input's sum is another. */
START_TEST(what_is_damaged_is_seen)
{
	uint8_t data[2000];
	struct err e;

	sample(data, sizeof(data));
	for (int form = 0; form < 2; form++) {
		struct bytes b = bytes_new(), out = bytes_new();
		struct img_decoded good, done;

		(form ? add_zstd : add_gzip)(&b, data, sizeof(data));
		ck_assert_int_eq(decode(&b, ROOM, ROOM, 4096, &out, &good, &e), 0);
		for (size_t i = 0; i < b.n; i++) {
			b.data[i] ^= 0x10;
			out.n = 0;
			if (decode(&b, ROOM, ROOM, 4096, &out, &done, &e) == 0)
				ck_assert_str_ne(done.in_digest, good.in_digest);
			else
				ck_assert_int_eq(e.kind, ERR_REFUSED);
			b.data[i] ^= 0x10;
		}
		free(b.data);
		free(out.data);
	}
}
END_TEST

START_TEST(bombs_and_bounds)
{
	static uint8_t zeros[1u << 20];
	struct img_decoded done;
	struct err e;

	for (int form = 0; form < 3; form++) {
		struct bytes b = bytes_new(), out = bytes_new();

		if (form == 2)
			add(&b, zeros, sizeof(zeros));
		else
			(form ? add_zstd : add_gzip)(&b, zeros, sizeof(zeros));
		ck_assert_int_eq(decode(&b, b.n, sizeof(zeros), 65536, &out, &done, &e), 0);
		out.n = 0;
		assert_refused(decode(&b, b.n, sizeof(zeros) - 1, 65536, &out, &done, &e), &e, ERR_REFUSED);
		ck_assert_uint_lt(out.n, sizeof(zeros));
		out.n = 0;
		assert_refused(decode(&b, b.n - 1, sizeof(zeros), 65536, &out, &done, &e), &e, ERR_REFUSED);
		free(b.data);
		free(out.data);
	}
	/* A window that would take more memory than allowed. */
	for (unsigned log = IMG_ZSTD_WINDOW; log <= IMG_ZSTD_WINDOW + 1; log++) {
		struct bytes b = bytes_new(), out = bytes_new();

		add_window(&b, log);
		ck_assert_int_eq(decode(&b, ROOM, ROOM, 4096, &out, &done, &e), log > IMG_ZSTD_WINDOW ? -1 : 0);
		free(b.data);
		free(out.data);
	}
}
END_TEST

START_TEST(errors_of_the_source_pass_through)
{
	struct bytes b = bytes_new(), out = bytes_new();
	struct img_decoded done;
	struct err e;

	add_gzip(&b, "content", 7);
	b.n -= 3;
	b.fails = true;
	assert_refused(decode(&b, ROOM, ROOM, 4096, &out, &done, &e), &e, ERR_MISSING);
	ck_assert_str_eq(e.msg, "the source said so");
	free(b.data);
	free(out.data);
}
END_TEST

START_TEST(names)
{
	ck_assert_str_eq(img_codec_name(IMG_CODEC_PLAIN), "plain");
	ck_assert_str_eq(img_codec_name(IMG_CODEC_GZIP), "gzip");
	ck_assert_str_eq(img_codec_name(IMG_CODEC_ZSTD), "zstd");
	ck_assert_str_eq(img_codec_name(IMG_CODEC_N), "");
}
END_TEST

/* The other direction: what is encoded is decoded to the same, and is the same each time. */
static int take(void *ctx, const void *data, size_t n, struct err *e)
{
	struct bytes *b = ctx;

	if (b->fails)
		return err_set(e, ERR_SYS, "the sink said so");
	add(b, data, n);
	return 0;
}

START_TEST(test_encode)
{
	static const size_t pieces[] = { 1, 511, 70000, 1u << 20 };
	size_t n = 1u << 20, piece = pieces[_i % 4];
	enum img_codec codec = (enum img_codec)(_i / 4);
	uint8_t *plain = malloc(n), *back = malloc(n);
	struct bytes out[2] = { bytes_new(), bytes_new() };
	struct img_decoded done;
	struct err e;

	for (size_t i = 0; i < n; i++)
		plain[i] = i < n / 2 ? (uint8_t)(i * i >> 7) : 0;
	for (int k = 0; k < 2; k++) {
		_cleanup_encoder_ struct img_encoder *c = NULL;
		const struct tar_sink sink = { take, &out[k] };
		uint64_t bytes = 0;

		ck_assert_int_eq(img_encoder_open(codec, &sink, &c, &e), 0);
		for (size_t at = 0; at < n; at += piece)
			ck_assert_int_eq(img_encoder_write(c, plain + at, n - at < piece ? n - at : piece, &e), 0);
		ck_assert_int_eq(img_encoder_finish(c, &bytes, &e), 0);
		ck_assert_uint_eq(bytes, out[k].n);
	}
	ck_assert(out[0].n == out[1].n && !memcmp(out[0].data, out[1].data, out[0].n));
	{
		_cleanup_decoder_ struct img_decoder *d = NULL;
		const struct tar_source source = { read_piece, &out[0] };
		size_t got = 0;
		ssize_t r;

		ck_assert_int_eq(img_decoder_open(&source, UINT64_MAX, n, &d, &e), 0);
		while ((r = img_decoder_read(d, back + got, n - got > 0 ? n - got : 1, &e)) > 0)
			got += (size_t)r;
		ck_assert_msg(r == 0, "%s", e.msg);
		ck_assert_uint_eq(got, n);
		ck_assert_int_eq(memcmp(plain, back, n), 0);
		ck_assert_int_eq(img_decoder_finish(d, &done, &e), 0);
		ck_assert_int_eq(done.codec, codec);
	}
	/* A sink that is full. */
	out[1].fails = true;
	{
		_cleanup_encoder_ struct img_encoder *c = NULL;
		const struct tar_sink sink = { take, &out[1] };
		uint64_t bytes;

		ck_assert_int_eq(img_encoder_open(codec, &sink, &c, &e), 0);
		ck_assert(img_encoder_write(c, plain, n, &e) < 0 || img_encoder_finish(c, &bytes, &e) < 0);
		ck_assert_str_eq(e.msg, "the sink said so");
	}
	free(out[0].data);
	free(out[1].data);
	free(plain);
	free(back);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_loop_test(tc, test_encode, 0, 4 * IMG_CODEC_N);
	tcase_add_test(tc, sums);
	tcase_add_test(tc, each_form_gives_back_what_went_in);
	tcase_add_test(tc, short_streams);
	tcase_add_test(tc, what_is_cut_is_refused);
	tcase_add_test(tc, what_is_behind_is_refused);
	tcase_add_test(tc, what_is_damaged_is_seen);
	tcase_add_test(tc, bombs_and_bounds);
	tcase_add_test(tc, errors_of_the_source_pass_through);
	tcase_add_test(tc, names);
}

int main(void)
{
	return unit_main("codec", fill);
}
