/* From `open`'s object to what the loop needs and to the words of `cloche spawn` and `cloche
 * setup`.
 *
 * All options are first brought together in one object, from the weakest source to the strongest;
 * then each row says its words. */
#include "session/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/str.h"
#include "session/config.h"
#include "session/options_impl.h"

#define SETUP_KEY_MAX (1u << 20)
#define MIB (1ULL << 20)

void ses_options_free(struct ses_options *o)
{
	ses_words_free(&o->words);
	for (size_t i = 0; i < o->n_env; i++)
		free(o->env[i]);
	free(o->env);
	json_decref(o->effective);
	*o = (struct ses_options){ 0 };
}

static int no_memory(struct ses_error *e)
{
	return ses_error_set(e, SES_SYSTEM, "out of memory");
}

/* Of an option that the table has: it says what is allowed. */
static int refuse(struct ses_error *e, const char *option, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(struct ses_error *e, const char *option, const char *fmt, ...)
{
	char text[500];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ses_error_set(e, SES_OPTION, "%s: %s", option, text);
	snprintf(e->option, sizeof(e->option), "%s", option);
	ses_option_expects(ses_option_find(option), e->allowed);
	return -1;
}

/* ---- bringing them together ---- */

static int put_table(json_t *to, struct ses_error *e)
{
	for (size_t i = 0; i < ses_option_n; i++) {
		json_t *v = json_loads(ses_option_table[i].dflt, JSON_DECODE_ANY, NULL);

		if (json_object_set_new(to, ses_option_table[i].name, v) < 0)
			return no_memory(e);
	}
	return 0;
}

/* What is not null. */
static int put(json_t *to, const json_t *from, struct ses_error *e)
{
	const char *name;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)from, name,
			    v) if (!json_is_null(v) &&
				   json_object_set(to, name, v) < 0) return no_memory(e);
	return 0;
}

static int unknown(const char *name, struct ses_error *e)
{
	const char *names[64], *near;
	size_t n = 0;

	for (size_t i = 0; i < ses_option_n && n < 63; i++)
		names[n++] = ses_option_table[i].name;
	names[n] = NULL;
	near = str_nearest(name, names);
	ses_error_set(e, SES_OPTION, "there is no option \"%.60s\"%s%s%s", name,
		      near ? "; did you mean " : ": docs/OPTIONS.md has all of them",
		      near ? near : "", near ? "?" : "");
	snprintf(e->option, sizeof(e->option), "%.60s", name);
	n = 0;
	for (size_t i = 0; i < ses_option_n && n < sizeof(e->allowed); i++)
		n += (size_t)snprintf(e->allowed + n, sizeof(e->allowed) - n, "%s%s", i ? ", " : "",
				      ses_option_table[i].name);
	return -1;
}

static int check_given(const json_t *given, struct ses_error *e)
{
	const char *name;
	json_t *v;

	if (!given)
		return 0;
	if (!json_is_object(given))
		return ses_error_set(e, SES_OPTION, "options: an object is wanted");
	json_object_foreach((json_t *)(uintptr_t)given, name, v)
	{
		const struct ses_option *row = ses_option_find(name);

		if (!row)
			return unknown(name, e);
		if (ses_option_check(row, v, e) < 0)
			return -1;
	}
	return 0;
}

/* What one profile brings: options of a vcpu, words of the others. */
static int put_profile(const struct ses_config *c, const char *token, json_t *to, const char **vcpu,
		       struct ses_words *w, struct ses_error *e)
{
	const char *kind;
	const json_t *p, *one;
	struct err why;
	size_t i;

	p = ses_config_profile(c, token, &kind, &why);
	if (!p)
		return refuse(e, "profiles", "%s", why.msg);
	if (strcmp(kind, "vcpu") == 0) {
		if (*vcpu)
			return refuse(e, "profiles", "%.100s and %.100s: one vcpu is all", *vcpu,
				      token);
		*vcpu = token;
		return put(to, p, e);
	}
	if (strcmp(kind, "vdisk") == 0)
		ses_word(w, "--tmpfs=%s:%s", json_string_value(json_object_get(p, "path")),
			 json_string_value(json_object_get(p, "size")));
	json_array_foreach(json_object_get(p, "devices"), i, one)
		ses_word(w, "--device=%s", json_string_value(one));
	return 0;
}

static int put_profiles(const struct ses_config *c, const json_t *tokens, json_t *to,
			struct ses_words *w, struct ses_error *e)
{
	const char *vcpu = NULL;
	const json_t *t, *before;
	size_t i, j;

	json_array_foreach(tokens, i, t)
	{
		for (j = 0; j < i; j++) {
			before = json_array_get(tokens, j);
			if (json_equal(before, t))
				return refuse(e, "profiles", "\"%.80s\" is given twice",
					      json_string_value(t));
		}
		if (put_profile(c, json_string_value(t), to, &vcpu, w, e) < 0)
			return -1;
	}
	return 0;
}

/* No option that was given is wrong: the file is what there is to mend. */
static int wrong_config(const struct err *why, struct ses_error *e)
{
	ses_error_set(e, SES_OPTION, "%s", why->msg);
	return ses_error_about(
		e, CONFIG_FILE,
		"a file that you may read, as docs/CONFIG.md says; cloche config check checks it");
}

static int bring_together(const json_t *given, struct ses_options *o, struct ses_error *e)
{
	_cleanup_config_ struct ses_config c = { 0 };
	struct err why;

	o->effective = json_object();
	if (!o->effective)
		return no_memory(e);
	if (ses_config_load(NULL, &c, &why) < 0)
		return wrong_config(&why, e);
	if (put_table(o->effective, e) < 0 || put(o->effective, c.defaults, e) < 0 ||
	    put_profiles(&c, json_object_get(given, "profiles"), o->effective, &o->words, e) < 0)
		return -1;
	return put(o->effective, given, e);
}

/* ---- what the loop needs ---- */

static const char *text(const struct ses_options *o, const char *name)
{
	return json_string_value(json_object_get(o->effective, name));
}

static uint64_t number(const struct ses_options *o, const char *name, uint64_t none)
{
	const json_t *v = json_object_get(o->effective, name);

	return json_is_integer(v) ? (uint64_t)json_integer_value(v) : none;
}

static uint64_t microseconds(const struct ses_options *o, const char *name)
{
	return (uint64_t)(json_number_value(json_object_get(o->effective, name)) * 1e6 + 0.5);
}

static int take_env(struct ses_options *o, struct ses_error *e)
{
	json_t *env = json_object_get(o->effective, "env"), *v;
	const char *name;

	o->env = calloc(json_object_size(env) + 1, sizeof(*o->env));
	if (!o->env)
		return no_memory(e);
	json_object_foreach(env, name, v)
	{
		if (asprintf(&o->env[o->n_env], "%s=%s", name, json_string_value(v)) < 0) {
			o->env[o->n_env] = NULL;
			return no_memory(e);
		}
		o->n_env++;
	}
	return 0;
}

static int take(struct ses_options *o, struct ses_error *e)
{
	o->image = text(o, "image");
	o->pull = text(o, "pull");
	o->platform = text(o, "platform");
	o->setup = text(o, "setup");
	o->workspace = text(o, "workspace");
	o->name = text(o, "name");
	o->workspace_max = number(o, "workspace_max_bytes", UINT64_MAX);
	o->output = number(o, "max_output_bytes", UINT64_MAX);
	o->timeout_us = microseconds(o, "timeout_s");
	o->setup_timeout_us = microseconds(o, "setup_timeout_s");
	o->track_files = json_is_true(json_object_get(o->effective, "track_files"));
	return take_env(o, e);
}

/* ---- words ---- */

/* The scratch that nobody asked for: it counts as memory, so it is at most half of that. */
static void words_scratch(struct ses_options *o)
{
	uint64_t mib = number(o, "memory_mb", 512);

	if (json_is_null(json_object_get(o->effective, "tmpfs")))
		ses_word(&o->words, "--tmp-size=%um",
			 mib / 2 < SES_TMP_MIB ? (unsigned)(mib / 2) : SES_TMP_MIB);
}

static int make_words(struct ses_options *o, struct ses_error *e)
{
	for (size_t i = 0; i < ses_option_n; i++) {
		const struct ses_option *row = &ses_option_table[i];

		/* That is where a sandbox stands: ses_options_spawn says it. */
		if (strcmp(row->name, "image") != 0)
			ses_option_words(row, json_object_get(o->effective, row->name), &o->words);
	}
	words_scratch(o);
	/* What a sandbox has is not the machine's to vary: its image is there, or was to be pulled.
	 */
	if (strcmp(o->pull, "missing") != 0)
		ses_word(&o->words, "--pull=%s", o->pull);
	return o->words.failed ? no_memory(e) : 0;
}

int ses_options_parse(const json_t *given, struct ses_options *ret, struct ses_error *e)
{
	struct ses_options o = { 0 };

	if (check_given(given, e) < 0)
		return -1;
	if (bring_together(given, &o, e) < 0 || take(&o, e) < 0 || make_words(&o, e) < 0) {
		ses_options_free(&o);
		return -1;
	}
	*ret = o;
	return 0;
}

int ses_options_spawn(const struct ses_options *o, const struct ses_place *at,
		      struct ses_words *ret, struct ses_error *e)
{
	struct ses_words w = { 0 };

	ses_word(&w, "spawn");
	ses_word(&w, "--image=%s", at->image ? at->image : o->image);
	if (at->workspace)
		ses_word(&w, "--workspace=%s", at->workspace);
	if (at->in_memory)
		ses_word(&w, "--own-workspace");
	for (size_t i = 0; i < o->words.n; i++)
		ses_word(&w, "%s", o->words.v[i]);
	if (w.failed) {
		ses_words_free(&w);
		return no_memory(e);
	}
	*ret = w;
	return 0;
}

/* The same set-up has the same name, whoever asks: local/setup-0123456789abcdef. */
static int setup_name(const struct ses_options *o, const char *from, const char *command,
		      char ret[32], struct ses_error *e)
{
	_cleanup_buf_ struct buf b = { 0 };
	char hex[SHA256_HEX + 1];

	buf_init(&b, SETUP_KEY_MAX);
	buf_add(&b, from, strlen(from) + 1);
	buf_add(&b, command, strlen(command) + 1);
	for (size_t i = 0; i < o->n_env; i++)
		buf_add(&b, o->env[i], strlen(o->env[i]) + 1);
	if (o->platform)
		buf_add(&b, o->platform, strlen(o->platform) + 1);
	if (b.failed)
		return no_memory(e);
	sha256_hex(b.data, b.len, hex);
	snprintf(ret, 32, "local/setup-%.16s", hex);
	return 0;
}

int ses_options_setup(const struct ses_options *o, const char *from, const char *command,
		      uint64_t timeout_us, struct ses_words *ret, char **ret_name,
		      struct ses_error *e)
{
	const uint64_t memory = number(o, "setup_memory_mb", 4 * number(o, "memory_mb", 512));
	/* Those that mean the same for a set-up as for a call. */
	static const char *const same[] = { "cpus", "apparmor", "image_timeout_s" };
	struct ses_words w = { 0 };
	char name[32], *copy;

	if (!from)
		from = o->image;
	if (!timeout_us)
		timeout_us = o->setup_timeout_us;
	if (setup_name(o, from, command, name, e) < 0)
		return -1;
	copy = strdup(name);
	ses_word(&w, "setup");
	ses_word(&w, "--image=%s", from);
	ses_word(&w, "--name=%s", name);
	ses_word(&w, "--memory=%" PRIu64 "m", memory);
	ses_word(&w, "--timeout=%" PRIu64 "ms", (timeout_us + 999) / 1000);
	for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++)
		ses_option_words(ses_option_find(same[i]), json_object_get(o->effective, same[i]),
				 &w);
	if (o->platform)
		ses_word(&w, "--platform=%s", o->platform);
	/* What an earlier set-up has made is here. */
	ses_word(&w, "--pull=%s", o->pull);
	ses_word(&w, "--json");
	ses_word(&w, "--live");
	ses_word(&w, "--");
	ses_word(&w, "sh");
	ses_word(&w, "-c");
	ses_word(&w, "%s", command);
	if (w.failed || !copy) {
		free(copy);
		ses_words_free(&w);
		return no_memory(e);
	}
	*ret = w;
	*ret_name = copy;
	return 0;
}

/* ---- what the spawner refuses ---- */

/* Words of `cloche run` that no row has, and the options that they come from; `cwd` is a call's. */
static const struct {
	const char *word, *option;
} more_words[] = {
	{ "-v", "mounts" },	   { "--workspace", "workspace" }, { "--tmp-size", "tmpfs" },
	{ "--ulimit", "rlimits" }, { "--file-size", "rlimits" },   { "--open-files", "rlimits" },
	{ "--pull", "pull" },	   { "--timeout", "timeout_s" },   { "-w", "cwd" },
};

/* The option that the word at `s` names, and the word's length; or NULL. */
static const char *option_of(const char *s, size_t *ret_n)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz-");

	*ret_n = n;
	if (n < 2 || *s != '-')
		return NULL;
	for (size_t i = 0; i < sizeof(more_words) / sizeof(more_words[0]); i++)
		if (strlen(more_words[i].word) == n && memcmp(more_words[i].word, s, n) == 0)
			return more_words[i].option;
	for (size_t i = 0; n > 2 && s[1] == '-' && i < ses_option_n; i++) {
		const char *word = ses_option_table[i].word;

		if (word && strlen(word) == n - 2 && memcmp(word, s + 2, n - 2) == 0)
			return ses_option_table[i].name;
	}
	return NULL;
}

/* Its name in what another verb has said: a download and a set-up have limits of their own.
 * `deadline` is what that of the set-up was given as, or NULL: there is no set-up. */
static const char *told_by(const char *option, bool pull, const char *deadline)
{
	if (strcmp(option, "timeout_s") == 0)
		return pull ? "image_timeout_s" : deadline ? deadline : option;
	return deadline && strcmp(option, "memory_mb") == 0 ? "setup_memory_mb" : option;
}

static const char *behind(const char *s, const char *verb)
{
	return strncmp(s, verb, strlen(verb)) == 0 ? s + strlen(verb) : s;
}

static const char *say(const char *msg, const char *deadline, char *out, size_t cap)
{
	const char *first = NULL, *s = behind(msg, "cloche pull: ");
	const bool pull = s != msg;
	size_t n = 0, at = 0;

	/* Of a set-up it is that which failed, whatever for. */
	if (pull && !deadline)
		at = (size_t)snprintf(out, cap, "image: ");
	at = at < cap ? at : cap - 1;
	while (*s && at < cap - 1) {
		/* A word begins the text, or stands behind a blank or bracket. */
		const char *option =
			s == msg || s[-1] == ' ' || s[-1] == '(' ? option_of(s, &n) : NULL;

		if (option) {
			option = told_by(option, pull, deadline);
			if (!first && ses_option_find(option))
				first = option;
			at += (size_t)snprintf(out + at, cap - at, "%s", option);
			at = at < cap ? at : cap - 1;
			s += n;
		} else {
			out[at++] = *s++;
		}
	}
	out[at] = '\0';
	return first;
}

const char *ses_options_say(const char *msg, char *out, size_t cap)
{
	return say(msg, NULL, out, cap);
}

void ses_options_say_setup(const char *msg, bool own_deadline, char *out, size_t cap)
{
	char named[500];

	say(msg, own_deadline ? "timeout_s" : "setup_timeout_s", named, sizeof(named));
	snprintf(out, cap, "setup: %s", named);
}

void ses_options_blame_setup(const char *line, size_t n, struct ses_error *ret)
{
	char text[500], named[500];
	const char *first, *said, *help;

	snprintf(text, sizeof(text), "%.*s", n < sizeof(text) ? (int)n : (int)sizeof(text) - 1,
		 line);
	help = strstr(text, " (see \"cloche help");
	if (help)
		text[help - text] = '\0';
	said = behind(text, "cloche setup: ");
	first = say(said, "setup_timeout_s", named, sizeof(named));
	/* Is it about that option, or does it but name it? */
	if (!first || behind(named, first) == named)
		first = NULL;
	ses_error_set(ret, SES_OPTION, "%s%s",
		      first ? "" : "setup: ", *named ? named : "it ended without a word");
	snprintf(ret->option, sizeof(ret->option), "%s", first ? first : "setup");
	ses_option_expects(ses_option_find(ret->option), ret->allowed);
}

bool ses_options_blame(const struct err *why, const char *rule, struct ses_error *ret)
{
	char out[sizeof(ret->message)];
	const char *first;

	if (why->kind != ERR_USAGE && why->kind != ERR_REFUSED && !rule)
		return false;
	first = ses_options_say(why->msg, out, sizeof(out));
	if (!first && (why->stage == STAGE_MOUNT || why->stage == STAGE_WORKSPACE))
		first = why->stage == STAGE_MOUNT ? "mounts" : "workspace";
	if (!first && why->kind != ERR_USAGE && !rule)
		return false;
	ses_error_set(ret,
		      why->kind == ERR_REFUSED &&
				      (why->stage == STAGE_MOUNT || why->stage == STAGE_WORKSPACE)
			      ? SES_MOUNT_REFUSED
			      : SES_OPTION,
		      "%s", out);
	snprintf(ret->option, sizeof(ret->option), "%s", first ? first : "");
	if (first && ses_option_find(first))
		ses_option_expects(ses_option_find(first), ret->allowed);
	if (rule)
		snprintf(ret->rule, sizeof(ret->rule), "%s", rule);
	return true;
}
