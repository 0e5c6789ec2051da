/* The child that unpacks.
 *
 * What may go wrong: it is taken over by what it reads. Then it can write nonsense into its own
 * directory, which becomes a layer only when its account fits what was asked for; read the layers
 * below, which it would be shown anyway; use time and memory up to its limits. It has nobody to
 * talk to. Or it dies: by a signal (said), by its limits (the allocation fails, and it says so). */
#include "image/unpack_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "image/confine.h"
#include "image/sha256.h"

#define MEMORY_MAX (UINT64_C(1) << 30)
#define KEPT_MAX 256

struct answer {
	int failed;
	struct err err;
	struct img_unpack_result result;
};

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Closes all but what the job uses and the way back. */
static int close_others(const struct img_unpack_job *job, int back, struct err *e)
{
	int keep[KEPT_MAX], from = 0;
	size_t n = 0;

	if (job->how.n_lowers > KEPT_MAX - 3)
		return err_set(e, ERR_REFUSED, "more than %d layers below", KEPT_MAX - 3);
	keep[n++] = job->in;
	keep[n++] = job->tree;
	keep[n++] = back;
	for (size_t i = 0; i < job->how.n_lowers; i++)
		keep[n++] = job->how.lowers[i];
	qsort(keep, n, sizeof(*keep), by_number);
	for (size_t i = 0; i < n; i++) {
		if (keep[i] > from && sys_close_range((unsigned)from, (unsigned)keep[i] - 1) < 0)
			return err_sys(e, "close descriptors");
		from = keep[i] + 1;
	}
	if (sys_close_range((unsigned)from, ~0U) < 0)
		return err_sys(e, "close descriptors");
	return 0;
}

static int limit(int what, uint64_t to, struct err *e)
{
	struct rlimit now;

	if (getrlimit((__rlimit_resource_t)what, &now) < 0)
		return err_sys(e, "getrlimit");
	if (now.rlim_max > to)
		now.rlim_max = to;
	if (now.rlim_cur > now.rlim_max)
		now.rlim_cur = now.rlim_max;
	if (setrlimit((__rlimit_resource_t)what, &now) < 0)
		return err_sys(e, "setrlimit");
	return 0;
}

static int lock_in(const struct img_unpack_job *job, int back, struct err *e)
{
	struct img_confine how = { .work = IMG_WORK_UNPACK,
				   .writes = &job->tree,
				   .n_writes = 1,
				   .reads = job->how.lowers,
				   .n_reads = job->how.n_lowers };

	if (close_others(job, back, e) < 0 || limit(RLIMIT_CORE, 0, e) < 0 ||
	    limit(RLIMIT_NPROC, 0, e) < 0)
		return -1;
#ifndef __SANITIZE_ADDRESS__
	if (limit(RLIMIT_DATA, MEMORY_MAX, e) < 0)
		return -1;
#endif
	return img_confine(&how, e);
}

static int work(const struct img_unpack_job *job, struct img_unpack_result *ret, struct err *e)
{
	_cleanup_decoder_ struct img_decoder *d = NULL;
	int in = job->in;
	struct tar_source file = { img_fd_read, &in }, plain = { img_decoder_read, NULL };

	if (img_decoder_open(&file, job->max_in, job->how.limits.archive_bytes, &d, e) < 0)
		return -1;
	plain.ctx = d;
	if (img_unpack(job->tree, &plain, &job->how, &ret->done, e) < 0)
		return -1;
	return img_decoder_finish(d, &ret->decoded, e);
}

void img_unpack_child(const struct img_unpack_job *job, int back, pid_t parent)
{
	struct answer a = { 0 };

	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		a.failed = err_sys(&a.err, "ask to be ended with the parent");
	else if (getppid() != parent)
		_exit(1);
	if (!a.failed && lock_in(job, back, &a.err) < 0)
		a.failed = err_prefix(&a.err, "lock the unpacking in");
	if (!a.failed)
		a.failed = work(job, &a.result, &a.err);
	/* Before anybody hears that it is done: the directory is no longer ours. */
	close(job->tree);
	_exit(fd_write_all(back, &a, sizeof(a)) < 0);
}

int img_unpack_start(const struct img_unpack_job *job, struct img_unpack_child *ret, struct err *e)
{
	_cleanup_fd_ int from = -1, back = -1;
	pid_t parent = getpid(), pid;

	if (img_sha256_ready(e) < 0)
		return -1;
	if (fd_pipe(&from, &back) < 0)
		return err_sys(e, "pipe");
	pid = fork();
	if (pid < 0)
		return err_fork(e, "a process that unpacks");
	if (pid == 0)
		img_unpack_child(job, back, parent);
	ret->pid = pid;
	ret->answer = fd_steal(&from);
	return 0;
}

static int reap(struct img_unpack_child *c)
{
	int status = 0;

	while (c->pid > 0 && waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
		;
	c->pid = 0;
	fd_close(&c->answer);
	return status;
}

static bool digest_ok(char text[IMG_DIGEST_LEN + 1])
{
	struct err e;

	text[IMG_DIGEST_LEN] = '\0';
	return img_digest_check(text, &e) == 0;
}

/* It is what somebody says who may have been taken over. */
static int judge(struct answer *a, struct img_unpack_result *ret, struct err *e)
{
	struct img_decoded *d = &a->result.decoded;

	a->err.msg[sizeof(a->err.msg) - 1] = '\0';
	if (a->failed) {
		*e = a->err;
		if (e->kind <= ERR_NONE || e->kind >= ERR_KIND_N)
			e->kind = ERR_REFUSED;
		e->stage = STAGE_NONE;
		return -1;
	}
	if (!digest_ok(d->in_digest) || !digest_ok(d->out_digest) || d->codec < 0 ||
	    d->codec >= IMG_CODEC_N)
		return err_set(e, ERR_REFUSED, "the process that unpacked it says nonsense");
	*ret = a->result;
	return 0;
}

int img_unpack_end(struct img_unpack_child *c, struct img_unpack_result *ret, struct err *e)
{
	struct answer a;
	ssize_t n = fd_read_full(c->answer, &a, sizeof(a));
	int status = reap(c);

	if (n == sizeof(a))
		return judge(&a, ret, e);
	if (WIFSIGNALED(status))
		return err_set(e, ERR_REFUSED,
			       "the process that unpacked it was ended by signal %d",
			       WTERMSIG(status));
	return err_set(e, ERR_REFUSED, "the process that unpacked it ended without a word");
}

void img_unpack_kill(struct img_unpack_child *c)
{
	_cleanup_fd_ int pidfd = -1;

	if (c->pid == 0)
		return;
	pidfd = sys_pidfd_open(c->pid);
	if (pidfd >= 0)
		sys_pidfd_send_signal(pidfd, SIGKILL);
	reap(c);
}
