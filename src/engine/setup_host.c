/* Setting up the host image: pip and npm are told by their environment where to install, and the
 * image's own environment where to look.
 *
 * What may go wrong: another set of packages on this machine (another python, another C library)
 * makes what was built against the old one useless. So the base's id is made of what the package
 * manager says is installed, and after an upgrade the same set-up is made anew. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sha256.h"
#include "engine/setup.h"

#define FACTS_MAX (64u << 20)

/* What tells one set of packages from another. Of a database that is no text, size and time. */
static const struct {
	const char *path;
	bool text;
} facts[] = {
	{ "/usr/lib/os-release", true },	{ "/var/lib/dpkg/status", true },
	{ "/lib/apk/db/installed", true },	{ "/usr/lib/sysimage/rpm/rpmdb.sqlite", false },
	{ "/var/lib/rpm/rpmdb.sqlite", false },
};

static const char *const looks[] = {
	"PATH=" BOX_DEPS "/bin:" BOX_DEPS
	"/node_modules/.bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"PYTHONPATH=" BOX_DEPS,
	"NODE_PATH=" BOX_DEPS "/node_modules:" BOX_DEPS "/lib/node_modules",
};

static const char *const installs[] = {
	"PIP_TARGET=" BOX_DEPS,
	"PIP_NO_CACHE_DIR=1",
	"PIP_DISABLE_PIP_VERSION_CHECK=1",
	"npm_config_prefix=" BOX_DEPS,
	/* npm has authorities of its own; a box has those that this machine trusts. */
	"npm_config_cafile=/etc/ssl/certs/ca-certificates.crt",
	"npm_config_update_notifier=false",
};
#define N(a) (sizeof(a) / sizeof((a)[0]))

static void add_text(struct buf *b, int fd)
{
	char part[65536];
	ssize_t n;

	while ((n = read(fd, part, sizeof(part))) > 0 || (n < 0 && errno == EINTR))
		if (n > 0)
			buf_add(b, part, (size_t)n);
}

static void add_fact(struct buf *b, const char *path, bool text)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	buf_add(b, path, strlen(path) + 1);
	if (text)
		add_text(b, fd);
	else
		buf_fmt(b, "%lld %lld.%09ld", (long long)st.st_size, (long long)st.st_mtim.tv_sec,
			st.st_mtim.tv_nsec);
	buf_add(b, "", 1);
}

int setup_host(struct img_record *ret, struct err *e)
{
	_cleanup_img_record_ struct img_record r = { .host = true };
	char hex[SHA256_HEX + 1];
	_cleanup_buf_ struct buf b = { 0 };

	buf_init(&b, FACTS_MAX);
	buf_str(&b, "cloche host 1");
	for (size_t i = 0; i < N(facts); i++)
		add_fact(&b, facts[i].path, facts[i].text);
	if (b.failed)
		return err_set(e, ERR_REFUSED,
			       "the lists of this machine's packages have more than %u bytes",
			       FACTS_MAX);
	sha256_hex(b.data, b.len, hex);
	snprintf(r.id, sizeof(r.id), "sha256:%s", hex);
	if (img_platform_host(&r.platform, e) < 0)
		return -1;
	for (size_t i = 0; i < N(looks); i++)
		if (img_words_add(&r.env, looks[i], strlen(looks[i]), e) < 0)
			return -1;
	*ret = img_record_steal(&r);
	return 0;
}

/* In front: what the caller sets counts for more. */
static int put_first(struct request_list *l, const char *const *words, size_t n, struct err *e)
{
	if (l->n + n > REQUEST_MANY)
		return err_set(e, ERR_USAGE, "--env is given more than %zu times",
			       REQUEST_MANY - n);
	memmove(l->v + n, l->v, l->n * sizeof(l->v[0]));
	memcpy(l->v, words, n * sizeof(l->v[0]));
	l->n += n;
	return 0;
}

int setup_host_request(struct request *r, struct err *e)
{
	if (request_installs(r->argv))
		return err_set(
			e, ERR_USAGE,
			"the host image's /usr is this machine's own, where a box installs no packages of the system: "
			"take an image, as in --image debian:12, or install it on this machine");
	r->user = NULL;
	r->entrypoint = NULL;
	r->cwd = BOX_DEPS;
	return put_first(&r->env, looks, N(looks), e) < 0
		       ? -1
		       : put_first(&r->env, installs, N(installs), e);
}
