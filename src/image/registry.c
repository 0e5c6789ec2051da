/* The questions' state machine. Tokens are in registry_token.c.
 *
 * What may go wrong is said with its fix: not there, not allowed, too often, broken. What the
 * registry says itself comes along, made printable and cut. */
#include "image/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "image/json_read.h"
#include "image/registry_impl.h"

#define TRIES 5
#define TRIES_UNREACHED 3
#define REDIRECTS_DOC 5
#define REDIRECTS_BLOB 10
#define FIRST_WAIT_MS 400
#define WAIT_MAX_MS 10000
#define RETRY_AFTER_MAX 60 /* seconds: beyond it is for the user to come back */
#define HUB "docker.io"
#define HUB_DIALLED "registry-1.docker.io"

const char *img_endpoint_name(const struct img_fetch *f)
{
	return f->reg->ends[f->end].host;
}

int img_mirror_parse(const char *text, const char *host, struct img_endpoint *ret, struct err *e)
{
	const char *equal = strchr(text, '='), *slash;
	struct img_endpoint end = { 0 };
	char whole[2 * IMG_HOST_MAX + IMG_REPO_MAX + 8];
	struct img_ref ref;
	bool other = false;

	for (int i = equal ? 0 : 1; i < 2; i++) {
		const char *part = i == 0 ? text : equal ? equal + 1 : text;
		size_t n = i == 0 ? (size_t)(equal - text) : strlen(part);

		/* As a reference is read, so that a host is what it is there; it needs a dot, a
		 * port or to be localhost there, too. */
		slash = memchr(part, '/', n);
		if (n > IMG_HOST_MAX + IMG_REPO_MAX ||
		    snprintf(whole, sizeof(whole), "%.*s%s", (int)n, part, slash ? "" : "/x") < 0 ||
		    img_ref_parse(whole, &ref, e) < 0 || ref.kind != IMG_REF_REGISTRY ||
		    *ref.digest || strcmp(ref.tag, "latest") != 0 || (i == 0 && slash) ||
		    (!strcmp(ref.host, HUB) && i == 1))
			return err_set(
				e, ERR_USAGE,
				"mirror %.200s: it is written [REGISTRY=]HOST[:PORT][/PATH], with a host that has a dot or a port",
				text);
		if (i == 0)
			other = strcmp(ref.host, host) != 0;
		if (i == 1) {
			memcpy(end.host, ref.host, sizeof(end.host));
			if (slash)
				memcpy(end.prefix, ref.repo, sizeof(end.prefix));
		}
	}
	if (!equal)
		other = strcmp(host, HUB) != 0;
	if (other)
		return 0;
	*ret = end;
	return 1;
}

void img_registry_free(struct img_registry *r)
{
	for (size_t i = 0; i < r->n; i++) {
		char *secret = r->ends[i].authorization;

		img_auth_wipe(&r->ends[i].auth);
		if (secret)
			explicit_bzero(secret, strlen(secret));
		free(secret);
		r->ends[i].authorization = NULL;
	}
}

static int make_url(struct img_fetch *f, struct err *e)
{
	const struct img_endpoint *end = &f->reg->ends[f->end];
	bool hub = !strcmp(end->host, HUB);
	int n = snprintf(f->x.url, sizeof(f->x.url), "%s://%s/v2/%s%s%s/%s/%s",
			 end->plain ? "http" : "https", hub ? HUB_DIALLED : end->host, end->prefix,
			 *end->prefix ? "/" : "", f->reg->ref->repo, f->kind, f->what);

	f->foreign = false;
	f->redirects = 0;
	f->x.authorization = end->authorization;
	f->generation = end->generation;
	return n < 0 || n >= (int)sizeof(f->x.url)
		       ? err_set(e, ERR_REFUSED, "the address is too long")
		       : 0;
}

int img_fetch_begin(struct img_fetch *f, struct err *e)
{
	f->end = f->reg->at;
	f->ends_left = f->reg->n - 1;
	f->tries = 0;
	f->renewed = false;
	f->not_before = 0;
	return make_url(f, e);
}

void img_fetch_free(struct img_fetch *f)
{
	img_exchange_free(&f->x);
}

/* The registry's own words, in brackets; "" when it has none. */
static const char *its_words(const struct img_exchange *x, char dst[200])
{
	_cleanup_json_ json_t *doc = NULL;
	char code[40], text[400], shown[120];
	json_t *list, *first;
	struct err e;

	*dst = '\0';
	if (!x->body.data || img_json_load(x->body.data, x->body.len, x->body.len, &doc, &e) < 0 ||
	    img_json_array(doc, "", "errors", 64, &list, &e) < 0)
		return dst;
	first = json_array_get(list, 0);
	if (!json_is_object(first) || img_json_str(first, "", "code", code, sizeof(code), &e) < 0 ||
	    img_json_str(first, "", "message", text, sizeof(text), &e) < 0 || !*text)
		return dst;
	snprintf(dst, 200, " (\"%s\")", str_printable(shown, sizeof(shown), text));
	return dst;
}

static int refusal(const struct img_fetch *f, struct err *e)
{
	const struct img_endpoint *end = &f->reg->ends[f->end];
	const char *host = end->host;
	long status = f->x.status;
	char words[200];

	its_words(&f->x, words);
	if (f->foreign && status != 429)
		return err_set(e, ERR_REFUSED, "the host that %s led to refuses with status %ld",
			       host, status);
	if (status == 404)
		return err_set(e, ERR_REFUSED,
			       "%s does not have it (404)%s; fix: check the name and the tag", host,
			       words);
	if ((status == 401 || status == 403) && end->auth.kind != IMG_AUTH_NONE)
		return err_set(
			e, ERR_REFUSED,
			"%s refuses the credentials it was shown (%ld)%s; fix: check the name, and log in again (docker login %s)",
			host, status, words, host);
	if (status == 401 || status == 403)
		return err_set(
			e, ERR_REFUSED,
			"%s refuses it without a login, or does not have it (%ld)%s; fix: check the name, or log in (docker login %s)",
			host, status, words, host);
	if (status == 429)
		return err_set(
			e, ERR_REFUSED,
			"%s answers \"too many requests\" (429)%s; fix: wait%s, log in for a higher limit, or use a mirror (--mirror)",
			host, words, f->x.retry_after ? " as long as it asks" : "");
	return err_set(e, ERR_REFUSED, "%s answers with status %ld%s", host, status, words);
}

/* Something between the half and the whole of it, so that many do not come back at once. */
static uint64_t uneven(uint64_t ms)
{
	uint32_t r = 0;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r))
		r = (uint32_t)img_http_now();
	return ms / 2 + r % (ms / 2 + 1);
}

static bool may_pass(const struct img_fetch *f)
{
	const struct img_exchange *x = &f->x;

	if (x->outcome != IMG_ANSWERED)
		return x->outcome == IMG_TEMPORARY;
	if (x->retry_after > RETRY_AFTER_MAX)
		return false;
	/* Where a registry leads to is open for a while only. */
	return x->status == 408 || x->status == 429 || x->status >= 500 ||
	       (f->foreign && x->status == 403);
}

/* The same again later, when there are tries left. */
static bool try_later(struct img_fetch *f, bool gained)
{
	uint64_t wait = FIRST_WAIT_MS;

	if (!may_pass(f))
		return false;
	if (gained)
		f->tries = 0;
	/* What can't be reached at all is mostly not there. */
	if (++f->tries >= (f->x.status ? TRIES : TRIES_UNREACHED))
		return false;
	for (unsigned i = 1; i < f->tries; i++)
		wait = wait * 2 > WAIT_MAX_MS ? WAIT_MAX_MS : wait * 2;
	wait = uneven(wait);
	if (f->x.outcome == IMG_ANSWERED && f->x.retry_after * 1000 > wait)
		wait = f->x.retry_after * 1000;
	f->not_before = img_http_now() + wait;
	return true;
}

/* Another mirror, or the registry. */
static int next_end(struct img_fetch *f, const struct err *why, struct err *e)
{
	char text[700];

	if (f->ends_left == 0) {
		*e = *why;
		return -1;
	}
	snprintf(text, sizeof(text), "%s; going on with the next one", why->msg);
	f->reg->note(f->reg->ctx, text);
	f->ends_left--;
	f->end = (f->end + 1) % f->reg->n;
	f->tries = 0;
	f->renewed = false;
	f->not_before = 0;
	return make_url(f, e) < 0 ? -1 : 1;
}

static int redirect(struct img_fetch *f, struct err *e)
{
	unsigned max = strcmp(f->kind, "blobs") ? REDIRECTS_DOC : REDIRECTS_BLOB;
	struct img_origin from, to;
	char url[IMG_URL_MAX];

	if (++f->redirects > max)
		return err_set(e, ERR_REFUSED, "%s leads on and on: more than %u redirects",
			       img_endpoint_name(f), max);
	if (img_url_redirect(f->x.url, f->x.location, url, e) < 0 ||
	    img_origin_of(f->x.url, f->reg->http->insecure, &from, e) < 0 ||
	    img_origin_of(url, f->reg->http->insecure, &to, e) < 0)
		return err_prefix(e, "%s: a redirect", img_endpoint_name(f));
	/* Only https to https, or what was plain already. */
	if (!strcmp(from.scheme, "https") && strcmp(to.scheme, "https") != 0)
		return err_set(e, ERR_REFUSED, "%s leads from HTTPS to plain HTTP",
			       img_endpoint_name(f));
	f->foreign = f->foreign || !img_origin_same(&from, &to);
	f->x.authorization = f->foreign ? NULL : f->reg->ends[f->end].authorization;
	memcpy(f->x.url, url, sizeof(url));
	f->not_before = 0;
	return 1;
}

/* It wants to know who asks. */
static int identify(struct img_fetch *f, struct err *e)
{
	struct img_endpoint *end = &f->reg->ends[f->end];

	if (f->renewed || f->foreign)
		return refusal(f, e);
	f->renewed = true;
	/* Another question may have got a newer token meanwhile. */
	if (f->generation == end->generation && img_endpoint_authorize(f, e) < 0)
		return -1;
	f->not_before = 0;
	return make_url(f, e) < 0 ? -1 : 1;
}

static int judge(struct img_fetch *f, struct err *e)
{
	const struct img_exchange *x = &f->x;
	struct img_endpoint *end = &f->reg->ends[f->end];

	if (x->outcome == IMG_NO_TLS && f->reg->http->insecure && !end->plain &&
	    img_host_loopback(end->host)) {
		end->plain = true;
		return make_url(f, e) < 0 ? -1 : 1;
	}
	if (x->outcome != IMG_ANSWERED) {
		*e = x->err;
		return -1;
	}
	if (x->status == 200 || x->status == 206)
		return 0;
	if (x->status == 301 || x->status == 302 || x->status == 303 || x->status == 307 ||
	    x->status == 308)
		return redirect(f, e);
	if (x->status == 401)
		return identify(f, e);
	return refusal(f, e);
}

int img_fetch_next(struct img_fetch *f, bool gained, struct err *e)
{
	struct err why;
	int r;

	if (img_http_alive(f->reg->http, e) < 0)
		return -1;
	r = judge(f, &why);
	if (r == 0)
		f->reg->at = f->end;
	if (r >= 0)
		return r;
	if (f->x.sink_failed) { /* ours, not theirs */
		*e = why;
		return -1;
	}
	if (try_later(f, gained)) {
		/* Where it led to may have expired. */
		return make_url(f, e) < 0 ? -1 : 1;
	}
	return next_end(f, &why, e);
}

int img_fetch_go(struct img_fetch *f, struct err *e)
{
	int r;

	do {
		while (img_http_now() < f->not_before) {
			uint64_t left = f->not_before - img_http_now();
			struct timespec ts = { .tv_nsec =
						       (left > 100 ? 100 : (long)left) * 1000000L };

			if (img_http_alive(f->reg->http, e) < 0)
				return -1;
			nanosleep(&ts, NULL);
		}
		if (img_exchange_run(f->reg->http, &f->x, e) < 0)
			return -1;
		r = img_fetch_next(f, false, e);
	} while (r > 0);
	return r;
}

int img_fetch_reject(struct img_fetch *f, const struct err *why, struct err *e)
{
	f->x.outcome = IMG_PERMANENT;
	f->x.err = *why;
	return img_fetch_next(f, false, e);
}
