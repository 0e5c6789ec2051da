/* cloche.yaml: what it brings to the options of a sandbox, and what is refused in which line and column. */
#include "options_env.h"

#include "session/yaml_read.h"

#define YAML                                                                                                                      \
	"defaults:\n  memory_mb: 1024\n  pull: never\n  env: {A: \"1\"}\nvcpu:\n  heavy: {cpus: 2.5, memory_mb: 2048}\n  small:\n    pids: 9\n" \
	"vdisk:\n  scratch:\n    size: 16m\n  at: {path: /at, size: 1m}\nvgpio:\n  leds:\n    devices: [/dev/null, /dev/zero]\n"

START_TEST(profiles)
{
	config(YAML);
	takes("{}");
	ck_assert(has("--memory=1024m") && has("--pull=never") && !names("cpus") && o.n_env == 1);
	takes("{\"memory_mb\": null, \"profiles\": [\"vcpu:heavy\", \"vdisk:scratch\", \"vdisk:at\", \"vgpio:leds\"]}");
	ck_assert(has("--memory=2048m") && has("--cpus=2.5") && has("--pids=256"));
	ck_assert(has("--tmpfs=/vdisk/scratch:16m") && has("--tmpfs=/at:1m") && has("--tmp-size=64m"));
	ck_assert(has("--device=/dev/null") && has("--device=/dev/zero"));
	takes("{\"memory_mb\": 100, \"cpus\": 1, \"profiles\": [\"vcpu:heavy\"]}"); /* what is given counts more */
	ck_assert(has("--memory=100m") && has("--cpus=1") && !has("--memory=2048m"));
	takes("{\"profiles\": [\"vcpu:small\"], \"pull\": \"always\"}");
	ck_assert(has("--pids=9") && has("--memory=1024m") && has("--pull=always"));
	refuses("{\"profiles\": [\"vcpu:heavy\", \"vcpu:small\"]}", SES_OPTION, "profiles");
	refuses("{\"profiles\": [\"vgpio:leds\", \"vgpio:leds\"]}", SES_OPTION, "profiles");
	refuses("{\"profiles\": [\"vcpu:none\"]}", SES_OPTION, "profiles");
	ck_assert_ptr_nonnull(strstr(e.message, "there are heavy, small"));
}
END_TEST

START_TEST(a_wrong_file_opens_nothing)
{
	config("defaults:\n  memory: 5\n");
	refuses("{}", SES_OPTION, "cloche.yaml");
	ck_assert_ptr_nonnull(strstr(e.message, "/config/cloche.yaml:2:3: no key \"memory\""));
}
END_TEST

static const struct {
	const char *text, *says;
} wrong_files[] = {
	{ "nope: 1\n", "1:1: no key \"nope\"" },
	{ "vcpus: {}\n", "1:1: no key \"vcpus\" is known here; did you mean vcpu?" },
	{ "- a\n", "1:1: cloche.yaml: a map is wanted" },
	{ "defaults: 5\n", "1:11: defaults: a map is wanted" },
	{ "defaults:\n  memory_mb: 5\n  memory_mb: 6\n", "3:3: \"memory_mb\" is given twice; first in line 2" },
	{ "vcpu: {a: {cpus: 1}, a: {cpus: 2}}\n", "1:22: \"a\" is given twice" },
	{ "defaults: {setup: x}\n", "1:12: setup is for one sandbox alone" },
	{ "defaults: {workspace: /x}\n", "1:12: workspace is for one sandbox alone" },
	{ "defaults: {prewarm: 0}\n", "1:12: prewarm is for one sandbox alone" },
	{ "defaults: {egress_allow: []}\n", "1:26: egress_allow: this release" },
	{ "defaults: {memory_mb: 1g}\n", "1:23: memory_mb: an integer of MiB" },
	{ "defaults: {memory_mb: \"512\"}\n", "1:23: memory_mb: an integer" },
	{ "defaults: {network: yes}\n", "1:21: network: true or false is wanted" },
	{ "defaults: {timeout_s: 0}\n", "1:23: timeout_s: a number of seconds" },
	{ "defaults: {timeout_s: ~}\n", "1:23: timeout_s: a number of seconds" },
	{ "defaults: {cap_drop: ALL}\n", "1:22: cap_drop: an array" },
	{ "vcpu: {a: {memory: 1}}\n", "1:12: no key \"memory\" is known here; did you mean memory_mb?" },
	{ "vcpu: {a: {cpus: 0}}\n", "1:18: cpus: a number" },
	{ "vcpu: {a: {}}\n", "1:11: a: it says nothing" },
	{ "vcpu: {a: }\n", "1:11: a: a map is wanted" },
	{ "vcpu: {.a: {cpus: 1}}\n", "1:8: \".a\" is no name of a profile" },
	{ "vcpu: {\"a b\": {cpus: 1}}\n", "1:8: \"a b\" is no name" },
	{ "vdisk: {a: {path: /x}}\n", "1:12: a: it needs a size" },
	{ "vdisk: {a: {size: 5}}\n", "1:19: size: a size with its unit" },
	{ "vdisk: {a: {size: \"5\"}}\n", "1:12: a: \"/vdisk/a:5\": the size needs a unit" },
	{ "vdisk: {a: {size: 5m, path: x}}\n", "1:12: a:" },
	{ "vdisk: {a: {size: 5m, path: /a:b}}\n", "1:12: a:" },
	{ "vgpio: {a: {devices: /dev/null}}\n", "1:22: devices: an array" },
	{ "a: &x 1\n", "1:4: no anchors (&x)" },
	{ "vcpu: &x {a: {cpus: 1}}\nvdisk: *x\n", "1:7: no anchors" },
	{ "vcpu: *x\n", "1:7: no aliases (*x)" },
	{ "vcpu: !!map {}\n", "1:7: no tags" },
	{ "vcpu: {a: {<<: {cpus: 1}}}\n", "1:12: no merge keys" },
	{ "? [a]\n: 1\n", "1:3: a key is a word" },
	{ "vcpu: {}\n---\nvdisk: {}\n", "2:1: a second document" },
	{ "defaults: {image: \"a\\0b\"}\n", "1:19: it holds a NUL" },
	{ "a: [[[[[[[[[[1]]]]]]]]]]\n", "nested deeper than 8" },
	{ "defaults:\n\tmemory_mb: 5\n", "found character that cannot start any token" },
	{ "defaults: {\n", "2:1: while parsing a flow node" },
	{ "\xff\xfe\x00", "1:1:" },
	{ "defaults: \x01\n", "control characters" },
};

START_TEST(wrong_configurations)
{
	struct ses_config c = { 0 };
	struct err why = { 0 };

	ck_assert_msg(ses_config_read(wrong_files[_i].text, strlen(wrong_files[_i].text), &c, &why) == -1, "%s", wrong_files[_i].text);
	ck_assert_msg(strstr(why.msg, wrong_files[_i].says), "%s: %s", wrong_files[_i].text, why.msg);
	ck_assert_int_eq(why.kind, ERR_USAGE);
	ck_assert(!c.there && !c.defaults && !c.vcpu);
}
END_TEST

START_TEST(right_configurations)
{
	static const char *const right[] = { "", "# nothing\n", "---\n", "~\n", "vcpu:\n", "defaults: {}\n", YAML,
						 "\"vcpu\": {'a': {\"cpus\": 1}}\n" };
	struct ses_config c = { 0 };
	struct err why;

	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
		ck_assert_msg(ses_config_read(right[i], strlen(right[i]), &c, &why) == 0, "%s: %s", right[i], why.msg);
		ses_config_free(&c);
	}
}
END_TEST

START_TEST(bounds_of_a_configuration)
{
	static char text[YAML_BYTES_MAX + 2];
	struct ses_config c = { 0 };
	struct err why;
	size_t n;

	memset(text, '\n', sizeof(text));
	ck_assert_int_eq(ses_config_read(text, YAML_BYTES_MAX, &c, &why), 0);
	ses_config_free(&c);
	ck_assert_int_eq(ses_config_read(text, YAML_BYTES_MAX + 1, &c, &why), -1);
	n = (size_t)sprintf(text, "defaults: {devices: [");
	for (size_t i = 0; i < YAML_NODES_MAX; i++)
		n += (size_t)sprintf(text + n, "a,");
	n += (size_t)sprintf(text + n, "]}");
	ck_assert_int_eq(ses_config_read(text, n, &c, &why), -1);
	ck_assert_ptr_nonnull(strstr(why.msg, "more than 4096 values"));
	n = (size_t)sprintf(text, "defaults: {image: ");
	memset(text + n, 'a', YAML_SCALAR_MAX + 1);
	n += YAML_SCALAR_MAX + 1;
	n += (size_t)sprintf(text + n, "}");
	ck_assert_int_eq(ses_config_read(text, n, &c, &why), -1);
	ck_assert_ptr_nonnull(strstr(why.msg, "longer than"));
}
END_TEST

START_TEST(files_that_are_none)
{
	struct ses_config c = { 0 };
	char path[200];
	struct err why;

	config("vcpu: {}\n");
	ck_assert_int_eq(ses_config_load(NULL, &c, &why), 0);
	ck_assert(c.there);
	ses_config_free(&c);
	snprintf(path, sizeof(path), "%s/fifo", home);
	ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody waits for a writer */
	ck_assert_int_eq(ses_config_load(path, &c, &why), -1);
	ck_assert_ptr_nonnull(strstr(why.msg, "no regular file"));
	ck_assert_int_eq(ses_config_load(home, &c, &why), -1);
	ck_assert_int_eq(ses_config_load("/nonexistent/cloche.yaml", &c, &why), -1);
	snprintf(path, sizeof(path), "%s/config/cloche.yaml", home);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(ses_config_load(NULL, &c, &why), 0);
	ck_assert(!c.there);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, NULL, cleanup);
	tcase_add_test(tc, profiles);
	tcase_add_test(tc, a_wrong_file_opens_nothing);
	tcase_add_loop_test(tc, wrong_configurations, 0, (int)(sizeof(wrong_files) / sizeof(wrong_files[0])));
	tcase_add_test(tc, right_configurations);
	tcase_add_test(tc, bounds_of_a_configuration);
	tcase_add_test(tc, files_that_are_none);
}

int main(void)
{
	return unit_main("config", fill);
}
