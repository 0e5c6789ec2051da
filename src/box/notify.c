#include "box/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/mediate.h"

/* Reads the caller's name; the answer counts only if the notification still stands after it, else the pid may be another's by now. */
static void record(struct notify *n, const struct seccomp_notif *req, bool ended)
{
	unsigned at = atomic_load(&n->n_denied);
	struct box_denied *d;
	char path[48], comm[sizeof(d->comm) + 8]; /* the kernel adds a newline, and reading needs a byte more than the file has */

	if (at >= BOX_DENIED_MAX) {
		if (!ended)
			return;
		at = BOX_DENIED_MAX - 1; /* the one that ends the box is always told */
	}
	d = &n->denied[at];
	memset(d, 0, sizeof(*d));
	d->nr = req ? req->data.nr : -1;
	d->pid = req ? (int)req->pid : 0;
	d->ended = ended;
	if (req) {
		snprintf(path, sizeof(path), "/proc/%u/comm", req->pid);
		if (fd_read_file_at(AT_FDCWD, path, comm, sizeof(comm)) >= 0 &&
		    ioctl(n->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &req->id) == 0)
			snprintf(d->comm, sizeof(d->comm), "%.15s", comm);
	}
	if (ended)
		atomic_store(&n->escape, (int)at + 1);
	atomic_store(&n->n_denied, at + 1);
}

static void end_box(struct notify *n, const struct seccomp_notif *req)
{
	record(n, req, true);
	sys_pidfd_send_signal(n->init, SIGKILL);
}

static void answer(struct notify *n, const struct seccomp_notif *req)
{
	struct seccomp_notif_resp resp = { .id = req->id, .error = -EPERM };

	switch (sc_verdict(sc_native(), n->request, req->data.nr)) {
	case SC_END:
		end_box(n, req); /* never answered: the caller dies where it stands */
		return;
	case SC_MEDIATE:
		mediate_connect(n->listener, n->init_pid, n->spec, req, &resp);
		break;
	default:
		record(n, req, false);
	}
	ioctl(n->listener, SECCOMP_IOCTL_NOTIF_SEND, &resp);
}

/* RECV answers ENOENT also when the last task that used the filter has ended; then the listener hangs up. */
static bool filter_gone(int listener)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };

	return poll(&p, 1, 0) > 0 && p.revents & POLLHUP;
}

static void *notify_loop(void *arg)
{
	struct notify *n = arg;
	struct seccomp_notif req;

	for (;;) {
		memset(&req, 0, sizeof(req));
		if (ioctl(n->listener, SECCOMP_IOCTL_NOTIF_RECV, &req) == 0) {
			answer(n, &req);
			if (atomic_load(&n->escape))
				return NULL;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != ENOENT || filter_gone(n->listener))
			return NULL;
		/* A signal took a notification away before it could be read. Where every notified call is one that no ordinary program
		 * makes, that is an escape attempt; where connect is mediated, it is an interrupted connect as a rule. */
		atomic_fetch_add(&n->lost, 1);
		if (!n->request->untrusted) {
			end_box(n, NULL);
			return NULL;
		}
	}
}

int notify_start(struct notify *n, int listener, int init, pid_t init_pid, const struct box_spec *spec,
		 const struct sc_request *request, struct err *e)
{
	pthread_attr_t attr;
	int r;

	n->listener = listener;
	n->init = init;
	n->init_pid = init_pid;
	n->spec = spec;
	n->request = request;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	r = pthread_create(&n->thread, &attr, notify_loop, n);
	pthread_attr_destroy(&attr);
	if (r != 0) {
		errno = r;
		return err_sys(e, "start the listener's thread");
	}
	n->running = true;
	return 0;
}

const struct box_denied *notify_escape(const struct notify *n)
{
	int at = atomic_load(&n->escape);

	return at ? &n->denied[at - 1] : NULL;
}
