/* The stack of layers that an image consists of in the store. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/merge.h"
#include "image/pull_impl.h"

static void clear(struct pull *p)
{
	for (size_t i = 0; i < p->n_stack; i++)
		fd_close(&p->stack_held[i]);
	p->n_stack = 0;
}

static void put(struct pull *p, const struct img_record_layer *is, int held)
{
	p->stack[p->n_stack] = *is;
	p->stack_held[p->n_stack++] = held;
}

/* All of the stack, whose topmost layer has this chain id, becomes one. */
static int merge(struct pull *p, const char *chain, struct err *e)
{
	_cleanup_img_draft_ struct img_draft draft = IMG_DRAFT_NONE;
	struct img_record_layer is = { 0 };
	int layers[IMG_STACK_MAX], held;
	struct img_unpacked made;

	for (size_t i = 0; i < p->n_stack; i++)
		layers[i] = p->stack_held[p->n_stack - 1 - i];
	img_progress_phase(p->how->progress, "merge", "merging the lowest layers into one");
	if (img_draft_new(&p->store, &draft, e) < 0 ||
	    img_merge(draft.tree, layers, p->n_stack, &made, e) < 0 ||
	    img_layer_publish(&p->store, &draft, 'm', chain, &made, is.name, e) < 0)
		return err_prefix(e, "merge %zu layers", p->n_stack);
	held = fcntl(draft.tree, F_DUPFD_CLOEXEC, 0);
	if (held < 0)
		return err_sys(e, "hold a layer");
	memcpy(is.id, chain, sizeof(is.id));
	is.bytes = made.bytes;
	clear(p);
	put(p, &is, held);
	return 0;
}

int pull_stack_add(struct pull *p, const struct layer *l, int held, struct err *e)
{
	_cleanup_fd_ int mine = held;

	if (l->done.opaque_root)
		clear(p);
	if (p->n_stack == IMG_STACK_MAX && merge(p, l[-1].chain, e) < 0)
		return -1;
	put(p, &l->is, fd_steal(&mine));
	return 0;
}

size_t pull_stack_merged(struct pull *p)
{
	struct img_record_layer is = { 0 };
	struct img_layer_info info;
	struct err e;
	int held;

	if (p->n_layers <= IMG_STACK_MAX)
		return 0;
	memcpy(is.id, p->layers[IMG_STACK_MAX - 1].chain, sizeof(is.id));
	held = img_layer_hold(&p->store, 'm', is.id, &info, &e);
	if (held < 0 || img_layer_name('m', is.id, is.name, &e) < 0) {
		fd_close(&held);
		return 0;
	}
	is.bytes = info.done.bytes;
	put(p, &is, held);
	return IMG_STACK_MAX;
}

void pull_stack_free(struct pull *p)
{
	clear(p);
}
