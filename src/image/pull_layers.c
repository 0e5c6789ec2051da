/* The layers: up to three downloads at once, the lowest first, while those that are here are
 * unpacked one by one from the ground up, since a layer may lean on those below.
 *
 * A download goes into the store's own unfinished file and is summed as it comes; what an earlier
 * pull left of it is summed and asked to go on. Only what is whole and has the digest of the
 * manifest is handed to the child that unpacks. A layer that is in the store by its diff id or its
 * chain id is not downloaded; one that another cloche is at is waited for.
 *
 * What may go wrong: what was left over is damaged (asked for once more, from the start), the
 * registry sends more than it said (the transfer ends), less (it is asked for the rest), or other
 * bytes (refused); the disk is full; the child says no. Nothing of it has a name by then. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/pull_impl.h"

#define AT_ONCE 3
#define POLL_MS 100
#define WAIT_MS 200 /* for another cloche */
#define SHOW_MS 250

static int disk(struct err *e)
{
	int full = errno == ENOSPC || errno == EDQUOT;

	err_sys(e, "write to the store");
	if (full)
		err_set(e, ERR_SYS,
			"the disk of the store is full; fix: make room, by `cloche prune` perhaps, and pull again: what was downloaded is kept");
	return -1;
}

static void show(struct layer *l, const char *phase, uint64_t bytes, uint64_t total)
{
	l->shown = img_http_now();
	img_progress_layer(l->pull->how->progress, phase, l->blob->digest, bytes, total);
}

/* Starts the file and its sum anew. */
static int restart(struct layer *l, struct err *e)
{
	img_sha256_drop(&l->sum);
	l->have = 0;
	l->left_over = false;
	if (ftruncate(l->part, 0) < 0)
		return err_sys(e, "truncate a download");
	return img_sha256_begin(&l->sum, e);
}

static int on_begin(void *ctx, uint64_t offset, struct err *e)
{
	struct layer *l = ctx;

	if (offset == l->have)
		return 0;
	if (offset == 0)
		return restart(l, e);
	return err_set(e, ERR_REFUSED, "the registry sends another part than was asked for");
}

static int on_data(void *ctx, const void *data, size_t n, struct err *e)
{
	struct layer *l = ctx;
	const char *at = data;
	size_t left = n;
	off_t to = (off_t)l->have;

	if (n > l->blob->size - l->have)
		return err_set(e, ERR_REFUSED,
			       "the registry sends more than the %llu bytes of the manifest",
			       (unsigned long long)l->blob->size);
	while (left > 0) {
		ssize_t w = pwrite(l->part, at, left, to);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return disk(e);
		at += w;
		to += w;
		left -= (size_t)w;
	}
	if (img_sha256_add(&l->sum, data, n, e) < 0)
		return -1;
	l->have += n;
	l->pull->result.downloaded += n;
	if (img_http_now() >= l->shown + SHOW_MS)
		show(l, "download", l->have, l->blob->size);
	return 0;
}

/* Sums what an earlier pull left, and reads it for the last time in this process. */
static int take_left_over(struct layer *l, struct err *e)
{
	char piece[65536];
	struct stat st;

	if (fstat(l->part, &st) < 0)
		return err_sys(e, "stat a download");
	if (st.st_size == 0 || (uint64_t)st.st_size > l->blob->size)
		return restart(l, e);
	if (img_sha256_begin(&l->sum, e) < 0)
		return -1;
	while (l->have < (uint64_t)st.st_size) {
		ssize_t n = pread(l->part, piece, sizeof(piece), (off_t)l->have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_sys(e, "read a download");
		if (img_http_alive(&l->pull->http, e) < 0 ||
		    img_sha256_add(&l->sum, piece, (size_t)n, e) < 0)
			return -1;
		l->have += (uint64_t)n;
	}
	l->left_over = true;
	return 0;
}

static void done(struct layer *l)
{
	l->state = LAYER_DONE;
	fd_close(&l->part);
	img_sha256_drop(&l->sum);
	img_fetch_free(&l->fetch);
}

/* Takes the layer from the store when it is there. */
static bool there(struct layer *l)
{
	struct pull *p = l->pull;
	struct err ignored;

	if (img_stack_missing(&p->stack, (size_t)(l - p->layers)))
		return false;
	done(l);
	/* What somebody who was killed had downloaded of it. */
	img_part_remove(&p->store, l->blob->digest, &ignored);
	return true;
}

static int about(const struct layer *l, const char *doing, struct err *e)
{
	return err_prefix(e, "%s layer %.19s", doing, l->blob->digest);
}

static int ask(struct layer *l, struct err *e)
{
	struct img_fetch *f = &l->fetch;

	l->sink = (struct img_sink){ on_begin, on_data, l };
	f->reg = &l->pull->reg;
	f->kind = "blobs";
	f->what = l->blob->digest;
	memcpy(f->x.method, "GET", 4);
	f->x.sink = &l->sink;
	l->state = LAYER_DOWNLOADING;
	return img_fetch_begin(f, e);
}

/* Its bytes are all here. */
static int check(struct layer *l, struct err *e)
{
	char digest[IMG_DIGEST_LEN + 1];
	struct err why;
	int r;

	if (img_sha256_sofar(&l->sum, digest, e) < 0)
		return -1;
	if (!strcmp(digest, l->blob->digest)) {
		l->state = LAYER_FETCHED;
		img_fetch_free(&l->fetch);
		show(l, "downloaded", l->have, l->blob->size);
		return 0;
	}
	if (l->left_over)
		return restart(l, e) < 0 ? -1 : ask(l, e);
	/* Another mirror may do better. */
	err_set(&why, ERR_REFUSED,
		"the registry sends bytes with the digest %.19s... instead; fix: if it is a proxy's or mirror's fault, pull without it",
		digest);
	if (restart(l, e) < 0)
		return -1;
	r = img_fetch_reject(&l->fetch, &why, e);
	if (r < 0) {
		struct err ignored;

		img_part_remove(&l->pull->store, l->blob->digest, &ignored);
	}
	return r < 0 ? -1 : 0;
}

static int begin(struct layer *l, struct err *e)
{
	struct pull *p = l->pull;

	if (there(l))
		return 0;
	l->part = img_part_open(&p->store, l->blob->digest, false, e);
	if (l->part < 0 && e->kind == ERR_REFUSED) {
		l->again = img_http_now() + WAIT_MS;
		return 0;
	}
	/* Who had it may have just finished. */
	if (l->part < 0 || there(l))
		return l->part < 0 ? -1 : 0;
	show(l, "download", 0, l->blob->size);
	if (take_left_over(l, e) < 0)
		return -1;
	return l->have == l->blob->size ? check(l, e) : ask(l, e);
}

static int run(struct layer *l, struct err *e)
{
	struct img_fetch *f = &l->fetch;

	f->x.from = l->asked = l->have;
	if (img_exchange_prepare(&l->pull->http, &f->x, e) < 0)
		return -1;
	if (curl_multi_add_handle(l->pull->multi, f->x.easy) != CURLM_OK)
		return err_set(e, ERR_SYS, "libcurl could not be set up");
	l->running = true;
	return 0;
}

/* An exchange of the layer is over. */
static int answered(struct layer *l, CURLcode code, struct err *e)
{
	struct img_exchange *x = &l->fetch.x;
	bool gained;
	int r;

	curl_multi_remove_handle(l->pull->multi, x->easy);
	l->running = false;
	img_exchange_finish(x, code);
	gained = l->have > l->asked;
	if (x->outcome == IMG_ANSWERED && x->status == 416 && x->from > 0) {
		x->outcome = IMG_TEMPORARY;
		err_set(&x->err, ERR_REFUSED, "the registry does not go on with a part");
		if (restart(l, e) < 0)
			return -1;
	} else if (x->outcome == IMG_ANSWERED && (x->status == 200 || x->status == 206) &&
		   l->have < l->blob->size) {
		x->outcome = IMG_TEMPORARY;
		err_set(&x->err, ERR_REFUSED,
			"the registry sends %llu of the %llu bytes of the manifest",
			(unsigned long long)l->have, (unsigned long long)l->blob->size);
	}
	r = img_fetch_next(&l->fetch, gained, e);
	if (r != 0)
		return r < 0 ? -1 : 0;
	return check(l, e);
}

static int unpack(struct pull *p, struct layer *l, struct err *e)
{
	if (lseek(l->part, 0, SEEK_SET) < 0)
		return err_sys(e, "seek");
	if (img_stack_start(&p->stack, &p->server, l->part, l->blob->size, &p->child, e) < 0)
		return -1;
	l->state = LAYER_UNPACKING;
	show(l, "unpack", 0, l->blob->size);
	return 0;
}

/* The child has ended. What it refused is not kept: it would be the same the next time. */
static int unpacked(struct pull *p, struct layer *l, struct err *e)
{
	struct err ignored;

	if (img_stack_end(&p->stack, &p->child, NULL, e) < 0) {
		if (e->num == ENOSPC || e->num == EDQUOT) {
			errno = e->num;
			return disk(e);
		}
		if (e->kind == ERR_REFUSED)
			img_part_remove(&p->store, l->blob->digest, &ignored);
		return -1;
	}
	if (img_part_remove(&p->store, l->blob->digest, e) < 0)
		return -1;
	show(l, "done", l->blob->size, l->blob->size);
	done(l);
	return 0;
}

/* Downloads that are due. */
static int start_due(struct pull *p, struct err *e)
{
	uint64_t now = img_http_now();
	size_t active = 0;

	for (size_t i = p->next; i < p->n_layers; i++)
		active += p->layers[i].state == LAYER_DOWNLOADING;
	for (size_t i = p->next; i < p->n_layers; i++) {
		struct layer *l = &p->layers[i];

		if (l->state == LAYER_WANTED && now >= l->again && active < AT_ONCE) {
			if (begin(l, e) < 0)
				return about(l, "download of", e);
			active += l->state == LAYER_DOWNLOADING;
		}
		if (l->state == LAYER_DOWNLOADING && !l->running && now >= l->fetch.not_before &&
		    run(l, e) < 0)
			return about(l, "download of", e);
	}
	return 0;
}

static int take_answers(struct pull *p, struct err *e)
{
	CURLMsg *m;
	int left, running;

	if (curl_multi_perform(p->multi, &running) != CURLM_OK)
		return err_set(e, ERR_SYS, "libcurl failed");
	while ((m = curl_multi_info_read(p->multi, &left))) {
		struct img_exchange *x;
		struct layer *l;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&x);
		l = (struct layer *)(void *)((char *)x - offsetof(struct layer, fetch.x));
		if (answered(l, m->data.result, e) < 0)
			return about(l, "download of", e);
	}
	return 0;
}

/* Somebody else has made it after all. */
static void give_up(struct layer *l)
{
	struct err ignored;

	if (l->running)
		curl_multi_remove_handle(l->pull->multi, l->fetch.x.easy);
	l->running = false;
	img_part_remove(&l->pull->store, l->blob->digest, &ignored);
	done(l);
}

static int step_unpacking(struct pull *p, struct err *e)
{
	struct layer *l = &p->layers[p->next];
	struct pollfd answer = { .fd = p->child.answer, .events = POLLIN };

	if (p->child.answer >= 0) {
		if (poll(&answer, 1, 0) <= 0)
			return 0;
		if (unpacked(p, l, e) < 0)
			return about(l, "unpacking of", e);
	}
	if (!img_stack_next(&p->stack, &p->next, e)) {
		if (e->kind != ERR_NONE)
			return -1;
		p->next = p->n_layers;
	}
	for (size_t i = 0; i < p->next; i++)
		if (p->layers[i].state != LAYER_DONE)
			give_up(&p->layers[i]);
	if (p->next == p->n_layers)
		return 0;
	l = &p->layers[p->next];
	return l->state == LAYER_FETCHED && unpack(p, l, e) < 0 ? about(l, "unpacking of", e) : 0;
}

static void tick(struct pull *p)
{
	struct img_sums s = { .layers = p->n_layers };

	for (size_t i = 0; i < p->n_layers; i++) {
		const struct layer *l = &p->layers[i];
		off_t at;

		s.total += l->blob->size;
		s.to_read += l->blob->size;
		s.done += l->state == LAYER_DONE;
		s.bytes += l->state == LAYER_DONE ? l->blob->size : l->have;
		if (l->state == LAYER_DONE)
			s.read += l->blob->size;
		else if (l->state == LAYER_UNPACKING && (at = lseek(l->part, 0, SEEK_CUR)) > 0)
			s.read += (uint64_t)at;
	}
	img_progress_tick(p->how->progress, &s);
}

static int prepare(struct pull *p, struct err *e)
{
	p->n_layers = p->manifest.n_layers;
	p->layers = calloc(p->n_layers + 1, sizeof(*p->layers));
	p->multi = curl_multi_init();
	if (!p->layers || !p->multi)
		return err_set(e, ERR_SYS, "memory for %zu layers", p->n_layers);
	if (img_stack_begin(&p->stack, &p->store, &p->config, e) < 0)
		return -1;
	p->result.layers = p->n_layers;
	for (size_t i = 0; i < p->n_layers; i++) {
		struct layer *l = &p->layers[i];

		*l = (struct layer){ .pull = p, .blob = &p->manifest.layers[i], .part = -1 };
		p->result.shared += there(l);
	}
	return 0;
}

static void tell(const struct pull *p)
{
	char text[200];
	uint64_t bytes = 0;

	for (size_t i = 0; i < p->n_layers; i++)
		bytes += p->layers[i].state == LAYER_DONE ? 0 : p->layers[i].blob->size;
	snprintf(text, sizeof(text), "downloading %zu of %zu layers, %.1f MB",
		 p->n_layers - p->result.shared, p->n_layers, (double)bytes / 1e6);
	img_progress_phase(p->how->progress, "download", text);
}

int pull_layers(struct pull *p, struct err *e)
{
	if (prepare(p, e) < 0)
		return -1;
	if (p->result.shared < p->n_layers)
		tell(p);
	for (;;) {
		struct curl_waitfd answer = { .fd = p->child.answer, .events = CURL_WAIT_POLLIN };

		if (step_unpacking(p, e) < 0)
			return -1;
		if (p->next == p->n_layers)
			return 0;
		if (img_http_alive(&p->http, e) < 0 || start_due(p, e) < 0 ||
		    take_answers(p, e) < 0)
			return -1;
		tick(p);
		answer.fd = p->child.answer;
		curl_multi_poll(p->multi, &answer, answer.fd >= 0, POLL_MS, NULL);
	}
}

void pull_layers_free(struct pull *p)
{
	for (size_t i = 0; i < p->n_layers && p->layers; i++) {
		struct layer *l = &p->layers[i];

		if (l->running)
			curl_multi_remove_handle(p->multi, l->fetch.x.easy);
		img_fetch_free(&l->fetch);
		img_sha256_drop(&l->sum);
		fd_close(&l->part);
	}
	curl_multi_cleanup(p->multi);
	free(p->layers);
	p->layers = NULL;
	p->multi = NULL;
}
