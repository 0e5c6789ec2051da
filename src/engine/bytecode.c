/* What may go wrong: the image's python is foreign code, and what it "compiles" is its own
 * business: it could have done the same in each box. It has no network, and nothing of it is run
 * outside a box. A compiler that fails is not asked again: cloche setup keeps an empty layer then.
 */
#include "engine/bytecode.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

/* As the usual PATH has them. */
static const char *const pythons[] = { "usr/local/bin/python3", "usr/bin/python3" };

/* The standard library, without what others install into it (that is compiled by whoever installs
 * it) and without tests. A python that has no pool of processes compiles alone. */
static const char script[] =
	"import compileall, py_compile, re, sysconfig\n"
	"how = dict(quiet=2, force=True, rx=re.compile('/(site-packages|dist-packages|test|tests|idle_test|idlelib|turtledemo)/'),\n"
	"           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)\n"
	"lib = sysconfig.get_path('stdlib')\n"
	"try:\n"
	"    compileall.compile_dir(lib, workers=0, **how)\n"
	"except Exception:\n"
	"    compileall.compile_dir(lib, workers=1, **how)\n";

static bool there(const struct layers *l, const char *path)
{
	int fd = layers_open(l, path);
	bool yes = fd >= 0;

	fd_close(&fd);
	return yes;
}

/* "/usr/bin/python3.11": its library is ../lib/python3.11. `this` is a module that nothing imports:
 * if it is compiled, all are. */
static bool lacks(const struct layers *l, const char *python)
{
	const char *name = strrchr(python, '/');
	char lib[4200], file[4300];
	unsigned minor;
	int used = 0;

	if (!name || sscanf(name, "/python3.%3u%n", &minor, &used) != 1 || name[used] != '\0')
		return false;
	snprintf(lib, sizeof(lib), "%.*s/../lib/python3.%u", (int)(name - python), python, minor);
	snprintf(file, sizeof(file), "%s/this.py", lib + 1);
	if (!there(l, file))
		return false;
	snprintf(file, sizeof(file), "%s/__pycache__/this.cpython-3%u.pyc", lib + 1, minor);
	return !there(l, file);
}

bool bytecode_lacks(const struct layers *image, char ret[BYTECODE_PYTHON_CAP])
{
	char path[4096];

	for (size_t i = 0; i < sizeof(pythons) / sizeof(pythons[0]); i++) {
		/* In most images there is none: this look is all that it costs. */
		if (!there(image, pythons[i]) || layers_resolve(image, pythons[i], path) < 0)
			continue;
		if (strlen(path) >= BYTECODE_PYTHON_CAP || !lacks(image, path))
			return false;
		memcpy(ret, path, strlen(path) + 1);
		return true;
	}
	return false;
}

int bytecode_hold(const struct img_store *s, const struct img_record *image,
		  char ret_name[IMG_LAYER_NAME])
{
	char key[IMG_DIGEST_LEN + 1];
	struct img_layer_info info;
	struct err none;

	img_bytecode_key(image, key);
	if (img_layer_name('s', key, ret_name, &none) < 0)
		return -1;
	return img_layer_hold(s, 's', key, &info, &none);
}

void bytecode_command(char python[BYTECODE_PYTHON_CAP], char *ret[8])
{
	/* -B: what this python itself imports is compiled as the rest is. */
	static char isolated[] = "-IB", command[] = "-c";

	ret[0] = python;
	ret[1] = isolated;
	ret[2] = command;
	ret[3] = (char *)(uintptr_t)script;
	ret[4] = NULL;
}
