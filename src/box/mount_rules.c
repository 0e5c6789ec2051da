/* Matching a host path against the table of mount_table.c.
 *
 * Names are compared on canonical paths. Where names could be fooled (a bind mount, a hard link,
 * ~/.ssh that is itself a link) device and inode decide: mount_rules_learn looks up once what the
 * rules name, and the caller's home and cloche's own directories with all that lies above them.
 *
 * What may go wrong: what has no usual name and no usual place is not known to be a secret; the
 * table is a net, not a proof. What is mounted is the caller's decision; the table keeps the common
 * mistakes from being one. */
#include "box/mount_rules.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define LIST_MAX 1000

/* Directories that a variable moves, and where they are looked for in the table. */
static const struct {
	const char *env, *as;
} moved[] = {
	{ "XDG_CONFIG_HOME", "/.config" },  { "XDG_DATA_HOME", "/.local/share" },
	{ "XDG_CACHE_HOME", "/.cache" },    { "GNUPGHOME", "/.gnupg" },
	{ "DOCKER_CONFIG", "/.docker" },    { "CARGO_HOME", "/.cargo" },
	{ "GRADLE_USER_HOME", "/.gradle" }, { "PASSWORD_STORE_DIR", "/.password-store" },
};

/* File systems that are windows into the kernel, wherever they are mounted
 * (include/uapi/linux/magic.h). */
static const uint32_t kernel_fs[] = {
	0x9fa0 /* proc */,	   0x62656572 /* sysfs */,	0x64626720 /* debugfs */,
	0x74726163 /* tracefs */,  0x73636673 /* securityfs */, 0xf97cff8c /* selinux */,
	0x27e0eb /* cgroup */,	   0x63677270 /* cgroup2 */,	0xcafe4a11 /* bpf */,
	0x6165676c /* pstore */,   0xde5e81e4 /* efivarfs */,	0x1cd1 /* devpts */,
	0x62656570 /* configfs */, 0x6e736673 /* nsfs */,	0x42494e4d /* binfmt_misc */,
	0x19800202 /* mqueue */,   0x65735543 /* fusectl */,
};
static const struct mount_rule kernel_fs_rule = { "kernel file system", RULE_EXACT, CLASS_SYSTEM,
						  NULL };

const char *mount_rules_keep(struct mount_rules_ctx *c, const char *s, struct err *e)
{
	char *copy;

	if (c->n_strings == MOUNT_STRINGS_MAX) {
		err_set(e, ERR_USAGE, "too many mounts, devices and paths in the environment");
		return NULL;
	}
	copy = strdup(s);
	if (!copy) {
		err_sys(e, "remember a path");
		return NULL;
	}
	c->strings[c->n_strings++] = copy;
	return copy;
}

void mount_rules_free(struct mount_rules_ctx *c)
{
	for (size_t i = 0; i < c->n_strings; i++)
		free(c->strings[i]);
	*c = (struct mount_rules_ctx){ 0 };
}

/* A kept copy of `path`, canonical when it exists. *ret is NULL when it is no absolute path, or one
 * that says nothing ("/"). */
static int keep_path(struct mount_rules_ctx *c, const char *path, const char **ret, struct err *e)
{
	char full[PATH_MAX];
	struct err ignored;

	*ret = NULL;
	if (!path || *path != '/')
		return 0;
	if (path_canonical(path, full) < 0 && path_normalise(path, full, &ignored) < 0)
		return 0;
	if (!full[1])
		return 0;
	*ret = mount_rules_keep(c, full, e);
	return *ret ? 0 : -1;
}

int mount_rules_place(struct mount_rules_ctx *c, const char *name, const char *path, struct err *e)
{
	const char *kept;

	if (keep_path(c, path, &kept, e) < 0)
		return -1;
	if (!kept)
		return 0;
	for (size_t i = 0; i < c->n_places; i++)
		if (!strcmp(c->places[i].path, kept) && !strcmp(c->places[i].name, name))
			return 0;
	if (c->n_places == MOUNT_PLACES_MAX)
		return err_set(e, ERR_USAGE, "too many places that no box may see");
	c->places[c->n_places++] = (struct mount_place){ name, kept };
	return 0;
}

/* base "/" name as a place of cloche's own; nothing when base is not set. */
static int own_place(struct mount_rules_ctx *c, const char *base, const char *name, struct err *e)
{
	char path[PATH_MAX];

	if (!base || *base != '/' || path_join(path, sizeof(path), base, name) < 0)
		return 0;
	return mount_rules_place(c, PLACE_STATE, path, e);
}

/* The usual places of cloche's own directories; CLOCHE_HOME moves them, but does not make the old
 * ones free for all. */
static int own_places(struct mount_rules_ctx *c, struct err *e)
{
	char tmp[64];

	snprintf(tmp, sizeof(tmp), "/tmp/cloche-%u", (unsigned)getuid());
	if (mount_rules_place(c, PLACE_STATE, getenv("CLOCHE_HOME"), e) < 0 ||
	    mount_rules_place(c, PLACE_STATE, tmp, e) < 0 ||
	    own_place(c, getenv("XDG_DATA_HOME"), "cloche", e) < 0 ||
	    own_place(c, getenv("XDG_CONFIG_HOME"), "cloche", e) < 0 ||
	    own_place(c, getenv("XDG_RUNTIME_DIR"), "cloche", e) < 0)
		return -1;
	for (size_t i = 0, n = c->n_places; i < n; i++)
		if (!strcmp(c->places[i].name, PLACE_HOME) &&
		    (own_place(c, c->places[i].path, ".local/share/cloche", e) < 0 ||
		     own_place(c, c->places[i].path, ".config/cloche", e) < 0))
			return -1;
	return 0;
}

/* The value of a RULE_ENV variable: one path, or several with ':' between (KUBECONFIG). */
static int env_paths(struct mount_rules_ctx *c, const struct mount_rule *rule, struct err *e)
{
	const char *value = getenv(rule->pattern);
	char one[PATH_MAX];

	while (value && *value && c->n_envs < MOUNT_PLACES_MAX) {
		size_t n = strcspn(value, ":");
		const char *kept = NULL;

		if (n < sizeof(one)) {
			memcpy(one, value, n);
			one[n] = '\0';
			if (keep_path(c, one, &kept, e) < 0)
				return -1;
		}
		if (kept)
			c->envs[c->n_envs++] = (struct mount_env){ kept, rule };
		value += n + (value[n] == ':');
	}
	return 0;
}

int mount_rules_init(struct mount_rules_ctx *c, struct err *e)
{
	struct passwd *pw = getpwuid(getuid());

	if (mount_rules_place(c, PLACE_HOME, getenv("HOME"), e) < 0 ||
	    (pw && mount_rules_place(c, PLACE_HOME, pw->pw_dir, e) < 0) ||
	    mount_rules_place(c, PLACE_RUNTIME, getenv("XDG_RUNTIME_DIR"), e) < 0 ||
	    own_places(c, e) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(moved) / sizeof(moved[0]) && i < MOUNT_ALIASES_MAX; i++) {
		const char *kept;

		if (keep_path(c, getenv(moved[i].env), &kept, e) < 0)
			return -1;
		if (kept)
			c->aliases[c->n_aliases++] = (struct mount_alias){ kept, moved[i].as };
	}
	for (size_t i = 0; i < mount_rules_n; i++)
		if (mount_rules[i].kind == RULE_ENV && env_paths(c, &mount_rules[i], e) < 0)
			return -1;
	return 0;
}

static void know(struct mount_rules_ctx *c, int dirfd, const char *path,
		 const struct mount_rule *rule)
{
	struct stat st;

	if (c->n_known >= MOUNT_KNOWN_MAX)
		return;
	if (fstatat(dirfd, path, &st, 0) == 0)
		c->known[c->n_known++] = (struct mount_known){ st.st_dev, st.st_ino, rule };
	else if (errno == ENOMEM)
		c->blind = true;
}

/* Everything above `path`, but not the root, which has a rule of its own. */
static void know_above(struct mount_rules_ctx *c, const char *path, const struct mount_rule *rule)
{
	char up[PATH_MAX];
	char *slash;

	snprintf(up, sizeof(up), "%s", path);
	while ((slash = strrchr(up, '/')) && slash != up) {
		*slash = '\0';
		know(c, AT_FDCWD, up, rule);
	}
}

static bool in_home_kind(const struct mount_rule *r)
{
	return r->kind == RULE_NAMES || r->kind == RULE_IN_HOME;
}

/* What follows `prefix` "/" in the pattern, or NULL. */
static const char *after(const char *pattern, const char *prefix)
{
	size_t n = strlen(prefix);

	if (!n)
		return pattern;
	return !strncmp(pattern, prefix, n) && pattern[n] == '/' ? pattern + n + 1 : NULL;
}

/* One entry of HOME/prefix against the rules. Says whether a pattern leads further down through it.
 */
static bool learn_entry(struct mount_rules_ctx *c, int dirfd, const char *prefix, const char *name)
{
	size_t n = strlen(name);
	bool down = false;

	for (size_t i = 0; i < mount_rules_n; i++) {
		const char *rest = in_home_kind(&mount_rules[i])
					   ? after(mount_rules[i].pattern, prefix)
					   : NULL;

		if (!rest || rest[0] != name[0] || strncmp(rest, name, n))
			continue;
		if (!rest[n])
			know(c, dirfd, name, &mount_rules[i]);
		down |= rest[n] == '/';
	}
	return down;
}

/* Lists what is there and looks up only that: a home has few of the two hundred. Owns fd. */
static void learn_home(struct mount_rules_ctx *c, int fd, const char *prefix)
{
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d = NULL;
	char next[256];

	if (!list) {
		fd_close(&fd);
		return;
	}
	for (int i = 0; i < LIST_MAX && (d = readdir(list)); i++) {
		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..") ||
		    !learn_entry(c, dirfd(list), prefix, d->d_name))
			continue;
		if (path_join(next, sizeof(next), prefix, d->d_name) == 0)
			learn_home(c,
				   openat(dirfd(list), d->d_name,
					  O_RDONLY | O_DIRECTORY | O_CLOEXEC),
				   next);
	}
	/* Too long a list to read at each start: ask for each name instead. */
	for (size_t i = 0; d && i < mount_rules_n; i++) {
		const char *rest = in_home_kind(&mount_rules[i])
					   ? after(mount_rules[i].pattern, prefix)
					   : NULL;

		if (rest)
			know(c, dirfd(list), rest, &mount_rules[i]);
	}
	closedir(list);
}

void mount_rules_learn(struct mount_rules_ctx *c)
{
	bool root = geteuid() == 0;

	c->n_known = 0;
	for (size_t i = 0; i < mount_rules_n; i++) {
		const struct mount_rule *r = &mount_rules[i];

		/* What lies deeper is readable by root alone; other callers need no look. */
		if ((r->kind == RULE_EXACT || r->kind == RULE_BELOW) &&
		    (root || !strchr(r->pattern + 1, '/')))
			know(c, AT_FDCWD, r->pattern, r);
		for (size_t j = 0; j < c->n_places; j++) {
			if (strcmp(c->places[j].name, r->pattern))
				continue;
			if (r->kind == RULE_PLACE_ABOVE)
				know_above(c, c->places[j].path, r);
			else
				know(c, AT_FDCWD, c->places[j].path, r);
		}
	}
	for (size_t j = 0; j < c->n_envs; j++)
		know(c, AT_FDCWD, c->envs[j].path, c->envs[j].rule);
	for (size_t j = 0; j < c->n_places; j++)
		if (!strcmp(c->places[j].name, PLACE_HOME))
			learn_home(c, open(c->places[j].path, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
				   "");
}

/* The names of `pattern` stand in a row somewhere in `path`, whole. */
static bool has_names(const char *path, const char *pattern)
{
	size_t n = strlen(pattern);

	for (const char *p = path; (p = strstr(p, pattern)); p++)
		if (p > path && p[-1] == '/' && (p[n] == '/' || !p[n]))
			return true;
	return false;
}

static bool in_place(const struct mount_rules_ctx *c, const struct mount_rule *r, const char *path)
{
	for (size_t i = 0; i < c->n_places; i++) {
		const char *place = c->places[i].path;
		bool same = !strcmp(path, place);

		if (strcmp(c->places[i].name, r->pattern))
			continue;
		if ((r->kind == RULE_PLACE && same) ||
		    (r->kind == RULE_PLACE_BELOW && path_within(path, place)) ||
		    (r->kind == RULE_PLACE_ABOVE && !same && path_within(place, path)))
			return true;
	}
	return false;
}

static bool in_home(const struct mount_rules_ctx *c, const char *pattern, const char *path)
{
	for (size_t i = 0; i < c->n_places; i++) {
		const char *home = c->places[i].path;

		if (!strcmp(c->places[i].name, PLACE_HOME) && path_within(path, home) &&
		    path[strlen(home)] == '/' && path_within(path + strlen(home) + 1, pattern))
			return true;
	}
	return false;
}

static bool in_env(const struct mount_rules_ctx *c, const struct mount_rule *r, const char *path)
{
	for (size_t i = 0; i < c->n_envs; i++)
		if (c->envs[i].rule == r && path_within(path, c->envs[i].path))
			return true;
	return false;
}

/* `path` with a moved directory read as its usual name, or NULL. Never a match by accident:
 * "/.config" is no real path. */
static const char *alias(const struct mount_rules_ctx *c, size_t i, const char *path,
			 char buf[PATH_MAX])
{
	const char *rest;

	if (!path_within(path, c->aliases[i].path))
		return NULL;
	rest = path + strlen(c->aliases[i].path);
	if (!*rest)
		return c->aliases[i].as;
	return path_join(buf, PATH_MAX, c->aliases[i].as, rest + 1) < 0 ? NULL : buf;
}

static bool matches(const struct mount_rules_ctx *c, const struct mount_rule *r, const char *path)
{
	if (r->except && path_within(path, r->except) && strcmp(path, r->except))
		return false;
	switch (r->kind) {
	case RULE_EXACT:
		return !strcmp(path, r->pattern);
	case RULE_BELOW:
		return path_within(path, r->pattern);
	case RULE_NAMES:
		return has_names(path, r->pattern);
	case RULE_IN_HOME:
		return in_home(c, r->pattern, path);
	case RULE_ENV:
		return in_env(c, r, path);
	case RULE_PLACE:
	case RULE_PLACE_BELOW:
	case RULE_PLACE_ABOVE:
		return in_place(c, r, path);
	case RULE_KIND_N:
		break;
	}
	return true;
}

static const struct mount_rule *first_match(const struct mount_rules_ctx *c, const char *path,
					    bool rw, bool usual)
{
	/* Most paths have no name with a dot in front, and most rules are about such a name. */
	bool dot = strstr(path, "/.") != NULL;

	for (size_t i = 0; i < mount_rules_n; i++) {
		const struct mount_rule *r = &mount_rules[i];

		if ((!dot && r->kind == RULE_NAMES && r->pattern[0] == '.') ||
		    (usual && r->kind != RULE_NAMES) || (!rw && mount_class_rw_only(r->class)))
			continue;
		if (matches(c, r, path))
			return r;
	}
	return NULL;
}

/* `path` ends in the first names of `pattern`, and the directory holds the rest: /x/.cargo with
 * credentials.toml in it. */
static bool holds_rest(const char *path, const char *pattern, int fd)
{
	size_t len = strlen(path);
	struct stat st;

	for (const char *cut = pattern; (cut = strchr(cut, '/')); cut++) {
		size_t n = (size_t)(cut - pattern);

		if (len > n && path[len - n - 1] == '/' && !strncmp(path + len - n, pattern, n) &&
		    (fstatat(fd, cut + 1, &st, AT_SYMLINK_NOFOLLOW) == 0 || errno == ENOMEM))
			return true; /* what can't be looked at now may well be there */
	}
	return false;
}

static const struct mount_rule *first_held(const char *path, int fd)
{
	if (!strstr(path, "/.")) /* all patterns of several names start with a dot */
		return NULL;
	for (size_t i = 0; i < mount_rules_n; i++)
		if (mount_rules[i].kind == RULE_NAMES &&
		    holds_rest(path, mount_rules[i].pattern, fd))
			return &mount_rules[i];
	return NULL;
}

/* As first_match (fd -1) or first_held, with each moved directory under its usual name. */
static const struct mount_rule *through_aliases(const struct mount_rules_ctx *c, const char *path,
						int fd, bool rw)
{
	char buf[PATH_MAX];

	for (size_t i = 0; i < c->n_aliases; i++) {
		const char *usual = alias(c, i, path, buf);
		const struct mount_rule *r = NULL;

		if (usual)
			r = fd < 0 ? first_match(c, usual, rw, true) : first_held(usual, fd);
		if (r)
			return r;
	}
	return NULL;
}

/* A session's temporary workspace, RUNTIME/owner-.../workspace-N: the one thing of cloche's own
 * that is made for boxes. */
static bool is_temporary(const struct mount_rules_ctx *c, const char *path)
{
	static const char owner[] = "/owner-", name[] = "/workspace-";
	const char *last = strrchr(path, '/'), *number = last ? last + sizeof(name) - 1 : NULL, *at;

	if (!last || strncmp(last, name, sizeof(name) - 1) != 0 || !*number ||
	    number[strspn(number, "0123456789")])
		return false;
	for (at = last; at > path && at[-1] != '/'; at--)
		;
	if (at == path || strncmp(at - 1, owner, sizeof(owner) - 1) != 0)
		return false;
	for (size_t i = 0; i < c->n_places; i++) {
		size_t n = strlen(c->places[i].path);

		if (strcmp(c->places[i].name, PLACE_STATE) != 0 ||
		    strncmp(path, c->places[i].path, n) != 0)
			continue;
		if (path + n == at - 1 || (path + n + strlen("/runtime") == at - 1 &&
					   !strncmp(path + n, "/runtime", strlen("/runtime"))))
			return true;
	}
	return false;
}

const struct mount_rule *mount_rules_path(const struct mount_rules_ctx *c, const char *path,
					  bool rw)
{
	const struct mount_rule *r = is_temporary(c, path) ? NULL : first_match(c, path, rw, false);

	return r || !c->n_aliases ? r : through_aliases(c, path, -1, rw);
}

const struct mount_rule *mount_rules_fd(const struct mount_rules_ctx *c, const char *path, int fd,
					bool rw)
{
	const struct mount_rule *r;
	struct statfs fs;
	struct stat st;

	/* What can't be looked at is not shown. */
	if (fstat(fd, &st) < 0 || fstatfs(fd, &fs) < 0)
		return &kernel_fs_rule;
	for (size_t i = 0; i < sizeof(kernel_fs) / sizeof(kernel_fs[0]); i++)
		if ((uint32_t)fs.f_type == kernel_fs[i])
			return &kernel_fs_rule;
	for (size_t i = 0; i < c->n_known; i++)
		if (c->known[i].dev == st.st_dev && c->known[i].ino == st.st_ino &&
		    (rw || !mount_class_rw_only(c->known[i].rule->class)))
			return c->known[i].rule;
	if (!S_ISDIR(st.st_mode))
		return NULL;
	r = first_held(path, fd);
	return r || !c->n_aliases ? r : through_aliases(c, path, fd, rw);
}

/* Does this one rule refuse? As mount_rules_path and mount_rules_fd, for all that they look at. */
static bool refuses(const struct mount_rules_ctx *c, const struct mount_rule *r, const char *path,
		    int fd, const struct stat *st)
{
	char buf[PATH_MAX];

	if (matches(c, r, path))
		return true;
	for (size_t i = 0; i < c->n_known; i++)
		if (c->known[i].rule == r && c->known[i].dev == st->st_dev &&
		    c->known[i].ino == st->st_ino)
			return true;
	if (r->kind != RULE_NAMES)
		return false;
	if (holds_rest(path, r->pattern, fd))
		return true;
	for (size_t i = 0; i < c->n_aliases; i++) {
		const char *usual = alias(c, i, path, buf);

		if (usual && (matches(c, r, usual) || holds_rest(usual, r->pattern, fd)))
			return true;
	}
	return false;
}

size_t mount_rules_all(const struct mount_rules_ctx *c, const char *path, const char *spelt, int fd,
		       bool rw, const struct mount_rule **ret, size_t max)
{
	struct stat st;
	size_t n = 0;

	if (fstat(fd, &st) < 0)
		return 0;
	for (size_t i = 0; i < mount_rules_n && n < max; i++)
		if ((rw || !mount_class_rw_only(mount_rules[i].class)) &&
		    (refuses(c, &mount_rules[i], path, fd, &st) ||
		     (spelt && refuses(c, &mount_rules[i], spelt, fd, &st))))
			ret[n++] = &mount_rules[i];
	return n;
}

const struct mount_rule *mount_rules_name(const char *name)
{
	for (size_t i = 0; i < mount_rules_n; i++)
		if (mount_rules[i].kind == RULE_NAMES && !strcmp(mount_rules[i].pattern, name))
			return &mount_rules[i];
	return NULL;
}
