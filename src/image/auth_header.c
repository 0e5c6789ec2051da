/* The parser: one pass. A word behind a comma is a parameter of the challenge at hand when '='
 * follows it, and the next challenge's scheme otherwise. */
#include "image/auth_header.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "image/ref.h"

#define HEADER_MAX 8192
#define WORD_MAX 64

enum scheme { NONE, OTHER, BASIC, BEARER };

static int bad(struct err *e, const char *why)
{
	return err_set(e, ERR_REFUSED, "WWW-Authenticate %s", why);
}

static const char *space(const char *s)
{
	return s + strspn(s, " \t");
}

/* A token of RFC 7230. */
static size_t token(const char *s)
{
	return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
			 "!#$%&'*+-.^_`|~");
}

/* A token68 that is all there is of this challenge: its length, or 0. */
static size_t token68(const char *s)
{
	size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
			     "-._~+/");

	if (n == 0)
		return 0;
	n += strspn(s + n, "=");
	s = space(s + n);
	return *s == ',' || !*s ? n : 0;
}

/* A parameter's value into dst (NULL: nobody's) of cap bytes; *s moves behind it. */
static int take_value(const char **s, char *dst, size_t cap, struct err *e)
{
	bool quoted = **s == '"';
	const char *p = *s + quoted;
	size_t n = 0, left = quoted ? 0 : token(p);

	if (!quoted && left == 0)
		return bad(e, "has a parameter without a value");
	for (; quoted ? *p != '"' : left > 0; p++, left--) {
		if (quoted && *p == '\\')
			p++;
		if (!*p)
			return bad(e, "has a quotation without an end");
		if (dst && n + 1 >= cap)
			return bad(e, "has a parameter that is too long");
		if (dst && *p == '\t')
			return bad(e, "has characters that do not belong there");
		if (dst)
			dst[n++] = *p;
	}
	if (dst)
		dst[n] = '\0';
	*s = p + quoted;
	return 0;
}

static int take_param(const char **s, size_t n, enum scheme scheme, struct img_challenges *c,
		      bool seen[2], struct err *e)
{
	static const char *const names[] = { "realm", "service" };
	char *const dst[] = { c->realm, c->service };
	const size_t cap[] = { sizeof(c->realm), sizeof(c->service) };
	const char *name = *s;

	*s = space(space(name + n) + 1);
	for (size_t i = 0; scheme == BEARER && i < 2; i++) {
		if (strlen(names[i]) != n || strncasecmp(names[i], name, n) != 0)
			continue;
		if (seen[i])
			return bad(e, "has a parameter twice");
		seen[i] = true;
		return take_value(s, dst[i], cap[i], e);
	}
	return take_value(s, NULL, 0, e);
}

static enum scheme scheme_of(const char *s, size_t n)
{
	if (n == 5 && !strncasecmp(s, "Basic", n))
		return BASIC;
	return n == 6 && !strncasecmp(s, "Bearer", n) ? BEARER : OTHER;
}

/* The challenge at hand is complete. */
static int end_challenge(enum scheme scheme, const struct img_challenges *one,
			 struct img_challenges *ret, struct err *e)
{
	if (scheme == BASIC)
		ret->basic = true;
	if (scheme != BEARER)
		return 0;
	if (!*one->realm)
		return bad(e, "asks for a token and does not say where to get it");
	if (ret->bearer)
		return 0;
	ret->bearer = true;
	memcpy(ret->realm, one->realm, sizeof(ret->realm));
	memcpy(ret->service, one->service, sizeof(ret->service));
	return 0;
}

/* What follows a scheme's name: nothing, one token68, or parameters. */
static int after_scheme(const char **s, struct err *e)
{
	const char *p = *s;

	if (*p && *p != ',' && *p != ' ' && *p != '\t')
		return bad(e, "can't be read");
	p = space(p);
	*s = p + token68(p);
	return 0;
}

static int parse(const char *s, struct img_challenges *ret, struct err *e)
{
	struct img_challenges one = { 0 };
	enum scheme scheme = NONE;
	bool seen[2] = { false, false }, first = true;

	for (;;) {
		const char *before = s;
		size_t n;

		s += strspn(s, ", \t");
		if (!*s)
			return end_challenge(scheme, &one, ret, e);
		/* Parameters are told apart by commas. */
		if (!first && !memchr(before, ',', (size_t)(s - before)) && scheme != NONE)
			return bad(e, "can't be read");
		n = token(s);
		if (n == 0)
			return bad(e, "can't be read");
		if (*space(s + n) == '=') {
			if (scheme == NONE)
				return bad(e, "has a parameter of nothing");
			if (take_param(&s, n, scheme, &one, seen, e) < 0)
				return -1;
			first = false;
			continue;
		}
		if (end_challenge(scheme, &one, ret, e) < 0)
			return -1;
		if (n > WORD_MAX)
			return bad(e, "has a name that is too long");
		scheme = scheme_of(s, n);
		memset(&one, 0, sizeof(one));
		seen[0] = seen[1] = false;
		s += n;
		if (after_scheme(&s, e) < 0)
			return -1;
		/* The first parameter follows without a comma. */
		first = true;
	}
}

int img_auth_header(const char *value, struct img_challenges *ret, struct err *e)
{
	struct img_challenges all = *ret;
	size_t n = strlen(value);

	if (n > HEADER_MAX)
		return bad(e, "is too long");
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)value[i] >= 0x7f ||
		    ((unsigned char)value[i] < ' ' && value[i] != '\t'))
			return bad(e, "has characters that do not belong there");
	if (parse(value, &all, e) < 0)
		return -1;
	*ret = all;
	return 0;
}

/* The host of "HOST[:PORT]", an address without its brackets. */
static void bare_host(const char *host, char ret[IMG_HOST_MAX + 1])
{
	bool brackets = *host == '[';

	host += brackets;
	snprintf(ret, IMG_HOST_MAX + 1, "%.*s", (int)strcspn(host, brackets ? "]" : ":"), host);
}

bool img_realm_trusted(const char *host, const char *realm)
{
	static const struct {
		const char *registry, *realm;
	} pairs[] = { { "docker.io", "auth.docker.io" } };
	char mine[IMG_HOST_MAX + 1], theirs[IMG_HOST_MAX + 1];

	bare_host(host, mine);
	if (*realm != '[' && strchr(realm, ':')) /* an IPv6 address, bare */
		snprintf(theirs, sizeof(theirs), "%s", realm);
	else
		bare_host(realm, theirs);
	if (!strcasecmp(mine, theirs))
		return true;
	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
		if (!strcasecmp(mine, pairs[i].registry) && !strcasecmp(theirs, pairs[i].realm))
			return true;
	return false;
}

bool img_host_loopback(const char *host)
{
	char bare[IMG_HOST_MAX + 1];
	struct in6_addr six;
	struct in_addr four;

	bare_host(host, bare);
	if (!strcasecmp(bare, "localhost"))
		return true;
	if (*host == '[')
		return inet_pton(AF_INET6, bare, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
	return inet_pton(AF_INET, bare, &four) == 1 && ntohl(four.s_addr) >> 24 == 127;
}
