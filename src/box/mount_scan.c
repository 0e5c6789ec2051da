/* A look into what is shared, and advice on what is not: FIFOs below an untrusted workspace,
 * secrets and sockets at the top of a shared directory, and the file that a command names but the
 * box can't see.
 *
 * All of it is bounded and follows no links. It reads directories of the caller's that a hostile
 * program may have filled: names are printable before they are shown, and a look that is cut short
 * says so. */
#include "box/mount_check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define SCAN_DEPTH_MAX 64
#define TOP_MAX 4096

struct scan {
	unsigned left;
	bool complete;
	size_t len;
	char path[PATH_MAX]; /* below the source, for the message */
};

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static unsigned char entry_type(int dirfd, const struct dirent *d)
{
	struct stat st;

	if (d->d_type != DT_UNKNOWN)
		return d->d_type;
	return fstatat(dirfd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0
		       ? DT_UNKNOWN
		       : (unsigned char)IFTODT(st.st_mode);
}

/* Takes ownership of fd. */
static DIR *open_list(int fd)
{
	DIR *d = fd < 0 ? NULL : fdopendir(fd);

	if (!d)
		fd_close(&fd);
	return d;
}

static int scan_dir(struct scan *s, int fd, int level, struct err *e);

static int scan_entry(struct scan *s, int dirfd, const struct dirent *d, int level, struct err *e)
{
	unsigned char type = entry_type(dirfd, d);
	size_t keep = s->len;
	int r = 0;

	if (type != DT_FIFO && type != DT_DIR)
		return 0;
	if (path_join(s->path, sizeof(s->path), s->path, d->d_name) < 0) {
		s->complete = false;
		return 0;
	}
	s->len = strlen(s->path);
	if (type == DT_FIFO) {
		struct mount_shown shown;

		r = err_set(
			e, ERR_REFUSED,
			"refused by the rule no FIFOs under --security-profile untrusted: %s is one, and leads to "
			"whoever opens it on the host; remove it, or share read-only",
			mount_show(&shown, s->path));
	} else if (level >= SCAN_DEPTH_MAX) {
		s->complete = false;
	} else {
		r = scan_dir(s,
			     openat(dirfd, d->d_name,
				    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
			     level + 1, e);
	}
	s->len = keep;
	s->path[keep] = '\0';
	return r;
}

/* A directory that the caller may not read is closed to the box as well, and one that went away
 * meanwhile was never shared. Anything else that keeps it from being read is no reason to believe
 * that there is nothing in it. */
static int scan_unread(struct scan *s, struct err *e)
{
	struct mount_shown shown;

	if (errno != EACCES && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
		return err_sys(e, "look for FIFOs of the host in %s",
			       mount_show(&shown, *s->path ? s->path : "the shared directory"));
	s->complete = false;
	return 0;
}

/* Owns fd. */
static int scan_dir(struct scan *s, int fd, int level, struct err *e)
{
	DIR *list = open_list(fd);
	struct dirent *d;
	int r = 0;

	if (!list)
		return scan_unread(s, e);
	while (r == 0) {
		errno = 0;
		d = readdir(list);
		if (!d) {
			r = errno ? scan_unread(s, e) : 0;
			break;
		}
		if (is_dots(d->d_name))
			continue;
		if (s->left == 0) {
			s->complete = false;
			break;
		}
		s->left--;
		r = scan_entry(s, dirfd(list), d, level, e);
	}
	closedir(list);
	return r;
}

static int open_top(const struct box_mount *m)
{
	_cleanup_fd_ int at = mount_open_checked(m);

	return at < 0 ? -1 : openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int mount_scan_fifo(const struct box_mount *m, bool *ret_complete, struct err *e)
{
	struct scan s = { .left = MOUNT_SCAN_MAX, .complete = true };

	if (scan_dir(&s, open_top(m), 0, e) < 0)
		return -1;
	*ret_complete = s.complete;
	return 0;
}

void mount_scan_top(struct mount_check *c, const struct box_mount *m, bool untrusted)
{
	DIR *list = open_list(open_top(m));
	struct mount_shown name, src;
	const struct mount_rule *r;
	struct dirent *d;

	if (!list)
		return;
	mount_show(&src, m->src);
	for (int i = 0; i < TOP_MAX && (d = readdir(list)); i++) {
		unsigned char type = entry_type(dirfd(list), d);

		if (is_dots(d->d_name))
			continue;
		r = d->d_name[0] == '.' ? mount_rules_name(d->d_name) : NULL;
		if (r)
			mount_note(c, "%s holds %s (%s): the box can read it", src.text,
				   mount_show(&name, d->d_name), mount_class_name(r->class));
		else if (!strcmp(d->d_name, ".env"))
			mount_note(c, "%s holds .env: the box can read it", src.text);
		else if (m->rw && !untrusted && (type == DT_SOCK || type == DT_FIFO))
			mount_note(
				c,
				"%s holds %s, a %s of the host that the box can reach; shared with :ro it could not",
				src.text, mount_show(&name, d->d_name),
				type == DT_SOCK ? "socket" : "FIFO");
	}
	closedir(list);
}

/* ---- the hint ---- */

/* The path in the box that `arg` means there, or -1 when it can't be said by its words alone. */
static int box_path(const struct box_spec *spec, const char *arg, char ret[PATH_MAX])
{
	char full[PATH_MAX];
	struct err ignored;

	if (path_join(full, sizeof(full), *arg == '/' ? "" : spec->cwd, arg) < 0)
		return -1;
	return path_normalise(full, ret, &ignored);
}

/* Does the box see a file under this path of its own? */
static bool box_sees(const struct box_spec *spec, const char *path)
{
	static const char *const own[] = { "/usr",    "/bin", "/sbin", "/lib",	"/lib32", "/lib64",
					   "/libx32", "/etc", "/dev",  "/proc", "/sys" };
	static const char *const places[] = { "/",	  "/home",    "/opt",	 "/root",
					      "/run",	  "/tmp",     "/var",	 "/var/cache",
					      "/var/lib", "/var/log", "/var/tmp" };
	const struct box_mount *m = NULL;
	_cleanup_fd_ int src = -1, fd = -1;

	for (size_t i = 0; i < spec->n_mounts; i++)
		if (path_within(path, spec->mounts[i].dst) &&
		    (!m || strlen(spec->mounts[i].dst) > strlen(m->dst)))
			m = &spec->mounts[i];
	if (m) {
		const char *rest = path + strlen(m->dst);

		if (m->kind != BOX_MOUNT_DIR)
			return m->kind == BOX_MOUNT_FILE;
		src = mount_open_checked(m);
		fd = src < 0 ? -1 : path_open_in_root(src, *rest ? rest + 1 : "", 0);
		return fd >= 0;
	}
	if (spec->root.kind == ROOTFS_LAYERS) {
		fd = layers_open(&spec->root.layers, path);
		return fd >= 0;
	}
	if (spec->root.kind == ROOTFS_DIR) {
		src = path_open_nolinks(spec->root.dir, O_DIRECTORY);
		fd = src < 0 ? -1 : path_open_in_root(src, path, 0);
		return fd >= 0;
	}
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (path_within(path, own[i]))
			return true;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (strcmp(path, places[i]) == 0)
			return true;
	return strcmp(path, spec->home) == 0;
}

/* The mount that shows this host path, with its path there. */
static bool box_shows(const struct box_spec *spec, const char *real, char ret[PATH_MAX])
{
	for (size_t i = 0; i < spec->n_mounts; i++) {
		const struct box_mount *m = &spec->mounts[i];
		const char *rest;

		if (m->kind == BOX_MOUNT_TMPFS || !path_within(real, m->src))
			continue;
		rest = real + strlen(m->src);
		if (!*rest)
			snprintf(ret, PATH_MAX, "%s", m->dst);
		else if (path_join(ret, PATH_MAX, m->dst, rest + 1) < 0)
			continue;
		return true;
	}
	return false;
}

static bool has_workspace(const struct box_spec *spec)
{
	for (size_t i = 0; i < spec->n_mounts; i++)
		if (!strcmp(spec->mounts[i].dst, MOUNT_WORKSPACE))
			return true;
	return false;
}

/* Where a word of the command leads from `cwd`, with each ".." taken back by its words, or -1. */
static int box_place(const char *cwd, const char *arg, char ret[PATH_MAX])
{
	char full[PATH_MAX];
	size_t n = 0;

	if (path_join(full, sizeof(full), *arg == '/' ? "" : cwd, arg) < 0)
		return -1;
	for (const char *at = full; *at;) {
		size_t skip = strspn(at, "/"), len = strcspn(at + skip, "/");

		at += skip;
		if (len == 2 && at[0] == '.' && at[1] == '.') {
			while (n > 0 && ret[--n] != '/')
				;
		} else if (len > 0 && !(len == 1 && at[0] == '.')) {
			ret[n++] = '/';
			memcpy(ret + n, at, len);
			n += len;
		}
		at += len;
	}
	ret[n] = '\0';
	return n > 0 ? 0 : -1;
}

/* Would the word lead to the same file, were the working directory the workspace, where the command
 * then starts? Not when it was told where to start. */
static bool by_workspace(const struct mount_check *c, const struct box_spec *spec, const char *arg,
			 const char *real)
{
	char cwd[PATH_MAX], there[PATH_MAX];

	return !has_workspace(spec) && *arg != '/' && strcmp(spec->cwd, spec->home) == 0 &&
	       path_canonical(".", cwd) == 0 && path_within(real, cwd) &&
	       !mount_rules_path(&c->rules, cwd, true) &&
	       box_place(MOUNT_WORKSPACE, arg, there) == 0 && path_within(there, MOUNT_WORKSPACE) &&
	       strcmp(there + strlen(MOUNT_WORKSPACE), real + strlen(cwd)) == 0;
}

/* The option that shows `real` to the command under the name `arg`. */
static bool showing(const struct mount_check *c, const struct box_spec *spec, const char *arg,
		    const char *real, char text[DENIAL_TEXT])
{
	char there[PATH_MAX];

	snprintf(text, DENIAL_TEXT, "--workspace .");
	if (by_workspace(c, spec, arg, real))
		return true;
	text[0] = '\0';
	return box_place(spec->cwd, arg, there) == 0 &&
	       denial_volume(text, DENIAL_TEXT, real, there, "ro");
}

bool mount_hint(struct mount_check *c, const struct box_spec *spec, const char *arg, char *buf,
		size_t cap)
{
	char real[PATH_MAX], there[PATH_MAX], text[DENIAL_TEXT], name[64];
	struct mount_shown word, place;
	const struct mount_rule *r;
	struct err ignored;
	struct stat st;

	if (!*arg || *arg == '-' || stat(arg, &st) < 0 ||
	    !(S_ISREG(st.st_mode) || (S_ISDIR(st.st_mode) && strchr(arg, '/'))) ||
	    path_canonical(arg, real) < 0)
		return false;
	if (box_path(spec, arg, there) == 0 && box_sees(spec, there))
		return false;
	mount_show(&word, arg);
	if (box_shows(spec, real, there)) {
		snprintf(buf, cap, "%s is at %s in the box", word.text, mount_show(&place, there));
		return true;
	}
	if (mount_check_learn(c, &ignored) < 0)
		return false;
	r = mount_rules_path(&c->rules, real, false);
	if (r) {
		mount_deny_read(c, mount_rule_name(r, name), arg, real, NULL,
				mount_class_advice(r->class));
		return false;
	}
	if (!showing(c, spec, arg, real, text)) {
		mount_deny_read(c, "not shared", arg, real, NULL,
				"its path can't be written after -v: use a link to it");
		return false;
	}
	mount_deny_read(c, "not shared", arg, real, text, NULL);
	snprintf(buf, cap, "%s exists here but the box does not see it: add %s", word.text, text);
	return true;
}
