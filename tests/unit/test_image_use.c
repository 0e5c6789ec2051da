/* What an image's config comes to in a spec, beside what the caller says: over a real store, with layers made by hand. */
#include "request_env.h"

#include <signal.h>
#include <sys/file.h>

#include "image/store.h"
#include "image/tree.h"

static struct img_store store = IMG_STORE_NONE;
static struct img_record rec;
static unsigned made;
static char home[80];

static void begin(void)
{
	char path[120];

	setup();
	snprintf(home, sizeof(home), "%s/home", dir);
	snprintf(path, sizeof(path), "%s/store", home);
	ck_assert(mkdir(home, 0700) == 0 && mkdir(path, 0700) == 0);
	ck_assert_int_eq(setenv("CLOCHE_HOME", home, 1), 0);
	snprintf(path, sizeof(path), "%s/store/images", home);
	ck_assert_msg(img_store_open(path, true, &store, &e) == 0, "%s", e.msg);
	memset(&rec, 0, sizeof(rec));
	ck_assert_int_eq(img_platform_host(&rec.platform, &e), 0);
}

static void end(void)
{
	image_drop(&pr.image);
	img_store_close(&store);
	img_record_free(&rec);
	ck_assert_msg(img_tree_remove(AT_FDCWD, home, &e) == 0, "%s", e.msg);
	teardown();
}

static const char *digest(void)
{
	static char d[IMG_DIGEST_LEN + 1];

	snprintf(d, sizeof(d), "sha256:%08x%056d", ++made, 0);
	return d;
}

static void text_in(int at, const char *name, const char *text)
{
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert(fd >= 0 && fd_write_all(fd, text, strlen(text)) == 0);
	close(fd);
}

/* A layer on top with an /etc/passwd and /etc/group, or with /etc/passwd as a link, or with a file of another name. */
static void layer(const char *passwd, const char *group, const char *link)
{
	const struct img_unpacked done = { .entries = 1 };
	struct img_record_layer *l = &rec.layers[rec.n_layers++];
	struct img_draft d;
	const char *id = digest();

	ck_assert_msg(img_draft_new(&store, &d, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(mkdirat(d.tree, "etc", 0755), 0);
	if (passwd)
		text_in(d.tree, "etc/passwd", passwd);
	if (group)
		text_in(d.tree, "etc/group", group);
	if (link)
		ck_assert_int_eq(symlinkat(link, d.tree, "etc/passwd"), 0);
	snprintf(l->id, sizeof(l->id), "%s", id);
	ck_assert_msg(img_layer_publish(&store, &d, 'd', id, &done, l->name, &e) == 0, "%s", e.msg);
	img_draft_drop(&d);
}

/* rec as IMAGE "img", and a fresh request for it. */
static void publish(void)
{
	struct img_ref ref;

	snprintf(rec.id, sizeof(rec.id), "%s", digest());
	ck_assert_msg(img_image_publish(&store, &rec, NULL, 0, &e) == 0, "%s", e.msg);
	ck_assert_int_eq(img_ref_parse("img", &ref, &e), 0);
	ck_assert_msg(img_name_set(&store, &ref, rec.id, "", &e) == 0, "%s", e.msg);
	image_drop(&pr.image);
	fresh();
	rq.image = "img";
}

static void words(struct img_words *w, const char *list)
{
	char copy[256];

	ck_assert_int_eq(img_words_be(w, &e), 0);
	snprintf(copy, sizeof(copy), "%s", list);
	for (char *save, *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save))
		ck_assert_int_eq(img_words_add(w, s, strlen(s), &e), 0);
}

static const char *env(const char *name)
{
	for (char *const *v = pr.spec.env; *v; v++)
		if (strncmp(*v, name, strlen(name)) == 0 && (*v)[strlen(name)] == '=')
			return *v + strlen(name) + 1;
	return "(unset)";
}

static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\n"
			     "nobody:x:65534:65534::/:/x\ndaemon:x:1:1::/usr/sbin:/x\n";
static const char group[] = "root:x:0:\nstaff:x:50:node\nnode:x:1001:\nbad:x:-1:\n";

START_TEST(users)
{
	static const struct {
		const char *image, *option;
		uid_t uid;
		gid_t gid;
		const char *home, *name;
	} rows[] = {
		{ "", NULL, 0, 0, "/root", "root" },
		{ "node", NULL, 1000, 1001, "/home/node", "node" },
		{ "1000", NULL, 1000, 1001, "/home/node", "node" },
		{ "node:staff", NULL, 1000, 50, "/home/node", "node" },
		{ "node:7", NULL, 1000, 7, "/home/node", "node" },
		{ "1000:staff", NULL, 1000, 50, "/home/node", "node" },
		{ "4242", NULL, 4242, 0, "/home/user", "user" }, /* docker's: no such line, so group 0 */
		{ "4242:43", NULL, 4242, 43, "/home/user", "user" },
		{ "nobody", NULL, 65534, 65534, "/home/user", "nobody" }, /* "/" is no home */
		{ "node", "root", 0, 0, "/root", "root" },
		{ "node", "1", 1, 1, "/usr/sbin", "daemon" },
		{ "gone", "0:0", 0, 0, "/root", "root" },
	};
	static const struct {
		const char *user, *says;
	} none[] = { { "gone", "no such user in docker.io/library/img:latest" }, { "node:gone", "no such group" },
		     { "node:", "no such group" },  { ":staff", "no such user" },  { "node:bad", "no such group" },
		     { "4294967295", "no such user" }, { "12x", "no such user" }, { "root:0:0", "no such group" } };

	layer(passwd, group, NULL);
	layer(NULL, NULL, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		snprintf(rec.user, sizeof(rec.user), "%s", rows[i].image);
		publish();
		rq.user = rows[i].option;
		prepares();
		ck_assert_msg(pr.spec.uid == rows[i].uid && pr.spec.gid == rows[i].gid && !strcmp(pr.spec.home, rows[i].home) &&
				      !strcmp(env("USER"), rows[i].name) && !strcmp(env("HOME"), rows[i].home),
			      "%s: %u:%u %s %s", rows[i].image, pr.spec.uid, pr.spec.gid, pr.spec.home, env("USER"));
	}
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		rec.user[0] = '\0';
		publish();
		rq.user = none[i].user;
		refused(ERR_USAGE, STAGE_SPEC, none[i].says);
		/* Of the image's own words: nothing the caller mistyped. */
		snprintf(rec.user, sizeof(rec.user), "%s", none[i].user);
		publish();
		refused(ERR_MISSING, STAGE_IMAGE, none[i].says);
		ck_assert_ptr_nonnull(strstr(e.msg, "--user"));
	}
}
END_TEST

/* Its files are the image's, wherever its links lead; what a layer above removes is gone. */
START_TEST(accounts_over_layers)
{
	layer(passwd, group, NULL);
	layer(NULL, NULL, "../../../../../../etc/group"); /* hides the file below, and is no way out */
	snprintf(rec.user, sizeof(rec.user), "node");
	publish();
	refused(ERR_MISSING, STAGE_IMAGE, "no such user");
	snprintf(rec.user, sizeof(rec.user), "0:staff");
	publish();
	prepares();
	ck_assert_uint_eq(pr.spec.gid, 50);
	layer("app:x:5:6::/srv:/x\n", NULL, NULL);
	snprintf(rec.user, sizeof(rec.user), "app");
	publish();
	prepares();
	ck_assert_uint_eq(pr.spec.uid, 5);
	ck_assert_str_eq(pr.spec.home, "/srv");
	layer(NULL, NULL, "/etc/other");
	layer(NULL, NULL, "/proc/self/environ");
	publish();
	refused(ERR_MISSING, STAGE_IMAGE, "no such user");
}
END_TEST

START_TEST(commands)
{
	static const struct {
		const char *entrypoint, *cmd, *option, *given, *is; /* NULL: there is none */
	} rows[] = {
		{ NULL, "sh -l", NULL, NULL, "sh -l" },
		{ NULL, "sh -l", NULL, "ls /", "ls /" },
		{ "/run.sh -x", "a b", NULL, NULL, "/run.sh -x a b" },
		{ "/run.sh -x", "a b", NULL, "c", "/run.sh -x c" },
		{ "/run.sh", NULL, NULL, NULL, "/run.sh" },
		{ "/run.sh", "a", "bash", NULL, "bash" }, /* the image's words were for its own */
		{ "/run.sh", "a", "bash", "-c x", "bash -c x" },
		{ "/run.sh", "a", "", "ls", "ls" },
		{ "/run.sh", "a", "", NULL, NULL },
		{ NULL, NULL, NULL, NULL, NULL },
		{ "", "", NULL, NULL, NULL },
		{ "", "", NULL, "ls", "ls" },
	};
	char copy[64], got[256], *given[8];

	layer(NULL, NULL, NULL);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t n = 0, len = 0;

		img_words_free(&rec.entrypoint);
		img_words_free(&rec.cmd);
		if (rows[i].entrypoint)
			words(&rec.entrypoint, rows[i].entrypoint);
		if (rows[i].cmd)
			words(&rec.cmd, rows[i].cmd);
		publish();
		snprintf(copy, sizeof(copy), "%s", rows[i].given ? rows[i].given : "");
		for (char *save, *s = strtok_r(copy, " ", &save); s; s = strtok_r(NULL, " ", &save))
			given[n++] = s;
		given[n] = NULL;
		rq.argv = given;
		rq.entrypoint = rows[i].option;
		if (!rows[i].is) {
			refused(ERR_MISSING, STAGE_IMAGE, "has no command of its own");
			continue;
		}
		prepares();
		for (char *const *v = pr.spec.argv; *v; v++)
			len += (size_t)snprintf(got + len, sizeof(got) - len, "%s%s", len ? " " : "", *v);
		ck_assert_msg(strcmp(got, rows[i].is) == 0, "row %zu: %s", i, got);
	}
}
END_TEST

START_TEST(environment)
{
	layer(passwd, group, NULL);
	words(&rec.env, "PATH=/opt/bin LANG=de A=1 odd.name-x=2 HOME=/data TMPDIR=/x XDG_CACHE_HOME=/x USER=who B=image");
	publish();
	add(&rq.env, "B=mine");
	add(&rq.env, "TMPDIR=/said");
	prepares();
	/* What it may know better, what is cloche's to say, what the caller says. */
	ck_assert_str_eq(env("PATH"), "/opt/bin");
	ck_assert_str_eq(env("LANG"), "de");
	ck_assert_str_eq(env("USER"), "who");
	ck_assert_str_eq(env("LOGNAME"), "root");
	ck_assert_str_eq(env("A"), "1");
	ck_assert_str_eq(env("odd.name-x"), "2");
	ck_assert_str_eq(env("HOME"), "/data");
	ck_assert_str_eq(pr.spec.home, "/data");
	ck_assert_str_eq(env("XDG_CACHE_HOME"), "/data/.cache");
	ck_assert_str_eq(env("TMPDIR"), "/said");
	ck_assert_str_eq(env("B"), "mine");
	/* A home that is none: relative, the root, with "..". */
	for (int i = 0; i < 3; i++) {
		static const char *const none[] = { "HOME=x", "HOME=/", "HOME=/a/../.." };

		img_words_free(&rec.env);
		words(&rec.env, none[i]);
		publish();
		prepares();
		ck_assert_str_eq(env("HOME"), "/root");
	}
	img_words_free(&rec.env);
	for (int i = 0; i < BOX_ENV_MAX / 2 + 1; i++) {
		char pair[32];

		snprintf(pair, sizeof(pair), "V%d=x", i);
		ck_assert_int_eq(img_words_add(&rec.env, pair, strlen(pair), &e), 0);
	}
	publish();
	refused(ERR_REFUSED, STAGE_IMAGE, "more than 256 environment variables");
}
END_TEST

START_TEST(places_and_the_root)
{
	char path[200];
	struct stat st;

	layer(passwd, group, NULL);
	layer(NULL, NULL, NULL);
	words(&rec.volumes, "/data /var/lib/db");
	snprintf(rec.workdir, sizeof(rec.workdir), "/app");
	rec.stop_signal = SIGQUIT;
	publish();
	prepares();
	ck_assert_int_eq(pr.spec.root.kind, ROOTFS_LAYERS);
	ck_assert_str_eq(pr.spec.root.name, "docker.io/library/img:latest");
	snprintf(path, sizeof(path), "%s:%s", rec.layers[1].name, rec.layers[0].name);
	ck_assert_str_eq(pr.spec.root.lowers, path);
	snprintf(path, sizeof(path), "%s/store/images/layers", home);
	ck_assert_str_eq(pr.spec.root.dir, path);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert(pr.spec.root_check->ino == st.st_ino && pr.spec.root_check->dev == st.st_dev);
	ck_assert_str_eq(pr.spec.cwd, "/app");
	ck_assert(pr.spec.make_cwd);
	ck_assert_str_eq(pr.spec.volumes[1], "/var/lib/db");
	ck_assert_int_eq(pr.spec.stop_signal, SIGQUIT);
	ck_assert_str_eq(pr.spec.root.entries[0].path, "etc");
	ck_assert_str_eq(pr.spec.root.entries[1].path, "etc/hosts");
	/* The caller's word, and a shared directory, count for more. */
	rq.cwd = "/else";
	prepares();
	ck_assert_str_eq(pr.spec.cwd, "/else");
	rq.cwd = NULL;
	snprintf(path, sizeof(path), "%s/ws", dir);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	rq.workspace = path;
	prepares();
	ck_assert_str_eq(pr.spec.cwd, "/workspace");
	rmdir(path);
	rec.workdir[0] = '\0';
	publish();
	prepares();
	ck_assert_str_eq(pr.spec.cwd, "/root");
}
END_TEST

/* As long as it is in use, nobody removes a layer; and the descriptors stay in this process. */
START_TEST(held)
{
	char path[200];
	int fd;

	layer(NULL, NULL, NULL);
	layer(NULL, NULL, NULL);
	publish();
	snprintf(path, sizeof(path), "%s/store/images/layers/%s", home, rec.layers[0].name);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0); /* the control */
	ck_assert_int_eq(flock(fd, LOCK_UN), 0);
	prepares();
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), -1);
	ck_assert_uint_eq(pr.spec.root.layers.n, 2);
	for (size_t i = 0; i < pr.spec.root.layers.n; i++)
		ck_assert_int_ne(fcntl(pr.spec.root.layers.fds[i], F_GETFD) & FD_CLOEXEC, 0);
	image_drop(&pr.image);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	close(fd);
}
END_TEST

static void missing(const char *says)
{
	refused(ERR_MISSING, STAGE_IMAGE, says);
	ck_assert_int_eq(e.num, ENOENT);
}

/* A mount takes no directory twice. */
START_TEST(a_layer_twice)
{
	char want[100];

	layer(passwd, NULL, NULL);
	layer(NULL, NULL, NULL);
	rec.layers[2] = rec.layers[0];
	rec.layers[3] = rec.layers[1];
	rec.layers[4] = rec.layers[1];
	rec.n_layers = 5;
	publish();
	prepares();
	snprintf(want, sizeof(want), "%s:%s", rec.layers[1].name, rec.layers[0].name);
	ck_assert_str_eq(pr.spec.root.lowers, want);
	ck_assert_uint_eq(pr.spec.root.layers.n, 2);
	for (size_t i = 0; i < 2; i++)
		ck_assert_int_ge(fcntl(pr.spec.root.layers.fds[i], F_GETFD), 0);
}
END_TEST

START_TEST(not_there)
{
	char path[200];

	layer(NULL, NULL, NULL);
	publish();
	rq.image = "img:2";
	missing("image docker.io/library/img:2 is not in the store");
	rq.image = "local/img";
	missing("local/img");
	rq.image = "img";
	rq.platform = strcmp(rec.platform.arch, "arm64") == 0 ? "linux/amd64" : "linux/arm64";
	missing("is here for linux/");
	rq.platform = "linux/what ever";
	refused(ERR_USAGE, STAGE_IMAGE, "--platform");
	rq.platform = rec.platform.arch;
	prepares();
	image_drop(&pr.image);
	snprintf(path, sizeof(path), "%s/store/images/layers/%s", home, rec.layers[0].name);
	ck_assert_msg(img_tree_remove(AT_FDCWD, path, &e) == 0, "%s", e.msg);
	missing("incomplete");
	/* Where there is no store at all, none is made. */
	snprintf(path, sizeof(path), "%s/none", dir);
	ck_assert_int_eq(setenv("CLOCHE_HOME", path, 1), 0);
	missing("is not in the store");
	ck_assert_int_eq(access(path, F_OK), -1);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, begin, end);
	tcase_add_test(tc, users);
	tcase_add_test(tc, accounts_over_layers);
	tcase_add_test(tc, commands);
	tcase_add_test(tc, environment);
	tcase_add_test(tc, places_and_the_root);
	tcase_add_test(tc, held);
	tcase_add_test(tc, a_layer_twice);
	tcase_add_test(tc, not_there);
}

int main(void)
{
	return unit_main("image_use", fill);
}
