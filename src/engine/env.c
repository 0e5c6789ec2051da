#include "engine/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/image.h"

#define ENV_VALUE_MAX (128 << 10) /* the kernel's limit for one string of execve(2) */

const char *env_keep(struct prepared *p, const char *s)
{
	size_t n = strlen(s) + 1;
	char *copy;

	if (n <= sizeof(p->kept) - p->n_kept) {
		copy = memcpy(p->kept + p->n_kept, s, n);
		p->n_kept += n;
		return copy;
	}
	copy = strdup(s);
	if (!copy)
		abort();
	return copy;
}

static size_t name_len(const char *pair)
{
	return strcspn(pair, "=");
}

/* Adds or replaces. */
static int env_set(struct prepared *p, const char *pair, struct err *e)
{
	size_t n = name_len(pair);

	for (size_t i = 0; i < p->n_env; i++)
		if (name_len(p->env[i]) == n && memcmp(p->env[i], pair, n) == 0) {
			p->env[i] = pair;
			return 0;
		}
	if (p->n_env >= BOX_ENV_MAX)
		return err_set(e, ERR_USAGE, "more than %d environment variables", BOX_ENV_MAX);
	p->env[p->n_env++] = pair;
	p->env[p->n_env] = NULL;
	return 0;
}

/* NAME=VALUE as POSIX has names. A value may hold anything: keys and certificates have many lines.
 */
int env_check(const char *pair, const char *where, struct err *e)
{
	size_t n = name_len(pair);

	if (n == 0 || strlen(pair) >= ENV_VALUE_MAX)
		return err_set(e, ERR_USAGE, "%s: needs NAME=VALUE, below %d bytes", where,
			       ENV_VALUE_MAX);
	for (size_t i = 0; i < n; i++)
		if (!(pair[i] == '_' || (pair[i] >= 'A' && pair[i] <= 'Z') ||
		      (pair[i] >= 'a' && pair[i] <= 'z') ||
		      (i > 0 && pair[i] >= '0' && pair[i] <= '9')))
			return err_set(
				e, ERR_USAGE,
				"%s: a name has letters, digits and _, and starts with no digit",
				where);
	return 0;
}

static int env_option(struct prepared *p, const char *text, struct err *e)
{
	char where[80];
	const char *value;
	size_t room;
	char *pair;

	snprintf(where, sizeof(where), "-e %.*s", (int)(name_len(text) < 60 ? name_len(text) : 60),
		 text);
	if (env_check(text, where, e) < 0)
		return -1;
	if (strchr(text, '='))
		return env_set(p, text, e);
	value = getenv(text);
	if (!value) /* as docker has it: an unset variable stays unset */
		return 0;
	room = strlen(text) + strlen(value) + 2;
	pair = malloc(room);
	if (!pair)
		return err_set(e, ERR_SYS, "out of memory for -e");
	snprintf(pair, room, "%s=%s", text, value);
	if (env_set(p, pair, e) == 0)
		return 0; /* NOLINT(clang-analyzer-unix.Malloc): the environment holds it as long as
			     the process lives */
	free(pair);
	return -1;
}

int env_add(struct prepared *p, const char *pair, struct err *e)
{
	if (!strchr(pair, '='))
		return err_set(e, ERR_USAGE, "env: needs NAME=VALUE");
	return env_check(pair, "env", e) < 0 ? -1 : env_set(p, pair, e);
}

bool env_has(const struct prepared *p, const char *name)
{
	for (size_t i = 0; i < p->n_env; i++)
		if (name_len(p->env[i]) == strlen(name) &&
		    strncmp(p->env[i], name, strlen(name)) == 0)
			return true;
	return false;
}

int env_file_text(struct prepared *p, const char *path, char *text, size_t len, struct err *e)
{
	unsigned number = 0;
	char where[160], *next;

	if (memchr(text, '\0', len))
		return err_set(e, ERR_USAGE,
			       "--env-file %.100s: holds a NUL byte, so it is no text", path);
	for (char *line = text; line; line = next) {
		size_t n;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		number++;
		line += strspn(line, " \t");
		n = strlen(line);
		if (n > 0 && line[n - 1] == '\r') /* a file from Windows */
			line[n - 1] = '\0';
		if (*line == '\0' || *line == '#')
			continue;
		snprintf(where, sizeof(where), "--env-file %.100s line %u", path, number);
		if (!strchr(line, '='))
			return err_set(e, ERR_USAGE, "%s: needs NAME=VALUE", where);
		if (env_check(line, where, e) < 0 || env_set(p, line, e) < 0)
			return -1;
	}
	return 0;
}

static int env_file(struct prepared *p, const char *path, struct err *e)
{
	struct env_text *t = malloc(sizeof(*t));
	ssize_t n;

	if (!t)
		return err_set(e, ERR_SYS, "out of memory for --env-file");
	t->next = p->env_texts;
	p->env_texts = t;
	n = fd_read_file_at(AT_FDCWD, path, t->text, sizeof(t->text));
	if (n < 0)
		return err_sys(e, "--env-file %.200s", path);
	return env_file_text(p, path, t->text, (size_t)n, e);
}

static int env_fmt(struct prepared *p, struct err *e, const char *name, const char *head,
		   const char *tail)
{
	char pair[4200];

	snprintf(pair, sizeof(pair), "%s=%s%s", name, head, tail);
	return env_set(p, env_keep(p, pair), e); /* NOLINT(clang-analyzer-unix.Malloc): as above */
}

/* A JVM asks sysinfo(2), which tells the host's memory. */
static int env_java(struct prepared *p, struct err *e)
{
	const struct box_spec *s = &p->spec;
	_cleanup_fd_ int jvm = -1;
	char size[64];

	if (s->limits.memory == BOX_LIMIT_NONE)
		return 0;
	if (s->root.kind == ROOTFS_LAYERS) {
		jvm = image_env(&p->image, "JAVA_HOME")
			      ? -1
			      : layers_open(&s->root.layers, "usr/lib/jvm");
		if (jvm < 0 && !image_env(&p->image, "JAVA_HOME"))
			return 0;
	} else if (access("/usr/lib/jvm", F_OK) < 0) {
		return 0;
	}
	snprintf(size, sizeof(size), "%llu", (unsigned long long)s->limits.memory);
	return env_fmt(p, e, "JAVA_TOOL_OPTIONS", "-XX:MaxRAM=", size);
}

/* What an image may know better. */
static int env_defaults(struct prepared *p, struct err *e)
{
	const struct box_spec *s = &p->spec;
	const char *user = p->user[0] ? p->user : s->uid ? "user" : "root";

	if (env_set(p, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", e) <
		    0 ||
	    env_fmt(p, e, "USER", user, "") < 0 || env_fmt(p, e, "LOGNAME", user, "") < 0 ||
	    env_set(p, "LANG=C.UTF-8", e) < 0)
		return -1;
	return env_java(p, e);
}

/* The image's own, of whatever names: they reach its programs alone. */
static int env_image(struct prepared *p, struct err *e)
{
	for (size_t i = 0; p->image.asked && i < p->image.record.env.n; i++)
		if (env_set(p, p->image.record.env.v[i], e) < 0)
			return -1;
	return 0;
}

/* Where programs may write is cloche's to say: it holds with a read-only root too. */
static int env_places(struct prepared *p, struct err *e)
{
	const struct box_spec *s = &p->spec;
	const char *term = getenv("TERM");

	if (env_fmt(p, e, "HOME", s->home, "") < 0 || env_set(p, "TMPDIR=/tmp", e) < 0 ||
	    env_fmt(p, e, "XDG_CACHE_HOME", s->home, "/.cache") < 0 ||
	    env_fmt(p, e, "MPLCONFIGDIR", s->home, "/.cache/matplotlib") < 0)
		return -1;
	return s->tty ? env_fmt(p, e, "TERM", term && strlen(term) < 64 ? term : "xterm", "") : 0;
}

static int env_base(struct prepared *p, struct err *e)
{
	return env_defaults(p, e) < 0 || env_image(p, e) < 0 || env_places(p, e) < 0 ? -1 : 0;
}

int env_prepare(const struct request *r, struct prepared *p, struct err *e)
{
	if (env_base(p, e) < 0)
		return -1;
	for (size_t i = 0; i < r->env_files.n; i++)
		if (env_file(p, r->env_files.v[i], e) < 0)
			return -1;
	for (size_t i = 0; i < r->env.n; i++)
		if (env_option(p, r->env.v[i], e) < 0)
			return -1;
	p->spec.env = (char *const *)(uintptr_t)p->env;
	return 0;
}
