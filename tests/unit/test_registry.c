/* Addresses as they are dialled, where redirects lead, mirrors as they are written, and which part of an answer counts. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "image/registry.h"

static const struct {
	const char *url;
	bool plain;
	const char *host; /* NULL: refused */
} origins[] = {
	{ "https://a.b/x", false, "a.b" },
	{ "https://A.B:444/x?y=z", false, "A.B" },
	{ "https://[::1]:5000/", false, "[::1]" },
	{ "http://localhost/x", true, "localhost" },
	{ "http://127.0.0.1:5000/x", true, "127.0.0.1" },
	{ "https://a.b/x", true, "a.b" },
	{ "http://localhost/x", false, NULL },
	{ "http://a.b/x", true, NULL },
	{ "http://127.0.0.1.a.b/x", true, NULL },
	{ "http://localhost.a.b/x", true, NULL },
	{ "http://10.0.0.1/x", true, NULL },
	{ "https://user@a.b/x", false, NULL },
	{ "https://user:word@a.b/x", false, NULL },
	{ "https://a.b@evil.com/x", false, NULL },
	{ "http://localhost@evil.com/x", true, NULL },
	{ "http://localhost#@evil.com/x", true, "localhost" },
	{ "file:///etc/passwd", true, NULL },
	{ "ftp://a.b/x", true, NULL },
	{ "a.b/x", false, NULL },
	{ "/x", false, NULL },
	{ "", false, NULL },
	{ "https://", false, NULL },
};

START_TEST(addresses)
{
	struct img_origin o;
	struct err e;

	if (!origins[_i].host) {
		assert_refused(img_origin_of(origins[_i].url, origins[_i].plain, &o, &e), &e, ERR_REFUSED);
		return;
	}
	ck_assert_msg(img_origin_of(origins[_i].url, origins[_i].plain, &o, &e) == 0, "%s", origins[_i].url);
	ck_assert_str_eq(o.host, origins[_i].host);
}
END_TEST

static const struct {
	const char *a, *b;
	bool same;
} pairs[] = {
	{ "https://a.b/x", "https://a.b:443/y?z", true },	{ "https://a.b/x", "https://A.B/y", true },
	{ "https://a.b/x", "https://a.b:444/x", false },	{ "https://a.b/x", "https://a.c/x", false },
	{ "https://localhost/x", "http://localhost/x", false }, { "http://localhost/", "http://127.0.0.1/", false },
};

START_TEST(the_same_house)
{
	struct img_origin a, b;
	struct err e;

	ck_assert_int_eq(img_origin_of(pairs[_i].a, true, &a, &e), 0);
	ck_assert_int_eq(img_origin_of(pairs[_i].b, true, &b, &e), 0);
	ck_assert_int_eq(img_origin_same(&a, &b), pairs[_i].same);
}
END_TEST

static const struct {
	const char *location, *leads; /* NULL: refused */
} redirects[] = {
	{ "https://c.d/y?q=1", "https://c.d/y?q=1" },
	{ "/y", "https://a.b/y" },
	{ "z", "https://a.b/v2/z" },
	{ "?q=1", "https://a.b/v2/x?q=1" },
	{ "//c.d/y", "https://c.d/y" },
	{ "/y#part", "https://a.b/y" },
	{ "https://u:w@c.d/y", NULL },
	{ "//u:w@c.d/y", NULL },
	{ "", NULL },
	{ "https://[::1/y", NULL },
};

START_TEST(where_redirects_lead)
{
	char url[IMG_URL_MAX];
	struct err e;

	if (!redirects[_i].leads) {
		assert_refused(img_url_redirect("https://a.b/v2/x", redirects[_i].location, url, &e), &e, ERR_REFUSED);
		return;
	}
	ck_assert_int_eq(img_url_redirect("https://a.b/v2/x", redirects[_i].location, url, &e), 0);
	ck_assert_str_eq(url, redirects[_i].leads);
}
END_TEST

START_TEST(a_query_is_escaped)
{
	char url[IMG_URL_MAX] = "https://a.b/token?account=x";
	char longer[IMG_URL_MAX];
	struct err e;

	ck_assert_int_eq(img_url_query(url, "service", "a&b=c d#", &e), 0);
	ck_assert_ptr_nonnull(strstr(url, "account=x&service=a%26b"));
	ck_assert_ptr_null(strpbrk(url, " #"));
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_refused(img_url_query(url, "x", longer, &e), &e, ERR_REFUSED);
}
END_TEST

static const struct {
	const char *text, *registry;
	int r;
	const char *host, *prefix;
} mirrors[] = {
	{ "m.example.com", "docker.io", 1, "m.example.com", "" },
	{ "m.example.com:5000/a/b", "docker.io", 1, "m.example.com:5000", "a/b" },
	{ "localhost:5000", "docker.io", 1, "localhost:5000", "" },
	{ "[::1]:5000", "docker.io", 1, "[::1]:5000", "" },
	{ "ghcr.io=m.example.com/a", "ghcr.io", 1, "m.example.com", "a" },
	{ "docker.io=m.example.com", "docker.io", 1, "m.example.com", "" },
	{ "m.example.com", "ghcr.io", 0, NULL, NULL },
	{ "ghcr.io=m.example.com", "docker.io", 0, NULL, NULL },
	{ "", "docker.io", -1, NULL, NULL },
	{ "nodot", "docker.io", -1, NULL, NULL },
	{ "m.example.com=", "docker.io", -1, NULL, NULL },
	{ "=m.example.com", "docker.io", -1, NULL, NULL },
	{ "ghcr.io=nodot", "docker.io", -1, NULL, NULL },
	{ "ghcr.io/x=m.example.com", "docker.io", -1, NULL, NULL },
	{ "m.example.com/../x", "docker.io", -1, NULL, NULL },
	{ "m.example.com/x:tag", "docker.io", -1, NULL, NULL },
	{ "https://m.example.com", "docker.io", -1, NULL, NULL },
	{ "u:w@m.example.com", "docker.io", -1, NULL, NULL },
	{ "docker.io", "docker.io", -1, NULL, NULL },
	{ "ghcr.io=docker.io/x", "ghcr.io", -1, NULL, NULL },
};

START_TEST(mirrors_as_they_are_written)
{
	static struct img_endpoint end;
	struct err e;

	if (mirrors[_i].r < 0) {
		assert_refused(img_mirror_parse(mirrors[_i].text, mirrors[_i].registry, &end, &e), &e, ERR_USAGE);
		return;
	}
	ck_assert_msg(img_mirror_parse(mirrors[_i].text, mirrors[_i].registry, &end, &e) == mirrors[_i].r, "%s", mirrors[_i].text);
	if (mirrors[_i].r > 0) {
		ck_assert_str_eq(end.host, mirrors[_i].host);
		ck_assert_str_eq(end.prefix, mirrors[_i].prefix);
	}
}
END_TEST

#define N(a) (sizeof(a) / sizeof((a)[0]))

static void fill(TCase *tc)
{
	tcase_add_loop_test(tc, addresses, 0, N(origins));
	tcase_add_loop_test(tc, the_same_house, 0, N(pairs));
	tcase_add_loop_test(tc, where_redirects_lead, 0, N(redirects));
	tcase_add_test(tc, a_query_is_escaped);
	tcase_add_loop_test(tc, mirrors_as_they_are_written, 0, N(mirrors));
}

int main(void)
{
	return unit_main("registry", fill);
}
