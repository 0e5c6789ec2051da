/* How a stack grows: see stack.h. When it is full and there is more to come, all of it becomes one
 * layer, by the chain id of its topmost.
 *
 * What may go wrong: a child's account of what it unpacked is not what the config wants: nothing is
 * published. A layer that hides all below it (an opaque root) has no word in overlayfs: those below
 * are taken off the stack. */
#include "image/stack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "image/merge.h"
#include "image/sha256.h"

static int chain_ids(struct img_stack *st, struct err *e)
{
	char text[2 * IMG_DIGEST_LEN + 2];

	for (size_t i = 0; i < st->config->n_diff_ids; i++) {
		const char *diff = st->config->diff_ids[i];
		char *chain = st->items[i].chain;

		if (i == 0) {
			memcpy(chain, diff, IMG_DIGEST_LEN + 1);
			continue;
		}
		snprintf(text, sizeof(text), "%s %s", st->items[i - 1].chain, diff);
		if (img_sha256_of(text, strlen(text), chain, e) < 0)
			return -1;
	}
	return 0;
}

static int put(struct img_stack *st, char kind, const char *id, uint64_t bytes, int fd,
	       struct err *e)
{
	struct img_record_layer *l = &st->layers[st->n];

	if (st->n == IMG_STACK_MAX)
		return err_set(e, ERR_REFUSED, "more than %d layers", IMG_STACK_MAX);
	if (img_layer_name(kind, id, l->name, e) < 0)
		return -1;
	memcpy(l->id, id, IMG_DIGEST_LEN + 1);
	l->bytes = bytes;
	st->held[st->n++] = fd;
	return 0;
}

/* The first merged layer, when it is there. */
static void find_merged(struct img_stack *st)
{
	struct img_layer_info info;
	struct err ignored;
	int fd;

	if (st->config->n_diff_ids <= IMG_STACK_MAX)
		return;
	fd = img_layer_hold(st->store, 'm', st->items[IMG_STACK_MAX - 1].chain, &info, &ignored);
	if (fd < 0)
		return;
	put(st, 'm', info.id, info.done.bytes, fd, &ignored);
	st->at = IMG_STACK_MAX;
}

int img_stack_begin(struct img_stack *ret, const struct img_store *s, const struct img_config *c,
		    struct err *e)
{
	struct img_stack st = IMG_STACK_NONE;

	st.store = s;
	st.config = c;
	st.items = calloc(c->n_diff_ids + 1, sizeof(*st.items));
	if (!st.items)
		return err_sys(e, "the image's layers");
	for (size_t i = 0; i < c->n_diff_ids; i++)
		st.items[i].fd = -1;
	if (chain_ids(&st, e) < 0) {
		img_stack_drop(&st);
		return -1;
	}
	find_merged(&st);
	for (size_t i = st.at; i < c->n_diff_ids; i++)
		img_stack_missing(&st, i);
	*ret = st;
	return 0;
}

void img_stack_drop(struct img_stack *st)
{
	for (size_t i = 0; st->items && i < st->config->n_diff_ids; i++)
		fd_close(&st->items[i].fd);
	free(st->items);
	img_store_let_go(st->held, st->n);
	img_draft_drop(&st->draft);
	*st = IMG_STACK_NONE;
}

bool img_stack_missing(struct img_stack *st, size_t i)
{
	struct img_stack_item *it = &st->items[i];
	struct err ignored;

	if (i < st->at || it->fd >= 0)
		return false;
	it->kind = 'd';
	it->fd = img_layer_hold(st->store, 'd', st->config->diff_ids[i], &it->info, &ignored);
	if (it->fd >= 0)
		return false;
	it->kind = 'c';
	it->fd = img_layer_hold(st->store, 'c', it->chain, &it->info, &ignored);
	if (it->fd < 0)
		it->kind = 0;
	return it->fd < 0;
}

/* The stack as one layer. */
static int merge(struct img_stack *st, const char *chain, struct err *e)
{
	_cleanup_img_draft_ struct img_draft d = IMG_DRAFT_NONE;
	int top_first[IMG_STACK_MAX], fd;
	char name[IMG_LAYER_NAME];
	struct img_unpacked done;

	for (size_t i = 0; i < st->n; i++)
		top_first[i] = st->held[st->n - 1 - i];
	if (img_draft_new(st->store, &d, e) < 0 ||
	    img_merge(d.tree, top_first, st->n, &done, e) < 0 ||
	    img_layer_publish(st->store, &d, 'm', chain, &done, name, e) < 0)
		return err_prefix(e, "merge %zu layers", st->n);
	fd = fd_steal(&d.tree);
	img_store_let_go(st->held, st->n);
	st->n = 0;
	return put(st, 'm', chain, done.bytes, fd, e);
}

/* Layer `at`, which is there, goes onto the stack. */
static int advance(struct img_stack *st, struct err *e)
{
	struct img_stack_item *it = &st->items[st->at];

	if (it->info.done.opaque_root) {
		img_store_let_go(st->held, st->n);
		st->n = 0;
	}
	if (st->n == IMG_STACK_MAX && merge(st, it[-1].chain, e) < 0)
		return -1;
	if (put(st, it->kind, it->info.id, it->info.done.bytes, it->fd, e) < 0)
		return -1;
	it->fd = -1;
	st->at++;
	return 0;
}

bool img_stack_next(struct img_stack *st, size_t *ret, struct err *e)
{
	e->kind = ERR_NONE;
	for (; st->at < st->config->n_diff_ids;) {
		if (img_stack_missing(st, st->at)) {
			*ret = st->at;
			return true;
		}
		if (advance(st, e) < 0)
			return false;
	}
	return false;
}

int img_stack_start(struct img_stack *st, const struct img_unpack_server *server, int in,
		    uint64_t max_in, struct img_unpack_child *ret, struct err *e)
{
	struct img_unpack_order o = { .max_in = max_in,
				      .limits = img_unpack_default,
				      .lax_end = true,
				      .n_lowers = st->n };

	for (size_t i = 0; i < st->n; i++)
		memcpy(o.lowers[i], st->layers[st->n - 1 - i].name, sizeof(o.lowers[i]));
	if (img_draft_new(st->store, &st->draft, e) < 0)
		return -1;
	if (img_unpack_order(server, &o, in, st->draft.tree, ret, e) < 0) {
		img_draft_drop(&st->draft);
		return -1;
	}
	return 0;
}

static int publish(struct img_stack *st, const struct img_unpack_result *r, struct err *e)
{
	struct img_stack_item *it = &st->items[st->at];
	const char *diff = st->config->diff_ids[st->at];
	char name[IMG_LAYER_NAME];

	if (strcmp(r->decoded.out_digest, diff) != 0)
		return err_set(e, ERR_REFUSED,
			       "its diff id is %.19s..., and the image's config says %.19s...",
			       r->decoded.out_digest, diff);
	it->kind = r->done.borrowed > 0 ? 'c' : 'd';
	if (img_layer_publish(st->store, &st->draft, it->kind, it->kind == 'c' ? it->chain : diff,
			      &r->done, name, e) < 0)
		return -1;
	it->fd = fd_steal(&st->draft.tree);
	return img_layer_info(st->store, name, &it->info, e);
}

int img_stack_end(struct img_stack *st, struct img_unpack_child *c, struct img_unpack_result *ret,
		  struct err *e)
{
	struct img_unpack_result r;
	int rc = img_unpack_end(c, &r, e);

	if (rc == 0)
		rc = publish(st, &r, e);
	img_draft_drop(&st->draft);
	if (rc < 0)
		return err_prefix(e, "layer %zu of %zu", st->at + 1, st->config->n_diff_ids);
	if (ret)
		*ret = r;
	return advance(st, e);
}

int img_stack_finish(const struct img_stack *st, struct img_record *r, struct err *e)
{
	if (st->at < st->config->n_diff_ids)
		return err_set(e, ERR_REFUSED, "layer %zu of %zu is missing", st->at + 1,
			       st->config->n_diff_ids);
	memcpy(r->layers, st->layers, st->n * sizeof(*st->layers));
	r->n_layers = st->n;
	return 0;
}
