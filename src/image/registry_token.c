/* Who asks: the Authorization header for an endpoint, after its challenge.
 *
 * What may go wrong: a realm that is not the registry's own wants the password (it does not get it:
 * the token is asked for without), leads elsewhere (the password does not go along), answers
 * without end (a bound). Tokens are bytes of others in our header: only those of their alphabet are
 * taken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "image/json_read.h"
#include "image/registry_impl.h"

#define TOKEN_BODY_MAX (1u << 20)
#define TOKEN_MAX 32768
#define TOKEN_TRIES 3
#define REDIRECTS 5

static void base64(struct buf *out, const char *text, size_t n)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t v = (uint32_t)(uint8_t)text[i] << 16 |
			     (left > 1 ? (uint32_t)(uint8_t)text[i + 1] << 8 : 0) |
			     (left > 2 ? (uint32_t)(uint8_t)text[i + 2] : 0);
		char four[4] = { digits[v >> 18], digits[v >> 12 & 63],
				 left > 1 ? digits[v >> 6 & 63] : '=',
				 left > 2 ? digits[v & 63] : '=' };

		buf_add(out, four, 4);
	}
}

/* "Basic ..." of user and password, to be freed. */
static char *basic(const struct img_auth *a)
{
	_cleanup_buf_ struct buf pair = { 0 };
	struct buf out;

	buf_init(&pair, 2 * IMG_SECRET_MAX + 8);
	buf_init(&out, 4 * IMG_SECRET_MAX);
	buf_fmt(&pair, "%s:%s", a->user, a->secret);
	buf_str(&out, "Basic ");
	if (!pair.failed)
		base64(&out, pair.data, pair.len);
	if (pair.data)
		explicit_bzero(pair.data, pair.len);
	if (pair.failed || out.failed)
		buf_free(&out);
	return out.data;
}

static char *bearer(const char *token)
{
	char *header = NULL;

	return asprintf(&header, "Bearer %s", token) < 0 ? NULL : header;
}

static void keep(struct img_endpoint *end, char *header)
{
	if (end->authorization) {
		explicit_bzero(end->authorization, strlen(end->authorization));
		free(end->authorization);
	}
	end->authorization = header;
	end->generation++;
}

static int take_token(const struct img_exchange *x, char ret[TOKEN_MAX], struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;

	if (img_json_load(x->body.data ? x->body.data : "", x->body.len, TOKEN_BODY_MAX, &doc, e) <
		    0 ||
	    img_json_str(doc, "", "token", ret, TOKEN_MAX, e) < 0 ||
	    (!*ret && img_json_str(doc, "", "access_token", ret, TOKEN_MAX, e) < 0))
		return -1;
	if (!*ret ||
	    ret[strspn(ret, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
			    "-._~+/=:|")])
		return err_set(e, ERR_REFUSED, "there is no token in the answer");
	return 0;
}

/* Asks the realm; follows where it leads, the password only on the same host. */
static int ask(struct img_fetch *f, struct img_exchange *x, char ret[TOKEN_MAX], struct err *e)
{
	const struct img_http *h = f->reg->http;
	unsigned redirects = 0, tries = 0;
	struct img_origin from, to;
	char url[IMG_URL_MAX];

	for (;;) {
		if (img_exchange_run(h, x, e) < 0)
			return -1;
		if (x->outcome != IMG_ANSWERED || x->status >= 500 || x->status == 429) {
			if (x->outcome != IMG_PERMANENT && x->outcome != IMG_NO_TLS &&
			    ++tries < TOKEN_TRIES)
				continue;
			if (x->outcome != IMG_ANSWERED) {
				*e = x->err;
				return -1;
			}
		}
		if (x->status == 200)
			return take_token(x, ret, e);
		if (x->status < 300 || x->status >= 400 || !*x->location || x->form)
			break;
		if (++redirects > REDIRECTS)
			return err_set(e, ERR_REFUSED, "more than %d redirects", REDIRECTS);
		if (img_url_redirect(x->url, x->location, url, e) < 0 ||
		    img_origin_of(x->url, h->insecure, &from, e) < 0 ||
		    img_origin_of(url, h->insecure, &to, e) < 0)
			return -1;
		if (!strcmp(from.scheme, "https") && strcmp(to.scheme, "https") != 0)
			return err_set(e, ERR_REFUSED, "it leads from HTTPS to plain HTTP");
		if (!img_origin_same(&from, &to))
			x->authorization = NULL;
		memcpy(x->url, url, sizeof(url));
	}
	if ((x->status == 401 || x->status == 403) && (x->authorization || x->form))
		return err_set(
			e, ERR_REFUSED,
			"%s refuses the credentials it was shown (status %ld); fix: log in again (docker login %s)",
			img_endpoint_name(f), x->status, img_endpoint_name(f));
	return err_set(e, ERR_REFUSED, "it answers with status %ld", x->status);
}

static void add_form(struct buf *form, const char *name, const char *value)
{
	static const char hex[] = "0123456789ABCDEF";

	buf_fmt(form, "%s%s=", form->len ? "&" : "", name);
	for (const unsigned char *s = (const unsigned char *)value; *s; s++) {
		char escaped[3] = { '%', hex[*s >> 4], hex[*s & 15] };

		if ((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
		    (*s >= '0' && *s <= '9'))
			buf_add(form, s, 1);
		else
			buf_add(form, escaped, 3);
	}
}

/* The question to the realm: by a form for whoever has a refresh token, else by the address. */
static int put_question(struct img_fetch *f, struct img_exchange *x, bool trusted, struct buf *form,
			char **ret_basic, struct err *e)
{
	const struct img_endpoint *end = &f->reg->ends[f->end];
	const struct img_challenges *c = &f->x.challenges;
	char scope[IMG_REPO_MAX * 2 + 32];

	snprintf(scope, sizeof(scope), "repository:%s%s%s:pull", end->prefix,
		 *end->prefix ? "/" : "", f->reg->ref->repo);
	memcpy(x->url, c->realm, sizeof(c->realm));
	if (trusted && end->auth.kind == IMG_AUTH_REFRESH) {
		snprintf(x->method, sizeof(x->method), "POST");
		add_form(form, "grant_type", "refresh_token");
		add_form(form, "service", c->service);
		add_form(form, "client_id", "cloche");
		add_form(form, "scope", scope);
		add_form(form, "refresh_token", end->auth.secret);
		x->form = form->data;
		return form->failed ? err_set(e, ERR_SYS, "memory for a form") : 0;
	}
	if (*c->service && img_url_query(x->url, "service", c->service, e) < 0)
		return -1;
	if (trusted && end->auth.kind == IMG_AUTH_PASSWORD)
		x->authorization = *ret_basic = basic(&end->auth);
	return img_url_query(x->url, "scope", scope, e);
}

static int get_token(struct img_fetch *f, struct err *e)
{
	struct img_endpoint *end = &f->reg->ends[f->end];
	struct img_exchange x = { .method = "GET", .accept = "application/json" };
	char token[TOKEN_MAX], *shown = NULL, text[400];
	_cleanup_buf_ struct buf form = { 0 };
	struct img_origin realm;
	bool trusted;
	int r;

	buf_init(&form, 4 * IMG_SECRET_MAX + 4096);
	x.body_max = TOKEN_BODY_MAX;
	if (img_origin_of(f->x.challenges.realm, f->reg->http->insecure, &realm, e) < 0)
		return err_prefix(e, "%s names where to get a token", end->host);
	trusted = img_realm_trusted(end->host, realm.host);
	if (!trusted && end->auth.kind != IMG_AUTH_NONE) {
		snprintf(
			text, sizeof(text),
			"%s sends for a token to %.200s, which is not its own host: the password is not shown there, and the token asked for without",
			end->host, realm.host);
		f->reg->note(f->reg->ctx, text);
	}
	r = put_question(f, &x, trusted, &form, &shown, e);
	if (r == 0)
		r = ask(f, &x, token, e);
	img_exchange_free(&x);
	if (shown)
		explicit_bzero(shown, strlen(shown));
	free(shown);
	if (form.data)
		explicit_bzero(form.data, form.len);
	if (r < 0)
		return err_prefix(e, "a token from %.200s", realm.host);
	keep(end, bearer(token));
	explicit_bzero(token, sizeof(token));
	return 0;
}

int img_endpoint_authorize(struct img_fetch *f, struct err *e)
{
	struct img_endpoint *end = &f->reg->ends[f->end];
	const struct img_challenges *c = &f->x.challenges;

	if (f->x.bad_challenge)
		return err_set(e, ERR_REFUSED, "%s asks for a login in a way that can't be read",
			       end->host);
	if (c->bearer && end->auth.kind == IMG_AUTH_TOKEN) {
		keep(end, bearer(end->auth.secret));
		return 0;
	}
	if (c->bearer)
		return get_token(f, e);
	if (c->basic && end->auth.kind == IMG_AUTH_PASSWORD) {
		keep(end, basic(&end->auth));
		return 0;
	}
	if (c->basic)
		return err_set(
			e, ERR_REFUSED,
			"%s wants a login; fix: docker login %s, or name the file that has it in REGISTRY_AUTH_FILE",
			end->host, end->host);
	return err_set(e, ERR_REFUSED, "%s asks for a login of no kind that is known", end->host);
}
