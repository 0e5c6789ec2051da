/* One exchange: options in, an answer out.
 *
 * What may go wrong is told apart by what can be done about it: again later (the network), nothing
 * (a certificate nobody vouches for), or plain HTTP where that is allowed. The library's own words
 * name hosts and ports at most. */
#include "image/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "image/manifest.h"

#define HEADERS_MAX 65536
#define REFUSAL_MAX 65536 /* of a body that is no 2xx's */
#define CONNECT_S 30L
#define SLOW_BYTES 1024L /* a second, for this long: given up */
#define SLOW_S 30L

uint64_t img_http_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

int img_http_alive(const struct img_http *h, struct err *e)
{
	if (h->stop && *h->stop)
		return err_set(e, ERR_SYS, "interrupted; what was downloaded is kept");
	if (h->deadline && img_http_now() >= h->deadline)
		return err_set(
			e, ERR_SYS,
			"the time is up; what was downloaded is kept, and the next pull goes on from there (or give more by --timeout)");
	return 0;
}

void img_exchange_free(struct img_exchange *x)
{
	curl_easy_cleanup(x->easy);
	curl_slist_free_all(x->headers);
	curl_url_cleanup(x->address);
	x->easy = NULL;
	x->headers = NULL;
	x->address = NULL;
	buf_free(&x->body);
}

/* The value of the header `name` in a line of n bytes, without spaces around it; NULL for another
 * header or one that does not fit. */
static const char *value_of(const char *line, size_t n, const char *name, char *dst, size_t cap)
{
	size_t k = strlen(name);

	if (n <= k || strncasecmp(line, name, k) != 0 || line[k] != ':')
		return NULL;
	line += k + 1;
	n -= k + 1;
	while (n > 0 && (*line == ' ' || *line == '\t')) {
		line++;
		n--;
	}
	while (n > 0 && strchr(" \t\r\n", line[n - 1]))
		n--;
	if (n >= cap || memchr(line, '\0', n))
		return NULL;
	memcpy(dst, line, n);
	dst[n] = '\0';
	return dst;
}

static void forget(struct img_exchange *x)
{
	memset(&x->challenges, 0, sizeof(x->challenges));
	x->bad_challenge = x->has_offset = false;
	*x->type = *x->digest = *x->location = '\0';
}

static void take_offset(struct img_exchange *x, const char *range)
{
	char *end;

	if (strncasecmp(range, "bytes ", 6) != 0 || range[6] < '0' || range[6] > '9')
		return;
	errno = 0;
	x->offset = strtoull(range + 6, &end, 10);
	x->has_offset = errno == 0 && *end == '-';
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
	struct img_exchange *x = ctx;
	char value[IMG_URL_MAX];
	struct err e;

	n *= size;
	x->header_bytes += n;
	if (x->header_bytes > HEADERS_MAX) {
		x->too_long = true;
		return 0;
	}
	if (n > 5 && !strncmp(line, "HTTP/", 5)) /* after "100 Continue" another answer comes */
		forget(x);
	else if (value_of(line, n, "content-type", x->type, sizeof(x->type)) ||
		 value_of(line, n, "docker-content-digest", x->digest, sizeof(x->digest)) ||
		 value_of(line, n, "location", x->location, sizeof(x->location)))
		return n;
	else if (value_of(line, n, "content-range", value, sizeof(value)))
		take_offset(x, value);
	else if (value_of(line, n, "www-authenticate", value, sizeof(value)))
		x->bad_challenge |= img_auth_header(value, &x->challenges, &e) < 0;
	return n;
}

static int sink(struct img_exchange *x, const void *data, size_t n)
{
	const struct img_sink *to = x->sink;

	if (!x->begun) {
		uint64_t offset = x->status == 206 ? x->offset : 0;

		if (x->status == 206 && !x->has_offset)
			return err_set(&x->err, ERR_REFUSED,
				       "it sends a part, and does not say which");
		x->begun = true;
		if (to->begin(to->ctx, offset, &x->err) < 0)
			return -1;
	}
	return to->data(to->ctx, data, n, &x->err);
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
	struct img_exchange *x = ctx;
	bool good;
	size_t max;

	n *= size;
	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &x->status);
	good = x->status == 200 || x->status == 206;
	if (good && x->sink) {
		x->sink_failed = sink(x, data, n) < 0;
		return x->sink_failed ? 0 : n;
	}
	max = x->status >= 200 && x->status < 300 ? x->body_max : REFUSAL_MAX;
	if (n > max - x->body.len) {
		x->too_long = true;
		return 0;
	}
	buf_add(&x->body, data, n);
	return x->body.failed ? 0 : n;
}

static int on_progress(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
	struct img_exchange *x = ctx;
	struct err e;

	return img_http_alive(x->http, &e) < 0;
}

static int add_header(struct img_exchange *x, const char *name, const char *value, struct err *e)
{
	_cleanup_buf_ struct buf line = { 0 };
	struct curl_slist *more;

	buf_init(&line, 65536);
	buf_fmt(&line, "%s: %s", name, value);
	more = line.failed ? NULL : curl_slist_append(x->headers, line.data);
	if (line.data)
		explicit_bzero(line.data, line.len);
	if (!more)
		return err_set(e, ERR_SYS, "memory for a header");
	x->headers = more;
	return 0;
}

static int set_headers(struct img_exchange *x, struct err *e)
{
	if (x->accept && add_header(x, "Accept", x->accept, e) < 0)
		return -1;
	if (x->authorization && add_header(x, "Authorization", x->authorization, e) < 0)
		return -1;
	return curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->headers) != CURLE_OK;
}

/* `local`: this machine's, and the caller allows what it does not allow elsewhere. */
static void set_trust(const struct img_http *h, CURL *c, bool local)
{
	curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, local ? 0L : 1L);
	curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, local ? 0L : 2L);
	if (h->ca.len > 0) {
		struct curl_blob blob = { h->ca.data, h->ca.len, CURL_BLOB_NOCOPY };

		curl_easy_setopt(c, CURLOPT_CAINFO_BLOB, &blob);
		return;
	}
	if (h->ca_file)
		curl_easy_setopt(c, CURLOPT_CAINFO, h->ca_file);
	if (h->ca_dir)
		curl_easy_setopt(c, CURLOPT_CAPATH, h->ca_dir);
}

static void set_schemes(CURL *c, bool local)
{
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, local ? "https,http" : "https");
#else
	curl_easy_setopt(c, CURLOPT_PROTOCOLS,
			 (long)(CURLPROTO_HTTPS | (local ? CURLPROTO_HTTP : 0)));
#endif
	/* What is meant for this machine does not go by way of another. */
	if (local)
		curl_easy_setopt(c, CURLOPT_PROXY, "");
}

static void set_bounds(struct img_exchange *x, CURL *c)
{
	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, SLOW_BYTES);
	curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, SLOW_S);
	curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(c, CURLOPT_XFERINFODATA, x);
	curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 262144L);
}

static void set_question(struct img_exchange *x, CURL *c)
{
	char range[32];

	curl_easy_setopt(c, CURLOPT_USERAGENT, "cloche/" CLOCHE_VERSION);
	if (!strcmp(x->method, "HEAD"))
		curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
	if (x->form) {
		curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE, (long)strlen(x->form));
		curl_easy_setopt(c, CURLOPT_POSTFIELDS, x->form);
	}
	if (x->from > 0) {
		snprintf(range, sizeof(range), "%llu-", (unsigned long long)x->from);
		curl_easy_setopt(c, CURLOPT_RANGE, range);
	}
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->why);
	curl_easy_setopt(c, CURLOPT_PRIVATE, x);
}

int img_exchange_prepare(const struct img_http *h, struct img_exchange *x, struct err *e)
{
	struct img_origin origin;
	bool local;

	img_exchange_free(x);
	forget(x);
	buf_init(&x->body, x->body_max > REFUSAL_MAX ? x->body_max : REFUSAL_MAX);
	x->http = h;
	x->status = 0;
	x->retry_after = 0;
	x->header_bytes = 0;
	x->begun = x->too_long = x->sink_failed = false;
	*x->why = '\0';
	if (img_origin_of(x->url, h->insecure, &origin, e) < 0)
		return -1;
	local = h->insecure && img_host_loopback(origin.host);
	x->easy = curl_easy_init();
	x->address = curl_url();
	if (!x->easy || !x->address ||
	    curl_url_set(x->address, CURLUPART_URL, x->url, CURLU_DISALLOW_USER) != CURLUE_OK ||
	    curl_easy_setopt(x->easy, CURLOPT_CURLU, x->address) != CURLE_OK)
		return err_set(e, ERR_SYS, "libcurl could not be set up");
	set_trust(h, x->easy, local);
	set_schemes(x->easy, local);
	set_bounds(x, x->easy);
	set_question(x, x->easy);
	return set_headers(x, e) ? err_set(e, ERR_SYS, "libcurl could not be set up") : 0;
}

/* What a failure of the library is. */
static const struct {
	CURLcode code;
	enum img_outcome outcome;
	const char *says; /* with %s for the host */
} failures[] = {
	{ CURLE_COULDNT_RESOLVE_HOST, IMG_TEMPORARY,
	  "the name %s can't be resolved; fix: check the name, and that this machine has a network" },
	{ CURLE_COULDNT_RESOLVE_PROXY, IMG_PERMANENT,
	  "the proxy on the way to %s can't be resolved; fix: check https_proxy and no_proxy" },
#ifdef CURLE_PROXY
	{ CURLE_PROXY, IMG_PERMANENT,
	  "the proxy on the way to %s refuses; fix: check https_proxy and no_proxy" },
#endif
	{ CURLE_COULDNT_CONNECT, IMG_TEMPORARY,
	  "%s can't be reached: no connection; fix: check that the registry runs, and the network (behind a proxy: https_proxy)" },
	{ CURLE_OPERATION_TIMEDOUT, IMG_TEMPORARY, "%s is too slow" },
	{ CURLE_PEER_FAILED_VERIFICATION, IMG_PERMANENT,
	  "the certificate of %s is not trusted; fix: give its authority by --ca-file FILE" },
	{ CURLE_SSL_CACERT_BADFILE, IMG_PERMANENT,
	  "the file of authorities can't be read, so %s is not trusted; fix: check --ca-file and SSL_CERT_FILE" },
	{ CURLE_SSL_CONNECT_ERROR, IMG_NO_TLS,
	  "no TLS connection with %s; fix: check that it speaks TLS 1.2 or later (plain HTTP is taken from this machine only, with --insecure)" },
	{ CURLE_UNSUPPORTED_PROTOCOL, IMG_PERMANENT, "%s is not reached by HTTPS" },
	{ CURLE_WEIRD_SERVER_REPLY, IMG_PERMANENT, "what answers at %s does not speak HTTP" },
};

void img_exchange_finish(struct img_exchange *x, CURLcode code)
{
	struct img_origin origin = { 0 };
	curl_off_t wait = 0;
	long proxy = 0;
	struct err e;

	curl_easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &x->status);
	if (curl_easy_getinfo(x->easy, CURLINFO_RETRY_AFTER, &wait) == CURLE_OK && wait > 0)
		x->retry_after = (uint64_t)wait;
	x->outcome = IMG_ANSWERED;
	/* Of a refusal the first part tells enough. */
	if (code == CURLE_OK || (x->too_long && x->status >= 400 && x->header_bytes <= HEADERS_MAX))
		return;
	x->outcome = IMG_PERMANENT;
	if (x->sink_failed || img_http_alive(x->http, &x->err) < 0)
		return;
	img_origin_of(x->url, true, &origin, &e);
	if (x->too_long) {
		err_set(&x->err, ERR_REFUSED, "%s sends more than the %zu bytes it may",
			origin.host,
			x->header_bytes > HEADERS_MAX ? (size_t)HEADERS_MAX : x->body_max);
		return;
	}
	if (curl_easy_getinfo(x->easy, CURLINFO_HTTP_CONNECTCODE, &proxy) == CURLE_OK &&
	    proxy >= 300) {
		err_set(&x->err, ERR_REFUSED,
			"the proxy on the way to %s refuses (%ld); fix: check https_proxy and no_proxy",
			origin.host, proxy);
		return;
	}
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		if (failures[i].code != code)
			continue;
		x->outcome = failures[i].outcome;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		err_set(&x->err, ERR_REFUSED, failures[i].says, origin.host);
#pragma GCC diagnostic pop
		return;
	}
	x->outcome = IMG_TEMPORARY;
	err_set(&x->err, ERR_SYS, "the connection to %s broke: %s", origin.host,
		*x->why ? x->why : curl_easy_strerror(code));
}

int img_exchange_run(const struct img_http *h, struct img_exchange *x, struct err *e)
{
	if (img_http_alive(h, e) < 0 || img_exchange_prepare(h, x, e) < 0)
		return -1;
	img_exchange_finish(x, curl_easy_perform(x->easy));
	return img_http_alive(h, e);
}

static int part(CURLU *u, CURLUPart what, unsigned flags, char *dst, size_t cap)
{
	char *text = NULL;
	bool fits = curl_url_get(u, what, &text, flags) == CURLUE_OK && strlen(text) < cap;

	if (fits)
		memcpy(dst, text, strlen(text) + 1);
	curl_free(text);
	return fits ? 0 : -1;
}

int img_origin_of(const char *url, bool plain_too, struct img_origin *ret, struct err *e)
{
	struct img_origin o;
	CURLU *u = curl_url();
	int r = -1;

	if (u && curl_url_set(u, CURLUPART_URL, url, CURLU_DISALLOW_USER) == CURLUE_OK &&
	    part(u, CURLUPART_SCHEME, 0, o.scheme, sizeof(o.scheme)) == 0 &&
	    part(u, CURLUPART_HOST, 0, o.host, sizeof(o.host)) == 0 && *o.host &&
	    part(u, CURLUPART_PORT, CURLU_DEFAULT_PORT, o.port, sizeof(o.port)) == 0)
		r = 0;
	curl_url_cleanup(u);
	if (r < 0)
		return err_set(e, ERR_REFUSED, "an address can't be read");
	if (strcmp(o.scheme, "https") != 0 &&
	    !(plain_too && !strcmp(o.scheme, "http") && img_host_loopback(o.host)))
		return err_set(e, ERR_REFUSED, "an address is not one of HTTPS");
	*ret = o;
	return 0;
}

bool img_origin_same(const struct img_origin *a, const struct img_origin *b)
{
	return !strcmp(a->scheme, b->scheme) && !strcasecmp(a->host, b->host) &&
	       !strcmp(a->port, b->port);
}

int img_url_redirect(const char *url, const char *location, char ret[IMG_URL_MAX], struct err *e)
{
	CURLU *u = curl_url();
	bool done = u && *location && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
		    curl_url_set(u, CURLUPART_URL, location, CURLU_DISALLOW_USER) == CURLUE_OK &&
		    curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK &&
		    part(u, CURLUPART_URL, 0, ret, IMG_URL_MAX) == 0;

	curl_url_cleanup(u);
	return done ? 0 : err_set(e, ERR_REFUSED, "a redirect leads to no address");
}

int img_url_query(char url[IMG_URL_MAX], const char *name, const char *value, struct err *e)
{
	_cleanup_buf_ struct buf pair = { 0 };
	CURLU *u = curl_url();
	bool done;

	buf_init(&pair, IMG_URL_MAX);
	buf_fmt(&pair, "%s=%s", name, value);
	done = u && !pair.failed && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
	       curl_url_set(u, CURLUPART_QUERY, pair.data, CURLU_APPENDQUERY | CURLU_URLENCODE) ==
		       CURLUE_OK &&
	       part(u, CURLUPART_URL, 0, url, IMG_URL_MAX) == 0;
	curl_url_cleanup(u);
	return done ? 0 : err_set(e, ERR_REFUSED, "an address is too long");
}
