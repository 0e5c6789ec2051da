/* What a registry asks for (WWW-Authenticate), and files of credentials. The first byte chooses the reader. What is taken keeps the promises of the
 * headers; what is refused leaves the output alone and says one printable line, without a word of a file of credentials. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/auth_file.h"
#include "image/auth_header.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void refused(const struct err *e)
{
	must(e->kind == ERR_REFUSED && e->msg[0]);
	for (const char *s = e->msg; *s; s++)
		must((unsigned char)*s >= 0x20 && *s != 0x7f);
}

static void clean(const char *s, size_t max)
{
	must(strlen(s) <= max);
	for (; *s; s++)
		must((unsigned char)*s >= 0x20 && *s != 0x7f);
}

static void header(const char *text)
{
	struct img_challenges c = { 0 }, before = c;
	struct err e = { 0 };

	if (img_auth_header(text, &c, &e) < 0) {
		refused(&e);
		must(!memcmp(&c, &before, sizeof(c)));
		return;
	}
	clean(c.service, IMG_SERVICE_MAX);
	for (const char *s = c.realm; *s; s++)
		must((unsigned char)*s < 0x7f);
	must(c.bearer == (c.realm[0] != '\0'));
	/* The same again adds nothing. */
	before = c;
	must(img_auth_header(text, &c, &e) == 0 && !memcmp(&c, &before, sizeof(c)));
}

static void file(const char *text, size_t n)
{
	static struct img_auth a;
	struct err e = { 0 };

	if (img_auth_file(text, n, "docker.io", "library/x", &a, &e) < 0) {
		refused(&e);
		return;
	}
	if (a.kind == IMG_AUTH_HELPER)
		must(a.helper[0] && !a.helper[strspn(a.helper, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")]);
	if (a.kind == IMG_AUTH_PASSWORD || a.kind == IMG_AUTH_REFRESH || a.kind == IMG_AUTH_TOKEN)
		clean(a.secret, IMG_SECRET_MAX);
	clean(a.user, IMG_SECRET_MAX);
	if (img_auth_helper_answer(text, n, &a, &e) < 0)
		refused(&e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size == 0 || size > 65536 || !(text = malloc(size)))
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] & 1)
		file(text, size - 1);
	else
		header(text);
	free(text);
	return 0;
}
