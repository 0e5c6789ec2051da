/* `cloche save`, the part that does it: a child that locks itself in writes the archive, so that
 * this process can still give the file its name, or take away what is not whole. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "cli/image_list.h"
#include "cli/load.h"
#include "cli/verbs.h"
#include "engine/images.h"
#include "image/save.h"
#include "prog/image_verbs.h"

#define PATH_CAP 4096

struct job {
	struct img_store s;
	struct image_named named;
	struct img_record record;
	struct img_ref *names;
	size_t n_names;
	int held[IMG_STACK_MAX];
	size_t n_held;

	const char *path; /* NULL: standard output, or a file that is no plain one */
	int out;
};

/* The file's name until it is whole. */
static char draft[PATH_CAP];

static void on_signal(int sig)
{
	if (*draft)
		unlink(draft);
	signal(sig, SIG_DFL);
	raise(sig);
}

static void heed(int sig)
{
	struct sigaction now, sa = { .sa_handler = on_signal };

	/* Who was started with it ignored (nohup) goes on. */
	if (sigaction(sig, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
		sigaction(sig, &sa, NULL);
}

/* Every name of the image that has a tag; by a name with a digest, it is saved without one. */
static int add_name(void *ctx, const struct img_name *name, struct err *e)
{
	struct job *j = ctx;
	struct img_ref ref, *v;

	if (strcmp(name->id, j->named.id) != 0 || img_ref_parse(name->ref, &ref, e) < 0 ||
	    *ref.digest)
		return 0;
	v = reallocarray(j->names, j->n_names + 1, sizeof(*v));
	if (!v)
		return err_sys(e, "the image's names");
	j->names = v;
	v[j->n_names++] = ref;
	return 0;
}

/* An image that is asked for by its name is saved by that alone. */
static int find(struct job *j, const char *text, struct err *e)
{
	struct img_name name = { 0 };

	if (images_open(false, &j->s, e) < 0 && e->kind != ERR_MISSING)
		return -1;
	if (image_named(&j->s, text, &j->named, e) < 0)
		return -1;
	if (img_store_find_id(&j->s, j->named.id, &j->record, e) < 0 ||
	    img_store_hold(&j->s, &j->record, j->held, &j->n_held, e) < 0)
		return err_prefix(e, "image %s", text);
	if (j->record.host)
		return err_set(
			e, ERR_REFUSED,
			"image %s: it stands on the host image, which is this machine's own /usr; run its setup where it is wanted",
			text);
	if (j->named.by_id)
		return img_store_each_name(&j->s, add_name, j, e) < 0 ? -1 : 0;
	memcpy(name.id, j->named.id, sizeof(name.id));
	img_ref_format(&j->named.ref, name.ref);
	return add_name(j, &name, e);
}

static int open_out(struct job *j, const char *path, struct err *e)
{
	struct stat st;

	j->out = STDOUT_FILENO;
	if (!path)
		return 0;
	/* A pipe or a device is written to as it is. */
	if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		j->out = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
		return j->out < 0 ? err_sys(e, "%s", path) : 0;
	}
	if (snprintf(draft, sizeof(draft), "%s.XXXXXX", path) >= (int)sizeof(draft))
		return err_set(e, ERR_USAGE, "the name of the file is too long");
	j->out = mkostemp(draft, O_CLOEXEC);
	if (j->out < 0) {
		draft[0] = '\0';
		return err_sys(e, "%s", path);
	}
	j->path = path;
	return 0;
}

static void __attribute__((noreturn)) child(const struct job *j, int back, pid_t parent)
{
	const struct img_save_how how = { &j->s, &j->record, j->names, j->n_names, j->out };
	struct img_saved saved;
	struct err e = { 0 };

	int r;

	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == parent)
		r = img_save(&how, j->held, &saved, &e);
	else
		r = err_set(&e, ERR_SYS, "the process that saves has ended");
	if (r == 0) /* an error that was dealt with on the way may stand there */
		e.kind = ERR_NONE;
	_exit(fd_write_all(back, &e, sizeof(e)) < 0);
}

static int write_archive(const struct job *j, struct err *e)
{
	_cleanup_fd_ int from = -1, back = -1;
	struct err said;
	pid_t parent = getpid(), pid;
	ssize_t n;

	if (fd_pipe(&from, &back) < 0)
		return err_sys(e, "pipe");
	pid = fork();
	if (pid < 0)
		return err_fork(e, "a process that saves");
	if (pid == 0)
		child(j, back, parent);
	fd_close(&back);
	n = fd_read_full(from, &said, sizeof(said));
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	if (n != sizeof(said))
		return err_set(e, ERR_REFUSED, "the process that saves ended without a word");
	if (said.kind == ERR_NONE)
		return 0;
	said.msg[sizeof(said.msg) - 1] = '\0';
	*e = said;
	return -1;
}

/* The file as others make one, at its place. */
static int give_name(struct job *j, struct err *e)
{
	mode_t mask = umask(0);

	umask(mask);
	if (!j->path)
		return 0;
	if (fchmod(j->out, 0666 & ~mask) < 0 || fsync(j->out) < 0 || rename(draft, j->path) < 0)
		return err_sys(e, "%s", j->path);
	draft[0] = '\0';
	return 0;
}

int image_save(int argc, char **argv)
{
	static struct job j = { .s = { -1, -1, -1, -1, -1, -1 }, .out = -1 };
	struct save_options o;
	int rc = save_parse(argc, argv, &o);
	struct err e;

	if (rc >= 0)
		return rc;
	signal(SIGPIPE, SIG_IGN);
	heed(SIGHUP);
	heed(SIGINT);
	heed(SIGTERM);
	rc = find(&j, o.image, &e) < 0 || open_out(&j, o.file, &e) < 0 ||
			     write_archive(&j, &e) < 0 || give_name(&j, &e) < 0
		     ? cli_fail("save", &e)
		     : 0;
	if (*draft)
		unlink(draft);
	img_store_let_go(j.held, j.n_held);
	img_record_free(&j.record);
	free(j.names);
	img_store_close(&j.s);
	return rc;
}
