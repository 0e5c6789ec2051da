#include "session/loop.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

int loop_open(struct loop *l, struct err *e)
{
	*l = (struct loop){ .epoll = epoll_create1(EPOLL_CLOEXEC) };
	return l->epoll < 0 ? err_sys(e, "epoll_create") : 0;
}

static void bury(struct loop *l)
{
	for (size_t i = 0; i < l->n_dead; i++)
		free(l->dead[i]);
	l->n_dead = 0;
}

void loop_close(struct loop *l)
{
	bury(l);
	free(l->dead);
	fd_close(&l->epoll);
}

int loop_add(struct loop *l, struct source *s, int fd, unsigned events,
	     void (*ready)(void *ctx, unsigned events), void *ctx, struct err *e)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	*s = (struct source){ .fd = fd, .ready = ready, .ctx = ctx, .events = events };
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &ev) == 0)
		return 0;
	if (errno == EPERM) {
		s->always = true;
		s->next = l->always;
		l->always = s;
		return 0;
	}
	*s = (struct source){ .fd = -1 };
	return err_sys(e, "watch a descriptor");
}

void loop_want(struct loop *l, struct source *s, unsigned events)
{
	struct epoll_event ev = { .events = events, .data.ptr = s };

	if (!s->ready || s->events == events)
		return;
	s->events = events;
	if (!s->always)
		epoll_ctl(l->epoll, EPOLL_CTL_MOD, s->fd, &ev);
}

void loop_remove(struct loop *l, struct source *s)
{
	if (!s->ready)
		return;
	if (!s->always)
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, s->fd, NULL);
	for (struct source **p = &l->always; s->always && *p; p = &(*p)->next)
		if (*p == s) {
			*p = s->next;
			break;
		}
	s->fd = -1;
	s->ready = NULL;
}

void loop_free(struct loop *l, void *p)
{
	if (l->n_dead == l->cap_dead) {
		size_t cap = l->cap_dead ? 2 * l->cap_dead : 64;
		void **v = reallocarray(l->dead, cap, sizeof(*v));

		if (!v)
			return; /* lost, which is better than freed too early */
		l->dead = v;
		l->cap_dead = cap;
	}
	l->dead[l->n_dead++] = p;
}

int loop_round(struct loop *l, int timeout_ms, struct err *e)
{
	struct epoll_event ev[LOOP_BATCH];
	bool busy = false;
	int n;

	for (struct source *s = l->always, *next; s; s = next) {
		next = s->next;
		if (!s->events)
			continue;
		busy = true;
		s->ready(s->ctx, s->events);
	}
	n = epoll_wait(l->epoll, ev, LOOP_BATCH, busy ? 0 : timeout_ms);
	if (n < 0 && errno != EINTR)
		return err_sys(e, "epoll_wait");
	for (int i = 0; i < n; i++) {
		struct source *s = ev[i].data.ptr;

		if (s->ready)
			s->ready(s->ctx, ev[i].events);
	}
	bury(l);
	return 0;
}

uint64_t loop_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}
