#include "engine/setup.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/sha256.h"
#include "base/str.h"
#include "engine/bytecode.h"
#include "engine/ids.h"
#include "engine/images.h"
#include "image/settle.h"

#define KEY_MAX (8u << 20)
#define KEY_FORMAT "cloche setup 1"

static void digest_of(const struct buf *b, char ret[IMG_DIGEST_LEN + 1])
{
	char hex[SHA256_HEX + 1];

	sha256_hex(b->data, b->len, hex);
	snprintf(ret, IMG_DIGEST_LEN + 1, "sha256:%s", hex);
}

/* A word of the key, ended by NUL, which none can hold: two requests with the same text are the
 * same. */
static void key_word(struct buf *b, const char *word)
{
	buf_add(b, word, strlen(word) + 1);
}

static void key_env(struct buf *b, const char *pair)
{
	const char *value = strchr(pair, '=') ? NULL : getenv(pair);

	buf_str(b, pair);
	if (value)
		buf_fmt(b, "=%s", value);
	buf_add(b, "", 1);
}

static int make_key(const struct request *r, struct setup *s, struct err *e)
{
	_cleanup_buf_ struct buf b = { 0 };

	buf_init(&b, KEY_MAX);
	key_word(&b, KEY_FORMAT);
	key_word(&b, s->base->id);
	key_word(&b, r->network ? r->network : "");
	for (size_t i = 0; i < r->env.n; i++)
		key_env(&b, r->env.v[i]);
	key_word(&b, ""); /* no variable is called that */
	for (char *const *a = r->argv; *a; a++)
		key_word(&b, *a);
	if (b.failed)
		return err_set(e, ERR_USAGE, "the command is longer than %u bytes", KEY_MAX);
	digest_of(&b, s->key);
	return 0;
}

static int parse_name(const char *text, struct img_ref *ret, struct err *e)
{
	char full[IMG_REF_CAP];
	int n = snprintf(full, sizeof(full), "%s%s",
			 strncmp(text, "local/", 6) == 0 ? "" : "local/", text);

	if (n < 0 || (size_t)n >= sizeof(full))
		return err_set(e, ERR_USAGE, "--name: longer than %d bytes", IMG_REPO_MAX);
	if (img_ref_parse(full, ret, e) < 0)
		return err_prefix(e, "--name");
	return 0;
}

int setup_open(const struct request *r, const struct img_record *base, const char *name,
	       struct setup *ret, struct err *e)
{
	struct setup *s = ret;

	*s = (struct setup)SETUP_NONE;
	s->base = base;
	if ((name && parse_name(name, &s->name, e) < 0) ||
	    images_open(base->host, &s->store, e) < 0)
		return -1;
	if (s->base->n_layers >= IMG_STACK_MAX)
		return err_set(e, ERR_REFUSED,
			       "%s has %d layers already, and no box takes one more", r->image,
			       IMG_STACK_MAX);
	if (!name)
		img_bytecode_key(base, s->key);
	else if (make_key(r, s, e) < 0)
		return -1;
	s->held = img_layer_hold(&s->store, 's', s->key, &s->info, e);
	if (s->held < 0 && e->kind != ERR_MISSING)
		return -1;
	s->found = s->held >= 0;
	if (s->found)
		return img_layer_name('s', s->key, s->layer, e);
	*e = (struct err){ 0 };
	return 0;
}

/* The overlay belongs to the box's user outside: to the caller, or where the caller is root to
 * somebody who is nobody. */
static int give(int dir, const char *name, mode_t mode, uid_t uid, gid_t gid)
{
	if (fchmodat(dir, name, mode, 0) < 0)
		return -1;
	return uid == geteuid() ? 0 : fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW);
}

/* The kernel takes no overlay for the upper side of another. */
static int check_place(int dir, struct err *e)
{
	struct statfs fs;

	if (fstatfs(dir, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC) {
		err_set(e, ERR_MISSING,
			"the store is on an overlay (a container's own root), where no layer can be written: "
			"set CLOCHE_HOME to a directory of another file system, such as a volume or a tmpfs");
		return err_at(e, STAGE_IMAGE);
	}
	return 0;
}

int setup_draft(struct setup *s, struct request *r, struct err *e)
{
	uid_t uid;
	gid_t gid;

	static_assert(sizeof(IMG_DRAFT_TREE) == sizeof(BOX_DRAFT_UPPER), "one name for both");
	if (ids_outside(&uid, &gid, e) < 0 || img_draft_new(&s->store, &s->draft, e) < 0 ||
	    check_place(s->draft.fd, e) < 0)
		return -1;
	if (mkdirat(s->draft.fd, BOX_DRAFT_WORK, 0700) < 0 ||
	    give(s->draft.fd, BOX_DRAFT_WORK, 0700, uid, gid) < 0 ||
	    give(s->draft.fd, BOX_DRAFT_UPPER, 0755, uid, gid) < 0 ||
	    give(s->draft.fd, ".", 0700, uid, gid) < 0)
		return err_sys(e, "prepare a draft in the store");
	r->setup = true;
	r->draft = s->draft.fd;
	return 0;
}

static bool same_text(int fd, const char *text, size_t len)
{
	char path[64], have[16384];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = fd_read_file_at(AT_FDCWD, path, have, sizeof(have));
	if (n < 0)
		return false;
	while (len > 0 && text[len - 1] == '\n') /* as reading has cut them */
		len--;
	while (n > 0 && have[n - 1] == '\n')
		n--;
	return (size_t)n == len && memcmp(have, text, len) == 0;
}

/* What was laid over the image for this run is not in the tree, but where the command touched it: a
 * copy that is as it was goes. */
static int drop_laid(int tree, const struct rootfs_entry *en, struct err *e)
{
	_cleanup_fd_ int file = path_open_beneath(tree, en->path, O_CLOEXEC), dir = -1;
	const char *name = strrchr(en->path, '/');
	char parent[256];
	struct stat st;

	if (file < 0 || fstat(file, &st) < 0 || !S_ISREG(st.st_mode) ||
	    !same_text(file, en->text, en->len))
		return 0;
	snprintf(parent, sizeof(parent), "%.*s", name ? (int)(name - en->path) : 0, en->path);
	dir = path_open_beneath(tree, parent, O_CLOEXEC | O_DIRECTORY);
	if (dir < 0 || unlinkat(dir, name ? name + 1 : en->path, 0) < 0)
		return err_sys(e, "remove /%s from the new layer", en->path);
	return 0;
}

int setup_settle(struct setup *s, const struct box_spec *spec, struct err *e)
{
	struct img_unpacked done;

	for (size_t i = 0; i < spec->root.n_entries && !s->base->host; i++)
		if (spec->root.entries[i].kind == ROOTFS_ENTRY_FILE &&
		    drop_laid(s->draft.tree, &spec->root.entries[i], e) < 0)
			return -1;
	if (img_settle(s->draft.tree, &done, e) < 0)
		return -1;
	if (img_layer_publish(&s->store, &s->draft, 's', s->key, &done, s->layer, e) < 0)
		return -1;
	s->info.done = done;
	return 0;
}

int setup_settle_empty(struct setup *s, struct err *e)
{
	const struct img_unpacked none = { 0 };

	img_draft_drop(&s->draft);
	if (img_draft_new(&s->store, &s->draft, e) < 0)
		return -1;
	s->info.done = none;
	return img_layer_publish(&s->store, &s->draft, 's', s->key, &none, s->layer, e);
}

/* No document stands behind it, so its id is made of what it is made of. */
static void image_id(const struct setup *s, char ret[IMG_DIGEST_LEN + 1])
{
	_cleanup_buf_ struct buf b = { 0 };

	buf_init(&b, 4096);
	key_word(&b, "cloche derived 1");
	key_word(&b, s->base->id);
	key_word(&b, s->key);
	digest_of(&b, ret);
}

int setup_publish(struct setup *s, struct err *e)
{
	struct img_record *r = &s->made;
	struct img_record_layer *top;

	*r = *s->base;
	r->env = r->entrypoint = r->cmd = r->volumes = (struct img_words){ 0 };
	if (img_words_copy(&s->base->env, &r->env, e) < 0 ||
	    img_words_copy(&s->base->entrypoint, &r->entrypoint, e) < 0 ||
	    img_words_copy(&s->base->cmd, &r->cmd, e) < 0 ||
	    img_words_copy(&s->base->volumes, &r->volumes, e) < 0)
		return -1;
	image_id(s, r->id);
	r->manifest[0] = '\0';
	r->created = (int64_t)time(NULL);
	top = &r->layers[r->n_layers++];
	memcpy(top->name, s->layer, sizeof(top->name));
	memcpy(top->id, s->key, sizeof(top->id));
	top->bytes = s->info.done.bytes;
	if (img_image_publish(&s->store, r, NULL, 0, e) < 0)
		return -1;
	return img_name_set(&s->store, &s->name, r->id, "", e);
}

void setup_close(struct setup *s)
{
	img_draft_drop(&s->draft);
	fd_close(&s->held);
	img_record_free(&s->made);
	img_store_close(&s->store);
}
