/* cloche runs what is in the store; what brings images there is another program, so that what reads
 * a registry's bytes is never what builds boxes. It is started as from a shell, with the same
 * options, and dies with cloche. Its standard output, the image's id, is nobody's here, but for who
 * wants its progress as JSON, which comes there; else its progress goes to the caller's stderr, but
 * for --json, where its last line becomes part of the error. */
#include "cli/run_image.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/init.h"
#include "box/self.h"
#include "cli/program.h"
#include "cli/say.h"

#define LINE_CAP 360

/* The last line that is not empty, of a stream of any length, and of a long line its beginning. */
struct last_line {
	int copy; /* all of it goes there, too; 0: nowhere */
	char text[LINE_CAP], next[LINE_CAP];
	size_t n;
};

static void last_add(struct last_line *l, const char *data, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (data[i] == '\n' || data[i] == '\r') {
			l->next[l->n] = '\0';
			if (l->n > 0 && l->next[0] != '{') /* progress, and no cause */
				memcpy(l->text, l->next, sizeof(l->text));
			l->n = 0;
		} else if (l->n < sizeof(l->next) - 1) {
			l->next[l->n++] = data[i];
		}
	}
}

static void last_read(struct last_line *l, int fd)
{
	char buf[4096];
	ssize_t n;

	while ((n = read(fd, buf, sizeof(buf))) > 0 || (n < 0 && errno == EINTR))
		if (n > 0) {
			last_add(l, buf, (size_t)n);
			if (l->copy)
				(void)!fd_write_all(l->copy, buf, (size_t)n);
		}
	last_add(l, "\n", 1);
}

_Noreturn static void become(char **words, int err_to, bool both)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (null >= 0 && dup2(null, 0) >= 0 && dup2(both ? err_to : null, 1) >= 0 &&
	    (err_to < 0 || dup2(err_to, 2) >= 0))
		execv(words[0], words);
	_exit(127);
}

/* Runs it to its end; *ret is the status of wait(2). */
static int spawn(char **words, struct last_line *kept, int *ret, struct err *e)
{
	_cleanup_fd_ int from = -1;
	int to = -1;
	pid_t pid;

	if (kept && fd_pipe(&from, &to) < 0)
		return err_sys(e, "make a pipe");
	pid = fork();
	if (pid == 0)
		become(words, to, kept && kept->copy);
	fd_close(&to);
	if (pid < 0)
		return err_fork(e, "start cloche-image");
	if (kept)
		last_read(kept, from);
	while (waitpid(pid, ret, 0) < 0)
		if (errno != EINTR)
			return err_sys(e, "wait for cloche-image");
	return 0;
}

static int pull(const struct run_options *o, const struct image_use *u, struct err *e)
{
	char path[PROGRAM_PATH_MAX], verb[] = "pull", quiet[] = "--quiet", json[] = "--json",
				     platform[] = "--platform", timeout[] = "--timeout";
	char *words[10] = { path, verb };
	struct last_line kept = { .copy = o->progress };
	size_t n = 2;
	int status = 0;

	if (program_path(PROGRAM_IMAGE, path, e) < 0)
		return err_prefix(e, "%.200s has to be pulled", u->name);
	if (o->request.platform) {
		words[n++] = platform;
		words[n++] = (char *)(uintptr_t)o->request.platform;
	}
	if (o->pull_timeout) {
		words[n++] = timeout;
		words[n++] = (char *)(uintptr_t)o->pull_timeout;
	}
	if (o->progress)
		words[n++] = json;
	else if (o->quiet)
		words[n++] = quiet;
	words[n] = (char *)(uintptr_t)u->name;
	if (spawn(words, o->json ? &kept : NULL, &status, e) < 0)
		return -1;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (WIFSIGNALED(status))
		return err_set(e, ERR_MISSING, "pulling %.200s was ended by signal %d", u->name,
			       WTERMSIG(status));
	if (kept.text[0])
		return err_set(e, ERR_MISSING, "%s", kept.text);
	return err_set(e, ERR_MISSING, "%.200s could not be pulled", u->name);
}

/* Nothing to pull is found wherever it is asked for: what is made here has no registry. */
static bool can_pull(const struct run_options *o, const struct image_use *u)
{
	return o->pull != PULL_NEVER && u->ref.kind == IMG_REF_REGISTRY && !self_is_copy();
}

static int find(const struct run_options *o, struct image_use *u, struct err *e)
{
	size_t n;

	if (image_find(&o->request, u, e) == 0)
		return 0;
	n = strlen(e->msg);
	if (e->num == ENOENT && o->pull == PULL_NEVER && u->ref.kind == IMG_REF_REGISTRY)
		snprintf(e->msg + n, sizeof(e->msg) - n,
			 "; --pull never does not fetch it, --pull missing does");
	return -1;
}

int run_image(const struct run_options *o, struct prepared *p, struct err *e)
{
	struct image_use *u = &p->image;
	uint64_t began;

	p->pull_us = UINT64_MAX;
	if (!image_wanted(&o->request))
		return 0;
	if (find(o, u, e) == 0) {
		if (o->pull != PULL_ALWAYS || !can_pull(o, u))
			return 0;
	} else if (e->num != ENOENT || !can_pull(o, u)) {
		return err_at(e, STAGE_IMAGE);
	}
	if (request_check(&o->request, p, e) < 0)
		return -1;
	began = box_now();
	if (pull(o, u, e) < 0)
		return err_at(e, STAGE_IMAGE);
	p->pull_us = (box_now() - began) / 1000;
	return find(o, u, e) < 0 ? err_at(e, STAGE_IMAGE) : 0;
}

/* By this program itself, as from a shell. Its standard error is nobody's: it fails on a full disk,
 * or in a store that can't be written, and then the box goes without. What compiles is the image's
 * own program, no more trusted than the box's command: the caller's profile holds for it, too. */
static int compile(const struct run_options *o, const struct image_use *u)
{
	char self[] = "/proc/self/exe", verb[] = "setup", bytecode[] = "--bytecode",
	     quiet[] = "--quiet", image[] = "--image", apparmor[] = "--apparmor";
	char *words[] = { self,
			  verb,
			  bytecode,
			  quiet,
			  image,
			  (char *)(uintptr_t)u->name,
			  o->request.apparmor ? apparmor : NULL,
			  (char *)(uintptr_t)o->request.apparmor,
			  NULL };
	struct last_line kept = { 0 };
	struct err e;
	int status = -1; /* no exit */

	if (spawn(words, &kept, &status, &e) < 0)
		return -1;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

int run_bytecode(const struct run_options *o, struct image_use *u, struct err *e)
{
	char line[700];

	if (!u->python[0] || o->plan || self_is_copy())
		return 0;
	if (!o->quiet && !o->json) {
		snprintf(
			line, sizeof(line),
			"compiling the Python library of %.500s, this once (--no-pyc-cache leaves it out)",
			u->name);
		cli_say("note", line);
	}
	if (compile(o, u) < 0)
		return 0;
	return find(o, u, e) < 0 ? err_at(e, STAGE_IMAGE) : 0;
}
