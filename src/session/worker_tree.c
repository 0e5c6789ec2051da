/* The worker's long operations: the whole workspace into an archive, out of one, or into another
 * directory. Archives are cloche-image's business. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "session/child.h"
#include "session/worker.h"
#include "session/worker_impl.h"

#define SAID_MAX 65536
#define TIDY_MOMENTS 100 /* of 10 ms */

extern char **environ;

void worker_fork(struct worker *w, const struct request *r)
{
	_cleanup_fd_ int path = w->to_held ? fcntl(WORKER_TO, F_DUPFD_CLOEXEC, 0)
				: w->to	   ? path_open_nolinks(w->to, O_DIRECTORY)
					   : -1;
	_cleanup_fd_ int fd = path < 0 ? -1 : openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct ses_workspace to;
	struct err e;

	if (fd < 0)
		err_sys(&e, "the copy's directory");
	if (fd < 0 || ses_workspace(fd, &to, &e) < 0 || ses_copy(&w->place, &to, &e) < 0)
		worker_fail(w, r->id, &e);
	else
		worker_done(w, r->id, NULL);
}

/* Runs cloche-image over the workspace and the archive; *ret is the object it prints. When the loop
 * gives it up, it is told (die_with_loop) and waited for. */
static int run_image(struct worker *w, const char *const words[3], int archive, json_t **ret,
		     struct err *e)
{
	const char *const argv[] = { w->image, words[0], words[1], words[2], NULL };
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
		return err_set(
			e, ERR_MISSING,
			"the program cloche-image does this, and it is not beside cloche-serve");
	if (fd_pipe(&from, &to) < 0)
		return err_sys(e, "a pipe");
	memcpy(how.fds, (int[]){ -1, to, STDERR_FILENO, w->place.fd, archive },
	       how.n_fds * sizeof(int));
	if (child_start(&how, &pidfd, e) < 0)
		return -1;
	fd_close(&to);
	n = fd_read_full(from, said, sizeof(said));
	code = child_reap(pidfd);
	*ret = n > 0 ? json_loadb(said, (size_t)n, JSON_REJECT_DUPLICATES, NULL) : NULL;
	if (!json_is_object(*ret)) {
		json_decref(*ret);
		return err_set(e, ERR_SYS, "%s ended with code %d and without a word", words[0],
			       code);
	}
	return 0;
}

/* The archive is at fault, or where it is. */
static void refuse_file(struct worker *w, const struct request *r, struct ses_error *e)
{
	ses_error_about(
		e, "file", "%s",
		r->op == OP_SNAPSHOT
			? "a path outside of the workspace, in a directory where files can be made"
			: "a file outside of the workspace that can be read: an archive that "
			  "snapshot has made, or a tar.gz, tar.zst or tar of files, directories "
			  "and links as those are");
	worker_refuse(w, r->id, e);
}

static void fail_file(struct worker *w, const struct request *r, const struct err *why)
{
	struct ses_error e;

	ses_error_err(&e, why);
	refuse_file(w, r, &e);
}

/* What the program said, as an answer. True when it was no error. */
static bool pass_on(struct worker *w, const struct request *r, json_t *said)
{
	const char *type = json_string_value(json_object_get(said, "type"));
	const char *message = json_string_value(json_object_get(said, "message"));
	struct ses_error e;
	int i = 0;

	if (!type) {
		json_object_del(said, "event");
		worker_done(w, r->id, said);
		return true;
	}
	while (i < SES_ERROR_TYPE_N && strcmp(type, ses_error_name((enum ses_error_type)i)) != 0)
		i++;
	ses_error_set(&e, i < SES_ERROR_TYPE_N ? (enum ses_error_type)i : SES_SYSTEM, "%s",
		      message ? message : "it failed");
	json_decref(said);
	if (e.type == SES_OPTION)
		refuse_file(w, r, &e);
	else
		worker_refuse(w, r->id, &e);
	return false;
}

/* Does the archive's path lead through the workspace? There boxes could turn it elsewhere: to a
 * directory of their choice, or to an archive that is not theirs to read. */
static bool leads_inside(const struct worker *w, const char *file, struct ses_error *e)
{
	char place[PATH_MAX], part[SES_PATH_CAP], at[PATH_MAX];

	if (path_canonical(w->dir, place) < 0)
		return false;
	for (size_t i = 0; file[i] && i < sizeof(part); i++) {
		part[i] = file[i];
		if (i == 0 || file[i] != '/')
			continue;
		part[i] = '\0';
		if (path_canonical(part, at) == 0 && path_within(at, place)) {
			ses_error_set(e, SES_OPTION,
				      "file: it is in the workspace, where boxes can change it; "
				      "choose another directory");
			return true;
		}
		part[i] = '/';
	}
	return false;
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

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), k = strlen(end);

	return n > k && strcmp(text + n - k, end) == 0;
}

/* The compression by `format`, or by the file's name; NULL with *e. */
static const char *compression(const char *format, const char *file, struct ses_error *e)
{
	static const char allowed[] = "tar.gz, tar.zst";

	if (format ? !strcmp(format, "tar.gz")
		   : ends_with(file, ".tar.gz") || ends_with(file, ".tgz"))
		return "gzip";
	if (format ? !strcmp(format, "tar.zst") : ends_with(file, ".tar.zst"))
		return "zstd";
	ses_error_set(
		e, SES_OPTION, "%s: %s", format ? "format" : "file",
		format ? allowed
		       : "its name ends in .tar.gz, .tgz or .tar.zst, or \"format\" is given");
	ses_error_about(e, format ? "format" : "file", "%s", allowed);
	return NULL;
}

/* SIGTERM, which says that the loop has given it up, ends the worker behind the step, not within.
 */
static void hold_end(int how)
{
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	sigprocmask(how, &term, NULL);
}

static void snapshot(struct worker *w, const struct request *r, const char *format)
{
	const char *file = request_str(r, "file");
	const char *const words[3] = { "snapshot", "--format", format };
	struct draft d;
	json_t *said = NULL;
	struct err e;

	if (draft_open(file, &d, &e) < 0) {
		fail_file(w, r, &e);
		return;
	}
	if (run_image(w, words, d.fd, &said, &e) < 0) {
		worker_fail(w, r->id, &e);
	} else if (!json_object_get(said, "type") && rename(d.path, file) < 0) {
		err_sys(&e, "%s", file);
		json_decref(said);
		fail_file(w, r, &e);
	} else if (pass_on(w, r, said)) {
		*d.path = '\0';
	}
	if (*d.path)
		unlink(d.path);
	fd_close(&d.fd);
}

void worker_snapshot(struct worker *w, const struct request *r)
{
	struct ses_error e;
	const char *format = compression(request_str(r, "format"), request_str(r, "file"), &e);

	if (!format) {
		worker_refuse(w, r->id, &e);
		return;
	}
	if (leads_inside(w, request_str(r, "file"), &e)) {
		refuse_file(w, r, &e);
		return;
	}
	hold_end(SIG_BLOCK);
	snapshot(w, r, format);
	hold_end(SIG_UNBLOCK);
}

/* What a restore has left that was killed, under a session that goes on. Who unpacked for it has
 * the draft until he is gone, too, a moment later. */
static void tidy(const struct ses_workspace *place)
{
	const struct timespec moment = { .tv_nsec = 10000000 };

	for (int i = 0; i < TIDY_MOMENTS && ses_replace_left(place->fd); i++) {
		if (i > 0)
			nanosleep(&moment, NULL);
		ses_replace_recover(place);
	}
}

static int archive_open(const char *file, struct err *e)
{
	/* What is no plain file is not waited for. */
	_cleanup_fd_ int fd = open(file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_NOT_FOUND, "%.300s: there is no such file", file);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "%.300s", file);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_PATH, "%.300s: is no regular file", file);
	return fd_steal(&fd);
}

void worker_restore(struct worker *w, const struct request *r)
{
	const char *file = request_str(r, "file");
	const char *const words[3] = { "restore", w->max ? "--max-bytes" : NULL, w->max };
	_cleanup_fd_ int fd = -1;
	struct ses_error inside;
	json_t *said = NULL;
	struct err e;

	if (leads_inside(w, file, &inside)) {
		refuse_file(w, r, &inside);
		return;
	}
	fd = archive_open(file, &e);
	if (fd < 0) {
		fail_file(w, r, &e);
		return;
	}
	hold_end(SIG_BLOCK);
	if (run_image(w, words, fd, &said, &e) == 0) {
		pass_on(w, r, said);
	} else {
		tidy(&w->place);
		worker_fail(w, r->id, &e);
	}
	hold_end(SIG_UNBLOCK);
}
