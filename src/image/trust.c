#include "image/trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define CA_MAX (8u << 20)
#define MIRRORS_MAX 65536

/* Adds a file of PEM. */
static int add_file(int dir, const char *path, struct buf *out, struct err *e)
{
	_cleanup_fd_ int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char piece[16384];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "%.200s", path);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_USAGE, "%.200s is no file", path);
	while ((n = fd_read_full(fd, piece, sizeof(piece))) > 0)
		buf_add(out, piece, (size_t)n);
	if (n < 0)
		return err_sys(e, "%.200s", path);
	buf_str(out, "\n");
	return out->failed
		       ? err_set(e, ERR_USAGE, "%.200s is too big for a file of authorities", path)
		       : 0;
}

/* Every *.crt of BASE/certs.d/HOST. A directory that is not there has none. */
static int add_dir(const char *base, const char *host, struct buf *out, struct err *e)
{
	char certs[4096], path[4096];
	const struct dirent *d;
	DIR *dir;
	int r = 0;

	if (path_join(certs, sizeof(certs), base, "certs.d") < 0 ||
	    path_join(path, sizeof(path), certs, host) < 0)
		return err_sys(e, "certs.d");
	dir = opendir(path);
	if (!dir)
		return 0;
	while (r == 0 && (d = readdir(dir))) {
		size_t n = strlen(d->d_name);

		if (n > 4 && !strcmp(d->d_name + n - 4, ".crt"))
			r = add_file(dirfd(dir), d->d_name, out, e);
	}
	closedir(dir);
	return r < 0 ? err_prefix(e, "%.200s", path) : 0;
}

/* Where distributions keep the authorities. A libcurl made on one knows only the place of that
 * one, and a release's knows none. */
static const char *system_file(void)
{
	const char *const usual[] = {
#if LIBCURL_VERSION_NUM >= 0x074600
		curl_version_info(CURLVERSION_NOW)->cainfo,
#endif
		"/etc/ssl/certs/ca-certificates.crt",
		"/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem",
		"/etc/ssl/cert.pem",
	};

	for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
		if (usual[i] && access(usual[i], R_OK) == 0)
			return usual[i];
	return NULL;
}

/* Those of the system too, for which there is no place beside others in memory otherwise. */
static void add_system(const struct img_http *h, struct buf *out)
{
	const char *files[] = { h->ca_file, system_file() };
	struct err e;

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (files[i] && add_file(AT_FDCWD, files[i], out, &e) == 0)
			return;
}

static const char *set(const char *name)
{
	const char *v = getenv(name);

	return v && *v ? v : NULL;
}

int img_trust(const char *ca_file, const char *config, const char *host, struct img_http *h,
	      struct err *e)
{
	h->ca_file = set("SSL_CERT_FILE");
	h->ca_dir = set("SSL_CERT_DIR");
	if (!h->ca_file && !h->ca_dir)
		h->ca_file = system_file();
	buf_init(&h->ca, CA_MAX);
	if (ca_file && add_file(AT_FDCWD, ca_file, &h->ca, e) < 0) {
		e->kind = ERR_USAGE;
		return err_prefix(e, "--ca-file");
	}
	if (ca_file && !strstr(h->ca.data, "-----BEGIN "))
		return err_set(e, ERR_USAGE, "--ca-file: %.200s has no certificate in PEM form",
			       ca_file);
	if ((config && add_dir(config, host, &h->ca, e) < 0) ||
	    add_dir("/etc/containers", host, &h->ca, e) < 0 ||
	    add_dir("/etc/docker", host, &h->ca, e) < 0)
		return -1;
	if (h->ca.len > 0)
		add_system(h, &h->ca);
	return 0;
}

int img_mirrors_each(const char *config, int (*each)(void *ctx, const char *text, struct err *e),
		     void *ctx, struct err *e)
{
	char path[4096], text[MIRRORS_MAX + 1];
	_cleanup_fd_ int fd = -1;
	ssize_t n;

	if (!config)
		return 0;
	if (path_join(path, sizeof(path), config, "mirrors") < 0)
		return err_sys(e, "mirrors");
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(e, "%.200s", path);
	n = fd_read_full(fd, text, MIRRORS_MAX + 1);
	if (n < 0)
		return err_sys(e, "%.200s", path);
	if (n > MIRRORS_MAX)
		return err_set(e, ERR_REFUSED, "%.200s has more than %d bytes", path, MIRRORS_MAX);
	text[n] = '\0';
	for (char *line = text, *end; *line; line = end) {
		end = strchrnul(line, '\n');
		if (*end)
			*end++ = '\0';
		line[strcspn(line, "#\r")] = '\0';
		line += strspn(line, " \t");
		line[strcspn(line, " \t")] = '\0';
		if (*line && each(ctx, line, e) < 0)
			return err_prefix(e, "%.200s", path);
	}
	return 0;
}
