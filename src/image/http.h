/* HTTP as registries speak it, by libcurl: one exchange at a time or several at once; HTTPS from
 * TLS 1.2 on, certificates checked. Redirects, retries and authentication are registry.h's.
 *
 * Every answer is bounded: its headers, its body, its pace. Addresses are parsed by the library
 * that dials them, so that what was judged is what is dialled. No message has an address's query, a
 * header or a password in it. */
#pragma once

#include <curl/curl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "image/auth_header.h"
#include "image/ref.h"

#define IMG_URL_MAX 8192

struct img_http {
	bool insecure; /* loopback only, decided by the caller: plain HTTP and any certificate */
	struct buf ca; /* PEM of all authorities, or empty: libcurl's own */
	const char *ca_file, *ca_dir;	   /* else these, or NULL */
	uint64_t deadline;		   /* of img_http_now, or 0 */
	const volatile sig_atomic_t *stop; /* set from outside: end */
};

/* Milliseconds of a clock that only goes on. */
uint64_t img_http_now(void);
/* -1 once the deadline has come or it was told to stop. */
int img_http_alive(const struct img_http *h, struct err *e);

/* What takes a body as it comes: begin once, with the offset at which the server begins, then data.
 */
struct img_sink {
	int (*begin)(void *ctx, uint64_t offset, struct err *e);
	int (*data)(void *ctx, const void *data, size_t n, struct err *e);
	void *ctx;
};

enum img_outcome {
	IMG_ANSWERED,  /* there is a status */
	IMG_TEMPORARY, /* it failed, and may work later */
	IMG_PERMANENT,
	IMG_NO_TLS, /* what answered does not speak TLS */
};

struct img_exchange {
	/* The question. */
	char method[8]; /* "GET", "HEAD", "POST" */
	char url[IMG_URL_MAX];
	const char *accept;	   /* or NULL */
	const char *authorization; /* the header's value, or NULL */
	const char *form;	   /* the body of a POST */
	uint64_t from;		   /* the first byte that is wanted */
	size_t body_max;
	const struct img_sink *sink; /* for the body of 200 and 206; else it is in `body` */

	/* The answer. */
	enum img_outcome outcome;
	struct err err; /* unless it was answered */
	long status;
	struct buf body;
	struct img_challenges challenges;
	bool bad_challenge;
	char type[160], digest[IMG_DIGEST_LEN + 1], location[IMG_URL_MAX];
	uint64_t retry_after; /* seconds; 0: it does not say */

	/* Its own. */
	const struct img_http *http;
	CURL *easy;
	struct curl_slist *headers;
	CURLU *address;
	size_t header_bytes;
	uint64_t offset; /* by Content-Range */
	bool has_offset, begun, too_long, sink_failed;
	char why[CURL_ERROR_SIZE];
};

void img_exchange_free(struct img_exchange *x);
/* Makes the library's handle for the question; what an earlier answer left is gone. */
int img_exchange_prepare(const struct img_http *h, struct img_exchange *x, struct err *e);
/* After the library says how it went: fills the answer. */
void img_exchange_finish(struct img_exchange *x, CURLcode code);
/* Both, and the exchange itself between them. -1 only for what no registry can do about. */
int img_exchange_run(const struct img_http *h, struct img_exchange *x, struct err *e);

/* The parts of an address that decide whom one talks to. */
struct img_origin {
	char scheme[8], host[256], port[8];
};
/* -1 with ERR_REFUSED: no address, one with a user in it, or of another scheme than https (or http,
 * when that is allowed). */
int img_origin_of(const char *url, bool plain_too, struct img_origin *ret, struct err *e);
bool img_origin_same(const struct img_origin *a, const struct img_origin *b);
/* Where a redirect leads: `location` as seen from `url`. -1 with ERR_REFUSED. */
int img_url_redirect(const char *url, const char *location, char ret[IMG_URL_MAX], struct err *e);
/* Adds NAME=VALUE to an address's query, escaped. */
int img_url_query(char url[IMG_URL_MAX], const char *name, const char *value, struct err *e);
