/* cloche-image: what reads registries and archives, over the host's libraries. It takes the verbs
 * of cloche that need them, by the same tables; cloche executes it (cli/program.h). */
#include <fcntl.h>
#ifdef CLOCHE_STATIC
#include <openssl/crypto.h>
#endif
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alone.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/verbs.h"
#include "image/confine.h"
#include "prog/image_verbs.h"

#ifdef IMG_SANITIZED
/* Leaks are looked for by tracing, which a process that has locked itself in can't do. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}
#endif

/* A row a verb: argv[0] is the verb; returns the exit code. */
static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} verbs[] = {
	{ "pull", image_pull },
	{ "load", image_load },
	{ "import", image_import },
	{ "save", image_save },
	{ "snapshot", image_snapshot },
	{ "restore", image_restore },
};

int image_fail(const char *verb, bool as_json, const struct err *e)
{
	_cleanup_buf_ struct buf out = { 0 };
	struct json j;

	buf_init(&out, 65536);
	if (as_json) {
		json_init(&j, &out);
		json_obj(&j);
		json_kstr(&j, "event", "error");
		json_kstr(&j, "message", e->msg);
		json_obj_end(&j);
		buf_str(&out, "\n");
		cli_put(STDOUT_FILENO, &out);
	}
	return cli_fail(verb, e);
}

int main(int argc, char **argv)
{
	alone();
#ifdef CLOCHE_STATIC
	/* The host's configuration may name modules for the openssl that the host has. */
	OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
#endif
	/* A caller may start us with 0, 1 or 2 closed; nothing of ours may then land there. */
	for (int fd = open("/dev/null", O_RDWR | O_CLOEXEC); fd >= 0 && fd <= STDERR_FILENO;
	     fd = dup(fd))
		;
	for (size_t i = 0; argc > 1 && i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (!strcmp(argv[1], verbs[i].name))
			return verbs[i].run(argc - 1, argv + 1);
	fputs("cloche-image: it is run by cloche: see \"cloche help pull\"\n", stderr);
	return 2;
}
