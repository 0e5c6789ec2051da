/* The config of an image. Fields that only tell a story (history, author, labels, exposed ports,
 * health checks) are not read.
 *
 * What may go wrong: words of a hostile image reach an execve, a chdir and mounts in the box. Here
 * they get a bound and their form: no NUL can be in them (the reader of JSON refuses it), a working
 * directory and volumes are absolute without "..", an environment has names. What they name inside
 * the image is resolved inside the box's root, later. */
#include "image/config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/path.h"
#include "base/str.h"
#include "image/json_read.h"

/* Linux's numbers on x86_64 and arm64, whatever this is compiled for. */
static const char *const signals[] = {
	NULL,	"HUP",	"INT",	"QUIT", "ILL",	  "TRAP",   "ABRT",  "BUS",  "FPE",  "KILL", "USR1",
	"SEGV", "USR2", "PIPE", "ALRM", "TERM",	  "STKFLT", "CHLD",  "CONT", "STOP", "TSTP", "TTIN",
	"TTOU", "URG",	"XCPU", "XFSZ", "VTALRM", "PROF",   "WINCH", "IO",   "PWR",  "SYS",
};
#define RTMIN_NR 34 /* as libc counts it: the first two are its own */
#define RTMAX_NR 64

void img_config_free(struct img_config *c)
{
	img_words_free(&c->env);
	img_words_free(&c->entrypoint);
	img_words_free(&c->cmd);
	img_words_free(&c->volumes);
}

static int words_add(struct img_words *w, const char *s, struct err *e)
{
	w->v[w->n] = strdup(s);
	if (!w->v[w->n])
		return err_sys(e, "config");
	w->n++;
	return 0;
}

static int words_alloc(struct img_words *w, size_t n, struct err *e)
{
	w->v = calloc(n + 1, sizeof(*w->v));
	return w->v ? 0 : err_sys(e, "config");
}

static int take_words(const json_t *o, const char *key, struct img_words *w, struct err *e)
{
	json_t *list;

	if (img_json_array(o, "config", key, IMG_WORDS_MAX, &list, e) < 0)
		return -1;
	if (!list)
		return 0;
	if (words_alloc(w, json_array_size(list), e) < 0)
		return -1;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (!s || strlen(s) >= IMG_WORD_MAX)
			return err_set(e, ERR_REFUSED, "config.%s[%zu] is %s", key, i,
				       s ? "too long" : "no string");
		if (words_add(w, s, e) < 0)
			return -1;
	}
	return 0;
}

static int take_env(const json_t *o, struct img_words *env, struct err *e)
{
	if (take_words(o, "Env", env, e) < 0)
		return -1;
	for (size_t i = 0; i < env->n; i++) {
		size_t len = strcspn(env->v[i], "=");

		if (len == 0 || !env->v[i][len])
			return err_set(e, ERR_REFUSED, "config.Env[%zu] is not NAME=value", i);
		for (size_t k = 0; k < i; k++) {
			if (strncmp(env->v[k], env->v[i], len + 1) != 0)
				continue;
			free(env->v[k]);
			env->v[k] = env->v[i];
			memmove(env->v + i, env->v + i + 1, (env->n - i) * sizeof(*env->v));
			env->n--;
			i--;
			break;
		}
	}
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int take_volumes(const json_t *o, struct img_words *w, struct err *e)
{
	json_t *map, *value;
	const char *key;
	char path[4096];

	if (img_json_object(o, "config", "Volumes", &map, e) < 0)
		return -1;
	if (json_object_size(map) > IMG_WORDS_MAX)
		return err_set(e, ERR_REFUSED, "config.Volumes has more than %d elements",
			       IMG_WORDS_MAX);
	if (!map)
		return 0;
	if (words_alloc(w, json_object_size(map), e) < 0)
		return -1;
	json_object_foreach(map, key, value)
	{
		if (path_normalise(key, path, e) < 0) {
			e->kind = ERR_REFUSED;
			return err_prefix(e, "config.Volumes: a path");
		}
		if (words_add(w, path, e) < 0)
			return -1;
	}
	qsort(w->v, w->n, sizeof(*w->v), by_text);
	return 0;
}

static int take_workdir(const json_t *o, char ret[4096], struct err *e)
{
	char text[4096];

	if (img_json_str(o, "config", "WorkingDir", text, sizeof(text), e) < 0)
		return -1;
	if (!*text)
		return 0;
	if (path_normalise(text, ret, e) < 0) {
		e->kind = ERR_REFUSED;
		return err_prefix(e, "config.WorkingDir");
	}
	return 0;
}

/* "15", "TERM", "SIGTERM", "SIGRTMIN+3", "RTMAX-1". 0 when it is none. */
static int signal_number(const char *s)
{
	uint64_t v;
	struct err e;

	if (parse_u64(s, 1, RTMAX_NR, &v, &e) == 0)
		return (int)v;
	if (!strncmp(s, "SIG", 3))
		s += 3;
	for (size_t i = 1; i < sizeof(signals) / sizeof(*signals); i++)
		if (!strcmp(s, signals[i]))
			return (int)i;
	if (!strcmp(s, "RTMIN") || !strcmp(s, "RTMAX"))
		return s[3] == 'I' ? RTMIN_NR : RTMAX_NR;
	if (!strncmp(s, "RTMIN+", 6) && parse_u64(s + 6, 0, RTMAX_NR - RTMIN_NR, &v, &e) == 0)
		return RTMIN_NR + (int)v;
	if (!strncmp(s, "RTMAX-", 6) && parse_u64(s + 6, 0, RTMAX_NR - RTMIN_NR, &v, &e) == 0)
		return RTMAX_NR - (int)v;
	return 0;
}

static int take_stop_signal(const json_t *o, int *ret, struct err *e)
{
	char text[32], shown[32];

	if (img_json_str(o, "config", "StopSignal", text, sizeof(text), e) < 0)
		return -1;
	if (*text && !(*ret = signal_number(text)))
		return err_set(e, ERR_REFUSED, "config.StopSignal %s is no signal",
			       str_printable(shown, sizeof(shown), text));
	return 0;
}

static int take_run(const json_t *doc, struct img_config *c, struct err *e)
{
	json_t *o;

	if (img_json_object(doc, "", "config", &o, e) < 0)
		return -1;
	if (!o) /* an image may say nothing about how it is run */
		return 0;
	if (take_env(o, &c->env, e) < 0 || take_words(o, "Entrypoint", &c->entrypoint, e) < 0 ||
	    take_words(o, "Cmd", &c->cmd, e) < 0 || take_volumes(o, &c->volumes, e) < 0 ||
	    take_workdir(o, c->workdir, e) < 0 || take_stop_signal(o, &c->stop_signal, e) < 0)
		return -1;
	return img_json_str(o, "config", "User", c->user, sizeof(c->user), e);
}

static int take_diff_ids(const json_t *doc, struct img_config *c, struct err *e)
{
	char type[16];
	json_t *rootfs, *list;

	if (img_json_object(doc, "", "rootfs", &rootfs, e) < 0)
		return -1;
	if (!rootfs)
		return err_set(e, ERR_REFUSED, "rootfs is missing");
	if (img_json_str(rootfs, "rootfs", "type", type, sizeof(type), e) < 0)
		return -1;
	if (strcmp(type, "layers") != 0)
		return err_set(e, ERR_REFUSED, "rootfs.type is not \"layers\"");
	if (img_json_array(rootfs, "rootfs", "diff_ids", IMG_LAYERS_MAX, &list, e) < 0)
		return -1;
	c->n_diff_ids = json_array_size(list);
	for (size_t i = 0; i < c->n_diff_ids; i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (!s)
			return err_set(e, ERR_REFUSED, "rootfs.diff_ids[%zu] is no string", i);
		if (img_digest_check(s, e) < 0) {
			e->kind = ERR_REFUSED;
			return err_prefix(e, "rootfs.diff_ids[%zu]", i);
		}
		memcpy(c->diff_ids[i], s, sizeof(c->diff_ids[i]));
	}
	return 0;
}

/* When the image was made, as RFC 3339 has it. It is only shown: what is no such time is none. */
static int64_t take_created(const json_t *doc)
{
	const char *s = json_string_value(json_object_get(doc, "created"));
	struct tm t = { 0 };
	int used = 0, hours = 0, minutes = 0;
	char sign = 0;

	if (!s || sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d%n", &t.tm_year, &t.tm_mon, &t.tm_mday,
			 &t.tm_hour, &t.tm_min, &t.tm_sec, &used) < 6)
		return 0;
	s += used;
	if (*s == '.')
		s += 1 + strspn(s + 1, "0123456789");
	if (strcmp(s, "Z") != 0 && sscanf(s, "%c%2d:%2d", &sign, &hours, &minutes) < 3)
		return 0;
	if (t.tm_year < 1970 || t.tm_mon < 1 || t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31 ||
	    t.tm_hour < 0 || t.tm_hour > 23 || t.tm_min < 0 || t.tm_min > 59 || t.tm_sec < 0 ||
	    t.tm_sec > 60 || hours < 0 || hours > 23 || minutes < 0 || minutes > 59)
		return 0;
	t.tm_year -= 1900;
	t.tm_mon--;
	return timegm(&t) - (sign == '-' ? -1 : 1) * (hours * 60 + minutes) * 60;
}

static int take_config(const json_t *doc, struct img_config *c, struct err *e)
{
	struct img_platform *p = &c->platform;

	if (img_json_str(doc, "", "os", p->os, sizeof(p->os), e) < 0 ||
	    img_json_str(doc, "", "architecture", p->arch, sizeof(p->arch), e) < 0 ||
	    img_json_str(doc, "", "variant", p->variant, sizeof(p->variant), e) < 0)
		return -1;
	if (!*p->os || !*p->arch)
		return err_set(e, ERR_REFUSED, "os or architecture is missing");
	img_platform_normalise(p);
	c->created = take_created(doc);
	return take_diff_ids(doc, c, e) < 0 || take_run(doc, c, e) < 0 ? -1 : 0;
}

int img_config_parse(const char *data, size_t n, struct img_config *ret, struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	struct img_config c = { 0 };

	if (img_json_load(data, n, IMG_DOC_MAX, &doc, e) < 0)
		return err_prefix(e, "image config");
	if (take_config(doc, &c, e) < 0) {
		img_config_free(&c);
		return err_prefix(e, "image config");
	}
	*ret = c;
	return 0;
}

int img_config_fits(const struct img_config *c, const struct img_manifest *m,
		    const struct img_platform *want, struct err *e)
{
	char have[IMG_PLATFORM_TEXT], text[IMG_PLATFORM_TEXT], shown[IMG_PLATFORM_TEXT];

	if (c->n_diff_ids != m->n_layers)
		return err_set(e, ERR_REFUSED,
			       "image config: it has %zu diff ids, the manifest %zu layers",
			       c->n_diff_ids, m->n_layers);
	if (!img_platform_equal(&c->platform, want))
		return err_set(e, ERR_REFUSED, "the image is for %s, not for %s",
			       str_printable(shown, sizeof(shown),
					     img_platform_text(&c->platform, have)),
			       img_platform_text(want, text));
	return 0;
}
