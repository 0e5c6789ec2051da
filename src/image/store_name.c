/* Names: a file a reference, which says where it leads.
 *
 * The file's name is the reference with '/' as '+' and ':' as '='. One that is too long for a
 * file's name is cut, and a hash of it all put behind: what the file says is compared with what was
 * asked for, so that two that have the same hash are never taken for each other. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "image/store_impl.h"
#include "image/text.h"

#define FILE_MAX 200 /* bytes of a file's name: with "~" and the hash, far below what there is */
#define FILE_CAP (FILE_MAX + 32)

/* The reference as a name: with a digest, the tag is only shown. */
static void text_of(const struct img_ref *ref, char ret[IMG_REF_CAP])
{
	struct img_ref bare = *ref;

	if (*bare.digest)
		bare.tag[0] = '\0';
	img_ref_format(&bare, ret);
}

/* FNV-1a, 64 bits. */
static uint64_t hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ULL;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ULL;
	return h;
}

static void file_of(const char *text, char ret[FILE_CAP])
{
	size_t n = 0;

	for (; text[n] && n < FILE_MAX; n++)
		ret[n] = (char)(text[n] == '/' ? '+' : text[n] == ':' ? '=' : text[n]);
	if (text[n])
		snprintf(ret + n, FILE_CAP - n, "~%016llx", (unsigned long long)hash(text));
	else
		ret[n] = '\0';
}

static int take_line(struct img_name *n, const char *key, const char *value, struct err *e)
{
	uint64_t when;

	if (!strcmp(key, "ref"))
		return img_line_copy(key, value, n->ref, sizeof(n->ref), e);
	if (!strcmp(key, "id"))
		return img_line_copy(key, value, n->id, sizeof(n->id), e);
	if (!strcmp(key, "manifest"))
		return img_line_copy(key, value, n->manifest, sizeof(n->manifest), e);
	if (!strcmp(key, "when")) {
		if (img_line_number(key, value, INT64_MAX, &when, e) < 0)
			return -1;
		n->when = (int64_t)when;
	}
	return 0;
}

static int parse(char *at, char *end, struct img_name *n, struct err *e)
{
	char again[IMG_REF_CAP];
	struct img_ref ref;
	const char *key;
	char *value;
	int r;

	if (img_line_format(&at, end, e) < 0)
		return -1;
	while ((r = img_line_next(&at, end, &key, &value, e)) > 0)
		if (take_line(n, key, value, e) < 0)
			return -1;
	if (r < 0 || img_digest_check(n->id, e) < 0 || img_ref_parse(n->ref, &ref, e) < 0 ||
	    (*n->manifest && img_digest_check(n->manifest, e) < 0))
		return -1;
	text_of(&ref, again);
	return strcmp(again, n->ref) != 0 ? err_set(e, ERR_REFUSED, "its name is not normalised")
					  : 0;
}

/* ERR_MISSING: no such file; ERR_REFUSED: it is no name; else the system. */
static int load(const struct img_store *s, const char *file, struct img_name *ret, struct err *e)
{
	struct img_name n = { 0 };
	char *text, should[FILE_CAP];
	size_t len;
	int r;

	if (img_text_load(s->names, file, STORE_NAME_MAX, &text, &len, e) < 0)
		return -1;
	r = parse(text, text + len, &n, e);
	free(text);
	file_of(n.ref, should);
	if (r == 0 && strcmp(should, file) != 0)
		r = err_set(e, ERR_REFUSED, "it is another image's");
	if (r < 0) {
		e->kind = ERR_REFUSED;
		return err_prefix(e, "names/%s of the store of images", file);
	}
	*ret = n;
	return 0;
}

/* What is asked for by digest may be here by a tag. */
struct search {
	const struct img_ref *ref;
	struct img_name *ret;
};

static int same_manifest(void *ctx, const struct img_name *name, struct err *e)
{
	struct search *f = ctx;
	struct img_ref ref;
	struct err ignored;

	if (strcmp(name->manifest, f->ref->digest) != 0 ||
	    img_ref_parse(name->ref, &ref, &ignored) < 0 || ref.kind != f->ref->kind ||
	    strcmp(ref.host, f->ref->host) != 0 || strcmp(ref.repo, f->ref->repo) != 0)
		return 0;
	*f->ret = *name;
	return 1;
}

int img_name_get(const struct img_store *s, const struct img_ref *ref, struct img_name *ret,
		 struct err *e)
{
	char text[IMG_REF_CAP], file[FILE_CAP];
	struct search f = { ref, ret };
	struct img_name n;
	int r;

	text_of(ref, text);
	file_of(text, file);
	r = load(s, file, &n, e);
	if (r == 0 && !strcmp(n.ref, text)) {
		*ret = n;
		return 0;
	}
	if (r < 0 && e->kind == ERR_REFUSED) {
		e->kind = ERR_MISSING;
		return err_prefix(e, "image %s: incomplete", text);
	}
	if (r < 0 && e->kind != ERR_MISSING)
		return -1;
	if (*ref->digest) {
		r = img_store_each_name(s, same_manifest, &f, e);
		if (r != 0)
			return r > 0 ? 0 : -1;
	}
	return err_set(e, ERR_MISSING, "image %s is not in the store", text);
}

struct list {
	char **v;
	size_t n, cap;
};

static int list_add(void *ctx, int dir, const char *name, struct err *e)
{
	struct list *l = ctx;

	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		char **v = reallocarray(l->v, cap, sizeof(*v));

		if (!v)
			return err_sys(e, "the names of images");
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n] = strdup(name);
	if (!l->v[l->n])
		return err_sys(e, "the names of images");
	l->n++;
	return 0;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int show(const struct img_store *s, const char *file,
		int (*each)(void *ctx, const struct img_name *name, struct err *e), void *ctx,
		struct err *e)
{
	struct img_name n = { 0 };

	if (load(s, file, &n, e) < 0) {
		if (e->kind == ERR_MISSING) /* removed meanwhile */
			return 0;
		if (e->kind != ERR_REFUSED)
			return -1;
		n.newer = e->num == TEXT_NEWER;
		snprintf(n.ref, sizeof(n.ref), "%s", file);
	}
	return each(ctx, &n, e);
}

int img_store_each_name(const struct img_store *s,
			int (*each)(void *ctx, const struct img_name *name, struct err *e),
			void *ctx, struct err *e)
{
	struct list l = { 0 };
	int r = store_each(s->names, list_add, &l, e);

	if (r == 0 && l.n > 0)
		qsort(l.v, l.n, sizeof(*l.v), by_text);
	for (size_t i = 0; i < l.n && r == 0; i++)
		r = show(s, l.v[i], each, ctx, e);
	for (size_t i = 0; i < l.n; i++)
		free(l.v[i]);
	free(l.v);
	return r;
}

int img_name_set(const struct img_store *s, const struct img_ref *ref, const char *id,
		 const char *manifest, struct err *e)
{
	char text[IMG_REF_CAP], file[FILE_CAP];
	struct img_record r = { 0 };
	_cleanup_buf_ struct buf out = { 0 };
	_cleanup_fd_ int lock = -1;
	struct img_name there;

	buf_init(&out, STORE_NAME_MAX);
	if (ref->kind == IMG_REF_HOST)
		return err_set(e, ERR_USAGE, "\"host\" is the host's own programs, no image");
	text_of(ref, text);
	file_of(text, file);
	img_line(&out, "format", "1");
	img_line(&out, "ref", text);
	img_line(&out, "id", id);
	if (*manifest)
		img_line(&out, "manifest", manifest);
	img_line_u64(&out, "when", (uint64_t)time(NULL));
	lock = store_lock(s, e);
	if (lock < 0 || img_store_find_id(s, id, &r, e) < 0)
		return -1;
	img_record_free(&r);
	if (load(s, file, &there, e) == 0 && strcmp(there.ref, text) != 0)
		return err_set(e, ERR_REFUSED, "the name %s is too like %s: choose a shorter one",
			       text, there.ref);
	if (store_put(s, s->names, file, out.data, out.len, e) < 0)
		return -1;
	return fsync(s->names) < 0 ? err_sys(e, "the store of images") : 0;
}

int img_name_remove(const struct img_store *s, const struct img_ref *ref, struct err *e)
{
	char text[IMG_REF_CAP], file[FILE_CAP];
	_cleanup_fd_ int lock = store_lock(s, e);
	struct img_name there;
	int r;

	if (lock < 0)
		return -1;
	text_of(ref, text);
	file_of(text, file);
	r = load(s, file, &there, e);
	if (r < 0 && e->kind == ERR_SYS)
		return -1;
	if ((r < 0 && e->kind == ERR_MISSING) || (r == 0 && strcmp(there.ref, text) != 0))
		return err_set(e, ERR_MISSING, "image %s is not in the store", text);
	if (unlinkat(s->names, file, 0) < 0 || fsync(s->names) < 0)
		return err_sys(e, "names/%s of the store of images", file);
	return 0;
}
