/* One value of an option: is it one, and which words of `cloche run` is it?
 *
 * A word is always `--name=VALUE`, so that no value is taken for an option. A value goes into one
 * word with its neighbours only where neither can hold what parts them: a mount's source and target
 * have no ':' in them, and are refused with one.
 *
 * What may go wrong: strings of a client are hostile. They have no NUL (JSON could bring one), and
 * a maximum; what they mean is judged where `cloche run` judges it. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "engine/env.h"
#include "session/options_impl.h"

#define STRING_MAX 4095
#define COMMAND_MAX 32768 /* kinds[] says it, too */
#define LABEL_MAX 64
#define LIST_MAX 512
#define ENV_VALUE_MAX 131000 /* with its name below the kernel's limit for one string */

/* ---- words ---- */

void ses_words_free(struct ses_words *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->v[i]);
	free(w->v);
	*w = (struct ses_words){ 0 };
}

void ses_word(struct ses_words *w, const char *fmt, ...)
{
	char **v = reallocarray(w->v, w->n + 2, sizeof(*v));
	va_list ap;
	int n = -1;

	if (v) {
		w->v = v;
		va_start(ap, fmt);
		n = vasprintf(&v[w->n], fmt, ap);
		va_end(ap);
		if (n >= 0)
			w->n++;
		v[w->n] = NULL;
	}
	if (n < 0)
		w->failed = true;
}

static void word_number(struct ses_words *w, const char *name, double v)
{
	char text[64];

	snprintf(text, sizeof(text), "%.3f", v);
	for (size_t n = strlen(text); n > 0 && (text[n - 1] == '0' || text[n - 1] == '.'); n--) {
		bool point = text[n - 1] == '.';

		text[n - 1] = '\0';
		if (point)
			break;
	}
	ses_word(w, "--%s=%s", name, text);
}

/* ---- what is said about values ---- */

/* A value as it stands in a message. */
static const char *got(const json_t *v, char ret[120])
{
	static const char *const names[] = {
		[JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_TRUE] = "true",
		[JSON_FALSE] = "false",	     [JSON_NULL] = "null",
	};

	if (json_is_string(v))
		snprintf(ret, 120, "the string \"%.80s\"", json_string_value(v));
	else if (json_is_integer(v))
		snprintf(ret, 120, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
	else if (json_is_real(v))
		snprintf(ret, 120, "%.17g", json_real_value(v));
	else
		snprintf(ret, 120, "%s", names[json_typeof(v)]);
	return ret;
}

static int wrong(const struct ses_option *row, const char *what, const json_t *v,
		 struct ses_error *e)
{
	char expects[300], text[120];

	ses_option_expects(row, expects);
	ses_error_set(e, SES_OPTION, "%s: %s is wanted%s%s, not %s", row->name, expects,
		      *what ? ", " : "", what, got(v, text));
	return ses_error_about(e, row->name, "%s", expects);
}

/* As above, with what is wrong in words. */
static int refuse(const struct ses_option *row, struct ses_error *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(const struct ses_option *row, struct ses_error *e, const char *fmt, ...)
{
	char text[400], expects[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ses_option_expects(row, expects);
	ses_error_set(e, SES_OPTION, "%s: %s", row->name, text);
	return ses_error_about(e, row->name, "%s", expects);
}

/* A string without NUL, neither empty nor longer than max. */
static bool is_text(const json_t *v, size_t max)
{
	const char *s = json_string_value(v);

	return s && *s && strlen(s) == json_string_length(v) && json_string_length(v) <= max;
}

/* ---- checks, one a kind ---- */

static int check_string(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	if (json_is_string(v) && json_string_length(v) > STRING_MAX)
		return refuse(row, e, "it is longer than %d bytes", STRING_MAX);
	return is_text(v, STRING_MAX) ? 0 : wrong(row, "", v, e);
}

static int check_command(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	if (json_is_string(v) && json_string_length(v) > COMMAND_MAX)
		return refuse(row, e, "it is longer than %d bytes", COMMAND_MAX);
	return is_text(v, COMMAND_MAX) ? 0 : wrong(row, "", v, e);
}

static int check_path(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	return is_text(v, STRING_MAX) && *json_string_value(v) == '/' ? 0 : wrong(row, "", v, e);
}

static int check_label(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	static const char of[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	const char *s = json_string_value(v);

	return is_text(v, LABEL_MAX) && strspn(s, of) == strlen(s) ? 0 : wrong(row, "", v, e);
}

static int check_choice(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	const char *s = json_string_value(v);
	size_t len = s ? strlen(s) : 0;

	for (const char *c = row->choices; len > 0 && is_text(v, STRING_MAX);) {
		size_t n = strcspn(c, "|");

		if (n == len && memcmp(c, s, n) == 0)
			return 0;
		if (!c[n])
			break;
		c += n + 1;
	}
	return wrong(row, "", v, e);
}

static int check_bool(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	return json_is_boolean(v) ? 0 : wrong(row, "", v, e);
}

static int check_integer(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	json_int_t n = json_integer_value(v);

	return json_is_integer(v) && n >= (json_int_t)row->min && n <= (json_int_t)row->max
		       ? 0
		       : wrong(row, "", v, e);
}

static int check_number(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	double n = json_number_value(v);

	return json_is_number(v) && n >= row->min && n <= row->max ? 0 : wrong(row, "", v, e);
}

static int check_user(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	if (json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) < UINT32_MAX)
		return 0;
	return is_text(v, STRING_MAX) ? 0 : wrong(row, "", v, e);
}

static int check_strings(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	const json_t *one;
	size_t i;

	if (!json_is_array(v))
		return wrong(row, "", v, e);
	if (json_array_size(v) > LIST_MAX)
		return refuse(row, e, "more than %d of them", LIST_MAX);
	json_array_foreach(v, i, one) if (!is_text(one, STRING_MAX)) return wrong(row,
										  "in the array",
										  one, e);
	return 0;
}

/* The target, and "ro", "rw" or "" where it says nothing; false when it is neither form. */
static bool mount_of(const json_t *v, const char **ret_dst, const char **ret_mode)
{
	const json_t *dst = json_is_array(v) ? json_array_get(v, 0) : v;

	*ret_mode = "";
	if (json_is_array(v)) {
		if (json_array_size(v) != 2 || !is_text(json_array_get(v, 1), 2))
			return false;
		*ret_mode = json_string_value(json_array_get(v, 1));
		if (strcmp(*ret_mode, "ro") != 0 && strcmp(*ret_mode, "rw") != 0)
			return false;
	}
	*ret_dst = json_string_value(dst);
	return is_text(dst, STRING_MAX);
}

static int check_mounts(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	const char *src, *dst, *mode;
	const json_t *one;

	if (!json_is_object(v))
		return wrong(row, "", v, e);
	json_object_foreach((json_t *)(uintptr_t)v, src, one)
	{
		if (!mount_of(one, &dst, &mode))
			return wrong(row, "for a source", one, e);
		if (*src != '/')
			return refuse(row, e, "the source \"%.200s\" is not absolute", src);
		if (strchr(src, ':') || strchr(dst, ':'))
			return refuse(
				row, e,
				"\"%.200s\": a path with ':' can't be shared; use a link to it",
				strchr(src, ':') ? src : dst);
	}
	return 0;
}

static int check_tmpfs(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	const char *dst;
	const json_t *one;

	if (!json_is_object(v))
		return wrong(row, "", v, e);
	json_object_foreach((json_t *)(uintptr_t)v, dst, one)
	{
		if (!is_text(one, STRING_MAX))
			return wrong(row, "for a target", one, e);
		if (strchr(dst, ':') || strchr(json_string_value(one), ':'))
			return refuse(row, e, "\"%.200s\": a target and a size have no ':'", dst);
	}
	return 0;
}

/* What each is to `cloche run`. */
static const struct {
	const char *name, *word;
} rlimits[] = {
	{ "address_space", "ulimit=as" },
	{ "file_size", "file-size" },
	{ "open_files", "open-files" },
};

static const char *rlimit_word(const char *name)
{
	for (size_t i = 0; i < sizeof(rlimits) / sizeof(rlimits[0]); i++)
		if (strcmp(rlimits[i].name, name) == 0)
			return rlimits[i].word;
	return NULL;
}

static int check_rlimits(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	const char *name;
	const json_t *one;

	if (!json_is_object(v))
		return wrong(row, "", v, e);
	json_object_foreach((json_t *)(uintptr_t)v, name, one)
	{
		if (!rlimit_word(name))
			return refuse(
				row, e,
				"there is no \"%.60s\"; there are address_space, file_size, open_files",
				name);
		if (!json_is_null(one) && (!json_is_integer(one) || json_integer_value(one) < 1))
			return wrong(row, name, one, e);
	}
	return 0;
}

static int check_env(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	const char *name;
	const json_t *one;

	struct err why;

	if (!json_is_object(v))
		return wrong(row, "", v, e);
	if (json_object_size(v) > LIST_MAX)
		return refuse(row, e, "more than %d variables", LIST_MAX);
	json_object_foreach((json_t *)(uintptr_t)v, name, one)
	{
		const char *s = json_string_value(one);

		if (env_check(name, "a variable", &why) < 0 || strchr(name, '='))
			return refuse(
				row, e,
				"\"%.200s\" is no name of a variable: letters, digits and _, and no digit first",
				name);
		if (!s || strlen(s) != json_string_length(one))
			return wrong(row, name, one, e);
		if (json_string_length(one) >= ENV_VALUE_MAX)
			return refuse(row, e, "%.200s is longer than %d bytes", name,
				      ENV_VALUE_MAX);
	}
	return 0;
}

static int check_profiles(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	/* Which there are is the configuration's to say. */
	return check_strings(row, v, e);
}

static int check_later(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	json_t *dflt = json_loads(row->dflt, JSON_DECODE_ANY, NULL);
	bool same = json_equal(dflt, v);

	json_decref(dflt);
	if (same)
		return 0;
	ses_error_set(e, SES_UNSUPPORTED,
		      "%s: this release of cloche does not have it; it comes in a later one",
		      row->name);
	return ses_error_about(e, row->name, "%s", row->dflt);
}

/* ---- words, one a kind ---- */

static void words_string(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	ses_word(w, "--%s=%s", row->word, json_string_value(v));
}

/* `network` is the one flag here that is a choice there. */
static void words_bool(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	if (json_is_true(v) == row->negated)
		return;
	if (strcmp(row->word, "network") == 0)
		ses_word(w, "--network=host");
	else
		ses_word(w, "--%s", row->word);
}

static void words_integer(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	ses_word(w, "--%s=%" JSON_INTEGER_FORMAT "%s", row->word, json_integer_value(v),
		 row->kind == KIND_MIB	   ? "m"
		 : row->kind == KIND_BYTES ? "b"
					   : "");
}

static void words_number(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	word_number(w, row->word, json_number_value(v));
}

static void words_user(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	if (json_is_integer(v))
		words_integer(row, v, w);
	else
		words_string(row, v, w);
}

static void words_strings(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	const json_t *one;
	size_t i;

	json_array_foreach(v, i, one) words_string(row, one, w);
	if (row->kind == KIND_CAPS && json_array_size(v) == 0)
		ses_word(w, "--%s=NONE", row->word);
}

static void words_mounts(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	const char *src, *dst, *mode;
	const json_t *one;

	json_object_foreach((json_t *)(uintptr_t)v, src, one) if (mount_of(one, &dst, &mode))
		ses_word(w, "--%s=%s:%s%s%s", row->word, src, dst, *mode ? ":" : "", mode);
}

static void words_tmpfs(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	const char *dst;
	const json_t *one;

	json_object_foreach((json_t *)(uintptr_t)v, dst, one)
		ses_word(w, "--%s=%s:%s", row->word, dst, json_string_value(one));
}

static void words_rlimits(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	const char *name;
	const json_t *one;

	json_object_foreach((json_t *)(uintptr_t)v, name, one) if (json_is_integer(one))
		ses_word(w, "--%s=%" JSON_INTEGER_FORMAT, rlimit_word(name),
			 json_integer_value(one));
}

static const struct {
	const char *json, *expects;
	int (*check)(const struct ses_option *row, const json_t *v, struct ses_error *e);
	void (*words)(const struct ses_option *row, const json_t *v, struct ses_words *w);
} kinds[] = {
	[KIND_STRING] = { "string", "a string that is not empty", check_string, words_string },
	[KIND_COMMAND] = { "string", "a shell command of at most 32768 bytes", check_command,
			   NULL },
	[KIND_PATH] = { "string", "an absolute path", check_path, words_string },
	[KIND_LABEL] = { "string", "1 to 64 of the characters A-Z a-z 0-9 . _ -", check_label,
			 NULL },
	[KIND_CHOICE] = { "string", "", check_choice, words_string },
	[KIND_BOOL] = { "boolean", "true or false", check_bool, words_bool },
	[KIND_INTEGER] = { "integer", "an integer", check_integer, words_integer },
	[KIND_NUMBER] = { "number", "a number", check_number, words_number },
	[KIND_MIB] = { "integer", "an integer of MiB", check_integer, words_integer },
	[KIND_BYTES] = { "integer", "an integer of bytes", check_integer, words_integer },
	[KIND_SECONDS] = { "number", "a number of seconds", check_number, words_number },
	[KIND_USER] = { "string|integer", "a name, a uid, or \"UID:GID\"", check_user, words_user },
	[KIND_STRINGS] = { "array", "an array of strings", check_strings, words_strings },
	[KIND_CAPS] = { "array", "an array of strings, such as [\"ALL\"]", check_strings,
			words_strings },
	[KIND_MOUNTS] = { "object",
			  "an object {source: target} or {source: [target, \"ro\" or \"rw\"]}",
			  check_mounts, words_mounts },
	[KIND_TMPFS] = { "object", "an object {target: size}, such as {\"/tmp\": \"512m\"}",
			 check_tmpfs, words_tmpfs },
	[KIND_RLIMITS] = { "object",
			   "an object of integers from 1 on: address_space, file_size, open_files",
			   check_rlimits, words_rlimits },
	[KIND_ENV] = { "object", "an object of strings without NUL", check_env, NULL },
	[KIND_PROFILES] = { "array",
			    "an array of vcpu:NAME, vdisk:NAME, vgpio:NAME, each once, one vcpu at most",
			    check_profiles, NULL },
	[KIND_LATER] = { "", "", check_later, NULL },
};
static_assert(sizeof(kinds) / sizeof(kinds[0]) == KIND_N, "a row for each kind");

const char *ses_option_json(const struct ses_option *row)
{
	return kinds[row->kind].json;
}

void ses_option_expects(const struct ses_option *row, char ret[300])
{
	size_t n;

	if (row->kind == KIND_LATER) {
		snprintf(ret, 300, "%s", row->dflt);
	} else if (row->kind == KIND_CHOICE) {
		n = (size_t)snprintf(ret, 300, "one of ");
		for (const char *c = row->choices; *c && n < 290; c++) {
			ret[n++] = *c == '|' ? ',' : *c;
			if (*c == '|')
				ret[n++] = ' ';
		}
		ret[n] = '\0';
	} else if (row->max > 0 && row->max < SES_NUMBER_MAX) {
		snprintf(ret, 300, "%s from %.15g to %.15g", kinds[row->kind].expects, row->min,
			 row->max);
	} else if (row->max > 0) {
		snprintf(ret, 300, "%s from %.15g on", kinds[row->kind].expects, row->min);
	} else {
		snprintf(ret, 300, "%s", kinds[row->kind].expects);
	}
}

int ses_option_check(const struct ses_option *row, const json_t *v, struct ses_error *e)
{
	if (json_is_null(v) && row->kind != KIND_SECONDS)
		return 0;
	return kinds[row->kind].check(row, v, e);
}

void ses_option_words(const struct ses_option *row, const json_t *v, struct ses_words *w)
{
	if (!json_is_null(v) && kinds[row->kind].words && (row->word || row->kind == KIND_RLIMITS))
		kinds[row->kind].words(row, v, w);
}
