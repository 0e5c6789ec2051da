/* cloche.yaml, and the options of `open`, from anybody. The first byte chooses. What is taken becomes words that cloche run can't take for
 * something else; what is refused says one printable line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "session/config.h"
#include "session/options_impl.h"
#include "session/yaml_read.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void printable(const char *s)
{
	must(*s);
	for (; *s; s++)
		must((unsigned char)*s >= 0x20 && *s != 0x7f);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	setenv("CLOCHE_HOME", "/nonexistent", 1); /* no configuration of the user's */
	return 0;
}

static void words(const json_t *given)
{
	struct ses_options o;
	struct ses_words w;
	struct ses_error e;
	char *name;

	if (ses_options_parse(given, &o, &e) < 0) {
		printable(e.message);
		must(e.type == SES_OPTION || e.type == SES_UNSUPPORTED);
		return;
	}
	must(o.timeout_us > 0 && o.image && json_object_size(o.effective) == ses_option_n);
	must(ses_options_spawn(&o, &(struct ses_place){ .workspace = "/w" }, &w, &e) == 0);
	for (size_t i = 1; i < w.n; i++)
		must(strncmp(w.v[i], "--", 2) == 0 && w.v[i][2] >= 'a' && w.v[i][2] <= 'z');
	must(w.v[w.n] == NULL);
	ses_words_free(&w);
	for (size_t i = 0; i < o.n_env; i++)
		must(strchr(o.env[i], '=') > o.env[i]);
	if (o.setup) {
		must(ses_options_setup(&o, NULL, o.setup, 0, &w, &name, &e) == 0);
		ses_words_free(&w);
		free(name);
	}
	ses_options_free(&o);
}

static void config(const char *text, size_t n)
{
	struct ses_config c = { 0 };
	struct err e;

	if (ses_config_read(text, n, &c, &e) < 0) {
		must(e.kind == ERR_USAGE && e.msg[0] >= '1' && e.msg[0] <= '9');
		printable(e.msg);
		return;
	}
	words(c.defaults); /* they are options, every one */
	ses_config_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *v;

	if (size == 0)
		return 0;
	if (data[0] & 1) {
		config((const char *)data + 1, size - 1);
		return 0;
	}
	v = json_loadb((const char *)data + 1, size - 1, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	if (v)
		words(v);
	json_decref(v);
	return 0;
}
