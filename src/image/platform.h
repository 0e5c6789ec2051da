/* For which machine an image is: os/architecture[/variant], in Go's names as registries have them.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define IMG_PLATFORM_CAP 32

struct img_platform {
	char os[IMG_PLATFORM_CAP];
	char arch[IMG_PLATFORM_CAP];
	char variant[IMG_PLATFORM_CAP]; /* "" is the base of the architecture */
};

/* Reads "linux/arm64/v8", "arm64", "x86_64", "aarch64". The result is normalised. 0, or -1 with
 * ERR_USAGE. */
int img_platform_parse(const char *text, struct img_platform *ret, struct err *e);
/* This machine, by uname(2). -1 with ERR_MISSING on a machine that cloche does not know. */
int img_platform_host(struct img_platform *ret, struct err *e);
/* One spelling for each: x86_64 and amd64/v1 are amd64, aarch64 and arm64/v8 are arm64, arm is
 * arm/v7. */
void img_platform_normalise(struct img_platform *p);
/* Both normalised. Equal in all parts: a variant never stands for another. */
bool img_platform_equal(const struct img_platform *a, const struct img_platform *b);
#define IMG_PLATFORM_TEXT (3 * IMG_PLATFORM_CAP + 1)
const char *img_platform_text(const struct img_platform *p, char dst[IMG_PLATFORM_TEXT]);
