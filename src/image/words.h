/* Lists of words: what an image's config and its record have of environments and commands. */
#pragma once

#include <stddef.h>

#include "base/err.h"

#define IMG_WORDS_MAX 1024	  /* elements of a list */
#define IMG_WORD_MAX (128u << 10) /* bytes of one: the kernel's limit for a word of argv or env */

/* A NULL-terminated list whose words it owns; v is NULL when there is no such list, which for a
 * command is not the same as an empty one. */
struct img_words {
	char **v;
	size_t n;
};

/* Makes the list be there, empty, when it is not. */
int img_words_be(struct img_words *w, struct err *e);
/* Adds a copy of the n bytes at s, which hold no NUL. Refuses a word or a list that is too long. */
int img_words_add(struct img_words *w, const char *s, size_t n, struct err *e);
int img_words_copy(const struct img_words *from, struct img_words *ret, struct err *e);
/* Harmless on a zeroed one. */
void img_words_free(struct img_words *w);
