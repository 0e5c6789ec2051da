/* What of the host's /etc a box gets is named here, one by one: what programs of /usr need to run
 * (the loader's cache, alternatives, certificates, settings that packages keep in /etc and link to
 * from /usr). Everything else of /etc stays out: it may hold secrets.
 */
#include "image/host.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

static const struct {
	const char *path;
	mode_t mode;
} dirs[] = {
	{ "etc", 0755 },     { "etc/ssl", 0755 },   { "etc/ssl/certs", 0755 },
	{ "home", 0755 },    { "home/user", 0755 }, { "root", 0700 },
	{ "tmp", 01777 },    { "run", 0755 },	    { "opt", 0755 },
	{ "var", 0755 },     { "var/tmp", 01777 },  { "var/cache", 0755 },
	{ "var/lib", 0755 }, { "var/log", 0755 },
};

/* Top-level directories that are links into /usr on a merged system and real directories on others.
 */
static const char *const usr_merged[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32" };

static const char nsswitch[] =
	"passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n";
static const char hosts[] =
	"127.0.0.1 localhost cloche\n::1 localhost ip6-localhost ip6-loopback\n";

/* Single files and directories of the host's /etc that are the same for everybody and tell of
 * nobody. */
static const char
	*const etc_files[] = { "ld.so.cache", "ssl/certs/ca-certificates.crt", "ssl/openssl.cnf",
			       "matplotlibrc" /* without it Debian's can't be imported */ };
static const char *const etc_dirs[] = { "alternatives", "fonts" };

static const struct {
	const char *name, *home;
	uid_t uid;
} users[] = { { "root", "/root", 0 },
	      { "user", "/home/user", 1000 },
	      { "nobody", "/home/user", 65534 } };

int image_host_user(const char *name, uid_t *ret_uid, gid_t *ret_gid)
{
	for (size_t i = 0; i < sizeof(users) / sizeof(users[0]); i++)
		if (strcmp(users[i].name, name) == 0) {
			*ret_uid = *ret_gid = users[i].uid;
			return 0;
		}
	return -1;
}

const char *image_host_home(uid_t uid)
{
	return uid == 0 ? "/root" : "/home/user";
}

static struct rootfs_entry *add(struct image_host *h, enum rootfs_entry_kind kind, const char *path,
				const char *text, size_t len, mode_t mode)
{
	static struct rootfs_entry beyond;
	struct rootfs_entry *en = h->n < IMAGE_HOST_ENTRIES ? &h->entries[h->n] : &beyond;

	*en = (struct rootfs_entry){ .kind = kind,
				     .path = path,
				     .text = text,
				     .len = len,
				     .mode = mode };
	h->n++; /* beyond the end: image_host sees it */
	return en;
}

static char *text(struct image_host *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static char *text(struct image_host *h, const char *fmt, ...)
{
	char *at = h->text + h->used;
	size_t room = sizeof(h->text) - h->used;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(at, room, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= room) {
		h->n = IMAGE_HOST_ENTRIES + 1;
		return h->text;
	}
	h->used += (size_t)n + 1;
	return at;
}

static void add_file(struct image_host *h, const char *path, const char *content)
{
	add(h, ROOTFS_ENTRY_FILE, path, content, strlen(content), 0644);
}

/* /bin and its like, as the host has them. */
static void add_usr(struct image_host *h)
{
	add(h, ROOTFS_ENTRY_LOWER, "usr", "/usr", 0, 0);
	for (size_t i = 0; i < sizeof(usr_merged) / sizeof(usr_merged[0]); i++) {
		const char *abs = text(h, "/%s", usr_merged[i]);
		char link[64];
		ssize_t n = readlink(abs, link, sizeof(link) - 1);
		struct stat st;

		if (n > 0) {
			link[n] = '\0';
			add(h, ROOTFS_ENTRY_LINK, usr_merged[i], text(h, "%s", link), 0, 0);
		} else if (stat(abs, &st) == 0 && S_ISDIR(st.st_mode)) {
			add(h, ROOTFS_ENTRY_LOWER, usr_merged[i], abs, 0, 0);
		}
	}
}

/* Accounts: root, user, nobody, and whoever the box runs as under the name `user`. */
static void add_accounts(struct image_host *h, uid_t uid, gid_t gid)
{
	bool known = uid == 0 || uid == 65534;
	uid_t user = known ? 1000 : uid;
	gid_t group = known ? 1000 : gid;

	add_file(h, "etc/passwd",
		 text(h,
		      "root:x:0:0:root:/root:/bin/sh\nuser:x:%u:%u:user:/home/user:/bin/sh\n"
		      "nobody:x:65534:65534:nobody:/home/user:/usr/sbin/nologin\n",
		      user, group));
	add_file(h, "etc/group", text(h, "root:x:0:\nuser:x:%u:\nnogroup:x:65534:\n", group));
}

static void add_host_etc(struct image_host *h)
{
	struct stat st;

	for (size_t i = 0; i < sizeof(etc_files) / sizeof(etc_files[0]); i++) {
		const char *abs = text(h, "/etc/%s", etc_files[i]);

		/* What links into /usr can stay a link; a regular file is shown as it is; anything
		 * else is not. */
		if (lstat(abs, &st) == 0 && S_ISREG(st.st_mode))
			add(h, ROOTFS_ENTRY_BIND, abs + 1, abs, 0, 0)->copy = true;
	}
	for (size_t i = 0; i < sizeof(etc_dirs) / sizeof(etc_dirs[0]); i++) {
		const char *abs = text(h, "/etc/%s", etc_dirs[i]);

		if (lstat(abs, &st) == 0 && S_ISDIR(st.st_mode))
			add(h, ROOTFS_ENTRY_LOWER, abs + 1, abs, 0, 0)->copy =
				i == 0; /* alternatives are links, and no more */
	}
}

/* A JDK keeps its settings in /etc/java-N-openjdk, after the name of its directory; without them no
 * JVM starts. */
static void add_jdk(struct image_host *h, const char *name)
{
	const char *end = strstr(name, "-openjdk-");
	const char *abs;
	struct stat st;

	if (!end || strncmp(name, "java-", 5) != 0)
		return;
	abs = text(h, "/etc/%.*s-openjdk", (int)(end - name), name);
	if (lstat(abs, &st) == 0 && S_ISDIR(st.st_mode))
		add(h, ROOTFS_ENTRY_LOWER, abs + 1, abs, 0, 0);
}

/* Read without opendir(3), which would be the only one to need the heap. */
static void add_java(struct image_host *h)
{
	_cleanup_fd_ int dir = open("/usr/lib/jvm", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_Alignas(8) char buf[1024];
	ssize_t n;

	while (dir >= 0 && (n = syscall(SYS_getdents64, dir, buf, sizeof(buf))) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent *d = (const struct dirent *)(const void *)(buf + at);

			at += d->d_reclen;
			if (d->d_type == DT_DIR)
				add_jdk(h, d->d_name);
		}
	}
}

/* With the host's network the host's resolver: its settings are copied, since the file is a link
 * into /run as often as not. */
static void add_resolver(struct image_host *h, bool network)
{
	if (!network) {
		add_file(h, "etc/resolv.conf", "# no resolver: this box has no network\n");
		return;
	}
	if (fd_read_file_at(AT_FDCWD, "/etc/resolv.conf", h->resolver, sizeof(h->resolver) - 1) < 0)
		h->resolver[0] = '\0';
	add_file(h, "etc/resolv.conf", h->resolver);
}

static void add_services(struct image_host *h)
{
	static const char *const names[] = { "/etc/services", "/etc/protocols" };
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (lstat(names[i], &st) == 0 && S_ISREG(st.st_mode))
			add(h, ROOTFS_ENTRY_BIND, names[i] + 1, names[i], 0, 0);
}

static void add_links(struct image_host *h)
{
	char zone[256];
	ssize_t n = readlink("/etc/localtime", zone, sizeof(zone) - 1);

	if (n > 0) {
		zone[n] = '\0';
		if (strstr(zone, "/usr/share/zoneinfo/") && !strstr(zone, "/../"))
			add(h, ROOTFS_ENTRY_LINK, "etc/localtime",
			    text(h, "%s", strstr(zone, "/usr/share/zoneinfo/")), 0, 0);
	}
	add(h, ROOTFS_ENTRY_LINK, "etc/os-release", "../usr/lib/os-release", 0, 0);
	add(h, ROOTFS_ENTRY_LINK, "etc/mtab", "/proc/mounts", 0, 0);
	add(h, ROOTFS_ENTRY_LINK, "var/run", "/run", 0, 0);
}

void image_host_names(struct image_host *h, mode_t etc, bool network, struct rootfs *root)
{
	h->n = h->used = 0;
	add(h, ROOTFS_ENTRY_DIR, "etc", NULL, 0, etc);
	add_file(h, "etc/hosts", hosts);
	add_file(h, "etc/hostname", "cloche\n");
	add_resolver(h, network);
	root->entries = h->entries;
	root->n_entries = h->n;
}

int image_host(struct image_host *h, uid_t uid, gid_t gid, bool network, struct rootfs *ret,
	       struct err *e)
{
	h->n = h->used = 0;
	add_usr(h);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		add(h, ROOTFS_ENTRY_DIR, dirs[i].path, NULL, 0, dirs[i].mode);
	add_accounts(h, uid, gid);
	add_file(h, "etc/hosts", hosts);
	add_file(h, "etc/nsswitch.conf", nsswitch);
	add_resolver(h, network);
	if (network)
		add_services(h);
	add_host_etc(h);
	add_java(h);
	add_links(h);
	if (h->n > IMAGE_HOST_ENTRIES) {
		err_set(e, ERR_MISSING, "the host image has too many parts on this host");
		return err_at(e, STAGE_IMAGE);
	}
	*ret = (struct rootfs){ .kind = ROOTFS_HOST,
				.name = "host",
				.entries = h->entries,
				.n_entries = h->n };
	return 0;
}
