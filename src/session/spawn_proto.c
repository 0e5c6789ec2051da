/* Both ends of spawn.h: packing and checking of its messages. */
#include "session/spawn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sealed.h"

const char *const spawn_language_names[SPAWN_LANGUAGE_N] = { "python", "bash", "sh", "node" };

int spawn_memfd(const char *name, const void *data, size_t n, int *ret, struct err *e)
{
	return sealed_make(name, data, n, ret, e);
}

int spawn_map(int fd, size_t max, char **ret, size_t *ret_n, struct err *e)
{
	return sealed_map(fd, max, ret, ret_n, e);
}

int spawn_words_make(char *const *argv, char *const *env, const char *cwd, int *ret, struct err *e)
{
	char *const dir[] = { (char *)(uintptr_t)cwd, NULL };
	char *const *const lists[] = { argv, env, dir };

	return sealed_words_make(lists, 3, SPAWN_WORDS_MAX, ret, e);
}

int spawn_words_read(int fd, struct spawn_words *ret, struct err *e)
{
	char **lists[3];
	size_t counts[3];

	if (sealed_words_read(fd, SPAWN_WORDS_MAX, 3, lists, counts, e) < 0)
		return -1;
	if (counts[2] > 1)
		return err_set(e, ERR_SYS, "the words of the command can't be read");
	*ret = (struct spawn_words){ .argv = lists[0],
				     .env = lists[1],
				     .cwd = lists[2][0],
				     .argc = counts[0],
				     .envc = counts[1] };
	return 0;
}

/* The members of `f` in their order: which of them a call with these flags brings. */
static size_t call_fds(struct spawn_fds *f, unsigned flags, int *ret[6])
{
	size_t n = 0;

	ret[n++] = &f->words;
	ret[n++] = &f->control;
	if (flags & SPAWN_STDIN)
		ret[n++] = &f->in;
	ret[n++] = &f->out;
	if (!(flags & SPAWN_PTY))
		ret[n++] = &f->err;
	if (flags & SPAWN_CODE)
		ret[n++] = &f->code;
	return n;
}

int spawn_send_call(int sock, const struct spawn_call *c, const struct spawn_fds *fds)
{
	struct spawn_fds f = *fds;
	int *v[6], send[6];
	size_t n = call_fds(&f, c->flags, v);

	for (size_t i = 0; i < n; i++)
		send[i] = *v[i];
	return fd_send(sock, c, sizeof(*c), send, n);
}

int spawn_send_retire(int sock)
{
	const struct spawn_call c = { .kind = SPAWN_RETIRE };

	return fd_send(sock, &c, sizeof(c), NULL, 0);
}

static bool call_sound(const struct spawn_call *c)
{
	return c->kind == SPAWN_CALL &&
	       !(c->flags & ~(unsigned)(SPAWN_STDIN | SPAWN_PTY | SPAWN_CODE | SPAWN_TRACK)) &&
	       (!(c->flags & SPAWN_CODE) || (unsigned)c->language < SPAWN_LANGUAGE_N);
}

int spawn_recv_call(int sock, struct spawn_call *ret, struct spawn_fds *ret_fds)
{
	struct spawn_call c;
	int got[FD_PASS_MAX], *v[6];
	size_t n = 0, want;
	ssize_t r = fd_recv(sock, &c, sizeof(c), got, FD_PASS_MAX, &n);

	if (r <= 0 && n == 0)
		return (int)r;
	*ret_fds = (struct spawn_fds){ -1, -1, -1, -1, -1, -1 };
	if (r == sizeof(c) && n == 0 && c.kind == SPAWN_RETIRE) {
		*ret = c;
		return 1;
	}
	want = r == sizeof(c) && call_sound(&c) ? call_fds(ret_fds, c.flags, v) : 0;
	if (want == 0 || want != n) {
		for (size_t i = 0; i < n; i++)
			close(got[i]);
		errno = EPROTO;
		return -1;
	}
	for (size_t i = 0; i < n; i++)
		*v[i] = got[i];
	*ret = c;
	return 1;
}

/* One packet of this size, with its descriptors. */
static int recv_exactly(int sock, void *ret, size_t size, int *fds, size_t max)
{
	size_t n = 0;
	ssize_t r;

	for (size_t i = 0; i < max; i++)
		fds[i] = -1;
	r = fd_recv(sock, ret, size, fds, max, &n);
	if (r == (ssize_t)size)
		return 1;
	for (size_t i = 0; i < n; i++)
		fd_close(&fds[i]);
	if (r <= 0)
		return (int)r;
	errno = EPROTO;
	return -1;
}

int spawn_recv_hello(int sock, struct spawn_hello *ret, int ret_fds[SPAWN_HELLO_FDS])
{
	int r = recv_exactly(sock, ret, sizeof(*ret), ret_fds, SPAWN_HELLO_FDS);

	ret->err.msg[sizeof(ret->err.msg) - 1] = '\0';
	ret->option[sizeof(ret->option) - 1] = ret->rule[sizeof(ret->rule) - 1] = '\0';
	return r;
}

int spawn_recv_event(int control, struct spawn_event *ret, int ret_fds[2])
{
	return recv_exactly(control, ret, sizeof(*ret), ret_fds, 2);
}

int spawn_send_order(int control, const struct spawn_order *o)
{
	return fd_send(control, o, sizeof(*o), NULL, 0);
}

void spawn_fds_close(struct spawn_fds *f)
{
	fd_close(&f->words);
	fd_close(&f->control);
	fd_close(&f->in);
	fd_close(&f->out);
	fd_close(&f->err);
	fd_close(&f->code);
}
