#include "image/words.h"

#include <stdlib.h>
#include <string.h>

int img_words_be(struct img_words *w, struct err *e)
{
	if (w->v)
		return 0;
	w->v = calloc(1, sizeof(*w->v));
	return w->v ? 0 : err_sys(e, "a list of words");
}

int img_words_add(struct img_words *w, const char *s, size_t n, struct err *e)
{
	char **v;

	if (n > IMG_WORD_MAX)
		return err_set(e, ERR_REFUSED, "a word has more than %u bytes", IMG_WORD_MAX);
	if (w->n >= IMG_WORDS_MAX)
		return err_set(e, ERR_REFUSED, "there are more than %d words", IMG_WORDS_MAX);
	v = reallocarray(w->v, w->n + 2, sizeof(*v));
	if (!v)
		return err_sys(e, "a list of words");
	w->v = v;
	v[w->n] = strndup(s, n);
	if (!v[w->n])
		return err_sys(e, "a list of words");
	v[++w->n] = NULL;
	return 0;
}

int img_words_copy(const struct img_words *from, struct img_words *ret, struct err *e)
{
	struct img_words w = { 0 };

	if (from->v && img_words_be(&w, e) < 0)
		return -1;
	for (size_t i = 0; from->v && i < from->n; i++) {
		if (img_words_add(&w, from->v[i], strlen(from->v[i]), e) < 0) {
			img_words_free(&w);
			return -1;
		}
	}
	*ret = w;
	return 0;
}

void img_words_free(struct img_words *w)
{
	for (size_t i = 0; w->v && i < w->n; i++)
		free(w->v[i]);
	free(w->v);
	*w = (struct img_words){ 0 };
}
