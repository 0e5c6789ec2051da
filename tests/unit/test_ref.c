/* Image references: what each spelling means, what is refused, and that the normalised form means the same again. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "image/ref.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define A50 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A60 A50 "aaaaaaaaaa"

static const struct {
	const char *text, *form;
} good[] = {
	{ "python", "docker.io/library/python:latest" },
	{ "python:3.12-slim", "docker.io/library/python:3.12-slim" },
	{ "library/python", "docker.io/library/python:latest" },
	{ "user/app", "docker.io/user/app:latest" },
	{ "a/b/c:V_1.2-x", "docker.io/a/b/c:V_1.2-x" },
	{ "docker.io/python", "docker.io/library/python:latest" },
	{ "index.docker.io/python", "docker.io/library/python:latest" },
	{ "Index.Docker.IO/python", "docker.io/library/python:latest" },
	{ "registry-1.docker.io/user/app", "docker.io/user/app:latest" },
	{ "docker.io/library/host", "docker.io/library/host:latest" },
	{ "docker.io/local/x", "docker.io/local/x:latest" },
	{ "ghcr.io/org/app", "ghcr.io/org/app:latest" },
	{ "ghcr.io/app", "ghcr.io/app:latest" },
	{ "GHCR.io/app", "ghcr.io/app:latest" },
	{ "localhost/app", "localhost/app:latest" },
	{ "localhost:5000/app", "localhost:5000/app:latest" },
	{ "registry:5000/app:1", "registry:5000/app:1" },
	{ "127.0.0.1:5000/a/b@sha256:" HEX, "127.0.0.1:5000/a/b@sha256:" HEX },
	{ "[::1]:5000/app", "[::1]:5000/app:latest" },
	{ "[0:0::0:1]:5000/app", "[::1]:5000/app:latest" },
	{ "[2001:DB8::1]/app:t", "[2001:db8::1]/app:t" },
	{ "ghcr.io/app:1@sha256:" HEX, "ghcr.io/app:1@sha256:" HEX },
	{ "python@sha256:" HEX, "docker.io/library/python@sha256:" HEX },
	{ "a_b/c__d/e---f/g.h", "docker.io/a_b/c__d/e---f/g.h:latest" },
	{ "5000", "docker.io/library/5000:latest" },
	{ "localhost", "docker.io/library/localhost:latest" },
	{ "localhost:5000", "docker.io/library/localhost:5000" },
	{ "host/app", "docker.io/host/app:latest" },
	{ "hosts", "docker.io/library/hosts:latest" },
	{ "host", "host" },
	{ "local/with-git", "local/with-git:latest" },
	{ "local/with-git:v2", "local/with-git:v2" },
	{ "local", "docker.io/library/local:latest" },
};

static const struct {
	const char *text, *says;
} bad[] = {
	{ "", "no name" },
	{ "host:latest", "docker.io/library/host" },
	{ "host@sha256:" HEX, "docker.io/library/host" },
	{ "local/a/b", "one name" },
	{ "local/", "each part" },
	{ "local/..", "each part" },
	{ "local/a@sha256:" HEX, "no digest" },
	{ "scratch", "empty image" },
	{ HEX, "no name" },
	{ "Python", "lower case" },
	{ "ghcr.io/Org/app", "lower case" },
	{ "docker://python", "://" },
	{ "https://ghcr.io/org/app", "://" },
	{ "py thon", "spaces" },
	{ "python\n", "spaces" },
	{ "p\303\274thon", "non-ASCII" },
	{ "py\033[31mthon", "control" },
	{ "/python", "each part" },
	{ "python/", "each part" },
	{ "a//b", "each part" },
	{ "a/../b", "each part" },
	{ "../../../etc", "no host name" },
	{ "./app", "no host name" },
	{ "..", "each part" },
	{ "ghcr.io/../../../../../../../x", "each part" },
	{ "ghcr.io/", "each part" },
	{ "a..b", "each part" },
	{ "a___b", "each part" },
	{ "a._b", "each part" },
	{ "a.", "each part" },
	{ "-a", "each part" },
	{ "a-", "each part" },
	{ "a/b?c", "each part" },
	{ "a%2e", "each part" },
	{ "python:", "the tag" },
	{ "python:.x", "a tag" },
	{ "python:-x", "a tag" },
	{ "python:a/b", "port" },
	{ "Registry/app", "lower case" },
	{ "python:a:b", "each part" },
	{ "python:" A50 A50 A50, "the tag" },
	{ "python@", "only sha256" },
	{ "python@md5:abc", "only sha256" },
	{ "python@sha512:" HEX HEX, "only sha256" },
	{ "python@sha256:", "64 digits" },
	{ "python@sha256:0123", "64 digits" },
	{ "python@sha256:" HEX "0", "64 digits" },
	{ "python@sha256:ABCDEF6789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", "64 digits" },
	{ "python@sha256:" HEX "@sha256:" HEX, "64 digits" },
	{ "python@sha256:" HEX ":1", "64 digits" },
	{ "ghcr.io:/app", "port" },
	{ "ghcr.io:0/app", "port" },
	{ "ghcr.io:05/app", "port" },
	{ "ghcr.io:65536/app", "port" },
	{ "ghcr.io:99999999999999999999/app", "port" },
	{ "ghcr.io:5a/app", "port" },
	{ "user:pw@ghcr.io/app", "only sha256" },
	{ "ghcr..io/app", "no host name" },
	{ "-ghcr.io/app", "no host name" },
	{ "ghcr-.io/app", "no host name" },
	{ "ghcr.io-/app", "no host name" },
	{ ".ghcr.io/app", "no host name" },
	{ "gh_cr.io/app", "no host name" },
	{ "ghcr.io./app", "no host name" },
	{ A60 "aaaa.io/app", "no host name" },
	{ "[::1/app", "IPv6" },
	{ "[]/a.b", "each part" },
	{ "[]:1/app", "IPv6" },
	{ "[1.2.3.4]/app", "IPv6" },
	{ "[::1%25eth0]/app", "IPv6" },
	{ "[::1]x/app", "IPv6" },
	{ "[::1]:/app", "port" },
};

START_TEST(test_good)
{
	struct img_ref r, again;
	char form[IMG_REF_CAP], second[IMG_REF_CAP];
	struct err e = { 0 };

	ck_assert_msg(img_ref_parse(good[_i].text, &r, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(img_ref_format(&r, form), good[_i].form);
	ck_assert_msg(img_ref_parse(form, &again, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(img_ref_format(&again, second), form);
	ck_assert_int_eq(memcmp(&r, &again, sizeof(r)), 0);
}
END_TEST

START_TEST(test_bad)
{
	struct img_ref r;
	struct err e = { 0 };

	memset(&r, 0x5a, sizeof(r));
	assert_refused(img_ref_parse(bad[_i].text, &r, &e), &e, ERR_USAGE);
	ck_assert_msg(strstr(e.msg, bad[_i].says) != NULL, "%s: %s", bad[_i].text, e.msg);
	ck_assert_ptr_null(strchr(e.msg, '\033'));
	for (size_t i = 0; i < sizeof(r); i++)
		ck_assert_int_eq(((unsigned char *)&r)[i], 0x5a);
}
END_TEST

/* The longest of each part is taken, one more is not. */
START_TEST(test_bounds)
{
	static const char label[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijk"; /* 63 */
	struct img_ref r;
	struct err e = { 0 };
	char text[2048], form[IMG_REF_CAP], repo[300];

	memset(repo, 'r', sizeof(repo));
	for (int more = 0; more < 2; more++) {
		snprintf(text, sizeof(text), "%s.%s.%s.%.*s:65535/%.*s:%.*s@sha256:" HEX, label, label, label, 61, label, 255 + more, repo, 128,
			 repo);
		ck_assert_int_eq(img_ref_parse(text, &r, &e), -more);
	}
	snprintf(text, sizeof(text), "%s.%s.%s.%.*s:65535/%.*s:%.*s@sha256:" HEX, label, label, label, 61, label, 255, repo, 128, repo);
	ck_assert_msg(img_ref_parse(text, &r, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(img_ref_format(&r, form), text);
	snprintf(text, sizeof(text), "%s.%s.%s.%.*s/a", label, label, label, 62, label);
	assert_refused(img_ref_parse(text, &r, &e), &e, ERR_USAGE);
	snprintf(text, sizeof(text), "%.*s", 247, repo); /* library/ has to fit as well */
	ck_assert_int_eq(img_ref_parse(text, &r, &e), 0);
	snprintf(text, sizeof(text), "%.*s", 248, repo);
	assert_refused(img_ref_parse(text, &r, &e), &e, ERR_USAGE);
	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_refused(img_ref_parse(text, &r, &e), &e, ERR_USAGE);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_loop_test(tc, test_good, 0, sizeof(good) / sizeof(*good));
	tcase_add_loop_test(tc, test_bad, 0, sizeof(bad) / sizeof(*bad));
	tcase_add_test(tc, test_bounds);
}

int main(void)
{
	return unit_main("ref", fill);
}
