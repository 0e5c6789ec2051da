/* The worker's long operations: the whole workspace into an archive, out of one, or into another
 * directory. Archives are cloche-image's business. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "session/child.h"
#include "session/worker_impl.h"

#define SAID_MAX 65536

extern char **environ;

void worker_fork(struct worker *w, const struct request *r)
{
	_cleanup_fd_ int fd = w->to ? path_open_nolinks(w->to, O_DIRECTORY) : -1;
	struct ses_workspace to;
	struct err e;

	if (fd < 0)
		err_sys(&e, "the copy's directory");
	if (fd < 0 || ses_workspace(fd, &to, &e) < 0 || (errno = ENOSYS, err_sys(&e, "fork")) < 0)
		worker_fail(w, r->id, &e);
	else
		worker_done(w, r->id, NULL);
}

/* Runs `cloche-image VERB [WORD]` over the workspace and the archive; *ret is the object it prints.
 */
static int run_image(struct worker *w, const char *verb, const char *word, int archive,
		     json_t **ret, struct err *e)
{
	const char *const argv[] = { w->image, verb, word, NULL };
	_cleanup_fd_ int from = -1, to = -1, pidfd = -1;
	struct child_how how = { .path = w->image,
				 .argv = (char *const *)(uintptr_t)argv,
				 .env = environ,
				 .n_fds = 5,
				 .die_with_us = true };
	char said[SAID_MAX];
	ssize_t n;
	int code;

	if (!*w->image)
		return err_set(e, ERR_MISSING, "the program cloche-image does this, and it is not beside cloche-serve");
	if (fd_pipe(&from, &to) < 0)
		return err_sys(e, "a pipe");
	memcpy(how.fds, (int[]){ -1, to, STDERR_FILENO, w->place.fd, archive }, sizeof(how.fds));
	if (child_start(&how, &pidfd, e) < 0)
		return -1;
	fd_close(&to);
	n = fd_read_full(from, said, sizeof(said));
	code = child_reap(pidfd);
	*ret = n > 0 ? json_loadb(said, (size_t)n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (!json_is_object(*ret)) {
		json_decref(*ret);
		return err_set(e, ERR_SYS, "%s ended with code %d and without a word", verb, code);
	}
	return 0;
}

/* The archive until it is whole. */
struct draft {
	int fd;
	char path[SES_PATH_CAP];
};

static int draft_open(const char *file, struct draft *d, struct err *e)
{
	mode_t mask = umask(0);

	umask(mask);
	if (snprintf(d->path, sizeof(d->path), "%s.XXXXXX", file) >= (int)sizeof(d->path))
		return err_set(e, ERR_TOO_LARGE, "file: the path is too long");
	d->fd = mkostemp(d->path, O_CLOEXEC);
	if (d->fd < 0)
		return err_sys(e, "%s", file);
	fchmod(d->fd, 0666 & ~mask);
	return 0;
}

/* What the program said, as an answer. */
static void pass_on(struct worker *w, uint64_t id, json_t *said)
{
	worker_done(w, id, said);
}

void worker_snapshot(struct worker *w, const struct request *r)
{
	const char *file = request_str(r, "file"), *format = request_str(r, "format");
	struct draft d;
	json_t *said;
	struct err e;

	if (draft_open(file, &d, &e) < 0) {
		worker_fail(w, r->id, &e);
		return;
	}
	if (run_image(w, "snapshot", format ? format : file, d.fd, &said, &e) < 0) {
		unlink(d.path);
		worker_fail(w, r->id, &e);
	} else if (json_object_get(said, "error")) {
		unlink(d.path);
		pass_on(w, r->id, said);
	} else if (rename(d.path, file) < 0) {
		err_sys(&e, "%s", file);
		unlink(d.path);
		json_decref(said);
		worker_fail(w, r->id, &e);
	} else {
		pass_on(w, r->id, said);
	}
	fd_close(&d.fd);
}

void worker_restore(struct worker *w, const struct request *r)
{
	const char *file = request_str(r, "file");
	/* What is no plain file is not waited for. */
	_cleanup_fd_ int fd = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	json_t *said;
	struct err e;

	if (fd < 0 && errno == ENOENT)
		err_set(&e, ERR_NOT_FOUND, "%.300s: there is no such file", file);
	else if (fd < 0 || fstat(fd, &st) < 0)
		err_sys(&e, "%.300s", file);
	else if (!S_ISREG(st.st_mode))
		err_set(&e, ERR_PATH, "%.300s: is no regular file", file);
	else if (run_image(w, "restore", NULL, fd, &said, &e) == 0) {
		pass_on(w, r->id, said);
		return;
	}
	worker_fail(w, r->id, &e);
}
