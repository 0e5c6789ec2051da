/* Pulling: credentials and configuration are read, the process locks itself in, and only then is
 * the registry asked: what the name leads to, the image's config, its layers (pull_layers.c). The
 * record and the name come last, so that an image that is seen is whole.
 *
 * Every document is compared with the digest it was asked by before it is parsed; the one that is
 * asked by a tag gets its digest that way, and that is what is shown and kept.
 *
 * What may go wrong is said in one line that names the image and the phase. */
#include "image/pull.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/confine.h"
#include "image/credentials.h"
#include "image/pull_impl.h"
#include "image/trust.h"

#define ACCEPT                                                                                     \
	IMG_MEDIA_OCI_INDEX ", " IMG_MEDIA_OCI_MANIFEST ", " IMG_MEDIA_DOCKER_LIST                 \
			    ", " IMG_MEDIA_DOCKER_MANIFEST

static void note(void *ctx, const char *text)
{
	const struct pull *p = ctx;

	img_progress_note(p->how->progress, text);
}

/* Mirrors and the registry, with what they may be told. */

static int add_end(struct pull *p, const struct img_endpoint *end, struct err *e)
{
	struct img_registry *r = &p->reg;
	char text[IMG_NOTE_MAX], repo[2 * IMG_REPO_MAX + 2], whole[IMG_NOTE_MAX + 40];

	if (r->n == IMG_ENDPOINTS_MAX)
		return err_set(e, ERR_USAGE, "more than %d mirrors", IMG_ENDPOINTS_MAX - 1);
	r->ends[r->n] = *end;
	snprintf(repo, sizeof(repo), "%s%s%s", end->prefix, *end->prefix ? "/" : "",
		 p->how->ref.repo);
	if (img_credentials(end->host, repo, &r->ends[r->n].auth, text, e) < 0)
		return -1;
	r->n++;
	if (*text) {
		snprintf(whole, sizeof(whole), "%s: going on without a login", text);
		note(p, whole);
	}
	return 0;
}

static int add_mirror(void *ctx, const char *text, struct err *e)
{
	struct pull *p = ctx;
	static struct img_endpoint end; /* large */
	int r;

	memset(&end, 0, sizeof(end));
	r = img_mirror_parse(text, p->how->ref.host, &end, e);
	return r > 0 ? add_end(p, &end, e) : r;
}

static int add_ends(struct pull *p, struct err *e)
{
	static struct img_endpoint end;

	p->reg.http = &p->http;
	p->reg.ref = &p->how->ref;
	p->reg.note = note;
	p->reg.ctx = p;
	/* A mirror is somewhere else: what is allowed for this machine is not for it. */
	if (!p->how->insecure) {
		for (unsigned i = 0; i < p->how->n_mirrors; i++)
			if (add_mirror(p, p->how->mirrors[i], e) < 0)
				return -1;
		if (img_mirrors_each(p->how->config, add_mirror, p, e) < 0)
			return -1;
	}
	memset(&end, 0, sizeof(end));
	memcpy(end.host, p->how->ref.host, sizeof(end.host));
	return add_end(p, &end, e);
}

/* What the network's libraries read while they work. */
static const char *const readable[] = {
	"/etc/resolv.conf",
	"/etc/hosts",
	"/etc/host.conf",
	"/etc/gai.conf",
	"/etc/nsswitch.conf",
	"/etc/services",
	"/etc/protocols",
	"/etc/localtime",
	"/etc/ld.so.cache",
	"/etc/ssl/certs",
	"/etc/ssl/cert.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/openssl.cnf",
	"/etc/pki/tls/certs",
	"/etc/pki/tls/openssl.cnf",
	"/etc/pki/ca-trust",
	"/etc/ca-certificates",
	"/usr/share/ca-certificates",
	"/usr/local/share/ca-certificates",
	"/etc/crypto-policies",
	"/lib",
	"/lib64",
	"/usr/lib",
	"/usr/lib64",
	"/usr/share/zoneinfo",
	"/run/systemd/resolve",
	"/run/resolvconf",
	"/run/NetworkManager",
	"/dev/null",
	"/dev/urandom",
	"/proc/sys/crypto",
};
#define READABLE (sizeof(readable) / sizeof(readable[0]))

static int lock_in(struct pull *p, struct err *e)
{
	int fds[READABLE + 2];
	struct img_confine how = { .work = IMG_WORK_FETCH,
				   .writes = &p->store.fd,
				   .n_writes = 1,
				   .reads = fds };
	int r;

	for (size_t i = 0; i < READABLE + 2; i++) {
		const char *path = i < READABLE	   ? readable[i]
				   : i == READABLE ? p->http.ca_file
						   : p->http.ca_dir;

		fds[how.n_reads] = path ? open(path, O_PATH | O_CLOEXEC) : -1;
		how.n_reads += fds[how.n_reads] >= 0;
	}
	r = img_confine_rights(e);
	/* There may be a password in this memory. */
	if (r == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		r = err_sys(e, "keep the memory from others");
	if (r == 0)
		r = img_confine(&how, e);
	while (how.n_reads > 0)
		fd_close(&fds[--how.n_reads]);
	return r < 0 ? err_prefix(e, "lock the download in") : 0;
}

/* A layer held takes a descriptor. */
static void more_descriptors(void)
{
	struct rlimit now;

	if (getrlimit(RLIMIT_NOFILE, &now) < 0)
		return;
	now.rlim_cur = now.rlim_max > 4096 ? 4096 : now.rlim_max;
	setrlimit(RLIMIT_NOFILE, &now);
}

static int set_up(struct pull *p, struct err *e)
{
	const struct img_pull_how *how = p->how;

	more_descriptors();
	if (img_confine_ready(e) < 0 || img_sha256_ready(e) < 0 ||
	    img_unpack_serve(&p->store, &p->server, e) < 0)
		return -1;
	p->http.insecure = how->insecure;
	p->http.stop = how->stop;
	if (how->timeout_us > 0)
		p->http.deadline = img_http_now() + how->timeout_us / 1000 + 1;
	if (img_trust(how->ca_file, how->config, how->ref.host, &p->http, e) < 0 ||
	    add_ends(p, e) < 0)
		return -1;
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return err_set(e, ERR_SYS, "libcurl could not be set up");
	return lock_in(p, e);
}

/* Documents. */

static void ask_for(struct pull *p, const char *kind, const char *what, const char *method,
		    struct img_fetch *f)
{
	memset(f, 0, sizeof(*f));
	f->reg = &p->reg;
	f->kind = kind;
	f->what = what;
	snprintf(f->x.method, sizeof(f->x.method), "%s", method);
	f->x.accept = strcmp(kind, "manifests") ? NULL : ACCEPT;
	f->x.body_max = IMG_DOC_MAX;
}

/* The answer, whose bytes have the digest `want` ("": any); *ret is the one that they have. */
static int go(struct img_fetch *f, const char *want, char ret[IMG_DIGEST_LEN + 1], struct err *e)
{
	const struct buf *body = &f->x.body;
	struct err why;

	if (img_fetch_begin(f, e) < 0)
		return -1;
	do {
		if (img_fetch_go(f, e) < 0 ||
		    img_sha256_of(body->data ? body->data : "", body->len, ret, e) < 0)
			return -1;
		if (!*want || !strcmp(ret, want))
			return 0;
		err_set(&why, ERR_REFUSED,
			"%s sends something with the digest %.19s... for %.19s...; fix: if it is a proxy's or mirror's fault, pull without it",
			f->reg->ends[f->end].host, ret, want);
	} while (img_fetch_reject(f, &why, e) > 0);
	return -1;
}

/* Asks for one by tag or digest. *digest is what its bytes have to have, or "" and then gets what
 * they have. `type` may be NULL. */
static int get(struct pull *p, const char *kind, const char *what, char digest[IMG_DIGEST_LEN + 1],
	       char type[160], struct buf *ret, struct err *e)
{
	static struct img_fetch f; /* large */
	char has[IMG_DIGEST_LEN + 1];
	int r;

	ask_for(p, kind, what, "GET", &f);
	r = go(&f, digest, has, e);
	if (r == 0) {
		memcpy(digest, has, sizeof(has));
		if (type)
			memcpy(type, f.x.type, sizeof(f.x.type));
		*ret = f.x.body;
		memset(&f.x.body, 0, sizeof(f.x.body));
	}
	img_fetch_free(&f);
	return r;
}

/* The digest of what the tag leads to, by the registry's word; "" when it does not say. */
static int get_digest(struct pull *p, char ret[IMG_DIGEST_LEN + 1], struct err *e)
{
	static struct img_fetch f;
	int r;

	ask_for(p, "manifests", p->how->ref.tag, "HEAD", &f);
	r = img_fetch_begin(&f, e) < 0 ? -1 : img_fetch_go(&f, e);
	if (r == 0)
		memcpy(ret, f.x.digest, sizeof(f.x.digest));
	/* Not every registry answers this; and to a GET it says why not. */
	else if (f.x.outcome == IMG_ANSWERED && f.x.status >= 400 && f.x.status < 500 &&
		 f.x.status != 429)
		r = 0;
	img_fetch_free(&f);
	return r;
}

/* A document of which something else told size and digest. */
static int get_described(struct pull *p, const char *kind, const struct img_descriptor *d,
			 char type[160], struct buf *ret, struct err *e)
{
	char digest[IMG_DIGEST_LEN + 1];

	memcpy(digest, d->digest, sizeof(digest));
	if (get(p, kind, d->digest, digest, type, ret, e) < 0)
		return -1;
	if (ret->len != d->size)
		return err_set(e, ERR_REFUSED, "it has %zu bytes, and %llu were announced",
			       ret->len, (unsigned long long)d->size);
	return 0;
}

static int choose(struct pull *p, const struct img_index *index, struct err *e)
{
	static struct img_doc doc; /* large */
	const struct img_index_entry *entry;
	_cleanup_buf_ struct buf text = { 0 };
	char type[160] = "";

	if (img_index_choose(index, &p->how->platform, &entry, e) < 0)
		return -1;
	if (get_described(p, "manifests", &entry->manifest, type, &text, e) < 0 ||
	    img_doc_parse(text.data ? text.data : "", text.len, *type ? type : NULL, &doc, e) < 0)
		return -1;
	if (doc.kind != IMG_DOC_MANIFEST)
		return err_set(e, ERR_REFUSED, "the index leads to another index");
	memcpy(p->manifest_digest, entry->manifest.digest, sizeof(p->manifest_digest));
	p->manifest = doc.manifest;
	return 0;
}

static int get_manifest(struct pull *p, struct err *e)
{
	const struct img_ref *ref = &p->how->ref;
	static struct img_doc doc;
	_cleanup_buf_ struct buf text = { 0 };
	char type[160] = "";

	memcpy(p->top, ref->digest, sizeof(p->top));
	if (get(p, "manifests", *ref->digest ? ref->digest : ref->tag, p->top, type, &text, e) <
		    0 ||
	    img_doc_parse(text.data ? text.data : "", text.len, *type ? type : NULL, &doc, e) < 0)
		return -1;
	if (doc.kind == IMG_DOC_INDEX)
		return choose(p, &doc.index, e);
	memcpy(p->manifest_digest, p->top, sizeof(p->top));
	p->manifest = doc.manifest;
	return 0;
}

static int get_config(struct pull *p, struct err *e)
{
	if (get_described(p, "blobs", &p->manifest.config, NULL, &p->config_json, e) < 0 ||
	    img_config_parse(p->config_json.data ? p->config_json.data : "", p->config_json.len,
			     &p->config, e) < 0)
		return -1;
	return img_config_fits(&p->config, &p->manifest, &p->how->platform, e);
}

/* The store. */

/* Whether the name leads to a whole image that came from `digest` and is for the platform. */
static bool is_there(struct pull *p, const char *digest)
{
	_cleanup_img_record_ struct img_record r = { 0 };
	struct img_name name;
	struct err e;

	if (img_name_get(&p->store, &p->how->ref, &name, &e) < 0 ||
	    strcmp(name.manifest, digest) != 0 ||
	    img_store_find(&p->store, &p->how->ref, &r, &e) < 0 ||
	    !img_platform_equal(&r.platform, &p->how->platform))
		return false;
	memcpy(p->result.id, r.id, sizeof(r.id));
	memcpy(p->result.manifest, digest, IMG_DIGEST_LEN + 1);
	p->result.layers = p->result.shared = r.n_layers;
	p->result.was_there = true;
	return true;
}

/* The registry is asked for the digest alone, when there is something to compare it with. */
static int unchanged(struct pull *p, struct err *e)
{
	char digest[IMG_DIGEST_LEN + 1] = "";
	struct img_name name;
	struct err none;

	if (*p->how->ref.digest || img_name_get(&p->store, &p->how->ref, &name, &none) < 0)
		return 0;
	if (get_digest(p, digest, e) < 0)
		return -1;
	return *digest && is_there(p, digest);
}

static int publish(struct pull *p, struct err *e)
{
	_cleanup_img_record_ struct img_record r = { 0 };
	const char *id = p->manifest.config.digest;

	img_progress_phase(p->how->progress, "publish", "storing the image");
	if (img_record_of_config(&p->config, id, p->manifest_digest, &r, e) < 0)
		return -1;
	if (img_stack_finish(&p->stack, &r, e) < 0 ||
	    img_image_publish(&p->store, &r, p->config_json.data, p->config_json.len, e) < 0 ||
	    img_name_set(&p->store, &p->how->ref, id, p->top, e) < 0)
		return -1;
	memcpy(p->result.id, id, IMG_DIGEST_LEN + 1);
	memcpy(p->result.manifest, p->top, sizeof(p->top));
	return 0;
}

static int check_how(const struct img_pull_how *how, struct err *e)
{
	if (how->insecure && !img_host_loopback(how->ref.host))
		return err_set(
			e, ERR_USAGE,
			"--insecure is for registries on this machine only (localhost or a loopback address); fix: for %s, give its authority by --ca-file FILE",
			how->ref.host);
	return 0;
}

static int pull(struct pull *p, struct err *e)
{
	char text[IMG_REF_CAP + IMG_HOST_MAX + 64];
	int r;

	if (img_store_open(p->how->store, true, &p->store, e) < 0)
		return -1;
	if (*p->how->ref.digest && is_there(p, p->how->ref.digest))
		return 0;
	if (set_up(p, e) < 0)
		return -1;
	snprintf(text, sizeof(text), "asking %s for %s", p->how->ref.host, p->text);
	img_progress_phase(p->how->progress, "resolve", text);
	r = unchanged(p, e);
	if (r != 0)
		return r < 0 ? err_prefix(e, "manifest") : 0;
	if (get_manifest(p, e) < 0)
		return err_prefix(e, "manifest");
	if (get_config(p, e) < 0)
		return err_prefix(e, "config");
	return pull_layers(p, e) < 0 || publish(p, e) < 0 ? -1 : 0;
}

int img_pull(const struct img_pull_how *how, struct img_pulled *ret, struct err *e)
{
	static struct pull p; /* large, and once a process */
	int r;

	p = (struct pull){ .how = how,
			   .store = IMG_STORE_NONE,
			   .server = IMG_UNPACK_NO_SERVER,
			   .child = IMG_UNPACK_NO_CHILD,
			   .stack = IMG_STACK_NONE };
	img_ref_format(&how->ref, p.text);
	if (check_how(how, e) < 0)
		return -1;
	r = pull(&p, e);
	img_progress_end(how->progress);
	/* Before the draft is removed that its child may be writing to. */
	img_unpack_server_end(&p.server);
	fd_close(&p.child.answer);
	img_stack_drop(&p.stack);
	pull_layers_free(&p);
	img_config_free(&p.config);
	buf_free(&p.config_json);
	img_registry_free(&p.reg);
	img_store_close(&p.store);
	if (r < 0)
		return err_prefix(e, "%s", p.text);
	*ret = p.result;
	return 0;
}
