/* Records of denials as a hostile box makes them up, told as JSON and as text: any call, name and path, under any rules, capabilities, profile
 * and share.
 *
 * Every record is refused by somebody; each policy has an option or a reason; an option is one printable line that a shell splits into
 * words that the parsers take; the JSON is one line of ASCII controls escaped. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "box/locks.h"
#include "box/seccomp.h"
#include "cli/denied_text.h"
#include "cli/outcome_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct prepared p;
static struct box_outcome o;

static void take(void *to, size_t n, const uint8_t **data, size_t *size)
{
	memset(to, 0, n);
	if (n > *size)
		n = *size;
	memcpy(to, *data, n);
	*data += n;
	*size -= n;
}

/* One word off *text, as sh(1) reads '...' and \'. */
static size_t word(const char **text, char *ret)
{
	size_t n = 0;
	bool quoted = false;

	for (; **text && (quoted || **text != ' '); (*text)++) {
		if (**text == '\'')
			quoted = !quoted;
		else if (!quoted && **text == '\\')
			ret[n++] = *++*text;
		else if (!quoted && strchr("$`\"*?~#&;|<>(){}[]!", **text))
			abort();
		else
			ret[n++] = **text;
	}
	if (quoted)
		abort();
	*text += **text == ' ';
	ret[n] = '\0';
	return n;
}

static void judge_option(const char *text, const struct box_mount *m)
{
	char shown[DENIAL_TEXT], name[DENIAL_TEXT], value[DENIAL_TEXT];
	struct box_rule rule;
	struct err e;

	if (strlen(text) >= DENIAL_TEXT || strcmp(str_printable(shown, sizeof(shown), text), text))
		abort();
	word(&text, name);
	word(&text, value);
	if (*text)
		abort();
	if (strcmp(name, "--seccomp-rule") == 0 && sc_rule_parse(value, &rule, &e) < 0)
		abort();
	if (strcmp(name, "--cap-add") == 0 && locks_cap_number(value) < 0)
		abort();
	if (strcmp(name, "-v") == 0 && (strncmp(value, m->src, strlen(m->src)) || !strstr(value, ":/d:rw")))
		abort();
}

static void judge_policies(void)
{
	char text[DENIAL_TEXT];
	struct denial d;
	unsigned n = 0;

	for (; denied_policy(&p.spec, &o.denied[0], n, &d, text); n++) {
		if (!d.policy || !d.allow_with == !d.reason)
			abort();
		if (d.allow_with)
			judge_option(d.allow_with, &p.spec.mounts[0]);
	}
	if (n > 5)
		abort();
}

static void say(const char *head, const char *text)
{
	if (strcmp(head, "note") != 0 || strlen(text) > 2 * DENIAL_TEXT)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char src[300];
	struct box_denied *d = &o.denied[0];
	_cleanup_buf_ struct buf out;
	uint8_t flags, n;

	memset(&p.spec, 0, sizeof(p.spec));
	memset(&o, 0, sizeof(o));
	take(&flags, 1, &data, &size);
	take(&n, 1, &data, &size);
	take(&d->nr, 2, &data, &size);
	take(&p.spec.cap_keep, 8, &data, &size);
	take(d->comm, sizeof(d->comm) - 1, &data, &size);
	take(d->path, sizeof(d->path) - 1, &data, &size);
	if (d->nr >= SC_NR_MAX || !sc_name(sc_native(), d->nr))
		d->nr = -1;
	d->ended = d->nr >= 0 && flags & 1;
	d->alone = n % SC_VERDICT_N;
	d->mount = flags >> 1 & 1 ? 1 : flags >> 2 & 1 ? -1 : 0;
	d->count = (uint64_t)n << (flags & 63);
	p.spec.profile = flags >> 3 & 1 ? BOX_PROFILE_UNTRUSTED : BOX_PROFILE_DEFAULT;
	p.spec.mounts[0] = (struct box_mount){ .src = src, .dst = "/d", .rw = flags >> 4 & 1, .ro_said = flags >> 5 & 1 };
	p.spec.n_mounts = 1;
	if (d->nr >= 0 && flags >> 6 & 1)
		p.spec.rules[p.spec.n_rules++] = (struct box_rule){ flags >> 7 & 1 ? BOX_RULE_DENY : BOX_RULE_ALLOW, d->nr };
	take(src, sizeof(src) - 1, &data, &size);
	o.n_denied = 1;
	judge_policies();
	denied_text(&p.spec, &o, say);
	buf_init(&out, 1 << 20);
	outcome_json(&p, &o, &(struct outcome_show){ .streams = true }, &out);
	if (out.failed || strchr(out.data, '\n') != out.data + out.len - 1 || memchr(out.data, 0x1b, out.len))
		abort();
	return 0;
}
