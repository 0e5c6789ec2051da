/* The parsers of -v, --tmpfs and --workspace, the rules on what they give, and the check of targets. Input: the first byte chooses, the rest is the
 * text.
 *
 * Whatever the text: 0 with a mount that keeps the contract (absolute normalised target, a size, a source), or -1 with a printable line; a
 * path with a refused name in it never passes; what passes the check of targets is none of the places that cloche furnishes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "box/device_check.h"
#include "box/mount_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mount_check mc;
static struct box_spec spec;

static void judge_target(const char *dst)
{
	char again[4096];
	struct err e;

	if (!dst || path_normalise(dst, again, &e) < 0 || strcmp(dst, again))
		abort();
}

static void judge_failure(const struct err *e)
{
	if (e->kind == ERR_NONE || !e->msg[0] || strlen(e->msg) >= sizeof(e->msg))
		abort();
	for (const char *p = e->msg; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			abort();
}

static void judge_rules(const char *text)
{
	char path[4096], probe[4128];
	struct err e;

	if (path_normalise(text, path, &e) < 0)
		return;
	for (size_t i = 0; i < mount_rules_n; i++) {
		if (mount_rules[i].kind != RULE_NAMES || path_join(probe, sizeof(probe), path, mount_rules[i].pattern) < 0)
			continue;
		if (!mount_rules_path(&mc.rules, probe, false))
			abort();
	}
	if (strstr(path, "/.ssh/") && !mount_rules_path(&mc.rules, path, false))
		abort();
}

static void judge_all(void)
{
	struct err e = { 0 };

	if (mount_check_all(&mc, &spec, &e) < 0) {
		judge_failure(&e);
		return;
	}
	for (size_t i = 0; i < spec.n_mounts; i++) {
		const char *dst = spec.mounts[i].dst;

		judge_target(dst);
		if (!strcmp(dst, "/") || path_within(dst, "/proc") || path_within(dst, "/sys") || path_within(dst, "/dev"))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct box_mount m = { 0 };
	struct err e = { 0 };
	char *text;
	int r;

	if (size == 0 || !(text = malloc(size)))
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	mount_check_init(&mc, &e);
	spec = (struct box_spec){ .root = { .kind = ROOTFS_HOST, .name = "host" }, .cwd = "/", .home = "/home/user" };
	switch (data[0] % 4) {
	case 0:
		r = mount_parse_volume(&mc, text, data[0] & 4, &m, &e);
		if (r == 0 && (!m.src || !*m.src))
			abort();
		break;
	case 1:
		r = mount_parse_tmpfs(&mc, text, &m, &e);
		if (r == 0 && (m.src || !m.size || m.kind != BOX_MOUNT_TMPFS))
			abort();
		break;
	case 2:
		r = mount_parse_workspace(&mc, text, &m, &e);
		break;
	default:
		r = 0;
		device_rule_of(text);
		judge_rules(text);
	}
	if (r < 0)
		judge_failure(&e);
	if (r == 0 && m.dst) {
		judge_target(m.dst);
		spec.mounts[spec.n_mounts++] = m;
		if (data[0] % 4 == 1)
			judge_all();
	}
	mount_check_free(&mc);
	free(text);
	return 0;
}
