/* SHA-256 by openssl's EVP, which takes the machine's instructions for it. */
#include "image/sha256.h"

#include <openssl/evp.h>
#include <string.h>

static EVP_MD *md;

int img_sha256_ready(struct err *e)
{
	if (!md)
		md = EVP_MD_fetch(NULL, "SHA256", NULL);
	return md ? 0 : err_set(e, ERR_MISSING, "openssl has no SHA-256 here");
}

static int failed(struct err *e)
{
	return err_set(e, ERR_SYS, "openssl could not compute a SHA-256");
}

int img_sha256_begin(struct img_sha256 *s, struct err *e)
{
	EVP_MD_CTX *ctx;

	if (img_sha256_ready(e) < 0)
		return -1;
	ctx = EVP_MD_CTX_new();
	if (!ctx || EVP_DigestInit_ex2(ctx, md, NULL) != 1) {
		EVP_MD_CTX_free(ctx);
		return failed(e);
	}
	s->ctx = ctx;
	return 0;
}

int img_sha256_add(struct img_sha256 *s, const void *data, size_t n, struct err *e)
{
	return EVP_DigestUpdate(s->ctx, data, n) == 1 ? 0 : failed(e);
}

int img_sha256_sofar(const struct img_sha256 *s, char ret[IMG_DIGEST_LEN + 1], struct err *e)
{
	static const char prefix[] = "sha256:", digits[] = "0123456789abcdef";
	unsigned char sum[EVP_MAX_MD_SIZE];
	EVP_MD_CTX *copy = EVP_MD_CTX_new();
	unsigned n = 0;
	bool done;

	done = copy && EVP_MD_CTX_copy_ex(copy, s->ctx) == 1 &&
	       EVP_DigestFinal_ex(copy, sum, &n) == 1 && n == 32;
	EVP_MD_CTX_free(copy);
	if (!done)
		return failed(e);
	memcpy(ret, prefix, sizeof(prefix) - 1);
	ret += sizeof(prefix) - 1;
	for (unsigned i = 0; i < n; i++) {
		*ret++ = digits[sum[i] >> 4];
		*ret++ = digits[sum[i] & 15];
	}
	*ret = '\0';
	return 0;
}

int img_sha256_end(struct img_sha256 *s, char ret[IMG_DIGEST_LEN + 1], struct err *e)
{
	int r = img_sha256_sofar(s, ret, e);

	img_sha256_drop(s);
	return r;
}

void img_sha256_drop(struct img_sha256 *s)
{
	EVP_MD_CTX_free(s->ctx);
	s->ctx = NULL;
}

int img_sha256_of(const void *data, size_t n, char ret[IMG_DIGEST_LEN + 1], struct err *e)
{
	_cleanup_sha256_ struct img_sha256 s = { NULL };

	if (img_sha256_begin(&s, e) < 0 || img_sha256_add(&s, data, n, e) < 0)
		return -1;
	return img_sha256_end(&s, ret, e);
}
