/* Where the children that unpack come from while images are fetched: a process that was made before
 * there were credentials, threads and sockets, so that none of them is in its copies; it has locked
 * itself in, too. */
#pragma once

#include "base/err.h"
#include "image/store.h"
#include "image/unpack_child.h"

struct img_unpack_server {
	int sock; /* -1: none. When it is closed, the server and its children end */
	pid_t pid;
};
#define IMG_UNPACK_NO_SERVER ((struct img_unpack_server){ -1, 0 })

/* What is to be unpacked; the layers below by their names in the store, topmost first, held by the
 * caller. */
struct img_unpack_order {
	uint64_t max_in;
	struct img_unpack_limits limits;
	bool keep_owners;
	bool lax_end; /* see unpack.h */
	size_t n_lowers;
	char lowers[IMG_STACK_MAX][IMG_LAYER_NAME];
};

int img_unpack_serve(const struct img_store *s, struct img_unpack_server *ret, struct err *e);
/* Gives an order, once the one before has ended: a child unpacks `in` into `tree`. img_unpack_end
 * waits for it. */
int img_unpack_order(const struct img_unpack_server *s, const struct img_unpack_order *order,
		     int in, int tree, struct img_unpack_child *ret, struct err *e);
/* Ends it and what it made; harmless on none. */
void img_unpack_server_end(struct img_unpack_server *s);
