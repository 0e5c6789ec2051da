#include "session/words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "session/spawn.h"

#define ARGS_MAX 65536

static int bad_words(struct ses_error *e)
{
	static const char allowed[] = "words that end by a NUL each, the first one not empty";

	ses_error_set(e, SES_OPTION, "argv: as bytes: %s", allowed);
	return ses_error_about(e, "argv", "%s", allowed);
}

static int too_many(struct ses_error *e)
{
	ses_error_set(e, SES_TOO_LARGE, "argv: more than %d words", ARGS_MAX);
	return ses_error_about(e, "argv", "at most %d words", ARGS_MAX);
}

/* The vector points into the bytes. */
static int from_bytes(const char *p, size_t n, char ***ret, struct ses_error *e)
{
	size_t count = 0;
	char **v;

	if (n < 2 || p[n - 1] != '\0' || p[0] == '\0')
		return bad_words(e);
	for (size_t i = 0; i < n; i++)
		count += p[i] == '\0';
	if (count > ARGS_MAX)
		return too_many(e);
	v = calloc(count + 1, sizeof(*v));
	if (!v)
		return ses_error_set(e, SES_SYSTEM, "out of memory");
	for (size_t i = 0; i < count; i++) {
		v[i] = (char *)(uintptr_t)p;
		p += strlen(p) + 1;
	}
	*ret = v;
	return 0;
}

static int from_array(const json_t *a, char ***ret, struct ses_error *e)
{
	size_t n = json_array_size(a);
	char **v = calloc(n + 1, sizeof(*v));

	if (!v)
		return ses_error_set(e, SES_SYSTEM, "out of memory");
	for (size_t i = 0; i < n; i++)
		v[i] = (char *)(uintptr_t)json_string_value(json_array_get(a, i));
	*ret = v;
	return 0;
}

static int argv_of(const struct request *r, char ***ret, struct ses_error *e)
{
	if (r->op == OP_RUN_CODE)
		return from_array(NULL, ret, e);
	return r->with_bytes ? from_bytes(r->bytes, r->n, ret, e)
			     : from_array(request_json(r, "argv"), ret, e);
}

/* The sandbox's variables but for those that the call has, and the call's. */
static int env_of(const struct request *r, const struct ses_options *o, char ***ret,
		  char **ret_text, struct ses_error *e)
{
	json_t *own = request_json(r, "env"), *value;
	size_t n = 0, room = 1, size = json_object_size(own);
	const char *key;
	char **v = calloc(o->n_env + size + 1, sizeof(*v)), *text, *at;

	json_object_foreach(own, key, value) room += strlen(key) + json_string_length(value) + 2;
	at = text = malloc(room);
	if (!v || !text) {
		free(v);
		free(text);
		return ses_error_set(e, SES_SYSTEM, "out of memory");
	}
	for (size_t i = 0; i < o->n_env; i++) {
		const char *eq = strchr(o->env[i], '=');

		if (!eq || !json_object_getn(own, o->env[i], (size_t)(eq - o->env[i])))
			v[n++] = o->env[i];
	}
	json_object_foreach(own, key, value)
	{
		size_t k = strlen(key), m = json_string_length(value);

		v[n++] = at;
		memcpy(at, key, k);
		at[k] = '=';
		memcpy(at + k + 1, json_string_value(value), m + 1);
		at += k + m + 2;
	}
	*ret = v;
	*ret_text = text;
	return 0;
}

static int make(char *const *argv, char *const *env, const char *cwd, int *ret, struct ses_error *e)
{
	struct err why;

	if (spawn_words_make(argv, env, cwd, ret, &why) == 0)
		return 0;
	if (why.num != E2BIG)
		return ses_error_set(e, SES_SYSTEM, "%s", why.msg);
	ses_error_set(e, SES_TOO_LARGE, "argv and env: more than %u bytes together",
		      SPAWN_WORDS_MAX);
	return ses_error_about(e, "argv", "at most %u bytes, with those of env", SPAWN_WORDS_MAX);
}

int words_of(const struct request *r, const struct ses_options *o, int *ret, struct ses_error *e)
{
	char **argv = NULL, **env = NULL, *text = NULL;
	int rc = -1;

	if (argv_of(r, &argv, e) == 0 && env_of(r, o, &env, &text, e) == 0)
		rc = make(argv, env, request_str(r, "cwd"), ret, e);
	free(argv);
	free(env);
	free(text);
	return rc;
}
