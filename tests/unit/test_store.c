/* The store of images: layers, records and names come and go, and are held while they are used. */
#include "store_env.h"

START_TEST(test_image)
{
	struct img_record r = { 0 };
	struct img_ref at = ref("python:3.12");
	int fds[IMG_STACK_MAX];
	size_t n = 0;
	char *json;

	if (!begin(_i))
		return;
	image(1000, 1, 3, "python:3.12");
	ck_assert_uint_eq(entries(s.draft), 0);
	ck_assert_msg(img_store_find(&s, &at, &r, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(r.id, digest(1000));
	ck_assert_uint_eq(r.n_layers, 3);
	ck_assert_msg(img_store_hold(&s, &r, fds, &n, &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(n, 3);
	for (size_t i = 0; i < 3; i++) {
		struct stat a, b;

		ck_assert_int_eq(fstat(fds[i], &a), 0);
		ck_assert_int_eq(fstatat(s.layers, r.layers[2 - i].name, &b, 0), 0);
		ck_assert(a.st_ino == b.st_ino);
	}
	img_store_let_go(fds, n);
	ck_assert_int_eq(img_store_json(&s, r.id, &json, &n, &e), 0);
	ck_assert_str_eq(json, "{}");
	free(json);
	img_record_free(&r);
	at = ref("python:3.13");
	assert_refused(img_store_find(&s, &at, &r, &e), &e, ERR_MISSING);
	ck_assert_ptr_nonnull(strstr(e.msg, "docker.io/library/python:3.13"));
}
END_TEST

START_TEST(test_two_makers)
{
	const struct img_unpacked done = { .bytes = 1 };
	char one[IMG_LAYER_NAME], two[IMG_LAYER_NAME], text[16];
	struct img_draft a, b;
	struct stat x, y;

	if (!begin(_i))
		return;
	draft(&a, "first");
	draft(&b, "second");
	ck_assert_int_eq(img_layer_publish(&s, &a, 'd', digest(1), &done, one, &e), 0);
	ck_assert_int_eq(img_layer_publish(&s, &b, 'd', digest(1), &done, two, &e), 0);
	ck_assert_str_eq(one, two);
	ck_assert(fstat(a.tree, &x) == 0 && fstat(b.tree, &y) == 0 && x.st_ino == y.st_ino);
	ck_assert_int_gt(fd_read_file_at(b.tree, "file", text, sizeof(text)), 0);
	ck_assert_str_eq(text, "first");
	img_draft_drop(&a);
	img_draft_drop(&b);
	ck_assert_uint_eq(entries(s.draft), 0);
	ck_assert(img_store_has_layer(&s, 'd', digest(1), two));
	ck_assert(!img_store_has_layer(&s, 'c', digest(1), NULL));
	ck_assert(!img_store_has_layer(&s, 'd', digest(2), NULL));
}
END_TEST

/* Twenty digits of an id can be found a second time by who wants to. */
START_TEST(test_same_name)
{
	const struct img_unpacked done = { .bytes = 1 };
	char id[IMG_DIGEST_LEN + 1], name[IMG_LAYER_NAME];
	struct img_draft d;

	ck_assert(begin(0));
	layer(1, &d, name);
	img_draft_drop(&d);
	memcpy(id, digest(1), sizeof(id));
	id[IMG_DIGEST_LEN - 1] = 'f';
	draft(&d, "another");
	assert_refused(img_layer_publish(&s, &d, 'd', id, &done, name, &e), &e, ERR_REFUSED);
	ck_assert(!img_store_has_layer(&s, 'd', id, NULL));
	ck_assert(img_store_has_layer(&s, 'd', digest(1), NULL));
	img_draft_drop(&d);
}
END_TEST

static int count_name(void *ctx, const struct img_name *name, struct err *err)
{
	char *list = ctx;

	snprintf(list + strlen(list), 4096 - strlen(list), "%s%s\n", name->ref, *name->id ? "" : " ?");
	return 0;
}

START_TEST(test_names)
{
	static char list[4096];
	char longest[400] = "registry.example.com:5000/";
	struct img_ref at, other;
	struct img_name name;

	if (!begin(_i))
		return;
	image(1000, 1, 1, "b");
	image(1001, 1, 2, "a.b:5000/x/y:Tag");
	memset(longest + strlen(longest), 'n', 200);
	at = ref(longest);
	ck_assert_msg(img_name_set(&s, &at, digest(1000), digest(5), &e) == 0, "%s", e.msg);
	ck_assert_int_eq(img_name_get(&s, &at, &name, &e), 0);
	ck_assert_str_eq(name.manifest, digest(5));
	longest[220] = 'm';
	other = ref(longest);
	assert_refused(img_name_get(&s, &other, &name, &e), &e, ERR_MISSING);
	/* by digest, whatever the tag, and by the manifest's digest that a tag led to */
	snprintf(longest + 226, 100, "@%s", digest(5));
	longest[220] = 'n';
	other = ref(longest);
	ck_assert_msg(img_name_get(&s, &other, &name, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(name.id, digest(1000));
	snprintf(longest, sizeof(longest), "b@%s", digest(5));
	other = ref(longest);
	assert_refused(img_name_get(&s, &other, &name, &e), &e, ERR_MISSING);
	ck_assert_int_eq(img_name_set(&s, &other, digest(1001), digest(5), &e), 0);
	snprintf(longest, sizeof(longest), "b:3@%s", digest(5));
	other = ref(longest);
	ck_assert_int_eq(img_name_get(&s, &other, &name, &e), 0);
	ck_assert_int_eq(img_name_remove(&s, &at, &e), 0);
	assert_refused(img_name_remove(&s, &at, &e), &e, ERR_MISSING);
	file_in(s.names, "garbage", "format 1\n");
	ck_assert_int_eq(img_store_each_name(&s, count_name, list, &e), 0);
	snprintf(longest, sizeof(longest), "a.b:5000/x/y:Tag\ndocker.io/library/b:latest\ndocker.io/library/b@%s\ngarbage ?\n", digest(5));
	ck_assert_str_eq(list, longest);
	at = ref("host");
	assert_refused(img_name_set(&s, &at, digest(1000), "", &e), &e, ERR_USAGE);
	at = ref("nobody");
	assert_refused(img_name_set(&s, &at, digest(77), "", &e), &e, ERR_MISSING);
}
END_TEST

START_TEST(test_held_stays)
{
	struct img_ref at = ref("x");
	struct img_record r = { 0 };
	struct img_gc_done done;
	int fds[IMG_STACK_MAX];
	size_t n;

	if (!begin(_i))
		return;
	image(1000, 1, 2, "x");
	image(1001, 2, 3, "y");
	ck_assert_int_eq(img_store_find(&s, &at, &r, &e), 0);
	ck_assert_int_eq(img_store_hold(&s, &r, fds, &n, &e), 0);
	ck_assert_int_eq(img_name_remove(&s, &at, &e), 0);
	ck_assert_msg(img_store_gc(&s, IMG_GC_UNUSED, &done, &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(done.images + done.layers, 0);
	ck_assert(img_store_has_layer(&s, 'd', digest(1), NULL));
	img_store_let_go(fds, n);
	ck_assert_msg(img_store_gc(&s, IMG_GC_UNUSED, &done, &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(done.images, 1);
	ck_assert_uint_eq(done.layers, 1);
	ck_assert_uint_eq(done.bytes, 101);
	ck_assert_uint_eq(done.drafts, 0);
	ck_assert(!img_store_has_layer(&s, 'd', digest(1), NULL));
	ck_assert(img_store_has_layer(&s, 'd', digest(2), NULL));
	ck_assert_uint_eq(entries(s.layers), 4);
	ck_assert_uint_eq(entries(s.configs), 2);
	ck_assert_uint_eq(entries(s.draft), 0);
	assert_refused(img_store_hold(&s, &r, fds, &n, &e), &e, ERR_MISSING);
	img_record_free(&r);
	at = ref("y");
	ck_assert_int_eq(img_store_find(&s, &at, &r, &e), 0);
	img_record_free(&r);
}
END_TEST

START_TEST(test_fresh_layer_stays)
{
	struct img_gc_done done;
	char name[IMG_LAYER_NAME];
	struct img_draft a, b;

	ck_assert(begin(0));
	layer(1, &a, name);
	draft(&b, "being made");
	ck_assert_int_eq(img_store_gc(&s, IMG_GC_ALL, &done, &e), 0);
	ck_assert_uint_eq(done.layers + done.drafts, 0);
	ck_assert_uint_eq(done.held, 1);
	ck_assert(img_store_has_layer(&s, 'd', digest(1), NULL));
	ck_assert_int_eq(faccessat(b.tree, "file", F_OK, 0), 0);
	img_draft_drop(&a);
	img_draft_drop(&b);
	ck_assert_int_eq(img_store_gc(&s, IMG_GC_ALL, &done, &e), 0);
	ck_assert_uint_eq(done.layers, 1);
	ck_assert_uint_eq(entries(s.layers), 0);
}
END_TEST

START_TEST(test_dead_makers)
{
	struct img_gc_done done;
	pid_t pid;
	int fd, st;

	if (!begin(_i))
		return;
	pid = fork();
	if (pid == 0) {
		struct img_draft d;

		draft(&d, "x");
		mkdirat(d.tree, "closed", 0500);
		img_part_open(&s, digest(1), true, &e);
		_exit(0);
	}
	ck_assert(waitpid(pid, &st, 0) == pid && st == 0);
	file_in(s.draft, "file-1-2", "");
	ck_assert_uint_eq(entries(s.draft), 2);
	ck_assert_uint_eq(entries(s.blobs), 1);
	ck_assert_int_eq(img_store_gc(&s, IMG_GC_LEFT, &done, &e), 0);
	ck_assert_uint_eq(done.drafts, 1);
	ck_assert_uint_eq(entries(s.draft), 0);
	ck_assert_uint_eq(entries(s.blobs), 1);
	fd = img_part_open(&s, digest(1), true, &e);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(img_store_gc(&s, IMG_GC_ALL, &done, &e), 0);
	ck_assert_uint_eq(done.parts, 0);
	assert_refused(img_part_open(&s, digest(1), false, &e), &e, ERR_REFUSED);
	close(fd);
	ck_assert_int_eq(img_store_gc(&s, IMG_GC_ALL, &done, &e), 0);
	ck_assert_uint_eq(done.parts, 1);
	ck_assert_uint_eq(entries(s.blobs), 0);
}
END_TEST

/* Each part that somebody may remove by hand, and adding the image again. */
START_TEST(test_repair)
{
	static const char *const parts[] = { "names/docker.io+library+x=latest", "configs/%s", "layers/%s", "layers/%s.info" };
	struct img_ref at = ref("x");
	struct img_record r = { 0 };
	char file[200], name[IMG_LAYER_NAME];

	if (!begin(_i % 2))
		return;
	image(1000, 1, 2, "x");
	ck_assert_int_eq(img_layer_name('d', digest(1), name, &e), 0);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(file, sizeof(file), parts[_i / 2], _i / 2 == 1 ? digest(1000) + 7 : name);
#pragma GCC diagnostic pop
	ck_assert_int_eq(faccessat(s.fd, file, F_OK, 0), 0);
	ck_assert_int_eq(img_tree_remove(s.fd, file, &e), 0);
	assert_refused(img_store_find(&s, &at, &r, &e), &e, ERR_MISSING);
	ck_assert_ptr_nonnull(strstr(e.msg, _i / 2 ? "incomplete" : "not in the store"));
	image(1000, 1, 2, "x");
	ck_assert_msg(img_store_find(&s, &at, &r, &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(entries(s.draft), 0);
	ck_assert_uint_eq(entries(s.layers), 4);
	img_record_free(&r);
}
END_TEST

START_TEST(test_open)
{
	struct img_store other;

	ck_assert_int_eq(rmdir(base), 0);
	assert_refused(img_store_open(path, false, &other, &e), &e, ERR_MISSING);
	ck_assert_int_eq(mkdir(base, 0700), 0);
	assert_refused(img_store_open(path, false, &other, &e), &e, ERR_MISSING);
	ck_assert_int_eq(symlink("/tmp", path), 0);
	assert_refused(img_store_open(path, false, &other, &e), &e, ERR_REFUSED);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert(begin(0));
	ck_assert_int_eq(chmod(path, 0770), 0);
	assert_refused(img_store_open(path, false, &other, &e), &e, ERR_REFUSED);
	ck_assert_int_eq(chmod(path, 0700), 0);
	ck_assert_int_eq(rmdir(strcat(path, "/names")), 0);
	path[strlen(path) - 6] = '\0';
	ck_assert_int_eq(img_store_open(path, false, &other, &e), 0);
	img_store_close(&other);
}
END_TEST

/* Trees of all kinds, as their maker's own user. */
START_TEST(test_tree_remove)
{
	int at, top;

	if (!begin(_i))
		return;
	ck_assert_int_eq(mkdirat(s.draft, "deep", 0700), 0);
	top = openat(s.draft, "deep", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	at = dup(top);
	for (unsigned i = 0; i < 300; i++) {
		int next;

		file_in(at, "f", "");
		ck_assert_int_eq(mkdirat(at, "up-0", 0700), 0);
		ck_assert_int_eq(mkdirat(at, "closed", 0), 0);
		next = openat(at, "up-0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ck_assert_int_ge(next, 0);
		fchmod(at, i % 2 ? 0500 : 0);
		close(at);
		at = next;
	}
	ck_assert_int_eq(symlinkat("/", at, "link"), 0);
	close(at);
	close(top);
	ck_assert_msg(img_tree_remove(s.draft, "deep", &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(entries(s.draft), 0);
	ck_assert_int_eq(img_tree_remove(s.draft, "deep", &e), 0);
}
END_TEST

/* A root directory that its owner may not write to (0555, as some distributions have it) would keep the layer from being moved. */
START_TEST(test_closed_root)
{
	static const mode_t modes[] = { 0555, 0, 03777 };
	const struct img_unpacked done = { .bytes = 1, .opaque_root = true };
	struct img_layer_info info;
	char name[IMG_LAYER_NAME];
	struct img_gc_done gc;
	struct img_draft d;
	struct stat st;
	int fd;

	if (!begin(_i / 3))
		return;
	draft(&d, "x");
	ck_assert_int_eq(fchmod(d.tree, modes[_i % 3]), 0);
	ck_assert_msg(img_layer_publish(&s, &d, 's', digest(1), &done, name, &e) == 0, "%s", e.msg);
	img_draft_drop(&d);
	fd = img_layer_hold(&s, 's', digest(1), &info, &e);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(info.mode, modes[_i % 3]);
	ck_assert(info.done.opaque_root && info.done.bytes == 1);
	ck_assert(fstat(fd, &st) == 0 && (st.st_mode & 07777) == (modes[_i % 3] | 0700));
	close(fd);
	ck_assert_msg(img_store_gc(&s, IMG_GC_UNUSED, &gc, &e) == 0, "%s", e.msg);
	ck_assert_uint_eq(gc.layers, 1);
	ck_assert_uint_eq(entries(s.draft) + entries(s.layers), 0);
}
END_TEST

/* What can't be read for sure is a later version's: nothing it may need is removed. */
START_TEST(test_later_version)
{
	static const char *const dirs[] = { "names", "configs" };
	char file[100], name[IMG_LAYER_NAME];
	struct img_gc_done done;
	struct img_draft d;

	ck_assert(begin(0));
	layer(1, &d, name);
	img_draft_drop(&d);
	snprintf(file, sizeof(file), "%s/%s", dirs[_i], digest(7) + 7);
	file_in(s.fd, file, "format 2\nsomething else\n");
	assert_refused(img_store_gc(&s, IMG_GC_UNUSED, &done, &e), &e, ERR_REFUSED);
	ck_assert(img_store_has_layer(&s, 'd', digest(1), NULL));
	ck_assert_int_eq(img_store_gc(&s, IMG_GC_LEFT, &done, &e), 0);
	ck_assert_int_eq(faccessat(s.fd, file, F_OK, 0), 0);
	file_in(s.fd, file, "format");
	ck_assert_int_eq(img_store_gc(&s, IMG_GC_UNUSED, &done, &e), 0);
	ck_assert_uint_eq(done.layers, 1);
	ck_assert_int_eq(faccessat(s.fd, file, F_OK, 0), -1);
}
END_TEST

/* Full: an error that says so, and all that was there is as it was. */
START_TEST(test_full_disk)
{
	const struct img_unpacked done = { .bytes = 1 };
	struct img_ref at = ref("x"), other = ref("other");
	struct img_record r = { 0 };
	char name[IMG_LAYER_NAME], big[8192];
	struct img_draft d;
	int fd;

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", base, "tmpfs", 0, "size=1m,mode=0700") < 0)
		return;
	ck_assert(begin(0));
	image(1000, 1, 2, "x");
	ck_assert_int_eq(img_store_find(&s, &at, &r, &e), 0);
	draft(&d, "x");
	fd = openat(s.fd, "fill", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	while (write(fd, big, sizeof(big)) > 0)
		;
	ck_assert_int_eq(errno, ENOSPC);
	close(fd);
	assert_refused(img_layer_publish(&s, &d, 'd', digest(3), &done, name, &e), &e, ERR_SYS);
	ck_assert_int_eq(e.num, ENOSPC);
	assert_refused(img_image_publish(&s, &r, big, sizeof(big), &e), &e, ERR_SYS);
	assert_refused(img_name_set(&s, &other, r.id, "", &e), &e, ERR_SYS);
	img_record_free(&r);
	img_draft_drop(&d);
	ck_assert_uint_eq(entries(s.draft), 0);
	ck_assert_uint_eq(entries(s.layers), 4);
	ck_assert_uint_eq(entries(s.names), 1);
	ck_assert_int_eq(img_store_find(&s, &at, &r, &e), 0);
	img_record_free(&r);
	ck_assert_int_eq(unlinkat(s.fd, "fill", 0), 0);
	image(1001, 3, 3, "other");
	ck_assert_int_eq(img_store_find(&s, &other, &r, &e), 0);
	img_record_free(&r);
	img_store_close(&s);
	ck_assert_int_eq(umount2(base, MNT_DETACH), 0);
}
END_TEST

/* What the killed ones do: two make the same layers, one takes the name away. */
static void make_and_remove(unsigned who)
{
	struct img_ref at = ref("x");
	struct img_gc_done done;

	for (;;) {
		if (who < 2) {
			image(1000 + who, 1, 4, "x");
		} else {
			img_name_remove(&s, &at, &e);
			img_store_gc(&s, IMG_GC_UNUSED, &done, &e);
		}
	}
}

/* Whether the image is there; then it is whole, as long as it is held. */
static bool use(void)
{
	struct img_ref at = ref("x");
	struct img_record r = { 0 };
	int fds[IMG_STACK_MAX];
	char text[16];
	size_t n;
	bool found = img_store_find(&s, &at, &r, &e) == 0 && img_store_hold(&s, &r, fds, &n, &e) == 0;

	img_record_free(&r);
	if (!found) {
		ck_assert_msg(e.kind == ERR_MISSING, "%s", e.msg);
		return false;
	}
	ck_assert_uint_eq(n, 4);
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(fd_read_file_at(fds[i], "file", text, sizeof(text)), 4);
	img_store_let_go(fds, n);
	return true;
}

/* Killed at any moment: what has a name is whole, and the rest goes. */
START_TEST(test_killed)
{
	struct img_gc_done done;
	unsigned found = 0;
	int st;

	if (!begin(_i))
		return;
	srand((unsigned)_i + 1);
	for (unsigned round = 0; round < 60; round++) {
		pid_t pids[3];

		for (unsigned i = 0; i < 3; i++) {
			pids[i] = fork();
			ck_assert_int_ge(pids[i], 0);
			if (pids[i] == 0)
				make_and_remove(i);
		}
		for (unsigned tries = 0; tries < 4; tries++) {
			usleep((unsigned)rand() % 3000);
			found += use();
		}
		for (unsigned i = 0; i < 3; i++) {
			kill(pids[i], SIGKILL);
			ck_assert_int_eq(waitpid(pids[i], &st, 0), pids[i]);
			ck_assert_msg(WIFSIGNALED(st), "worker %u failed by itself", i);
		}
		if (round % 2) {
			image(1000, 1, 4, "x");
			found += use();
		}
		ck_assert_msg(img_store_gc(&s, IMG_GC_ALL, &done, &e) == 0, "%s", e.msg);
		ck_assert_uint_eq(entries(s.draft), 0);
		ck_assert_uint_eq(entries(s.layers), entries(s.names) ? 8 : 0);
		ck_assert_uint_eq(entries(s.configs), entries(s.names) ? 2 : 0);
	}
	ck_assert_uint_ge(found, 30);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_image, 0, 2);
	tcase_add_loop_test(tc, test_two_makers, 0, 2);
	tcase_add_test(tc, test_same_name);
	tcase_add_loop_test(tc, test_names, 0, 2);
	tcase_add_loop_test(tc, test_held_stays, 0, 2);
	tcase_add_test(tc, test_fresh_layer_stays);
	tcase_add_loop_test(tc, test_dead_makers, 0, 2);
	tcase_add_loop_test(tc, test_repair, 0, 8);
	tcase_add_test(tc, test_open);
	tcase_add_loop_test(tc, test_closed_root, 0, 6);
	tcase_add_loop_test(tc, test_later_version, 0, 2);
	tcase_add_test(tc, test_full_disk);
	tcase_add_loop_test(tc, test_killed, 0, 2);
	tcase_add_loop_test(tc, test_tree_remove, 0, 2);
}

int main(void)
{
	return unit_main("store", fill);
}
