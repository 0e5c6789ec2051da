/* What the tests of a sandbox's options share: a configuration of their own, and reading what `open` gives. */
#pragma once

#include "unit.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "session/config.h"
#include "session/options_impl.h"

static struct ses_options o;
static struct ses_error e;
static char home[] = "/tmp/unit-options-XXXXXX";

static void cleanup(void)
{
	char path[200];

	ses_options_free(&o);
	if (strstr(home, "XXXXXX"))
		return;
	snprintf(path, sizeof(path), "%s/config/cloche.yaml", home);
	unlink(path);
	snprintf(path, sizeof(path), "%s/fifo", home);
	unlink(path);
	snprintf(path, sizeof(path), "%s/config", home);
	rmdir(path);
	rmdir(home);
}

/* A configuration of the test's own, or none. */
static void config(const char *text)
{
	char path[200];
	FILE *f;

	if (!strstr(home, "XXXXXX"))
		return;
	ck_assert_ptr_nonnull(mkdtemp(home));
	setenv("CLOCHE_HOME", home, 1);
	if (!text)
		return;
	snprintf(path, sizeof(path), "%s/config", home);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof(path), "%s/config/cloche.yaml", home);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static json_t *json(const char *text)
{
	json_error_t why;
	json_t *v = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);

	ck_assert_msg(v != NULL, "%s: %s", text, why.text);
	return v;
}

static void takes(const char *given)
{
	json_t *v = json(given);

	config(NULL);
	ses_options_free(&o);
	ck_assert_msg(ses_options_parse(v, &o, &e) == 0, "%s: %s", given, e.message);
	json_decref(v);
}

static void refuses(const char *given, enum ses_error_type type, const char *option)
{
	json_t *v = json(given);

	config(NULL);
	memset(&e, 0, sizeof(e));
	ck_assert_msg(ses_options_parse(v, &o, &e) == -1, "%s is taken", given);
	ck_assert_msg(e.type == type && strcmp(e.option, option) == 0, "%s: %s %s: %s", given, ses_error_name(e.type), e.option, e.message);
	ck_assert_msg(e.message[0] && !strchr(e.message, '\n'), "%s: %s", given, e.message);
	json_decref(v);
}

static bool has(const char *word)
{
	for (size_t i = 0; i < o.words.n; i++)
		if (strcmp(o.words.v[i], word) == 0)
			return true;
	return false;
}

static bool names(const char *option)
{
	char word[80];

	snprintf(word, sizeof(word), "--%s", option);
	for (size_t i = 0; i < o.words.n; i++)
		if (strncmp(o.words.v[i], word, strlen(word)) == 0 && strchr("=", o.words.v[i][strlen(word)]))
			return true;
	return false;
}
