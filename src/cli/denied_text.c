/* All that refuses one action is one line: an option alone would send its reader round once for
 * each policy. The names of calls, processes and paths are the box's; say() makes them printable.
 */
#include "cli/denied_text.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"

/* Of one action: the options that allow it together, and the first reason why none do. */
struct action {
	char options[DENIAL_TEXT];
	char reason[160];
};

static void gather(struct action *a, const struct denial *d)
{
	size_t n = strlen(a->options);

	if (!d->allow_with && !a->reason[0])
		snprintf(a->reason, sizeof(a->reason), "%s", d->reason);
	if (d->allow_with && !strstr(a->options, d->allow_with))
		snprintf(a->options + n, sizeof(a->options) - n, "%s%s", n ? " " : "",
			 d->allow_with);
}

static const char *quoted(char *buf, size_t cap, const char *text)
{
	char safe[128];

	buf[0] = '\0';
	return denial_word(buf, cap, str_printable(safe, sizeof(safe), text)) ? buf : "?";
}

static void tell_call(const struct box_spec *s, const struct box_denied *call,
		      void (*say)(const char *head, const char *text))
{
	struct action a = { .options = "", .reason = "" };
	char line[DENIAL_TEXT + 512], times[40] = "", text[DENIAL_TEXT], path[512], comm[96];
	struct denial d = { .what = NULL };

	for (unsigned p = 0; denied_policy(s, call, p, &d, text); p++)
		gather(&a, &d);
	if (call->count > 1)
		snprintf(times, sizeof(times), ", %llu times", (unsigned long long)call->count);
	snprintf(line, sizeof(line), "refused: %s%s%s by %s (host pid %d)%s; %s%s",
		 d.what ? d.what : "a call", d.path ? " to " : "",
		 d.path ? quoted(path, sizeof(path), d.path) : "",
		 call->comm[0] ? quoted(comm, sizeof(comm), call->comm) : "a process", call->pid,
		 times, a.reason[0] ? "" : "to allow it: ", a.reason[0] ? a.reason : a.options);
	say("note", line);
}

void denied_text(const struct box_spec *s, const struct box_outcome *o,
		 void (*say)(const char *head, const char *text))
{
	unsigned lines = 0;
	char more[64];

	for (unsigned i = 0; i < o->n_denied; i++)
		if (!o->denied[i].ended && lines++ < DENIED_LINES_MAX)
			tell_call(s, &o->denied[i], say);
	if (lines > DENIED_LINES_MAX) {
		snprintf(more, sizeof(more), "refused: %u more, which --json lists",
			 lines - DENIED_LINES_MAX);
		say("note", more);
	}
}
