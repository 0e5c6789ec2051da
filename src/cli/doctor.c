/* `cloche doctor`: tries what this host gives a box, and says what each missing thing costs and how
 * to mend it.
 *
 * Each row of the table (doctor_rows.c) is probed in a child with a deadline (doctor_probe.c). The
 * verdict follows from the rows: a required one that is missing means that no box can run (exit
 * code 2), any other loss is `degraded` (1), else `good` (0). Facts that cost nothing are `info`
 * and never change the verdict. Nothing touches the network without --online, and nothing but
 * --fix, after a yes, changes the host. */
#include "cli/doctor.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"
#include "box/self.h"
#include "cli/verbs.h"

#define DOCTOR_ROWS_MAX 48
#define DOCTOR_OUT_MAX (256u << 10)

enum doctor_opt { DO_JSON, DO_FIX, DO_ONLINE };

enum verdict { VERDICT_GOOD, VERDICT_DEGRADED, VERDICT_UNUSABLE, VERDICT_N };

static const struct {
	const char *name, *sentence;
} verdicts[] = {
	[VERDICT_GOOD] = { "good", "good: boxes run here with every lock and limit" },
	[VERDICT_DEGRADED] = { "degraded",
			       "degraded: boxes run here, with less than they could have" },
	[VERDICT_UNUSABLE] = { "unusable", "unusable: no box can run here as things are" },
};
static_assert(sizeof(verdicts) / sizeof(verdicts[0]) == VERDICT_N, "a name for every verdict");

static const struct {
	const char *name, *sign, *plain, *colour;
} statuses[] = {
	[DOCTOR_OK] = { "ok", "\xe2\x9c\x93", "+", "32" },
	[DOCTOR_INFO] = { "info", "\xc2\xb7", "-", "2" },
	[DOCTOR_DEGRADED] = { "degraded", "!", "!", "33" },
	[DOCTOR_MISSING] = { "missing", "\xe2\x9c\x97", "x", "31" },
};
static_assert(sizeof(statuses) / sizeof(statuses[0]) == DOCTOR_STATUS_N, "a name for every status");

struct doctor_ask {
	bool json, fix, online;
};

static int on_option(void *ctx, const struct opt_row *row, const char *value, struct err *e)
{
	struct doctor_ask *ask = ctx;

	switch (row->id) {
	case DO_JSON:
		ask->json = true;
		break;
	case DO_FIX:
		ask->fix = true;
		break;
	case DO_ONLINE:
		ask->online = true;
		break;
	}
	return 0;
}

static bool failing(const struct doctor_result *r)
{
	return r->status == DOCTOR_DEGRADED || r->status == DOCTOR_MISSING;
}

static bool shown(const struct doctor_ask *ask, size_t i)
{
	return ask->online || !doctor_rows[i].online;
}

/* Runs all rows. What needs a user namespace is not tried without one: it would say the same thing
 * six times. */
static enum verdict examine(const struct doctor_ask *ask, struct doctor_result results[])
{
	enum verdict verdict = VERDICT_GOOD;
	bool userns = true;

	for (size_t i = 0; i < doctor_n_rows; i++) {
		const struct doctor_row *row = &doctor_rows[i];
		struct doctor_result *r = &results[i];

		if (!shown(ask, i))
			continue;
		if (row->nested && !userns) {
			doctor_say(r, row->required ? DOCTOR_MISSING : DOCTOR_INFO,
				   "not tried: needs a user namespace");
			continue;
		}
		doctor_try(row, r);
		if (strcmp(row->id, "userns") == 0)
			userns = r->status == DOCTOR_OK;
		if (row->required && r->status == DOCTOR_MISSING)
			verdict = VERDICT_UNUSABLE;
		else if (failing(r) && verdict == VERDICT_GOOD)
			verdict = VERDICT_DEGRADED;
	}
	return verdict;
}

static void print_json(const struct doctor_ask *ask, const struct doctor_result results[],
		       enum verdict verdict, struct buf *out)
{
	struct json j;

	json_init(&j, out);
	json_obj(&j);
	json_kstr(&j, "verdict", verdicts[verdict].name);
	json_key(&j, "rows");
	json_arr(&j);
	for (size_t i = 0; i < doctor_n_rows; i++) {
		const struct doctor_result *r = &results[i];

		if (!shown(ask, i))
			continue;
		json_obj(&j);
		json_kstr(&j, "id", doctor_rows[i].id);
		json_kstr(&j, "status", statuses[r->status].name);
		json_key(&j, "detail");
		json_bytes(&j, r->detail, strlen(r->detail));
		json_kstr(&j, "cost", r->cost[0] ? r->cost : NULL);
		json_key(&j, "fix");
		if (r->fix[0])
			json_bytes(&j, r->fix, strlen(r->fix));
		else
			json_nil(&j);
		json_obj_end(&j);
	}
	json_arr_end(&j);
	json_obj_end(&j);
	buf_str(out, "\n");
}

static bool utf8_terminal(void)
{
	const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *v = getenv(names[i]);

		if (v && v[0])
			return strstr(v, "UTF-8") || strstr(v, "utf-8") || strstr(v, "utf8") ||
			       strstr(v, "UTF8");
	}
	return false;
}

/* Adds the lines of `text`, each behind `head`, safe for a terminal. */
static void add_lines(struct buf *out, const char *head, const char *text)
{
	while (*text) {
		char line[sizeof(((struct doctor_result *)0)->fix)], safe[sizeof(line)];
		size_t n = strcspn(text, "\n");

		snprintf(line, sizeof(line), "%.*s", (int)n, text);
		buf_fmt(out, "%s%s\n", head, str_printable(safe, sizeof(safe), line));
		text += n + (text[n] == '\n');
		head = "           ";
	}
}

static void print_text(const struct doctor_ask *ask, const struct doctor_result results[],
		       enum verdict verdict, struct buf *out)
{
	bool signs = utf8_terminal(), colour = isatty(1) && !getenv("NO_COLOR");

	for (size_t i = 0; i < doctor_n_rows; i++) {
		const struct doctor_result *r = &results[i];
		const char *sign = signs ? statuses[r->status].sign : statuses[r->status].plain;
		char safe[sizeof(r->detail)];

		if (!shown(ask, i))
			continue;
		str_printable(safe, sizeof(safe), r->detail);
		if (colour)
			buf_fmt(out, "\033[%sm%s\033[0m %-21s%s\n", statuses[r->status].colour,
				sign, doctor_rows[i].title, safe);
		else
			buf_fmt(out, "%s %-21s%s\n", sign, doctor_rows[i].title, safe);
		if (!failing(r))
			continue;
		add_lines(out, "    costs: ", r->cost);
		add_lines(out, "    fix:   ", r->fix);
	}
	buf_fmt(out, "\n%s\n", verdicts[verdict].sentence);
}

static int run(int argc, char **argv)
{
	static struct doctor_result results[DOCTOR_ROWS_MAX];
	struct doctor_ask ask = { 0 };
	_cleanup_buf_ struct buf out = { 0 };
	enum verdict verdict;
	struct err e;
	int rest, rc;

	buf_init(&out, DOCTOR_OUT_MAX);
	rc = cli_parse(&cli_doctor_verb, argc, argv, on_option, &ask, &rest);
	if (rc >= 0)
		return rc;
	if (rest < argc) {
		err_set(&e, ERR_USAGE, "takes no operand, and \"%.100s\" was given", argv[rest]);
		return cli_fail("doctor", &e);
	}
	if (ask.fix && !(isatty(0) && isatty(1))) {
		err_set(&e, ERR_USAGE,
			"--fix asks before it changes anything: run it on a terminal");
		return cli_fail("doctor", &e);
	}
	if (doctor_n_rows > DOCTOR_ROWS_MAX)
		return VERDICT_UNUSABLE;
	(void)self_limits(&e); /* what it can't raise, the box's row tells */
	verdict = examine(&ask, results);
	if (ask.json)
		print_json(&ask, results, verdict, &out);
	else
		print_text(&ask, results, verdict, &out);
	rc = cli_put(1, &out);
	if (rc != 0)
		return rc;
	if (ask.fix) {
		putchar('\n');
		fflush(stdout);
		rc = doctor_mend(results);
		fflush(stdout);
		if (rc != 0)
			return rc;
	}
	return (int)verdict;
}

static const struct opt_row rows[] = {
	{ .name = "json",
	  .type = OPT_FLAG,
	  .group = "Output",
	  .help = "print one JSON object instead of the screen",
	  .conflicts = "fix",
	  .since = "0.1.0",
	  .id = DO_JSON },
	{ .name = "fix",
	  .type = OPT_FLAG,
	  .group = "Host",
	  .help = "show what would mend the host, ask, and install what is scoped to cloche; print commands for the rest",
	  .conflicts = "json",
	  .since = "0.1.0",
	  .id = DO_FIX },
	{ .name = "online",
	  .type = OPT_FLAG,
	  .group = "Host",
	  .help = "also try to reach the image registries over the network",
	  .since = "0.1.0",
	  .id = DO_ONLINE },
};

static const char *const examples[] = { "cloche doctor", "cloche doctor --json",
					"cloche doctor --fix", NULL };

const struct opt_verb cli_doctor_verb = {
	.name = "doctor",
	.summary = "Say what this host gives a box, what is missing, how to mend it",
	.operands = "",
	.rows = rows,
	.n_rows = sizeof(rows) / sizeof(rows[0]),
	.examples = examples,
	.run = run,
};
