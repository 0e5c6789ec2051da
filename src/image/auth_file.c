#include "image/auth_file.h"

#include <string.h>
#include <strings.h>

#include "image/json_read.h"

#define FILE_MAX (1u << 20)
#define HUB "docker.io"

void img_auth_wipe(struct img_auth *a)
{
	explicit_bzero(a, sizeof(*a));
}

/* The parser's own message would show what stands near the mistake. */
static int load(const char *json, size_t n, json_t **ret, struct err *e)
{
	if (img_json_load(json, n, FILE_MAX, ret, e) == 0)
		return 0;
	return err_set(e, ERR_REFUSED, "is no JSON object that can be read");
}

static int digit64(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Base 64 of text; the padding may be missing. The length, or -1. */
static ssize_t decode64(const char *text, char *dst, size_t cap)
{
	unsigned bits = 0, have = 0;
	size_t n = 0;

	for (; digit64(*text) >= 0; text++) {
		bits = bits << 6 | (unsigned)digit64(*text);
		have += 6;
		if (have < 8)
			continue;
		have -= 8;
		if (n + 1 >= cap)
			return -1;
		dst[n++] = (char)(bits >> have);
	}
	text += strspn(text, "=");
	dst[n] = '\0';
	return *text ? -1 : (ssize_t)n;
}

/* Credentials become parts of headers. */
static bool is_clean(const char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return true;
}

static int take_auth(const char *text, struct img_auth *a, struct err *e)
{
	char both[2 * IMG_SECRET_MAX + 2], *colon;
	ssize_t n = decode64(text, both, sizeof(both));
	int r = -1;

	colon = n < 0 ? NULL : strchr(both, ':');
	if (colon && strlen(both) == (size_t)n && colon - both <= IMG_SECRET_MAX &&
	    strlen(colon + 1) <= IMG_SECRET_MAX && is_clean(both)) {
		*colon = '\0';
		memcpy(a->user, both, strlen(both) + 1);
		memcpy(a->secret, colon + 1, strlen(colon + 1) + 1);
		a->kind = IMG_AUTH_PASSWORD;
		r = 0;
	}
	explicit_bzero(both, sizeof(both));
	return r == 0 ? 0
		      : err_set(e, ERR_REFUSED, "has an auth that is not USER:PASSWORD in base 64");
}

static int take_entry(const json_t *o, struct img_auth *a, struct err *e)
{
	char text[3 * IMG_SECRET_MAX];
	int r = 0;

	if (img_json_str(o, "auths", "identitytoken", a->secret, sizeof(a->secret), e) < 0)
		return -1;
	if (*a->secret) {
		a->kind = IMG_AUTH_REFRESH;
		return 0;
	}
	if (img_json_str(o, "auths", "registrytoken", a->secret, sizeof(a->secret), e) < 0)
		return -1;
	if (*a->secret) {
		a->kind = IMG_AUTH_TOKEN;
		return 0;
	}
	if (img_json_str(o, "auths", "auth", text, sizeof(text), e) < 0)
		return -1;
	if (*text)
		r = take_auth(text, a, e);
	explicit_bzero(text, sizeof(text));
	if (r < 0 || a->kind == IMG_AUTH_PASSWORD)
		return r;
	if (img_json_str(o, "auths", "username", a->user, sizeof(a->user), e) < 0 ||
	    img_json_str(o, "auths", "password", a->secret, sizeof(a->secret), e) < 0)
		return -1;
	if (*a->user && *a->secret)
		a->kind = IMG_AUTH_PASSWORD;
	return 0;
}

/* How much of HOST/REPO an entry's key names: 0 for another's. */
static size_t key_fits(const char *key, const char *host, const char *repo)
{
	static const char *const hub[] = { HUB, "index.docker.io", "registry-1.docker.io" };
	const char *path;
	size_t n, k;
	bool mine;

	if (!strncmp(key, "https://", 8))
		key += 8;
	else if (!strncmp(key, "http://", 7))
		key += 7;
	n = strcspn(key, "/");
	mine = strlen(host) == n && !strncasecmp(key, host, n);
	for (size_t i = 0; !strcmp(host, HUB) && i < sizeof(hub) / sizeof(hub[0]); i++)
		mine = mine || (strlen(hub[i]) == n && !strncasecmp(key, hub[i], n));
	if (!mine)
		return 0;
	path = key + n + strspn(key + n, "/");
	k = strlen(path);
	while (k > 0 && path[k - 1] == '/')
		k--;
	if (k == 0 || (k == 2 && (!strncmp(path, "v1", 2) || !strncmp(path, "v2", 2))))
		return 1;
	return !strncmp(path, repo, k) && (!repo[k] || repo[k] == '/') ? k + 1 : 0;
}

static const json_t *find(const json_t *list, const char *host, const char *repo)
{
	const json_t *best = NULL;
	size_t most = 0;
	const char *key;
	json_t *value;

	json_object_foreach((json_t *)(uintptr_t)list, key, value)
	{
		size_t n = key_fits(key, host, repo);

		if (n > most) {
			most = n;
			best = value;
		}
	}
	return best;
}

static int take_helper(const char *name, struct img_auth *a, struct err *e)
{
	size_t n =
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

	if (n == 0 || n > IMG_HELPER_MAX || name[n] || *name == '.' || *name == '-')
		return err_set(e, ERR_REFUSED,
			       "names a credential helper by more than letters, digits, . _ -");
	memcpy(a->helper, name, n + 1);
	a->kind = IMG_AUTH_HELPER;
	return 0;
}

static int lookup(const json_t *doc, const char *host, const char *repo, struct img_auth *a,
		  struct err *e)
{
	json_t *helpers, *auths;
	const json_t *entry;
	const char *name;
	char store[256];

	if (img_json_object(doc, "", "credHelpers", &helpers, e) < 0 ||
	    img_json_object(doc, "", "auths", &auths, e) < 0 ||
	    img_json_str(doc, "", "credsStore", store, sizeof(store), e) < 0)
		return -1;
	name = json_string_value(find(helpers, host, repo));
	if (name)
		return take_helper(name, a, e);
	entry = find(auths, host, repo);
	if (entry && !json_is_object(entry))
		return err_set(e, ERR_REFUSED, "has an entry that is no object");
	if (entry && take_entry(entry, a, e) < 0)
		return -1;
	/* Beside a store the entries are mostly empty: the secrets are there. */
	return a->kind == IMG_AUTH_NONE && *store ? take_helper(store, a, e) : 0;
}

int img_auth_file(const char *json, size_t n, const char *host, const char *repo,
		  struct img_auth *ret, struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	_cleanup_auth_ struct img_auth a = { 0 };

	if (load(json, n, &doc, e) < 0 || lookup(doc, host, repo, &a, e) < 0)
		return -1;
	*ret = a;
	return 0;
}

int img_auth_helper_answer(const char *json, size_t n, struct img_auth *ret, struct err *e)
{
	_cleanup_json_ json_t *doc = NULL;
	_cleanup_auth_ struct img_auth a = { 0 };

	if (load(json, n, &doc, e) < 0 ||
	    img_json_str(doc, "", "Username", a.user, sizeof(a.user), e) < 0 ||
	    img_json_str(doc, "", "Secret", a.secret, sizeof(a.secret), e) < 0)
		return -1;
	if (!*a.secret)
		return err_set(e, ERR_REFUSED, "has no Secret in it");
	a.kind = !strcmp(a.user, "<token>") ? IMG_AUTH_REFRESH : IMG_AUTH_PASSWORD;
	*ret = a;
	return 0;
}

const char *img_auth_server(const char *host)
{
	return !strcmp(host, HUB) ? "https://index.docker.io/v1/" : host;
}
