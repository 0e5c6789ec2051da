/* The options of `cloche pull`. The verb only checks them and hands over to cloche-image, which
 * parses them by the same table. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "image/platform.h"
#include "image/ref.h"

#define PULL_MIRRORS_MAX 8
#define PULL_TIMEOUT_US (UINT64_C(600) * 1000000)

struct pull_options {
	struct img_ref ref;
	struct img_platform platform; /* os "" when not given: this machine's */
	const char *ca_file;	      /* or NULL */
	const char *mirrors[PULL_MIRRORS_MAX];
	unsigned n_mirrors;
	uint64_t timeout_us; /* 0: none */
	bool insecure, quiet, json;
};

/* Parses argv (argv[0] is the verb) into *ret, which points into argv. -1, or the exit code when
 * there is no more to do: the help or the complaint is printed. */
int pull_parse(int argc, char **argv, struct pull_options *ret);
