/* Logging in: what a registry may ask for, whom a password is shown, and what docker's files say. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "image/auth_file.h"
#include "image/auth_header.h"

static const struct {
	const char *value;
	bool basic;
	const char *realm, *service; /* realm NULL: no Bearer */
} good[] = {
	{ "Basic realm=\"x\"", true, NULL, NULL },
	{ "basic", true, NULL, NULL },
	{ "BASIC realm=x, charset=\"UTF-8\"", true, NULL, NULL },
	{ "Bearer realm=\"https://a.b/token\",service=\"s\",scope=\"repository:x:pull\"", false, "https://a.b/token", "s" },
	{ "bearer   realm = \"https://a.b/token\" , service = s", false, "https://a.b/token", "s" },
	{ "Bearer service=\"a, b=c\",realm=\"r\"", false, "r", "a, b=c" },
	{ "Bearer realm=\"a\\\"b\\\\c\"", false, "a\"b\\c", "" },
	{ "Bearer realm=\"r\",error=\"invalid_token\"", false, "r", "" },
	{ "Bearer realm=\"r\", Basic realm=\"x\"", true, "r", "" },
	{ "Basic realm=\"x\", Bearer realm=\"r\",service=\"s\"", true, "r", "s" },
	{ "Negotiate, Bearer realm=r", false, "r", "" },
	{ "Negotiate YWJj==, Basic realm=x", true, NULL, NULL },
	{ "NTLM abc , , Bearer realm=r,", false, "r", "" },
	{ "Bearer realm=\"first\", Bearer realm=\"second\"", false, "first", "" },
	{ "", false, NULL, NULL },
	{ " , ", false, NULL, NULL },
	{ "Digest realm=\"x\", nonce=\"y\", qop=\"auth\"", false, NULL, NULL },
	{ "Digest realm=\"x\", realm=\"y\"", false, NULL, NULL }, /* nobody's business */
};

START_TEST(challenges_that_are_taken)
{
	struct img_challenges c = { 0 };
	struct err e;

	ck_assert_msg(img_auth_header(good[_i].value, &c, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(c.basic, good[_i].basic);
	ck_assert_int_eq(c.bearer, good[_i].realm != NULL);
	if (good[_i].realm) {
		ck_assert_str_eq(c.realm, good[_i].realm);
		ck_assert_str_eq(c.service, good[_i].service);
	}
}
END_TEST

static const char *const bad[] = {
	"Bearer",
	"Bearer service=\"x\"",
	"Bearer realm=\"\"",
	"Bearer realm=",
	"Bearer realm=\"x",
	"Bearer realm=\"x\\",
	"Bearer realm=\"x\" service=\"y\"",
	"Bearer realm=\"x\"service=\"y\"",
	"Bearer realm=\"x\",realm=\"y\"",
	"Bearer realm=\"x\",REALM=\"x\"",
	"Bearer realm=\"x\",service=\"y\",service=\"z\"",
	"Bearer realm=\"x\ny\"",
	"Bearer realm=\"x\x1by\"",
	"Bearer realm=\"x\xc3\xa4\"",
	"realm=\"x\"",
	"=\"x\"",
	"Bearer =x",
	"Bearer\"x\"",
	"Basic realm=\"x\" Bearer realm=\"y\"",
	"\"Bearer\" realm=x",
	"(Bearer) realm=x",
};

START_TEST(challenges_that_are_refused)
{
	struct img_challenges c, before;
	struct err e;

	memset(&c, 0x11, sizeof(c));
	before = c;
	assert_refused(img_auth_header(bad[_i], &c, &e), &e, ERR_REFUSED);
	ck_assert(!memcmp(&c, &before, sizeof(c)));
}
END_TEST

START_TEST(challenges_are_bounded)
{
	char text[20000];
	struct img_challenges c = { 0 };
	struct err e;

	for (int too_long = 0; too_long < 2; too_long++) {
		snprintf(text, sizeof(text), "Bearer realm=\"%0*d\"", IMG_REALM_MAX + too_long, 0);
		memset(&c, 0, sizeof(c));
		ck_assert_int_eq(img_auth_header(text, &c, &e), too_long ? -1 : 0);
		snprintf(text, sizeof(text), "Bearer realm=r,service=\"%0*d\"", IMG_SERVICE_MAX + too_long, 0);
		memset(&c, 0, sizeof(c));
		ck_assert_int_eq(img_auth_header(text, &c, &e), too_long ? -1 : 0);
	}
	snprintf(text, sizeof(text), "Basic realm=\"%09000d\"", 0);
	assert_refused(img_auth_header(text, &c, &e), &e, ERR_REFUSED);
	/* Two headers add up. */
	memset(&c, 0, sizeof(c));
	ck_assert_int_eq(img_auth_header("Basic realm=x", &c, &e), 0);
	ck_assert_int_eq(img_auth_header("Bearer realm=r", &c, &e), 0);
	ck_assert(c.basic && c.bearer);
}
END_TEST

/* Whom a password is shown. */
static const struct {
	const char *registry, *realm;
	bool trusted;
} realms[] = {
	{ "ghcr.io", "ghcr.io", true },
	{ "ghcr.io", "GHCR.IO", true },
	{ "docker.io", "auth.docker.io", true },
	{ "registry:5000", "registry", true },
	{ "127.0.0.1:5000", "127.0.0.1", true },
	{ "[::1]:5000", "[::1]", true },
	{ "[::1]:5000", "::1", true },
	{ "ghcr.io", "auth.docker.io", false },
	{ "docker.io", "docker.io.evil.com", false },
	{ "docker.io", "evil.auth.docker.io", false },
	{ "auth.docker.io", "docker.io", false },
	{ "ghcr.io", "ghcr.io.evil.com", false },
	{ "ghcr.io", "evilghcr.io", false },
	{ "ghcr.io", "ghcr.io.", false },
	{ "ghcr.io", "hcr.io", false },
	{ "ghcr.io", "sub.ghcr.io", false },
	{ "sub.ghcr.io", "ghcr.io", false },
	{ "ghcr.io", "", false },
	{ "[::1]:5000", "[::2]", false },
};

START_TEST(realms_that_are_trusted)
{
	ck_assert_msg(img_realm_trusted(realms[_i].registry, realms[_i].realm) == realms[_i].trusted, "%s and %s", realms[_i].registry,
		      realms[_i].realm);
}
END_TEST

static const struct {
	const char *host;
	bool is;
} loopback[] = {
	{ "localhost", true },
	{ "localhost:5000", true },
	{ "LOCALHOST:5000", true },
	{ "127.0.0.1", true },
	{ "127.0.0.1:5000", true },
	{ "127.255.255.254:1", true },
	{ "[::1]", true },
	{ "[::1]:5000", true },
	{ "127.0.0.1.evil.com", false },
	{ "127.0.0.1.evil.com:5000", false },
	{ "localhost.evil.com", false },
	{ "localhost.", false },
	{ "xlocalhost", false },
	{ "127.1", false },
	{ "127.0.0.1.", false },
	{ "0127.0.0.1", false },
	{ "2130706433", false },
	{ "0x7f.0.0.1", false },
	{ "128.0.0.1", false },
	{ "0.0.0.0", false },
	{ "[::]:5000", false },
	{ "[::ffff:127.0.0.1]", false },
	{ "[fe80::1]", false },
	{ "10.0.0.1", false },
	{ "registry", false },
	{ "", false },
};

START_TEST(loopback_is_exact)
{
	ck_assert_msg(img_host_loopback(loopback[_i].host) == loopback[_i].is, "%s", loopback[_i].host);
}
END_TEST

/* dXNlcjpwYXNz is user:pass, dXNlcjpwOmFzcw== is user:p:ass, bzpv is o:o */
static const struct {
	const char *json, *host, *repo;
	enum img_auth_kind kind;
	const char *user, *secret; /* of a helper: its name in user */
} files[] = {
	{ "{}", "ghcr.io", "a/b", IMG_AUTH_NONE, "", "" },
	{ "{\"auths\":{}}", "ghcr.io", "a/b", IMG_AUTH_NONE, "", "" },
	{ "{\"auths\":{\"ghcr.io\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "ghcr.io", "a/b", IMG_AUTH_PASSWORD, "user", "pass" },
	{ "{\"auths\":{\"ghcr.io\":{\"auth\":\"dXNlcjpwOmFzcw==\"}}}", "ghcr.io", "a/b", IMG_AUTH_PASSWORD, "user", "p:ass" },
	{ "{\"auths\":{\"ghcr.io\":{\"auth\":\"dXNlcjpwOmFzcw\"}}}", "ghcr.io", "a/b", IMG_AUTH_PASSWORD, "user", "p:ass" },
	{ "{\"auths\":{\"ghcr.io\":{\"username\":\"u\",\"password\":\"p\"}}}", "ghcr.io", "a", IMG_AUTH_PASSWORD, "u", "p" },
	{ "{\"auths\":{\"https://ghcr.io\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "ghcr.io", "a/b", IMG_AUTH_PASSWORD, "user", "pass" },
	{ "{\"auths\":{\"https://ghcr.io/v2/\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "ghcr.io", "a/b", IMG_AUTH_PASSWORD, "user", "pass" },
	{ "{\"auths\":{\"ghcr.io\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "ghcr.io:443", "a/b", IMG_AUTH_NONE, "", "" },
	{ "{\"auths\":{\"ghcr.io.evil.com\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "ghcr.io", "a/b", IMG_AUTH_NONE, "", "" },
	{ "{\"auths\":{\"ghcr.io\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "evil.com", "ghcr.io", IMG_AUTH_NONE, "", "" },
	{ "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "docker.io", "library/x", IMG_AUTH_PASSWORD, "user", "pass" },
	{ "{\"auths\":{\"docker.io\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "docker.io", "library/x", IMG_AUTH_PASSWORD, "user", "pass" },
	{ "{\"auths\":{\"index.docker.io\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "ghcr.io", "library/x", IMG_AUTH_NONE, "", "" },
	/* The longest part counts; a part ends at a slash. */
	{ "{\"auths\":{\"h:1\":{\"auth\":\"bzpv\"},\"h:1/a/b\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "h:1", "a/b/c", IMG_AUTH_PASSWORD, "user", "pass" },
	{ "{\"auths\":{\"h:1\":{\"auth\":\"bzpv\"},\"h:1/a/b\":{\"auth\":\"dXNlcjpwYXNz\"}}}", "h:1", "a/bc", IMG_AUTH_PASSWORD, "o", "o" },
	{ "{\"auths\":{\"h:1\":{\"identitytoken\":\"refresh\",\"auth\":\"bzpv\"}}}", "h:1", "a", IMG_AUTH_REFRESH, "", "refresh" },
	{ "{\"auths\":{\"h:1\":{\"registrytoken\":\"tok\"}}}", "h:1", "a", IMG_AUTH_TOKEN, "", "tok" },
	{ "{\"credsStore\":\"pass\"}", "h:1", "a", IMG_AUTH_HELPER, "pass", "" },
	{ "{\"credsStore\":\"pass\",\"auths\":{\"h:1\":{}}}", "h:1", "a", IMG_AUTH_HELPER, "pass", "" },
	{ "{\"credsStore\":\"pass\",\"credHelpers\":{\"h:1\":\"ecr-login\"}}", "h:1", "a", IMG_AUTH_HELPER, "ecr-login", "" },
	{ "{\"credHelpers\":{\"other\":\"ecr-login\"}}", "h:1", "a", IMG_AUTH_NONE, "", "" },
};

START_TEST(files_of_credentials)
{
	static struct img_auth a;
	struct err e;

	ck_assert_msg(img_auth_file(files[_i].json, strlen(files[_i].json), files[_i].host, files[_i].repo, &a, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(a.kind, files[_i].kind);
	if (a.kind == IMG_AUTH_HELPER) {
		ck_assert_str_eq(a.helper, files[_i].user);
		return;
	}
	ck_assert_str_eq(a.secret, files[_i].secret);
	if (a.kind == IMG_AUTH_PASSWORD)
		ck_assert_str_eq(a.user, files[_i].user);
}
END_TEST

static const char *const bad_files[] = {
	"",
	"[]",
	"{\"auths\":[]}",
	"{\"auths\":{\"h:1\":\"s3cret\"}}",
	"{\"auths\":{\"h:1\":{\"auth\":\"s3cret!\"}}}",
	"{\"auths\":{\"h:1\":{\"auth\":\"bm9jb2xvbg==\"}}}",
	"{\"auths\":{\"h:1\":{\"auth\":\"dTpwAGE=\"}}}", /* a NUL in it */
	"{\"auths\":{\"h:1\":{\"auth\":\"dTpwDQph\"}}}", /* an end of line: a header of its own */
	"{\"auths\":{\"h:1\":{\"auth\":1}}}",
	"{\"auths\":{\"h:1\":{\"auth\":\"s3cret\"} s3cret",
	"{\"credsStore\":\"../s3cret\"}",
	"{\"credsStore\":\"a b\"}",
	"{\"credsStore\":\"a;s3cret\"}",
	"{\"credsStore\":\"-s3cret\"}",
	"{\"credsStore\":\".s3cret\"}",
	"{\"credHelpers\":{\"h:1\":\"/bin/sh\"}}",
	"{\"credHelpers\":{\"h:1\":\"\"}}",
};

START_TEST(bad_files_say_nothing_of_their_content)
{
	static struct img_auth a;
	struct err e;

	assert_refused(img_auth_file(bad_files[_i], strlen(bad_files[_i]), "h:1", "a", &a, &e), &e, ERR_REFUSED);
	ck_assert_ptr_null(strstr(e.msg, "s3cret"));
}
END_TEST

START_TEST(answers_of_helpers)
{
	static const char plain[] = "{\"ServerURL\":\"h\",\"Username\":\"u\",\"Secret\":\"p\"}";
	static const char token[] = "{\"Username\":\"<token>\",\"Secret\":\"t\"}";
	static const char none[] = "{\"Username\":\"u\"}";
	static struct img_auth a;
	struct err e;

	ck_assert_int_eq(img_auth_helper_answer(plain, strlen(plain), &a, &e), 0);
	ck_assert_int_eq(a.kind, IMG_AUTH_PASSWORD);
	ck_assert_str_eq(a.user, "u");
	ck_assert_str_eq(a.secret, "p");
	ck_assert_int_eq(img_auth_helper_answer(token, strlen(token), &a, &e), 0);
	ck_assert_int_eq(a.kind, IMG_AUTH_REFRESH);
	assert_refused(img_auth_helper_answer(none, strlen(none), &a, &e), &e, ERR_REFUSED);
	assert_refused(img_auth_helper_answer("p", 1, &a, &e), &e, ERR_REFUSED);
	ck_assert_str_eq(img_auth_server("docker.io"), "https://index.docker.io/v1/");
	ck_assert_str_eq(img_auth_server("h:1"), "h:1");
}
END_TEST

#define N(a) (sizeof(a) / sizeof((a)[0]))

static void fill(TCase *tc)
{
	tcase_add_loop_test(tc, challenges_that_are_taken, 0, N(good));
	tcase_add_loop_test(tc, challenges_that_are_refused, 0, N(bad));
	tcase_add_test(tc, challenges_are_bounded);
	tcase_add_loop_test(tc, realms_that_are_trusted, 0, N(realms));
	tcase_add_loop_test(tc, loopback_is_exact, 0, N(loopback));
	tcase_add_loop_test(tc, files_of_credentials, 0, N(files));
	tcase_add_loop_test(tc, bad_files_say_nothing_of_their_content, 0, N(bad_files));
	tcase_add_test(tc, answers_of_helpers);
}

int main(void)
{
	return unit_main("auth", fill);
}
