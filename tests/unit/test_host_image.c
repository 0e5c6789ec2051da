/* The host image: nothing of the host but what is named, accounts for every kind of user, parents before children. */
#include "unit.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "image/host.h"

static struct image_host store;
static struct rootfs root;
static struct err e;

static void furnish(uid_t uid, gid_t gid, bool network)
{
	memset(&store, 0xa5, sizeof(store));
	ck_assert_msg(image_host(&store, uid, gid, network, &root, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(root.kind, ROOTFS_HOST);
	ck_assert_str_eq(root.name, "host");
	ck_assert_uint_gt(root.n_entries, 20);
	ck_assert_uint_le(root.n_entries, IMAGE_HOST_ENTRIES);
}

static const struct rootfs_entry *entry(const char *path)
{
	for (size_t i = 0; i < root.n_entries; i++)
		if (strcmp(root.entries[i].path, path) == 0)
			return &root.entries[i];
	return NULL;
}

static const char *content(const char *path)
{
	const struct rootfs_entry *en = entry(path);

	ck_assert_msg(en && en->kind == ROOTFS_ENTRY_FILE, "%s", path);
	ck_assert_uint_eq(en->len, strlen(en->text));
	ck_assert_uint_eq(en->mode, 0644);
	return en->text;
}

/* The whole of what of the host may be seen, written here a second time. A new one belongs into both, with a reason. */
static const char *const host_sources[] = {
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/ld.so.cache", "/etc/ssl/certs/ca-certificates.crt",
	"/etc/ssl/openssl.cnf", "/etc/matplotlibrc", "/etc/alternatives", "/etc/fonts", "/etc/java-[0-9]*-openjdk",
};
static const char *const host_sources_net[] = { "/etc/services", "/etc/protocols" };

static bool listed(const char *path, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (fnmatch(list[i], path, FNM_PATHNAME) == 0)
			return true;
	return false;
}
#define LISTED(path, list) listed(path, list, sizeof(list) / sizeof((list)[0]))

START_TEST(nothing_outside_the_list)
{
	struct stat st;

	for (int network = 0; network < 2; network++) {
		furnish(1000, 1000, network);
		for (size_t i = 0; i < root.n_entries; i++) {
			const struct rootfs_entry *en = &root.entries[i];

			if (en->kind != ROOTFS_ENTRY_LOWER && en->kind != ROOTFS_ENTRY_BIND)
				continue;
			ck_assert_msg(LISTED(en->text, host_sources) || (network && LISTED(en->text, host_sources_net)), "%s", en->text);
			ck_assert_str_eq(en->text + 1, en->path);
			/* Not through a link: what it points to may change. A socket or FIFO is nothing to share. */
			ck_assert_int_eq(lstat(en->text, &st), 0);
			ck_assert_msg(en->kind == ROOTFS_ENTRY_LOWER ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode), "%s", en->text);
		}
	}
}
END_TEST

START_TEST(nobody_of_the_host_is_in_it)
{
	static const char *const absent[] = { "etc/shadow", "etc/gshadow", "etc/machine-id", "etc/hostname", "etc/ssh", "etc/sudoers",
					      "etc/ssl/private", "etc/environment", "etc/fstab", "srv", "mnt", "boot", "sys", "media", "etc/pki", "var/lib/dpkg" };

	furnish(1000, 1000, true);
	for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
		ck_assert_msg(!entry(absent[i]), "%s", absent[i]);
}
END_TEST

START_TEST(parents_come_before_children)
{
	for (int network = 0; network < 2; network++) {
		furnish(4242, 4242, network);
		for (size_t i = 0; i < root.n_entries; i++) {
			const char *path = root.entries[i].path, *slash = strrchr(path, '/');
			bool made = !slash;

			ck_assert(*path && *path != '/' && path[strlen(path) - 1] != '/' && !strstr(path, "..") && !strstr(path, "//"));
			for (size_t k = 0; k < i; k++) {
				const struct rootfs_entry *p = &root.entries[k];

				ck_assert_msg(strcmp(p->path, path) != 0, "%s twice", path);
				made = made || (p->kind == ROOTFS_ENTRY_DIR && strlen(p->path) == (size_t)(slash - path) &&
						strncmp(p->path, path, strlen(p->path)) == 0);
			}
			ck_assert_msg(made, "no parent before %s", path);
		}
	}
}
END_TEST

/* Name, uid and gid of every line, by the fields of passwd(5). */
static unsigned passwd_names(const char *text, uid_t uid, char *name, char *home, unsigned *gid)
{
	unsigned found = 0, lines = 0;

	for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
		char n[32], h[64], shell[64], gecos[32];
		unsigned u, g;

		ck_assert_msg(sscanf(line, "%31[a-z]:x:%u:%u:%31[a-z]:%63[^:]:%63[^:\n]\n", n, &u, &g, gecos, h, shell) == 6, "%s", line);
		lines++;
		if (u != uid || found++)
			continue;
		strcpy(name, n);
		strcpy(home, h);
		*gid = g;
	}
	ck_assert_uint_eq(lines, 3);
	ck_assert(text[strlen(text) - 1] == '\n');
	return found;
}

START_TEST(accounts)
{
	static const struct {
		uid_t uid;
		gid_t gid;
		const char *name;
		unsigned told;
	} rows[] = {
		{ 0, 0, "root", 0 },       { 1000, 1000, "user", 1000 },       { 65534, 65534, "nobody", 65534 },
		{ 4242, 4242, "user", 4242 }, { 4242, 7, "user", 7 },           { 4294967293U, 4294967293U, "user", 4294967293U },
		{ 1, 0, "user", 0 },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char name[32], home[64], wanted[64];
		unsigned gid;
		uid_t uid;
		gid_t group;

		furnish(rows[i].uid, rows[i].gid, false);
		ck_assert_uint_eq(passwd_names(content("etc/passwd"), rows[i].uid, name, home, &gid), 1); /* one name for one id */
		ck_assert_str_eq(name, rows[i].name);
		ck_assert_uint_eq(gid, rows[i].told);
		snprintf(wanted, sizeof(wanted), "user:x:%u:", strcmp(name, "user") == 0 ? rows[i].told : 1000);
		ck_assert_msg(strstr(content("etc/group"), wanted), "%s", content("etc/group"));
		ck_assert_int_eq(strncmp(content("etc/group"), "root:x:0:\n", 10), 0);
		if (rows[i].uid != 65534) /* nobody's is /, and the box gives it a place to write */
			ck_assert_str_eq(image_host_home(rows[i].uid), home);
		if (image_host_user(name, &uid, &group) == 0 && rows[i].uid != 4242 && rows[i].uid != 1 && rows[i].uid != 4294967293U)
			ck_assert(uid == rows[i].uid);
	}
}
END_TEST

START_TEST(users_by_name)
{
	uid_t uid = 9;
	gid_t gid = 9;

	ck_assert(image_host_user("root", &uid, &gid) == 0 && uid == 0 && gid == 0);
	ck_assert(image_host_user("user", &uid, &gid) == 0 && uid == 1000 && gid == 1000);
	ck_assert(image_host_user("nobody", &uid, &gid) == 0 && uid == 65534 && gid == 65534);
	uid = gid = 9;
	ck_assert_int_eq(image_host_user("daemon", &uid, &gid), -1);
	ck_assert_int_eq(image_host_user("", &uid, &gid), -1);
	ck_assert_int_eq(image_host_user("root:0", &uid, &gid), -1);
	ck_assert(uid == 9 && gid == 9);
	/* HOME is a directory that is there. */
	furnish(1000, 1000, false);
	for (int i = 0; i < 3; i++)
		ck_assert_msg(entry(image_host_home(i == 0 ? 0 : i == 1 ? 1000 : 65534) + 1), "home %d", i);
}
END_TEST

START_TEST(network)
{
	char text[4096];

	furnish(1000, 1000, false);
	ck_assert_ptr_null(strstr(content("etc/resolv.conf"), "nameserver"));
	ck_assert(!entry("etc/services") && !entry("etc/protocols"));
	furnish(1000, 1000, true);
	if (fd_read_file_at(AT_FDCWD, "/etc/resolv.conf", text, sizeof(text) - 1) >= 0)
		ck_assert_str_eq(content("etc/resolv.conf"), text);
	if (lstat("/etc/services", &(struct stat){ 0 }) == 0)
		ck_assert_ptr_nonnull(entry("etc/services"));
}
END_TEST

START_TEST(modes_and_links)
{
	furnish(1000, 1000, false);
	ck_assert_uint_eq(entry("tmp")->mode, 01777);
	ck_assert_uint_eq(entry("var/tmp")->mode, 01777);
	ck_assert_uint_eq(entry("root")->mode, 0700);
	for (size_t i = 0; i < root.n_entries; i++) {
		const struct rootfs_entry *en = &root.entries[i];

		if (en->kind == ROOTFS_ENTRY_DIR)
			ck_assert_msg((en->mode & 06000) == 0 && (en->mode & 0700) == 0700 && (!(en->mode & 02) || en->mode & 01000), "%s",
				      en->path);
		if (en->kind == ROOTFS_ENTRY_LINK)
			ck_assert_msg(en->text && *en->text && strlen(en->text) < 256, "%s", en->path);
	}
	ck_assert_ptr_nonnull(strstr(content("etc/hosts"), "127.0.0.1 localhost"));
	ck_assert_ptr_nonnull(strstr(content("etc/nsswitch.conf"), "passwd: files"));
	if (entry("etc/localtime"))
		ck_assert_int_eq(strncmp(entry("etc/localtime")->text, "/usr/share/zoneinfo/", 20), 0);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, nothing_outside_the_list);
	tcase_add_test(tc, nobody_of_the_host_is_in_it);
	tcase_add_test(tc, parents_come_before_children);
	tcase_add_test(tc, accounts);
	tcase_add_test(tc, users_by_name);
	tcase_add_test(tc, network);
	tcase_add_test(tc, modes_and_links);
}

int main(void)
{
	return unit_main("host_image", fill);
}
