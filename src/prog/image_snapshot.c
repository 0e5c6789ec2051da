/* `cloche-image snapshot` and `cloche-image restore`: a workspace as an archive, and back. They are
 *no verbs for people: `cloche serve` starts them, with the workspace's directory as descriptor 3
 *and the archive's file as descriptor 4.
 *
 *	snapshot --format gzip|zstd     {"event":"done","size":N,"files":N,"left_out":N}
 *	restore [--max-bytes N]         {"event":"done","files":N}
 *
 * or {"event":"error","type":T,"message":M}, T as in docs/PROTOCOL.md; "option" is an archive that
 *is refused. The exit code is 0 or 1, and 2 for a call that is none.
 *
 * How: a root caller becomes the workspace's owner for good. A snapshot is written by a process
 *that can read the workspace and nothing else. An archive is unpacked, all of it, into a draft
 *beside the workspace's content, by a child that can write there and nowhere else; only when it is
 *whole does its content take the place of the other.
 *
 * What may go wrong: we are told to end: the child is, and the draft is removed. What could not be
 * removed is named. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/str.h"
#include "image/confine.h"
#include "image/encode.h"
#include "image/layer_tar.h"
#include "image/unpack_child.h"
#include "prog/image_verbs.h"
#include "session/workspace.h"

#define WORKSPACE_FD 3
#define ARCHIVE_FD 4
#define ENTRIES_MAX 1000000
#define OUT_MAX 65536
#define DRAFTS_MAX 16

static int say(struct buf *out)
{
	buf_str(out, "\n");
	return out->failed || fd_write_all(STDOUT_FILENO, out->data, out->len) < 0;
}

/* As docs/PROTOCOL.md has it. */
static const char *type_of(const struct err *e)
{
	switch (e->kind) {
	case ERR_REFUSED:
	case ERR_USAGE:
		return "option";
	case ERR_PATH:
		return "path";
	case ERR_NOT_FOUND:
		return "not_found";
	case ERR_EXISTS:
		return "exists";
	case ERR_TOO_LARGE:
		return "too_large";
	case ERR_MISSING:
		return "unsupported";
	default:
		return "system";
	}
}

static int fail(const struct err *e)
{
	_cleanup_buf_ struct buf out = { 0 };
	char text[sizeof(e->msg)];
	struct json j;

	buf_init(&out, OUT_MAX);
	json_init(&j, &out);
	json_obj(&j);
	json_kstr(&j, "event", "error");
	json_kstr(&j, "type", type_of(e));
	json_kstr(&j, "message", str_printable(text, sizeof(text), e->msg));
	json_obj_end(&j);
	say(&out);
	return 1;
}

/* For good. An owner who has no number here can't be become: see session/workspace_impl.h. */
static int become_owner(struct ses_workspace *w, struct err *e)
{
	pid_t parent = getppid();

	if (ses_workspace(WORKSPACE_FD, w, e) < 0)
		return -1;
	if (w->give) {
		if (setgroups(0, NULL) < 0 && errno != EPERM)
			return err_sys(e, "become the workspace's owner");
		if (setresgid(w->gid, w->gid, w->gid) < 0 ||
		    setresuid(w->uid, w->uid, w->uid) < 0) {
			if (errno != EINVAL)
				return err_sys(e, "become the workspace's owner");
		}
		/* Or our own /proc is root's, and a user namespace of ours gets no maps. */
		prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
	}
	if (ses_workspace(WORKSPACE_FD, w, e) < 0 || img_confine_ready(e) < 0 ||
	    img_confine_rights(e) < 0)
		return -1;
	/* Who changes ids forgets that he is to end with his parent; by this signal we still clean
	 * up. */
	if (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0)
		return err_sys(e, "ask to be ended with the parent");
	return getppid() == parent ? 0 : err_set(e, ERR_SYS, "nobody waits for it");
}

static int put(void *ctx, const void *data, size_t n, struct err *e)
{
	return fd_write_all(ARCHIVE_FD, data, n) < 0 ? err_sys(e, "write the archive") : 0;
}

/* Drafts of restores that are at work; locked in we could not tell. */
static struct {
	char names[DRAFTS_MAX][SES_DRAFT_CAP];
	unsigned n;
} drafts;

static bool passes(const char *name)
{
	for (unsigned i = 0; i < drafts.n; i++)
		if (strcmp(drafts.names[i], name) == 0)
			return true;
	return false;
}

static int write_archive(enum img_codec codec, uint64_t *ret_size, struct img_files_tarred *ret,
			 struct err *e)
{
	static const int workspace = WORKSPACE_FD;
	const struct img_confine how = { .work = IMG_WORK_UNPACK,
					 .reads = &workspace,
					 .n_reads = 1 };
	const struct tar_sink file = { put, NULL };
	_cleanup_encoder_ struct img_encoder *c = NULL;
	struct tar_sink plain = { img_encoder_write, NULL };

	drafts.n = ses_replace_all_at(WORKSPACE_FD, drafts.names, DRAFTS_MAX);
	if (img_confine(&how, e) < 0)
		return err_prefix(e, "lock in");
	if (img_encoder_open(codec, &file, &c, e) < 0)
		return -1;
	plain.ctx = c;
	if (img_files_tar(WORKSPACE_FD, passes, &plain, ret, e) < 0)
		return -1;
	return img_encoder_finish(c, ret_size, e);
}

int image_snapshot(int argc, char **argv)
{
	enum img_codec codec;
	struct img_files_tarred done = { 0 };
	struct ses_workspace w;
	_cleanup_buf_ struct buf out = { 0 };
	uint64_t size = 0;
	struct json j;
	struct err e;

	if (argc != 3 || strcmp(argv[1], "--format") != 0)
		return 2;
	if (!strcmp(argv[2], img_codec_name(IMG_CODEC_GZIP)))
		codec = IMG_CODEC_GZIP;
	else if (!strcmp(argv[2], img_codec_name(IMG_CODEC_ZSTD)))
		codec = IMG_CODEC_ZSTD;
	else
		return 2;
	if (become_owner(&w, &e) < 0 || write_archive(codec, &size, &done, &e) < 0)
		return fail(&e);
	buf_init(&out, OUT_MAX);
	json_init(&j, &out);
	json_obj(&j);
	json_kstr(&j, "event", "done");
	json_ku64(&j, "size", size);
	json_ku64(&j, "files", done.files);
	json_ku64(&j, "left_out", done.special);
	json_obj_end(&j);
	return say(&out);
}

/* The child that unpacks, while there is one. */
static volatile sig_atomic_t child, told_to_end;

static void on_signal(int sig)
{
	told_to_end = 1;
	if (child > 0)
		kill((pid_t)child, SIGKILL);
}

static void heed_signals(void)
{
	const struct sigaction sa = { .sa_handler = on_signal };

	sigaction(SIGHUP, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* No more than there is room for: an archive may be small and what is in it large. */
static uint64_t room(uint64_t max)
{
	struct statvfs fs;
	uint64_t have;

	if (fstatvfs(WORKSPACE_FD, &fs) < 0)
		return max;
	have = (uint64_t)fs.f_bavail * fs.f_frsize;
	return have < max ? have : max;
}

static int unpack(int tree, uint64_t max, struct img_unpack_result *ret, struct err *e)
{
	struct img_unpack_job job = {
		.in = ARCHIVE_FD,
		.max_in = UINT64_MAX,
		.tree = tree,
		.how = { .limits = { .entries = ENTRIES_MAX,
				     .bytes = room(max),
				     .archive_bytes = img_unpack_default.archive_bytes },
			 .files = true },
	};
	struct img_unpack_child c = IMG_UNPACK_NO_CHILD;
	int r;

	if (img_unpack_start(&job, &c, e) < 0)
		return -1;
	child = c.pid;
	if (told_to_end)
		kill(c.pid, SIGKILL);
	r = img_unpack_end(&c, ret, e);
	child = 0;
	if (told_to_end)
		return err_set(e, ERR_SYS, "told to end");
	return r;
}

static int replace(struct ses_replace *r, uint64_t max, uint64_t *ret_files, struct err *e)
{
	struct img_unpack_result result;

	if (unpack(r->fresh, max, &result, e) < 0)
		return err_prefix(e, "the archive");
	if (ses_replace_end(r, e) < 0)
		return -1;
	*ret_files = result.done.entries;
	return 0;
}

int image_restore(int argc, char **argv)
{
	struct ses_replace r = SES_REPLACE_NONE;
	struct ses_workspace w;
	uint64_t max = img_unpack_default.bytes, files = 0;
	_cleanup_buf_ struct buf out = { 0 };
	struct err e, left;
	struct json j;
	int rc;

	if (argc == 3 && !strcmp(argv[1], "--max-bytes") &&
	    parse_u64(argv[2], 0, img_unpack_default.bytes, &max, &e) < 0)
		return 2;
	if (argc != 1 && (argc != 3 || strcmp(argv[1], "--max-bytes") != 0))
		return 2;
	heed_signals();
	if (become_owner(&w, &e) < 0 || ses_replace_begin(&w, &r, &e) < 0)
		return fail(&e);
	rc = replace(&r, max, &files, &e);
	if (ses_replace_drop(&r, &left) < 0 && rc == 0) {
		rc = -1;
		e = left;
		err_prefix(&e, "restored, but what was there before could not be removed");
	}
	if (rc < 0)
		return fail(&e);
	buf_init(&out, OUT_MAX);
	json_init(&j, &out);
	json_obj(&j);
	json_kstr(&j, "event", "done");
	json_ku64(&j, "files", files);
	json_obj_end(&j);
	return say(&out);
}
