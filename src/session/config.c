/* Its values are judged as those of `open` are, by the same table; a disk's size and target by the
 * parser of --tmpfs.
 *
 * What may go wrong: the file is the user's own, but it may be a FIFO, a device, or huge: it is
 * opened without waiting and read up to a maximum. */
#include "session/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "box/mount_check.h"
#include "session/options_impl.h"
#include "session/yaml_read.h"

#define NAME_MAX_ 64

static const char *const sections[] = { "defaults", "vcpu", "vdisk", "vgpio", NULL };
static const char *const vcpu_keys[] = { "cpus", "memory_mb", "pids", NULL };
static const char *const vdisk_keys[] = { "path", "size", NULL };
static const char *const vgpio_keys[] = { "devices", NULL };

void ses_config_free(struct ses_config *c)
{
	json_decref(c->defaults);
	json_decref(c->vcpu);
	json_decref(c->vdisk);
	json_decref(c->vgpio);
	c->defaults = c->vcpu = c->vdisk = c->vgpio = NULL;
}

static bool listed(const char *const *words, const char *word)
{
	for (; *words; words++)
		if (strcmp(*words, word) == 0)
			return true;
	return false;
}

static int unknown_key(const struct ses_yaml *n, const char *const *known, struct err *e)
{
	const char *near = str_nearest(n->key, known);
	char all[300];
	size_t at = 0;

	all[0] = '\0';
	for (; *known && at < sizeof(all) - 1; known++)
		at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%s", at ? ", " : "", *known);
	if (near)
		return ses_yaml_at_key(n, e, "no key \"%.60s\" is known here; did you mean %s?",
				       n->key, near);
	return ses_yaml_at_key(n, e, "no key \"%.60s\" is known here; there are %s", n->key, all);
}

static int want_map(const struct ses_yaml *n, const char *what, struct err *e)
{
	if (n->kind != YAML_MAP)
		return ses_yaml_at(n, e,
				   "%s: a map is wanted (lines of \"key: value\", further in)",
				   what);
	return 0;
}

/* One value, as the option of this name takes it, into `o`. */
static int read_option(const struct ses_yaml *n, const struct ses_option *row, json_t *o,
		       struct err *e)
{
	json_t *v = ses_yaml_json(n);
	struct ses_error why;

	if (!v)
		return err_set(e, ERR_SYS, "out of memory");
	if (ses_option_check(row, v, &why) < 0) {
		json_decref(v);
		return ses_yaml_at(n, e, "%s", why.message);
	}
	if (json_object_set_new(o, row->name, v) < 0)
		return err_set(e, ERR_SYS, "out of memory");
	return 0;
}

/* Everywhere but in `here` alone an option may have a default of the user's own. */
static int read_defaults(const struct ses_yaml *n, json_t *o, struct err *e)
{
	const struct ses_option *row = ses_option_find(n->key);
	const char *names[64];
	size_t k = 0;

	for (size_t i = 0; i < ses_option_n && k < 63; i++)
		if (!ses_option_table[i].here && ses_option_table[i].kind != KIND_LATER)
			names[k++] = ses_option_table[i].name;
	names[k] = NULL;
	if (!row || (row->kind != KIND_LATER && !row->here && !listed(names, row->name)))
		return unknown_key(n, names, e);
	if (row->here)
		return ses_yaml_at_key(n, e, "%s is for one sandbox alone, and has no default here",
				       row->name);
	return read_option(n, row, o, e);
}

static int read_vcpu(const struct ses_yaml *n, json_t *o, struct err *e)
{
	if (!listed(vcpu_keys, n->key))
		return unknown_key(n, vcpu_keys, e);
	return read_option(n, ses_option_find(n->key), o, e);
}

static int read_vgpio(const struct ses_yaml *n, json_t *o, struct err *e)
{
	if (!listed(vgpio_keys, n->key))
		return unknown_key(n, vgpio_keys, e);
	return read_option(n, ses_option_find(n->key), o, e);
}

static int read_vdisk(const struct ses_yaml *n, json_t *o, struct err *e)
{
	if (!listed(vdisk_keys, n->key))
		return unknown_key(n, vdisk_keys, e);
	if (!json_is_string(n->value))
		return ses_yaml_at(n, e, "%s: %s", n->key,
				   strcmp(n->key, "size") == 0
					   ? "a size with its unit is wanted, such as 512m"
					   : "an absolute path is wanted");
	if (json_object_set(o, n->key, n->value) < 0)
		return err_set(e, ERR_SYS, "out of memory");
	return 0;
}

/* A vdisk is what --tmpfs would take. */
static int check_vdisk(const struct ses_yaml *n, json_t *o, struct err *e)
{
	static struct mount_check check; /* large */
	const char *size = json_string_value(json_object_get(o, "size"));
	const char *path = json_string_value(json_object_get(o, "path"));
	char text[2 * YAML_SCALAR_MAX + 16];
	struct box_mount m;
	struct err why;
	int r;

	if (!size)
		return ses_yaml_at(n, e, "%s: it needs a size, such as \"size: 512m\"", n->key);
	if (!path) {
		snprintf(text, sizeof(text), "/vdisk/%s", n->key);
		if (json_object_set_new(o, "path", json_string(text)) < 0)
			return err_set(e, ERR_SYS, "out of memory");
		path = json_string_value(json_object_get(o, "path"));
	}
	snprintf(text, sizeof(text), "%s:%s", path, size);
	r = mount_check_init(&check, &why);
	if (r == 0)
		r = mount_parse_tmpfs(&check, text, &m, &why);
	mount_check_free(&check);
	/* The message is about an option that nobody has written here. */
	return r < 0 ? ses_yaml_at(n, e, "%s: %s", n->key,
				   strncmp(why.msg, "--tmpfs ", 8) == 0 ? why.msg + 8 : why.msg)
		     : 0;
}

static int name_check(const struct ses_yaml *n, struct err *e)
{
	static const char first[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	static const char all[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	if (!strchr(first, n->key[0]) || strspn(n->key, all) != strlen(n->key) ||
	    strlen(n->key) > NAME_MAX_)
		return ses_yaml_at_key(
			n, e,
			"\"%.60s\" is no name of a profile: a letter or digit, then up to 63 of A-Z a-z 0-9 . _ -",
			n->key);
	return 0;
}

typedef int (*read_fn)(const struct ses_yaml *n, json_t *o, struct err *e);

static int read_keys(const struct ses_yaml *map, read_fn fn, json_t *o, struct err *e)
{
	for (const struct ses_yaml *n = map->child; n; n = n->next)
		if (fn(n, o, e) < 0)
			return -1;
	return 0;
}

/* A section of profiles: NAME: {keys}. */
static int read_profiles(const struct ses_yaml *section, read_fn fn, json_t *o, struct err *e)
{
	for (const struct ses_yaml *n = section->child; n; n = n->next) {
		json_t *one;

		if (name_check(n, e) < 0 || want_map(n, n->key, e) < 0)
			return -1;
		one = json_object();
		if (json_object_set_new(o, n->key, one) < 0)
			return err_set(e, ERR_SYS, "out of memory");
		if (read_keys(n, fn, one, e) < 0)
			return -1;
		if (fn == read_vdisk && check_vdisk(n, one, e) < 0)
			return -1;
		if (json_object_size(one) == 0)
			return ses_yaml_at(n, e, "%s: it says nothing", n->key);
	}
	return 0;
}

static int read_section(const struct ses_yaml *n, struct ses_config *c, struct err *e)
{
	static const read_fn fns[] = { read_defaults, read_vcpu, read_vdisk, read_vgpio };
	json_t **to[] = { &c->defaults, &c->vcpu, &c->vdisk, &c->vgpio };
	size_t i = 0;

	while (sections[i] && strcmp(sections[i], n->key) != 0)
		i++;
	if (!sections[i])
		return unknown_key(n, sections, e);
	if (n->kind == YAML_SCALAR && json_is_null(n->value)) /* "vcpu:" with nothing in it */
		return 0;
	if (want_map(n, n->key, e) < 0)
		return -1;
	*to[i] = json_object();
	if (!*to[i])
		return err_set(e, ERR_SYS, "out of memory");
	return i == 0 ? read_keys(n, fns[i], *to[i], e) : read_profiles(n, fns[i], *to[i], e);
}

int ses_config_read(const char *text, size_t n, struct ses_config *ret, struct err *e)
{
	struct ses_config c = { .there = true };
	struct ses_yaml *root = NULL;
	int r;

	r = ses_yaml_read(text, n, &root, e);
	if (r == 0 && root && !(root->kind == YAML_SCALAR && json_is_null(root->value))) {
		r = want_map(root, CONFIG_FILE, e);
		for (const struct ses_yaml *s = r == 0 ? root->child : NULL; s && r == 0;
		     s = s->next)
			r = read_section(s, &c, e);
	}
	ses_yaml_free(root);
	if (r < 0) {
		ses_config_free(&c);
		return -1;
	}
	memcpy(c.path, ret->path, sizeof(c.path));
	*ret = c;
	return 0;
}

/* The whole file; the length, or -1. */
static ssize_t read_file(const char *path, char *buf, size_t cap, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	size_t at = 0;
	struct stat st;

	if (fd < 0)
		return err_sys(e, "open %.200s", path);
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, ERR_USAGE, "%.200s is no regular file", path);
	while (at < cap) {
		ssize_t n = read(fd, buf + at, cap - at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, "read %.200s", path);
		if (n == 0)
			break;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

static int usual_path(char ret[STATE_PATH_MAX], struct err *e)
{
	char dir[STATE_PATH_MAX];

	if (state_path(STATE_CONFIG, dir, e) < 0)
		return -1;
	if (path_join(ret, STATE_PATH_MAX, dir, CONFIG_FILE) < 0)
		return err_set(e, ERR_USAGE, "the path of " CONFIG_FILE " is too long");
	return 0;
}

int ses_config_load(const char *path, struct ses_config *ret, struct err *e)
{
	struct ses_config c = { 0 };
	struct err none;
	char *text;
	ssize_t n;

	/* Who has no home has no configuration either. */
	if (!path && usual_path(c.path, &none) < 0) {
		*ret = c;
		return 0;
	}
	if (path && strlen(path) >= sizeof(c.path))
		return err_set(e, ERR_USAGE, "the path is too long");
	if (path)
		memcpy(c.path, path, strlen(path) + 1);
	if (!path && access(c.path, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR)) {
		*ret = c;
		return 0;
	}
	text = malloc(YAML_BYTES_MAX + 1); /* one more, by which a larger file is known */
	if (!text)
		return err_set(e, ERR_SYS, "out of memory");
	n = read_file(c.path, text, YAML_BYTES_MAX + 1, e);
	if (n >= 0 && ses_config_read(text, (size_t)n, &c, e) < 0) {
		err_prefix(e, "%.300s", c.path);
		/* "FILE: LINE:COLUMN: ..." as compilers have it, without the blank */
		char *at = strstr(e->msg, ": ");

		if (e->kind == ERR_USAGE && at)
			memmove(at + 1, at + 2, strlen(at + 2) + 1);
		n = -1;
	}
	free(text);
	if (n < 0)
		return -1;
	*ret = c;
	return 0;
}

const json_t *ses_config_profile(const struct ses_config *c, const char *token,
				 const char **ret_kind, struct err *e)
{
	const json_t *of[] = { NULL, c->vcpu, c->vdisk, c->vgpio };
	const char *colon = strchr(token, ':'), *name;
	char there[300];
	const json_t *v;
	json_t *one;
	size_t i = 1, at = 0;

	while (sections[i] && !(colon && strlen(sections[i]) == (size_t)(colon - token) &&
				strncmp(sections[i], token, (size_t)(colon - token)) == 0))
		i++;
	if (!sections[i]) {
		err_set(e, ERR_USAGE, "\"%.80s\": write vcpu:NAME, vdisk:NAME or vgpio:NAME",
			token);
		return NULL;
	}
	v = json_object_get(of[i], colon + 1);
	if (v) {
		*ret_kind = sections[i];
		return v;
	}
	there[0] = '\0';
	json_object_foreach((json_t *)(uintptr_t)of[i], name, one) if (at < sizeof(there) - 1) at +=
		(size_t)snprintf(there + at, sizeof(there) - at, "%s%s", at ? ", " : "", name);
	err_set(e, ERR_USAGE, "\"%.80s\": %.200s has no such profile; %s%s", token,
		*c->path ? c->path : CONFIG_FILE, at ? "there are " : "it has none of that kind",
		there);
	return NULL;
}
