/* An image's config: every field that is used, its defaults, and what is refused. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "image/config.h"

#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
#define D(n) "sha256:" HEX #n
#define ROOTFS "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"" D(1) "\",\"" D(2) "\"]}"
#define DOC(config) "{\"os\":\"linux\",\"architecture\":\"amd64\"," ROOTFS ",\"config\":{" config "}}"

static struct img_config c;
static struct err e;

static void read_config(const char *text)
{
	img_config_free(&c);
	ck_assert_msg(img_config_parse(text, strlen(text), &c, &e) == 0, "%s", e.msg);
}

START_TEST(test_all_fields)
{
	read_config(DOC("\"Env\":[\"PATH=/bin\",\"A=1\",\"PATH=/usr/bin:/bin\",\"B=\",\"A=x=y\"],\"WorkingDir\":\"/srv//app/\",\"User\":\"www:33\","
			"\"Entrypoint\":[\"/init\",\"\"],\"Cmd\":[],\"StopSignal\":\"SIGRTMIN+3\",\"Volumes\":{\"/var/lib/b/\":{},\"/a\":{}},"
			"\"Labels\":{\"x\":\"y\"},\"ExposedPorts\":{\"80/tcp\":{}}"));
	ck_assert_uint_eq(c.env.n, 3);
	ck_assert_str_eq(c.env.v[0], "PATH=/usr/bin:/bin");
	ck_assert_str_eq(c.env.v[1], "A=x=y");
	ck_assert_str_eq(c.env.v[2], "B=");
	ck_assert_ptr_null(c.env.v[3]);
	ck_assert_str_eq(c.workdir, "/srv/app");
	ck_assert_str_eq(c.user, "www:33");
	ck_assert_uint_eq(c.entrypoint.n, 2);
	ck_assert_str_eq(c.entrypoint.v[0], "/init");
	ck_assert_str_eq(c.entrypoint.v[1], "");
	ck_assert_ptr_nonnull(c.cmd.v);
	ck_assert_uint_eq(c.cmd.n, 0);
	ck_assert_int_eq(c.stop_signal, 37);
	ck_assert_uint_eq(c.volumes.n, 2);
	ck_assert_str_eq(c.volumes.v[0], "/a");
	ck_assert_str_eq(c.volumes.v[1], "/var/lib/b");
	ck_assert_uint_eq(c.n_diff_ids, 2);
	ck_assert_str_eq(c.diff_ids[1], D(2));
	img_config_free(&c);
}
END_TEST

START_TEST(test_nothing_said)
{
	static const char *const texts[] = {
		DOC(""), DOC("\"Env\":null,\"Cmd\":null,\"Volumes\":null,\"User\":\"\",\"WorkingDir\":null,\"Entrypoint\":null,\"StopSignal\":\"\""),
		"{\"os\":\"linux\",\"architecture\":\"amd64\"," ROOTFS "}", "{\"os\":\"linux\",\"architecture\":\"x86_64\",\"config\":null," ROOTFS "}",
		"{\"os\":\"linux\",\"architecture\":\"amd64\",\"history\":[{\"a\":[[[]]]}]," ROOTFS "}",
	};
	const char *none = "{\"os\":\"linux\",\"architecture\":\"arm64\",\"variant\":\"v8\",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":null}}";

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		read_config(texts[i]);
		ck_assert_ptr_null(c.env.v);
		ck_assert_ptr_null(c.cmd.v);
		ck_assert_ptr_null(c.entrypoint.v);
		ck_assert_str_eq(c.workdir, "");
		ck_assert_str_eq(c.user, "");
		ck_assert_int_eq(c.stop_signal, 0);
		ck_assert_str_eq(c.platform.arch, "amd64");
	}
	read_config(none);
	ck_assert_uint_eq(c.n_diff_ids, 0);
	ck_assert_str_eq(c.platform.variant, "");
}
END_TEST

static const struct {
	const char *text;
	int number;
} signals[] = {
	{ "SIGTERM", 15 }, { "TERM", 15 }, { "15", 15 }, { "SIGQUIT", 3 }, { "SIGWINCH", 28 }, { "SIGSYS", 31 }, { "SIGKILL", 9 }, { "64", 64 },
	{ "SIGRTMIN", 34 }, { "RTMAX", 64 }, { "SIGRTMAX-1", 63 }, { "SIGRTMIN+30", 64 }, { "SIGRTMIN+31", 0 },
	{ "SIGRTMIN+", 0 }, { "SIGRTMIN-1", 0 },
	{ "0", 0 }, { "65", 0 }, { "-1", 0 }, { "SIG", 0 }, { "sigterm", 0 }, { "SIGNOPE", 0 }, { "15 ", 0 }, { "SIGSIGTERM", 0 },
};

START_TEST(test_signals)
{
	char text[1024];

	snprintf(text, sizeof(text), DOC("\"StopSignal\":\"%s\""), signals[_i].text);
	if (signals[_i].number) {
		read_config(text);
		ck_assert_int_eq(c.stop_signal, signals[_i].number);
	} else {
		assert_refused(img_config_parse(text, strlen(text), &c, &e), &e, ERR_REFUSED);
		ck_assert_ptr_nonnull(strstr(e.msg, "no signal"));
	}
}
END_TEST

static const struct {
	const char *text, *says;
} bad[] = {
	{ "null", "no valid JSON" },
	{ "{}", "os or architecture" },
	{ "{\"os\":\"linux\"," ROOTFS "}", "os or architecture" },
	{ "{\"os\":\"linux\",\"architecture\":\"amd64\"}", "rootfs is missing" },
	{ "{\"os\":\"linux\",\"architecture\":\"amd64\",\"rootfs\":[]}", "rootfs is no object" },
	{ "{\"os\":\"linux\",\"architecture\":\"amd64\",\"rootfs\":{\"type\":\"tree\"}}", "rootfs.type" },
	{ "{\"os\":\"linux\",\"architecture\":\"amd64\",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[7]}}", "diff_ids[0] is no string" },
	{ "{\"os\":\"linux\",\"architecture\":\"amd64\",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:../..\"]}}", "64 digits" },
	{ DOC("\"Env\":\"A=1\""), "config.Env is no array" },
	{ DOC("\"Env\":[\"A\"]"), "config.Env[0] is not NAME=value" },
	{ DOC("\"Env\":[\"B=1\",\"=1\"]"), "config.Env[1] is not NAME=value" },
	{ DOC("\"Env\":[7]"), "config.Env[0] is no string" },
	{ DOC("\"Env\":[\"A=\\u0000\"]"), "no valid JSON" },
	{ DOC("\"Cmd\":\"sh\""), "config.Cmd is no array" },
	{ DOC("\"Cmd\":[\"sh\",null]"), "config.Cmd[1] is no string" },
	{ DOC("\"Entrypoint\":{}"), "config.Entrypoint is no array" },
	{ DOC("\"User\":0"), "config.User is no string" },
	{ DOC("\"User\":\"a\\nb\""), "config.User has control" },
	{ DOC("\"WorkingDir\":\"srv\""), "config.WorkingDir" },
	{ DOC("\"WorkingDir\":\"/a/../../b\""), "config.WorkingDir" },
	{ DOC("\"Volumes\":[\"/a\"]"), "config.Volumes is no object" },
	{ DOC("\"Volumes\":{\"../a\":{}}"), "config.Volumes" },
	{ DOC("\"Volumes\":{\"/a\\u001b\":{}}"), "config.Volumes" },
	{ DOC("\"Volumes\":{\"/a\":{},\"/a\":{}}"), "duplicate" },
	{ "{\"os\":\"linux\",\"architecture\":\"amd64\",\"config\":[]," ROOTFS "}", "config is no object" },
};

START_TEST(test_bad)
{
	memset(&c, 0x5a, sizeof(c));
	assert_refused(img_config_parse(bad[_i].text, strlen(bad[_i].text), &c, &e), &e, ERR_REFUSED);
	ck_assert_msg(strstr(e.msg, bad[_i].says) != NULL, "%s: %s", bad[_i].text, e.msg);
	ck_assert_ptr_null(strchr(e.msg, '\033'));
	for (size_t i = 0; i < sizeof(c); i++)
		ck_assert_int_eq(((unsigned char *)&c)[i], 0x5a);
}
END_TEST

/* Lists and words: the bound is met, one more is refused. */
START_TEST(test_bounds)
{
	char *text = malloc(1 << 20);

	for (int more = 0; more < 2; more++) {
		size_t n = (size_t)snprintf(text, 1 << 20, "{\"os\":\"linux\",\"architecture\":\"amd64\"," ROOTFS ",\"config\":{\"Env\":[");

		for (int i = 0; i < IMG_WORDS_MAX + more; i++)
			n += (size_t)snprintf(text + n, 64, "%s\"V%d=\"", i ? "," : "", i);
		n += (size_t)snprintf(text + n, 64, "]}}");
		ck_assert_int_eq(img_config_parse(text, n, &c, &e), -more);
		n = (size_t)snprintf(text, 1 << 20, "{\"os\":\"linux\",\"architecture\":\"amd64\"," ROOTFS ",\"config\":{\"Cmd\":[\"");
		memset(text + n, 'x', IMG_WORD_MAX - 1 + (unsigned)more);
		n += IMG_WORD_MAX - 1 + (unsigned)more;
		n += (size_t)snprintf(text + n, 64, "\"]}}");
		if (more == 0)
			img_config_free(&c);
		ck_assert_int_eq(img_config_parse(text, n, &c, &e), -more);
	}
	img_config_free(&c);
	free(text);
}
END_TEST

START_TEST(test_fits)
{
	static struct img_manifest m = { .n_layers = 2 };
	struct img_platform want = { "linux", "amd64", "" };

	read_config(DOC(""));
	ck_assert_int_eq(img_config_fits(&c, &m, &want, &e), 0);
	m.n_layers = 3;
	assert_refused(img_config_fits(&c, &m, &want, &e), &e, ERR_REFUSED);
	m.n_layers = 2;
	ck_assert_int_eq(img_platform_parse("arm64", &want, &e), 0);
	assert_refused(img_config_fits(&c, &m, &want, &e), &e, ERR_REFUSED);
	ck_assert_str_eq(e.msg, "the image is for linux/amd64, not for linux/arm64");
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, test_all_fields);
	tcase_add_test(tc, test_nothing_said);
	tcase_add_loop_test(tc, test_signals, 0, sizeof(signals) / sizeof(*signals));
	tcase_add_loop_test(tc, test_bad, 0, sizeof(bad) / sizeof(*bad));
	tcase_add_test(tc, test_bounds);
	tcase_add_test(tc, test_fits);
}

int main(void)
{
	return unit_main("image config", fill);
}
