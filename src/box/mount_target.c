/* Where a mount goes in the box: the places that cloche furnishes are refused, and the image's
 * links are followed inside the image only. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "box/mount_check.h"

#define ELEMS(a) (sizeof(a) / sizeof((a)[0]))

#define COVERS "the box would lose its programs; choose another target"

static const struct {
	const char *path;
	bool below; /* and everything below it */
	const char *why;
} target_rules[] = {
	{ "/", false, "it is the box's root; see --rootfs" },
	{ "/dev/shm", true, "--shm-size sets its size" },
	{ "/dev", true, "it is the box's own; see --device" },
	{ "/proc", true, "it is the box's own; see --proc" },
	{ "/sys", true, "it is the box's own" },
	{ "/usr", false, COVERS },
	{ "/usr/bin", false, COVERS },
	{ "/usr/lib", false, COVERS },
	{ "/usr/lib64", false, COVERS },
	{ "/bin", false, COVERS },
	{ "/sbin", false, COVERS },
	{ "/lib", false, COVERS },
	{ "/lib32", false, COVERS },
	{ "/lib64", false, COVERS },
	{ "/libx32", false, COVERS },
	{ "/etc", false,
	  "the box would lose its users and hosts; mount a file or directory below it" },
	{ "/home", false, "the box would lose its home; mount a directory below it" },
};

static int target_rule(struct mount_check *c, const struct box_mount *m, const char *dst,
		       struct err *e)
{
	for (size_t i = 0; i < ELEMS(target_rules); i++) {
		char policy[32];

		if (strcmp(dst, target_rules[i].path) &&
		    !(target_rules[i].below && path_within(dst, target_rules[i].path)))
			continue;
		snprintf(policy, sizeof(policy), "target %s", target_rules[i].path);
		mount_deny(c, m, policy,
			   strcmp(target_rules[i].path, "/dev") == 0 ? MOUNT_ALLOW_DEVICE
								     : MOUNT_ALLOW_NONE,
			   target_rules[i].why);
		return err_set(e, ERR_REFUSED, "refused by the rule %s: %s", policy,
			       target_rules[i].why);
	}
	return 0;
}

/* The host image's own links, and what is read-only in it. */
static int target_host(struct mount_check *c, const struct box_mount *m, char dst[PATH_MAX],
		       struct err *e)
{
	static const struct {
		const char *from, *to;
	} links[] = { { "/bin", "/usr/bin" },
		      { "/sbin", "/usr/sbin" },
		      { "/lib", "/usr/lib" },
		      { "/lib64", "/usr/lib64" },
		      { "/var/run", "/run" } };
	char out[PATH_MAX];
	struct stat st;

	for (size_t i = 0; i < ELEMS(links); i++)
		if (path_within(dst, links[i].from)) {
			const char *rest = dst + strlen(links[i].from);

			if (path_join(out, sizeof(out), links[i].to, *rest ? rest + 1 : "") < 0)
				return err_set(e, ERR_USAGE, "the target is too long");
			if (!*rest)
				out[strlen(links[i].to)] = '\0';
			memcpy(dst, out, sizeof(out));
			break;
		}
	if (path_within(dst, "/usr") && path_canonical(dst, out) == 0 && strcmp(out, dst)) {
		struct mount_shown s;

		mount_deny(c, m, "no links in targets", MOUNT_ALLOW_NONE,
			   "it leads over a link of this machine: name the link's goal");
		return err_set(
			e, ERR_REFUSED,
			"refused by the rule no links in targets: it is %s on this machine; name that",
			mount_show(&s, out));
	}
	if (path_within(dst, "/usr") && stat(dst, &st) < 0)
		return err_set(
			e, ERR_USAGE,
			"/usr of the host image is read-only, and this target does not exist in it; choose one "
			"outside /usr");
	return 0;
}

/* Over the links of a root that brings its own. */
static int target_root(const struct box_spec *spec, const struct box_mount *m, char dst[PATH_MAX],
		       struct err *e)
{
	_cleanup_fd_ int root = -1;
	int r = -1;

	if (spec->root.kind == ROOTFS_LAYERS) {
		r = layers_resolve(&spec->root.layers, m->dst, dst);
	} else {
		root = path_open_nolinks(spec->root.dir, O_DIRECTORY);
		if (root >= 0)
			r = path_resolve_in_root(root, m->dst, dst);
	}
	if (r < 0 && errno == ELOOP)
		return err_set(
			e, ERR_REFUSED,
			"it leads over too many links of the image %s: choose another target",
			spec->root.name);
	return r < 0 ? err_sys(e, "target in %s", spec->root.name) : 0;
}

int mount_target(struct mount_check *c, const struct box_spec *spec, struct box_mount *m,
		 struct err *e)
{
	char dst[PATH_MAX];

	snprintf(dst, sizeof(dst), "%s", m->dst); /* normalised, so it fits */
	if (target_rule(c, m, dst, e) < 0)
		return -1;
	if ((spec->root.kind == ROOTFS_HOST ? target_host(c, m, dst, e)
					    : target_root(spec, m, dst, e)) < 0)
		return -1;
	if (!strcmp(dst, m->dst))
		return 0;
	if (target_rule(c, m, dst, e) < 0) {
		struct mount_shown s;

		return err_prefix(e, "the target is %s in the box", mount_show(&s, dst));
	}
	m->dst = mount_rules_keep(&c->rules, dst, e);
	return m->dst ? 0 : -1;
}

/* What nobody asked for by name says nothing when it can't be: it is left out. A memory file system
 * of the caller's own may be below it. */
static bool gives_way(const struct box_spec *spec, const struct box_mount *m)
{
	for (size_t i = 0; i < spec->n_mounts; i++) {
		const struct box_mount *o = &spec->mounts[i];

		if (o != m && (path_within(m->dst, o->dst) ||
			       (o->kind != BOX_MOUNT_TMPFS && path_within(o->dst, m->dst))))
			return true;
	}
	return false;
}

/* Its own target, resolved already or not at all, and those of the others. */
void mount_yield(struct mount_check *c, struct box_spec *spec)
{
	for (size_t i = 0; i < spec->n_mounts; i++) {
		const size_t denied = c->n_denied;
		struct err ignored;

		if (!spec->mounts[i].yields)
			continue;
		if (mount_target(c, spec, &spec->mounts[i], &ignored) == 0 &&
		    !gives_way(spec, &spec->mounts[i]))
			continue;
		c->n_denied = denied;
		memmove(&spec->mounts[i], &spec->mounts[i + 1],
			(--spec->n_mounts - i) * sizeof(spec->mounts[0]));
		return; /* there is one */
	}
}
