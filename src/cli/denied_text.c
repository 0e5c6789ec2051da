/* All that refuses one action is one line: an option alone would send its reader round once for
 * each policy. The names of calls, processes and paths are the box's; say() makes them printable.
 */
#include "cli/denied_text.h"

#include <stdio.h>
#include <string.h>

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

static void tell(const struct action *a, const char *what,
		 void (*say)(const char *head, const char *text))
{
	char line[DENIAL_TEXT + 512];

	snprintf(line, sizeof(line), "refused: %s; %s%s", what,
		 a->reason[0] ? "" : "to allow it: ", a->reason[0] ? a->reason : a->options);
	say("note", line);
}

static void tell_call(const struct box_spec *s, const struct box_denied *call,
		      void (*say)(const char *head, const char *text))
{
	struct action a = { .options = "", .reason = "" };
	char what[320], times[40] = "", text[DENIAL_TEXT];
	struct denial d = { .what = NULL };

	for (unsigned p = 0; denied_policy(s, call, p, &d, text); p++)
		gather(&a, &d);
	if (call->count > 1)
		snprintf(times, sizeof(times), ", %llu times", (unsigned long long)call->count);
	snprintf(what, sizeof(what), "%s%s%s by %s (host pid %d)%s", d.what ? d.what : "a call",
		 d.path ? " to " : "", d.path ? d.path : "",
		 call->comm[0] ? call->comm : "a process", call->pid, times);
	tell(&a, what, say);
}

/* One line for all rules that refuse the option of denial `i`; nothing when an earlier one has told
 * them, or the fault's message and the notes tell all. */
static bool tell_option(const struct mount_check *c, size_t i,
			void (*say)(const char *head, const char *text))
{
	struct action a = { .options = "", .reason = "" };
	const char *option = c->denied[i].what;
	bool told = true;
	char what[400];
	size_t n;

	for (size_t k = 0; k < i; k++)
		if (strcmp(c->denied[k].what, option) == 0)
			return false;
	n = (size_t)snprintf(what, sizeof(what), "%.160s by the rules", option);
	for (size_t k = i; k < c->n_denied; k++) {
		const struct denial *d = &c->denied[k];

		if (strcmp(d->what, option) != 0)
			continue;
		told &= d->told;
		gather(&a, d);
		if (n < sizeof(what))
			n += (size_t)snprintf(what + n, sizeof(what) - n, "%s %s", k > i ? "," : "",
					      d->policy);
	}
	if (told)
		return false;
	if (say)
		tell(&a, what, say);
	return true;
}

void denied_text(const struct prepared *p, const struct box_outcome *o,
		 void (*say)(const char *head, const char *text))
{
	unsigned lines = 0;
	char more[64];

	for (unsigned i = 0; i < o->n_denied; i++)
		if (!o->denied[i].ended && lines++ < DENIED_LINES_MAX)
			tell_call(&p->spec, &o->denied[i], say);
	for (size_t i = 0; i < p->mounts.n_denied; i++)
		lines += tell_option(&p->mounts, i, lines < DENIED_LINES_MAX ? say : NULL);
	if (lines > DENIED_LINES_MAX) {
		snprintf(more, sizeof(more), "refused: %u more, which --json lists",
			 lines - DENIED_LINES_MAX);
		say("note", more);
	}
}
