/* apt knows packages by the lists of its sources, and images are published without these: the usual
 * `apt-get update &&` in front. Where apt itself is what is set up, cloche does that. */
#pragma once

#include <stdbool.h>

#include "engine/image.h"

enum { APT_LISTS_WORDS_MAX = 4096 };

/* Whether the command is apt's own, in an image that has it, and does not fetch the lists itself.
 */
bool apt_lists_wanted(const struct image_use *u, char *const *argv);
/* The command with that in front of it, for the image's shell: fetches the lists where there are
 * none, and then removes them again. `argv` and the result are borrowed. NULL when there are more
 * words than APT_LISTS_WORDS_MAX. */
char *const *apt_lists_command(char *const *argv);
