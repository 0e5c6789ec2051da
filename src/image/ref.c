/* Image references: a cut at the marks, then a check of each part.
 *
 * How: the digest is cut off at the first '@', the tag at the last ':' behind the last '/', the
 * registry at the first '/'. What remains is the repository. Each part then has to be made of its
 * own small alphabet, so that no later user of it (a path of the store, an address) has to check
 * again.
 *
 * What may go wrong: text from outside lands in the message. It is made printable and cut. */
#include "image/ref.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"

#define TEXT_MAX 1024
#define HUB "docker.io"
#define SHA256 "sha256:"

/* A reference while it is cut: copies, because the marks become ends. */
struct cut {
	char text[TEXT_MAX];
	char *host, *repo, *tag, *digest; /* NULL: not there */
};

static bool is_lower(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static bool is_alnum(char c)
{
	return is_lower(c) || (c >= 'A' && c <= 'Z');
}

static bool has_upper(const char *s)
{
	for (; *s; s++)
		if (*s >= 'A' && *s <= 'Z')
			return true;
	return false;
}

int img_digest_check(const char *text, struct err *e)
{
	const char *hex = text + strlen(SHA256);
	char shown[80];
	size_t n;

	str_printable(shown, sizeof(shown), text);
	if (strncmp(text, SHA256, strlen(SHA256)) != 0)
		return err_set(e, ERR_USAGE, "digest %s: only sha256 is taken (sha256:...)", shown);
	n = strspn(hex, "0123456789abcdef");
	if (n != 64 || hex[n])
		return err_set(e, ERR_USAGE, "digest %s: sha256 has 64 digits of 0-9 a-f", shown);
	return 0;
}

static int check_tag(const char *tag, struct err *e)
{
	size_t n = strlen(tag);

	if (n == 0 || n > IMG_TAG_MAX)
		return err_set(e, ERR_USAGE, "the tag has %zu characters, it may have 1 to %d", n,
			       IMG_TAG_MAX);
	for (size_t i = 0; i < n; i++)
		if (!is_alnum(tag[i]) && tag[i] != '_' &&
		    (i == 0 || (tag[i] != '.' && tag[i] != '-')))
			return err_set(
				e, ERR_USAGE,
				"a tag is made of letters, digits, _ . - and does not begin with . or -");
	return 0;
}

/* How long a separator between two runs of letters and digits is: one '.', one or two '_', any
 * number of '-'. 0: none. */
static size_t separator(const char *s)
{
	if (*s == '.')
		return 1;
	if (*s == '_')
		return s[1] == '_' ? 2 : 1;
	return strspn(s, "-");
}

static int check_repo(const char *repo, struct err *e)
{
	if (strlen(repo) > IMG_REPO_MAX)
		return err_set(e, ERR_USAGE, "the name is longer than %d characters", IMG_REPO_MAX);
	if (has_upper(repo))
		return err_set(e, ERR_USAGE, "the name must be in lower case");
	for (const char *s = repo;;) {
		size_t n;

		if (!is_lower(*s))
			break;
		while (is_lower(*s))
			s++;
		if (!*s)
			return 0;
		n = *s == '/' ? 1 : separator(s);
		if (n == 0)
			break;
		s += n;
	}
	return err_set(
		e, ERR_USAGE,
		"each part of the name is letters and digits, with single . _ or any - between them");
}

static int check_port(const char *port, struct err *e)
{
	size_t n = strspn(port, "0123456789");
	unsigned v = 0;

	for (size_t i = 0; i < n && i < 5; i++)
		v = v * 10 + (unsigned)(port[i] - '0');
	if (n == 0 || n > 5 || port[n] || port[0] == '0' || v > 65535)
		return err_set(e, ERR_USAGE, "the registry's port must be 1 to 65535");
	return 0;
}

static bool host_name_ok(const char *s, size_t n)
{
	size_t label = 0;

	if (n == 0 || n > 253)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '.') {
			if (label == 0 || s[i - 1] == '-')
				return false;
			label = 0;
			continue;
		}
		if (!is_alnum(s[i]) && (s[i] != '-' || label == 0))
			return false;
		if (++label > 63)
			return false;
	}
	return label > 0 && s[n - 1] != '-';
}

/* "[ADDRESS]" or "[ADDRESS]:PORT", written anew so that one address has one form. */
static int take_ipv6(const char *text, char ret[IMG_HOST_MAX + 1], struct err *e)
{
	const char *end = strchr(text, ']');
	char addr[INET6_ADDRSTRLEN];
	struct in6_addr bin;
	size_t n = end ? (size_t)(end - text - 1) : 0;

	if (n == 0 || n >= sizeof(addr) || (end[1] && end[1] != ':'))
		goto bad;
	memcpy(addr, text + 1, n);
	addr[n] = '\0';
	if (inet_pton(AF_INET6, addr, &bin) != 1 || !inet_ntop(AF_INET6, &bin, addr, sizeof(addr)))
		goto bad;
	if (end[1] && check_port(end + 2, e) < 0)
		return -1;
	snprintf(ret, IMG_HOST_MAX + 1, "[%s]%s", addr, end + 1);
	return 0;
bad:
	return err_set(e, ERR_USAGE,
		       "the registry is no IPv6 address in brackets, like [::1]:5000");
}

static int take_host(const char *text, char ret[IMG_HOST_MAX + 1], struct err *e)
{
	size_t n = strcspn(text, ":");

	if (text[0] == '[')
		return take_ipv6(text, ret, e);
	if (!host_name_ok(text, n))
		return err_set(e, ERR_USAGE,
			       "the registry is no host name: letters, digits, - and single dots");
	if (text[n] && check_port(text + n + 1, e) < 0)
		return -1;
	if (!strcasecmp(text, "index.docker.io") || !strcasecmp(text, "registry-1.docker.io"))
		text = HUB;
	n = strlen(text);
	for (size_t i = 0; i <= n; i++)
		ret[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + ('a' - 'A') : text[i]);
	return 0;
}

static void cut(struct cut *c)
{
	char *at = strchr(c->text, '@'), *slash, *colon;

	if (at) {
		*at = '\0';
		c->digest = at + 1;
	}
	slash = strrchr(c->text, '/');
	colon = strrchr(slash ? slash : c->text, ':');
	if (colon) {
		*colon = '\0';
		c->tag = colon + 1;
	}
	c->repo = c->text;
	slash = strchr(c->text, '/');
	if (slash) {
		*slash = '\0';
		if (strpbrk(c->text, ".:") || !strcmp(c->text, "localhost")) {
			c->host = c->text;
			c->repo = slash + 1;
		} else {
			*slash = '/';
		}
	}
}

static int take_registry(const struct cut *c, struct img_ref *r, struct err *e)
{
	bool bare;

	r->kind = IMG_REF_REGISTRY;
	if (take_host(c->host ? c->host : HUB, r->host, e) < 0 || check_repo(c->repo, e) < 0)
		return -1;
	bare = !strcmp(r->host, HUB) && !strchr(c->repo, '/');
	if (bare && !strcmp(c->repo, "scratch"))
		return err_set(e, ERR_USAGE,
			       "scratch is the empty image: there is nothing to run in it");
	if (bare && strlen(c->repo) + strlen("library/") > IMG_REPO_MAX)
		return err_set(e, ERR_USAGE, "the name is longer than %d characters", IMG_REPO_MAX);
	/* A bare image id is no name: what it means would depend on what is in the store. */
	if (strlen(c->repo) == 64 && strspn(c->repo, "0123456789abcdef") == 64)
		return err_set(e, ERR_USAGE,
			       "64 hexadecimal digits are no name: write NAME@sha256:...");
	snprintf(r->repo, sizeof(r->repo), "%s%s", bare ? "library/" : "", c->repo);
	if (c->tag && check_tag(c->tag, e) < 0)
		return -1;
	if (c->digest && img_digest_check(c->digest, e) < 0)
		return -1;
	if (c->tag || !c->digest)
		snprintf(r->tag, sizeof(r->tag), "%s", c->tag ? c->tag : "latest");
	if (c->digest)
		snprintf(r->digest, sizeof(r->digest), "%s", c->digest);
	return 0;
}

static int take_local(const struct cut *c, struct img_ref *r, struct err *e)
{
	const char *name = c->repo + strlen("local/");

	r->kind = IMG_REF_LOCAL;
	if (strchr(name, '/'))
		return err_set(e, ERR_USAGE, "images derived here are local/NAME, with one name");
	if (check_repo(c->repo, e) < 0 || (c->tag && check_tag(c->tag, e) < 0))
		return -1;
	if (c->digest)
		return err_set(e, ERR_USAGE,
			       "images derived here have no digest: write local/NAME");
	snprintf(r->repo, sizeof(r->repo), "%s", name);
	snprintf(r->tag, sizeof(r->tag), "%s", c->tag ? c->tag : "latest");
	return 0;
}

static int take(struct cut *c, struct img_ref *r, struct err *e)
{
	if (strstr(c->text, "://"))
		return err_set(e, ERR_USAGE, "write the image without \"...://\" before it");
	for (const char *s = c->text; *s; s++)
		if ((unsigned char)*s <= ' ' || (unsigned char)*s >= 0x7f)
			return err_set(e, ERR_USAGE,
				       "spaces, control and non-ASCII characters are not allowed");
	cut(c);
	if (!c->host && !strcmp(c->repo, "host")) {
		if (c->tag || c->digest)
			return err_set(
				e, ERR_USAGE,
				"host is this machine's own /usr and has no tag; an image of that name is docker.io/library/host");
		r->kind = IMG_REF_HOST;
		return 0;
	}
	if (!c->host && !strncmp(c->repo, "local/", strlen("local/")))
		return take_local(c, r, e);
	return take_registry(c, r, e);
}

int img_ref_parse(const char *text, struct img_ref *ret, struct err *e)
{
	struct cut c = { 0 };
	struct img_ref r = { 0 };
	char shown[160];
	size_t n = strlen(text);

	if (n == 0)
		return err_set(e, ERR_USAGE, "the image has no name");
	if (n >= sizeof(c.text))
		return err_set(e, ERR_USAGE, "the image's name is longer than %d characters",
			       TEXT_MAX - 1);
	memcpy(c.text, text, n + 1);
	if (take(&c, &r, e) < 0)
		return err_prefix(e, "image %s", str_printable(shown, sizeof(shown), text));
	*ret = r;
	return 0;
}

const char *img_ref_format(const struct img_ref *r, char dst[IMG_REF_CAP])
{
	if (r->kind == IMG_REF_HOST)
		snprintf(dst, IMG_REF_CAP, "host");
	else
		snprintf(dst, IMG_REF_CAP, "%s/%s%s%s%s%s",
			 r->kind == IMG_REF_LOCAL ? "local" : r->host, r->repo, *r->tag ? ":" : "",
			 r->tag, *r->digest ? "@" : "", r->digest);
	return dst;
}
