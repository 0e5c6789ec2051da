/* The directory that `workspace` names, where it is not there yet.
 *
 * What may go wrong: a path that no box may share would be left behind, made and then refused: so
 * it is judged by its names before. What is there is judged by the spawner, as any mount. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "box/mount_check.h"
#include "session/options_impl.h"

static int fail(struct ses_error *e, enum ses_error_type type, const char *path, const char *why)
{
	ses_error_set(e, type, "workspace %.300s: %s", path, why);
	snprintf(e->option, sizeof(e->option), "workspace");
	if (type == SES_OPTION)
		ses_option_expects(ses_option_find("workspace"), e->allowed);
	return -1;
}

/* Where the path leads: its longest part that is there, canonical, and the rest. `end` is that
 * part's length. */
static int leads_to(const char *path, size_t *ret_end, char ret[4096])
{
	char part[4096], real[4096];
	size_t end = strlen(path);
	struct stat st;

	memcpy(part, path, end + 1);
	while (end > 1 && lstat(part, &st) < 0) {
		if (errno != ENOENT)
			return -1;
		while (end > 0 && part[end - 1] != '/')
			end--;
		end -= end > 1;
		part[end] = '\0';
	}
	if (path_canonical(part, real) < 0)
		return -1;
	*ret_end = end;
	if (!path[end])
		return snprintf(ret, 4096, "%s", real) < 4096 ? 0 : -1;
	return path_join(ret, 4096, real[1] ? real : "", path + end + (path[end] == '/'));
}

static int judge(const char *shown, const char *path, struct ses_error *e)
{
	static struct mount_check check; /* large */
	const struct mount_rule *rule = NULL;
	struct err why;
	char name[64];
	int r;

	r = mount_check_init(&check, &why);
	if (r == 0)
		r = mount_check_learn(&check, &why);
	if (r == 0)
		rule = mount_rules_path(&check.rules, path, true);
	if (rule) {
		r = ses_error_set(e, SES_MOUNT_REFUSED,
				  "workspace %.300s: refused by the rule %s (%s): %s", shown,
				  mount_rule_name(rule, name), mount_class_name(rule->class),
				  mount_class_advice(rule->class));
		snprintf(e->option, sizeof(e->option), "workspace");
		snprintf(e->rule, sizeof(e->rule), "%s", mount_rule_name(rule, name));
	} else if (r < 0) {
		r = fail(e, SES_SYSTEM, shown, why.msg);
	}
	mount_check_free(&check);
	return r;
}

/* From `end` on nothing of it is there. */
static int make(char *path, size_t end)
{
	for (size_t at = end + 1;; at++) {
		const char was = path[at];

		if (was && was != '/')
			continue;
		path[at] = '\0';
		if (mkdir(path, 0777) < 0 && errno != EEXIST)
			return -1;
		if (!was)
			return 0;
		path[at] = was;
	}
}

int ses_workspace_make(const char *path, struct stat *ret, struct ses_error *e)
{
	char clean[4096], real[4096];
	size_t end;
	struct err why;

	if (path_normalise(path, clean, &why) < 0)
		return fail(e, SES_OPTION, path, why.msg);
	if (leads_to(clean, &end, real) == 0 && clean[end]) {
		if (judge(clean, real, e) < 0)
			return -1;
		if (make(clean, end) < 0)
			return fail(e, SES_OPTION, path, strerror(errno));
	}
	return stat(clean, ret) < 0 ? fail(e, SES_OPTION, path, strerror(errno)) : 0;
}
