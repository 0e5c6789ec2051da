/* Denials of mounts and of files: what stands in the outcome of a request that was refused, and of
 * a command that named what its box does not see. Texts are copied to where the mounts' own are;
 * when there is no room for them, the record is left out, never cut. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/path.h"
#include "box/device_check.h"
#include "box/mount_check.h"

static const char *keep(struct mount_check *c, const char *text)
{
	struct err none;

	return text ? mount_rules_keep(&c->rules, text, &none) : NULL;
}

static void put(struct mount_check *c, enum denial_kind kind, const char *policy, const char *what,
		const char *path, const char *allow_with, const char *reason)
{
	struct denial *d = &c->denied[c->n_denied];

	if (c->n_denied == MOUNT_DENIED_MAX)
		return;
	*d = (struct denial){ .kind = kind,
			      .policy = keep(c, policy),
			      .what = keep(c, what),
			      .path = keep(c, path),
			      .allow_with = keep(c, allow_with),
			      .reason = keep(c, reason) };
	if (d->policy && d->what && d->path && (d->allow_with || d->reason))
		c->n_denied++;
}

/* The option that takes the place of m's own, or false. */
static bool allowing(const struct mount_check *c, const struct box_mount *m, enum mount_allow how,
		     char text[DENIAL_TEXT])
{
	const struct device_rule *d;
	char number[32];

	text[0] = '\0';
	switch (how) {
	case MOUNT_ALLOW_NONE:
		return false;
	case MOUNT_ALLOW_RO:
		if (!denial_volume(text, DENIAL_TEXT, m->src, m->dst, "ro"))
			return false;
		/* A workspace is where the command starts, unless it was told to start elsewhere.
		 */
		return !m->workspace || !c->spec || !c->spec->cwd ||
		       strcmp(c->spec->cwd, MOUNT_WORKSPACE) != 0 ||
		       (denial_word(text, DENIAL_TEXT, "-w") &&
			denial_word(text, DENIAL_TEXT, MOUNT_WORKSPACE));
	case MOUNT_ALLOW_DEVICE:
		return m->src && path_within(m->src, "/dev") && m->src[4] &&
		       (d = device_rule_of(m->src + strlen("/dev/"))) && d->allow &&
		       denial_word(text, DENIAL_TEXT, "--device") &&
		       denial_word(text, DENIAL_TEXT, m->src);
	case MOUNT_ALLOW_MEMORY:
		snprintf(number, sizeof(number), "%llu", (unsigned long long)m->size);
		return denial_word(text, DENIAL_TEXT, "--tmpfs") &&
		       denial_word(text, DENIAL_TEXT, m->said) &&
		       denial_word(text, DENIAL_TEXT, "--memory") &&
		       denial_word(text, DENIAL_TEXT, number);
	}
	return false;
}

void mount_deny(struct mount_check *c, const struct box_mount *m, const char *policy,
		enum mount_allow how, const char *reason)
{
	const char *option = !c->spec			  ? "--rootfs"
			     : m->kind == BOX_MOUNT_TMPFS ? "--tmpfs"
			     : m->workspace		  ? "--workspace"
							  : "-v";
	char what[2 * PATH_MAX], text[DENIAL_TEXT];

	if (!m->said)
		return;
	snprintf(what, sizeof(what), "%s %s", option, m->said);
	if (allowing(c, m, how, text))
		put(c, DENIAL_MOUNT, policy, what, m->src ? m->src : m->dst, text, NULL);
	else
		put(c, DENIAL_MOUNT, policy, what, m->src ? m->src : m->dst, NULL,
		    reason ? reason : "the option that would allow it can't be written");
}

const char *mount_rule_name(const struct mount_rule *r, char buf[64])
{
	snprintf(buf, 64, "%s%s",
		 r->kind == RULE_PLACE_ABOVE ? "above "
		 : r->kind == RULE_ENV	     ? "$"
					     : "",
		 r->pattern);
	return buf;
}

void mount_deny_rule(struct mount_check *c, const struct box_mount *m, const char *real,
		     const struct mount_rule *r)
{
	struct box_mount shown = *m;
	char name[64], policy[128];

	shown.src = real;
	snprintf(policy, sizeof(policy), "%s (%s)", mount_rule_name(r, name),
		 mount_class_name(r->class));
	mount_deny(c, &shown, policy,
		   mount_class_rw_only(r->class)     ? MOUNT_ALLOW_RO
		   : strcmp(r->pattern, "/dev") == 0 ? MOUNT_ALLOW_DEVICE
						     : MOUNT_ALLOW_NONE,
		   mount_class_advice(r->class));
}

void mount_deny_device(struct mount_check *c, const char *path, const char *why)
{
	char what[PATH_MAX + 16];

	snprintf(what, sizeof(what), "--device %s", path);
	put(c, DENIAL_MOUNT, "device", what, path, NULL, why);
}

void mount_deny_strict(struct mount_check *c, const char *path)
{
	put(c, DENIAL_MOUNT, "profile", "--security-profile untrusted", path,
	    "--security-profile default", NULL);
}

void mount_deny_read(struct mount_check *c, const char *policy, const char *what, const char *path,
		     const char *allow_with, const char *reason)
{
	put(c, DENIAL_READ, policy, what, path, allow_with, reason);
}
