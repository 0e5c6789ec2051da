#include "session/port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"

#define PORTS_MAX 16 /* of a call */
#define CONNS_MAX 64 /* of a port, at once; further ones are closed */
#define CHUNK 65536
#define TURNS 16 /* of one connection before the others have theirs */

/* Bytes on their way from one side to the other. */
struct half {
	char *buf;
	size_t at, n;
	bool eof;  /* its source has ended */
	bool shut; /* and its target was told */
};

struct conn {
	struct port *port;
	struct conn *next;
	uint64_t tag;
	int fd[2]; /* the one that came, and the box's, -1 before it is there */
	struct source src[2];
	bool gone[2];	     /* hung up: no longer waited for, only read to its end */
	struct half half[2]; /* from fd[0], from fd[1] */
};

struct port {
	struct call *call;
	struct port *next;
	uint16_t number; /* in the box */
	int fd;
	struct source src;
	struct conn *conns;
	unsigned n_conns;
};

static void conn_drop(struct conn *x)
{
	struct port *p = x->port;
	struct loop *l = &p->call->s->loop;

	for (int i = 0; i < 2; i++) {
		loop_remove(l, &x->src[i]);
		fd_close(&x->fd[i]);
		free(x->half[i].buf);
	}
	for (struct conn **at = &p->conns; *at; at = &(*at)->next)
		if (*at == x) {
			*at = x->next;
			break;
		}
	p->n_conns--;
	p->call->s->n_conns--;
	loop_free(l, x);
}

static void port_drop(struct port *p)
{
	struct call *c = p->call;

	while (p->conns)
		conn_drop(p->conns);
	loop_remove(&c->s->loop, &p->src);
	fd_close(&p->fd);
	for (struct port **at = &c->ports; *at; at = &(*at)->next)
		if (*at == p) {
			*at = p->next;
			break;
		}
	loop_free(&c->s->loop, p);
}

void port_end(struct call *c)
{
	while (c->ports)
		port_drop(c->ports);
}

/* ---- carrying ---- */

/* One step of the direction that begins at fd[i]. 1: there may be more, 0: it would have to wait,
 * -1: the connection is of no use any more. */
static int step(struct conn *x, int i)
{
	struct half *h = &x->half[i];
	ssize_t n;

	if (h->n == h->at && !h->eof) {
		if (!h->buf && !(h->buf = malloc(CHUNK)))
			return -1;
		n = recv(x->fd[i], h->buf, CHUNK, MSG_DONTWAIT);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		h->at = 0;
		h->n = (size_t)n;
		h->eof = n == 0;
	}
	if (h->n > h->at) {
		n = send(x->fd[!i], h->buf + h->at, h->n - h->at, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -1;
		h->at += (size_t)n;
		return 1;
	}
	if (h->eof && !h->shut) {
		shutdown(x->fd[!i], SHUT_WR);
		h->shut = true;
	}
	return 0;
}

static void watch(struct conn *x)
{
	for (int i = 0; i < 2; i++) {
		struct half *from = &x->half[i], *to = &x->half[!i];
		unsigned want = (from->n == from->at && !from->eof ? (unsigned)EPOLLIN : 0) |
				(to->n > to->at ? (unsigned)EPOLLOUT : 0);

		if (!x->gone[i])
			loop_want(&x->port->call->s->loop, &x->src[i], want);
	}
}

static void carry(struct conn *x)
{
	int more = 1;

	/* What a side that is gone has left, nobody tells of: it is taken at once. */
	for (int turn = 0; (turn < TURNS || x->gone[0] || x->gone[1]) && more > 0; turn++) {
		int a = step(x, 0), b = a < 0 ? -1 : step(x, 1);

		if (a < 0 || b < 0) {
			conn_drop(x);
			return;
		}
		more = a | b;
	}
	if ((x->half[0].shut && x->half[1].shut) || (x->gone[0] && x->gone[1] && more <= 0))
		conn_drop(x);
	else
		watch(x);
}

static void on_side(struct conn *x, int i, unsigned events)
{
	if (events & (EPOLLHUP | EPOLLERR)) { /* it would be told of for ever */
		loop_remove(&x->port->call->s->loop, &x->src[i]);
		x->gone[i] = true;
	}
	carry(x);
}

static void on_came(void *ctx, unsigned events)
{
	on_side(ctx, 0, events);
}

static void on_box(void *ctx, unsigned events)
{
	on_side(ctx, 1, events);
}

/* ---- connections ---- */

void port_connected(struct call *c, uint64_t tag, int fd)
{
	struct conn *x = NULL;
	struct err e;

	for (struct port *p = c->ports; p && !x; p = p->next)
		for (x = p->conns; x && x->tag != tag; x = x->next)
			;
	if (!x || x->fd[1] >= 0) {
		fd_close(&fd);
		return;
	}
	x->fd[1] = fd;
	if (fd < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
	    loop_add(&c->s->loop, &x->src[0], x->fd[0], EPOLLIN, on_came, x, &e) < 0 ||
	    loop_add(&c->s->loop, &x->src[1], x->fd[1], EPOLLIN, on_box, x, &e) < 0)
		conn_drop(x);
}

/* Without a descriptor for it the connection would wait, and the loop be told of it for ever: the
 * one that is kept for this takes it, so that it can be closed. */
static int take_one(struct session *s, int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 || (errno != EMFILE && errno != ENFILE) || s->spare < 0)
		return fd;
	fd_close(&s->spare);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	fd_close(&fd);
	s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return -1;
}

static void on_listen(void *ctx, unsigned events)
{
	struct port *p = ctx;
	struct call *c = p->call;
	_cleanup_fd_ int fd = take_one(c->s, p->fd);
	struct spawn_order o = { .kind = SPAWN_CONNECT, .port = p->number };
	struct conn *x;

	if (fd < 0 || p->n_conns >= CONNS_MAX || c->s->n_conns >= c->s->conns_max ||
	    c->state != CALL_RUNNING)
		return;
	x = calloc(1, sizeof(*x));
	if (!x)
		return;
	*x = (struct conn){ .port = p, .next = p->conns, .tag = ++c->tags };
	x->fd[0] = fd_steal(&fd);
	x->fd[1] = -1;
	p->conns = x;
	p->n_conns++;
	c->s->n_conns++;
	o.tag = x->tag;
	if (spawn_send_order(c->control, &o) < 0)
		conn_drop(x);
}

static int listen_on(struct port *p, uint16_t *ret, struct err *e)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t n = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (p->fd < 0 || bind(p->fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    listen(p->fd, CONNS_MAX) < 0 || getsockname(p->fd, (struct sockaddr *)&at, &n) < 0)
		return err_sys(e, "listen on loopback");
	*ret = ntohs(at.sin_port);
	return loop_add(&p->call->s->loop, &p->src, p->fd, EPOLLIN, on_listen, p, e);
}

void port_open(struct call *c, const struct request *r)
{
	struct port *p;
	unsigned n = 0;
	uint16_t number = 0;
	struct err e;

	for (p = c->ports; p; p = p->next)
		n++;
	if (c->state >= CALL_ENDED) {
		reply_refuse(c->s, r->id, SES_NOT_FOUND, "call %llu has ended",
			     (unsigned long long)c->pending.id);
		return;
	}
	p = n < PORTS_MAX ? calloc(1, sizeof(*p)) : NULL;
	if (!p) {
		reply_refuse(c->s, r->id, SES_BUSY, "a call has at most %d ports", PORTS_MAX);
		return;
	}
	p->call = c;
	p->number = (uint16_t)request_int(r, "port", 0);
	p->fd = -1;
	p->next = c->ports;
	c->ports = p;
	if (listen_on(p, &number, &e) < 0) {
		port_drop(p);
		reply_err(c->s, r->id, &e);
		return;
	}
	reply_done(c->s, r->id, json_pack("{s:s,s:i}", "host", "127.0.0.1", "port", (int)number));
}
