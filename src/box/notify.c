#include "box/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/init.h"
#include "box/mediate.h"

#define MEDIATING_MAX 32
#define RESPOND_TRIES 16

static int start_thread(void *(*run)(void *), void *arg)
{
	pthread_attr_t attr;
	pthread_t thread;
	int r;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	return r;
}

static bool same(const struct box_denied *a, const struct box_denied *b)
{
	return a->nr == b->nr && a->alone == b->alone && a->mount == b->mount &&
	       strcmp(a->path, b->path) == 0;
}

/* Is there room for one more record? The last one is for what ends the box, and paths, which a box
 * can make up without end, take only some. */
static bool has_room(const struct notify *n, const struct box_denied *d)
{
	unsigned paths = 0;

	for (unsigned i = 0; i < n->n_denied; i++)
		paths += n->denied[i].path[0] != '\0';
	return d->ended ||
	       (n->n_denied < BOX_DENIED_MAX - 1 && (!d->path[0] || paths < BOX_DENIED_PATHS));
}

/* Counts a call with those like it. False when it is the first, which is put down if `add`. */
static bool count(struct notify *n, const struct box_denied *d, bool add)
{
	bool known = false;

	pthread_mutex_lock(&n->lock);
	for (unsigned i = 0; i < n->n_denied && !known; i++)
		if (same(&n->denied[i], d)) {
			n->denied[i].count++;
			known = true;
		}
	if (!known && !has_room(n, d)) {
		n->unlisted++;
		known = true;
	}
	if (!known && add) {
		if (d->ended)
			atomic_store(&n->escape, (int)n->n_denied + 1);
		n->denied[n->n_denied] = *d;
		n->denied[n->n_denied++].count = 1;
	}
	pthread_mutex_unlock(&n->lock);
	return known;
}

/* Reads the name of the first caller only: a flood costs no more than its answers. The name counts
 * if the notification still stands after it, else the pid may be another's by now. */
static void record(struct notify *n, const struct seccomp_notif *req, struct box_denied d)
{
	struct sc_request bare = *n->request;
	char path[48], comm[sizeof(d.comm) + 8]; /* the kernel adds a newline, and reading needs a
						     byte more than the file has */

	d.nr = req ? req->data.nr : -1;
	d.pid = req ? (int)req->pid : 0;
	bare.n_rules = 0;
	if (req)
		d.alone = (uint8_t)sc_expect(sc_native(), &bare, d.nr,
					     (const uint64_t *)req->data.args);
	if (count(n, &d, false))
		return;
	if (req) {
		snprintf(path, sizeof(path), "/proc/%u/comm", req->pid);
		if (fd_read_file_at(AT_FDCWD, path, comm, sizeof(comm)) >= 0 &&
		    ioctl(n->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &req->id) == 0)
			snprintf(d.comm, sizeof(d.comm), "%.15s", comm);
	}
	count(n, &d, true);
}

/* Its caller waits for nothing else; ENOENT says that it is gone. */
static void respond(const struct notify *n, struct seccomp_notif_resp *resp)
{
	for (int i = 0; i < RESPOND_TRIES; i++)
		if (ioctl(n->listener, SECCOMP_IOCTL_NOTIF_SEND, resp) == 0 || errno == ENOENT)
			return;
}

static void end_box(struct notify *n, const struct seccomp_notif *req)
{
	record(n, req, (struct box_denied){ .ended = true });
	box_kill(n->init, n->order);
}

struct mediated {
	struct notify *n;
	bool refuse; /* a rule denies it: it is only judged, to name the others who refuse */
	struct seccomp_notif req;
};

static void *mediate_thread(void *arg)
{
	struct mediated *m = arg;
	struct notify *n = m->n;
	struct seccomp_notif_resp resp = { .id = m->req.id };
	struct box_denied d = { 0 };

	if (mediate_connect(n->listener, n->init_pid, n->spec, &m->req, m->refuse, &resp, &d))
		record(n, &m->req, d);
	respond(n, &resp);
	free(m);
	atomic_fetch_sub(&n->mediating, 1);
	return NULL;
}

/* A connect may wait as long as its server likes: it waits on a thread of its own, so that the
 * listener goes on hearing escapes. False when too many wait already. */
static bool mediate_apart(struct notify *n, const struct seccomp_notif *req, bool refuse)
{
	struct mediated *m;

	if (atomic_fetch_add(&n->mediating, 1) < MEDIATING_MAX && (m = malloc(sizeof(*m)))) {
		*m = (struct mediated){ .n = n, .refuse = refuse, .req = *req };
		if (start_thread(mediate_thread, m) == 0)
			return true;
		free(m);
	}
	atomic_fetch_sub(&n->mediating, 1);
	return false;
}

static void answer(struct notify *n, const struct seccomp_notif *req)
{
	struct seccomp_notif_resp resp = { .id = req->id, .error = -EPERM };
	enum sc_verdict verdict = sc_verdict(sc_native(), n->request, req->data.nr);

	switch (verdict) {
	case SC_END:
		end_box(n, req); /* never answered: the caller dies where it stands */
		return;
	case SC_MEDIATE:
		if (mediate_apart(n, req, false))
			return;
		resp.error = -EAGAIN;
		break;
	default:
		if (n->request->untrusted && req->data.nr == SYS_connect &&
		    mediate_apart(n, req, true))
			return;
		record(n, req, (struct box_denied){ 0 });
	}
	respond(n, &resp);
}

/* RECV answers ENOENT also when the last task that used the filter has ended; then the listener
 * hangs up. */
static bool filter_gone(int listener)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };

	return poll(&p, 1, 0) > 0 && p.revents & POLLHUP;
}

static void *notify_loop(void *arg)
{
	struct notify *n = arg;
	struct seccomp_notif req;

	atomic_store(&n->tid, (int)syscall(SYS_gettid));
	while (sem_wait(&n->given) < 0)
		if (atomic_load(&n->stop))
			return NULL;
	for (;;) {
		memset(&req, 0, sizeof(req));
		if (ioctl(n->listener, SECCOMP_IOCTL_NOTIF_RECV, &req) == 0) {
			answer(n, &req);
			if (atomic_load(&n->escape))
				return NULL;
			continue;
		}
		if (atomic_load(&n->stop))
			return NULL;
		if (errno == EINTR)
			continue;
		if (errno == ENOENT && filter_gone(n->listener))
			return NULL;
		if (errno != ENOENT) {
			/* Whoever waits for an answer must not wait for ever; refused it stays. */
			usleep(1000);
			continue;
		}
		/* A signal took a notification away before it could be read. Where hardly any
		 * notified call is one that an ordinary program makes, that is an escape attempt;
		 * where connect is mediated, it is an interrupted connect as a rule. */
		atomic_fetch_add(&n->lost, 1);
		if (!sc_notifies_ordinary(sc_native(), n->request)) {
			end_box(n, NULL);
			return NULL;
		}
	}
}

static void on_wake(int sig)
{
	(void)sig; /* it is there to interrupt */
}

int notify_open(struct notify *n, struct err *e)
{
	int r;

	pthread_mutex_init(&n->lock, NULL);
	if (sem_init(&n->given, 0, 0) < 0)
		return err_sys(e, "prepare the listener's thread");
	sigaction(SIGURG, &(struct sigaction){ .sa_handler = on_wake },
		  NULL); /* without SA_RESTART */
	r = start_thread(notify_loop, n);
	if (r != 0) {
		errno = r;
		return err_fork(e, "start the listener's thread");
	}
	return 0;
}

void notify_start(struct notify *n, int listener, int init, int order, pid_t init_pid,
		  const struct box_spec *spec, const struct sc_request *request)
{
	n->listener = listener;
	n->init = init;
	n->order = order;
	n->init_pid = init_pid;
	n->spec = spec;
	n->request = request;
	n->running = true;
	sem_post(&n->given);
}

void notify_stop(struct notify *n)
{
	int tid = atomic_load(&n->tid);

	atomic_store(&n->stop, true);
	if (tid > 0) /* one that is gone answers ESRCH: the number is within this process */
		syscall(SYS_tgkill, getpid(), tid, SIGURG);
}

const struct box_denied *notify_escape(const struct notify *n)
{
	int at = atomic_load(&n->escape);

	return at ? &n->denied[at - 1] : NULL;
}

void notify_tell(struct notify *n, struct box_outcome *ret)
{
	if (!n->running)
		return;
	pthread_mutex_lock(&n->lock);
	ret->n_denied = n->n_denied;
	ret->unlisted_denials = n->unlisted;
	memcpy(ret->denied, n->denied, n->n_denied * sizeof(n->denied[0]));
	pthread_mutex_unlock(&n->lock);
	ret->lost_denials = atomic_load(&n->lost);
}
