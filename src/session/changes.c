/* Comparing two walks of a workspace.
 *
 * How: directories of the same path are compared name by name. Both walks read a directory in the
 * order that the file system has, which is mostly the same; where it is not, the two are sorted. No
 * hash stands in the way of names that are made to collide. What has lost its path is then sought
 * among what has got one, by inode and time of birth.
 *
 * What may go wrong: more changes than anybody wants to read, with paths as long as they can be: so
 * many are listed as fit in two bounds, and the others are counted. */
#include "session/changes.h"

#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "session/changes_impl.h"

#define PATHS_MAX (16u << 20)

struct ses_changes {
	int dirfd;
	struct tree before, after;
};

int ses_changes_begin(int dirfd, struct ses_changes **ret, struct err *e)
{
	struct ses_changes *c = calloc(1, sizeof(*c));

	if (!c)
		return err_sys(e, "the list of files");
	c->dirfd = dirfd;
	if (tree_walk(dirfd, &c->before, e) < 0) {
		free(c);
		return -1;
	}
	tree_settle(dirfd, &c->before);
	*ret = c;
	return 0;
}

void ses_changes_free(struct ses_changes **c)
{
	if (!*c)
		return;
	tree_free(&(*c)->before);
	tree_free(&(*c)->after);
	free(*c);
	*c = NULL;
}

enum change { CREATED, MODIFIED, DELETED, RENAMED };
static const char *const change_names[] = { "created", "modified", "deleted", "renamed" };

struct change_of {
	enum change what;
	const struct tree_entry *v;    /* after; of DELETED: before */
	const struct tree_entry *from; /* of RENAMED: before */
	char *path;		       /* once it is to be listed; not NUL-terminated */
	size_t len;
};

struct diff {
	struct ses_changes *c;
	uint32_t *twins; /* of the directories after: the one of the same path before, or none */
	struct change_of *v;
	size_t n, cap;
	const struct tree_entry **gone; /* by identity */
	uint32_t *taken;		/* how many of those that begin here are */
	size_t n_gone;
};

static int note(struct diff *d, enum change what, const struct tree_entry *v,
		const struct tree_entry *from, struct err *e)
{
	if (d->n == d->cap) {
		size_t cap = d->cap ? 2 * d->cap : 64;
		struct change_of *more = reallocarray(d->v, cap, sizeof(*more));

		if (!more)
			return err_sys(e, "the list of changes");
		d->v = more;
		d->cap = cap;
	}
	d->v[d->n++] = (struct change_of){ .what = what, .v = v, .from = from };
	return 0;
}

static int by_identity(const void *a, const void *b)
{
	const struct tree_entry *x = *(const struct tree_entry *const *)a,
				*y = *(const struct tree_entry *const *)b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->birth != y->birth)
		return x->birth < y->birth ? -1 : 1;
	if (x->dev != y->dev)
		return x->dev < y->dev ? -1 : 1;
	return x->type - y->type;
}

static bool same(const struct tree_entry *x, const struct tree_entry *y)
{
	return x->type == y->type && x->ino == y->ino && x->birth == y->birth && x->dev == y->dev &&
	       x->ctime == y->ctime && x->size == y->size;
}

/* The same path, before and after. */
static int meet(struct diff *d, struct tree_entry *old, struct tree_entry *new, struct err *e)
{
	if ((old->type == TREE_DIR) != (new->type == TREE_DIR))
		return 0;
	old->matched = new->matched = true;
	if (new->type == TREE_DIR)
		d->twins[new->dev] = old->dev;
	else if (!same(old, new))
		return note(d, MODIFIED, new, NULL, e);
	return 0;
}

/* qsort has no room for a context. */
static const struct tree *sorted_tree;
static int by_name(const void *a, const void *b)
{
	return strcmp(tree_name(sorted_tree, *(struct tree_entry *const *)a),
		      tree_name(sorted_tree, *(struct tree_entry *const *)b));
}

static struct tree_entry **sorted(struct tree *t, uint32_t first, uint32_t n)
{
	struct tree_entry **v = reallocarray(NULL, n, sizeof(struct tree_entry *));

	for (uint32_t i = 0; v && i < n; i++)
		v[i] = &t->v[first + i];
	sorted_tree = t;
	if (v)
		qsort(v, n, sizeof(struct tree_entry *), by_name);
	return v;
}

static int meet_sorted(struct diff *d, uint32_t a, uint32_t n_a, uint32_t b, uint32_t n_b,
		       struct err *e)
{
	struct tree *before = &d->c->before, *after = &d->c->after;
	struct tree_entry **old = sorted(before, a, n_a), **new = sorted(after, b, n_b);
	int r = 0;

	if (!old || !new) {
		err_sys(e, "the list of changes");
		free(old);
		free(new);
		return -1;
	}
	for (uint32_t i = 0, k = 0; r == 0 && i < n_a && k < n_b;) {
		int order = strcmp(tree_name(before, old[i]), tree_name(after, new[k]));

		if (order == 0)
			r = meet(d, old[i], new[k], e);
		i += order <= 0;
		k += order >= 0;
	}
	free(old);
	free(new);
	return r;
}

static int compare_dirs(struct diff *d, const struct tree_dir *x, const struct tree_dir *y,
			struct err *e)
{
	struct tree *before = &d->c->before, *after = &d->c->after;
	uint32_t i = 0;

	for (; i < x->n && i < y->n; i++) {
		struct tree_entry *old = &before->v[x->first + i], *new = &after->v[y->first + i];

		if (strcmp(tree_name(before, old), tree_name(after, new)) != 0)
			break;
		if (meet(d, old, new, e) < 0)
			return -1;
	}
	if (i == x->n || i == y->n)
		return 0;
	return meet_sorted(d, x->first + i, x->n - i, y->first + i, y->n - i, e);
}

/* Parents stand before their children in both walks. */
static int compare(struct diff *d, struct err *e)
{
	const struct tree *before = &d->c->before, *after = &d->c->after;

	d->twins[0] = 0;
	for (uint32_t i = 0; i < after->n_dirs; i++)
		if (d->twins[i] != TREE_NONE &&
		    compare_dirs(d, &before->dirs[d->twins[i]], &after->dirs[i], e) < 0)
			return -1;
	return 0;
}

/* What has lost its path: those that are the same file stand side by side, in the order of the
 * walk. */
static int gather_gone(struct diff *d, struct err *e)
{
	const struct tree *t = &d->c->before;

	d->gone = reallocarray(NULL, t->n + 1, sizeof(const struct tree_entry *));
	d->taken = calloc(t->n + 1, sizeof(*d->taken));
	if (!d->gone || !d->taken)
		return err_sys(e, "the list of changes");
	for (size_t i = 0; i < t->n; i++)
		if (!t->v[i].matched && t->v[i].type != TREE_DIR)
			d->gone[d->n_gone++] = &t->v[i];
	if (d->n_gone > 0)
		qsort(d->gone, d->n_gone, sizeof(const struct tree_entry *), by_identity);
	return 0;
}

/* The first of those that were this file and are not taken yet; it is taken. */
static const struct tree_entry *take_gone(struct diff *d, const struct tree_entry *v)
{
	size_t low = 0, high = d->n_gone;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (by_identity(&d->gone[mid], &v) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	high = low < d->n_gone ? low + d->taken[low] : low;
	if (high >= d->n_gone || by_identity(&d->gone[high], &v) != 0)
		return NULL;
	d->taken[low]++;
	d->c->before.v[d->gone[high] - d->c->before.v].matched = true;
	return d->gone[high];
}

static int find_moves(struct diff *d, struct err *e)
{
	const struct tree *before = &d->c->before, *after = &d->c->after;

	for (size_t i = 0; i < after->n; i++) {
		const struct tree_entry *v = &after->v[i], *from;

		if (v->matched || v->type == TREE_DIR)
			continue;
		from = take_gone(d, v);
		if (note(d, from ? RENAMED : CREATED, v, from, e) < 0)
			return -1;
	}
	for (size_t i = 0; i < before->n; i++)
		if (!before->v[i].matched && before->v[i].type != TREE_DIR &&
		    note(d, DELETED, &before->v[i], NULL, e) < 0)
			return -1;
	return 0;
}

static int by_path(const void *a, const void *b)
{
	const struct change_of *x = a, *y = b;
	size_t n = x->len < y->len ? x->len : y->len;
	int r = memcmp(x->path, y->path, n);

	if (r)
		return r;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	/* What has gone from a path comes before what has come to it. */
	return (x->what != DELETED) - (y->what != DELETED);
}

static void put(const struct diff *d, const struct change_of *v, char *room, struct json *j)
{
	json_obj(j);
	json_key(j, "path");
	json_bytes(j, v->path, v->len);
	json_kstr(j, "change", change_names[v->what]);
	json_ku64(j, "size", v->v->size);
	if (v->from) {
		tree_path(&d->c->before, v->from, room);
		json_key(j, "from");
		json_bytes(j, room, tree_path_len(&d->c->before, v->from));
	}
	if (v->v->type == TREE_SYMLINK)
		json_kstr(j, "type", "symlink");
	json_obj_end(j);
}

static const struct tree *tree_of(const struct diff *d, const struct change_of *v)
{
	return v->what == DELETED ? &d->c->before : &d->c->after;
}

/* Lists as many as fit; *ret_cut is how many do not. */
static int list(struct diff *d, struct json *j, uint64_t *ret_cut, struct err *e)
{
	size_t bytes = 0, longest = 1, n = 0;
	char *paths, *room, *p;

	for (; n < d->n && n < SES_CHANGES_LIST_MAX; n++) {
		struct change_of *v = &d->v[n];
		size_t from = v->from ? tree_path_len(&d->c->before, v->from) : 0;

		v->len = tree_path_len(tree_of(d, v), v->v);
		if (v->len + from > PATHS_MAX - bytes)
			break;
		bytes += v->len + from;
		longest = from > longest ? from : longest;
	}
	paths = malloc(bytes + 1);
	room = malloc(longest);
	if (!paths || !room) {
		free(paths);
		free(room);
		return err_sys(e, "the list of changes");
	}
	p = paths;
	for (size_t i = 0; i < n; p += d->v[i].len, i++) {
		d->v[i].path = p;
		tree_path(tree_of(d, &d->v[i]), d->v[i].v, p);
	}
	if (n > 0)
		qsort(d->v, n, sizeof(*d->v), by_path);
	json_arr(j);
	for (size_t i = 0; i < n; i++)
		put(d, &d->v[i], room, j);
	json_arr_end(j);
	free(paths);
	free(room);
	*ret_cut = d->n - n;
	return 0;
}

int ses_changes_end(struct ses_changes *c, struct json *j, uint64_t *ret_cut, struct err *e)
{
	struct diff d = { .c = c };
	int r;

	if (tree_walk(c->dirfd, &c->after, e) < 0)
		return -1;
	d.twins = reallocarray(NULL, c->after.n_dirs, sizeof(*d.twins));
	if (!d.twins)
		return err_sys(e, "the list of changes");
	memset(d.twins, 0xff, c->after.n_dirs * sizeof(*d.twins));
	r = compare(&d, e) < 0 || gather_gone(&d, e) < 0 || find_moves(&d, e) < 0 ||
			    list(&d, j, ret_cut, e) < 0
		    ? -1
		    : 0;
	free(d.twins);
	free(d.v);
	free(d.gone);
	free(d.taken);
	return r;
}
