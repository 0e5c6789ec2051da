/* Both ends of spawn.h: packing and checking of its messages. */
#include "session/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

const char *const spawn_language_names[SPAWN_LANGUAGE_N] = { "python", "bash", "sh", "node" };

/* Ahead of the strings in the memfd of words. */
struct words_head {
	uint32_t argc, envc, cwd;
};

static int memfd_open(const char *name, struct err *e)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 ? err_sys(e, "make a memory file") : fd;
}

int spawn_memfd(const char *name, const void *data, size_t n, int *ret, struct err *e)
{
	_cleanup_fd_ int fd = memfd_open(name, e);

	if (fd < 0)
		return -1;
	if (fd_write_all(fd, data, n) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return err_sys(e, "fill a memory file");
	*ret = fd_steal(&fd);
	return 0;
}

int spawn_map(int fd, size_t max, char **ret, size_t *ret_n, struct err *e)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;
	void *map;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0)
		return err_set(e, ERR_SYS, "what came is no sealed memory file");
	if (st.st_size < 0 || (uint64_t)st.st_size > max)
		return err_set(e, ERR_SYS, "what came is larger than %zu bytes", max);
	*ret = NULL;
	*ret_n = 0;
	if (st.st_size == 0)
		return 0;
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return err_sys(e, "map what came");
	*ret = map;
	*ret_n = (size_t)st.st_size;
	return 0;
}

/* Strings, each with its NUL; the count of them in *ret. */
static int put_words(int fd, char *const *v, uint32_t *ret, size_t *total)
{
	for (*ret = 0; v && v[*ret]; ++*ret) {
		size_t n = strlen(v[*ret]) + 1;

		if (n > SPAWN_WORDS_MAX - *total) {
			errno = E2BIG;
			return -1;
		}
		*total += n;
		if (fd_write_all(fd, v[*ret], n) < 0)
			return -1;
	}
	return 0;
}

int spawn_words_make(char *const *argv, char *const *env, const char *cwd, int *ret, struct err *e)
{
	char *const dir[] = { (char *)(uintptr_t)cwd, NULL };
	_cleanup_fd_ int fd = memfd_open("words", e);
	struct words_head h = { 0 };
	size_t total = sizeof(h);

	if (fd < 0)
		return -1;
	if (fd_write_all(fd, &h, sizeof(h)) < 0 || put_words(fd, argv, &h.argc, &total) < 0 ||
	    put_words(fd, env, &h.envc, &total) < 0 || put_words(fd, dir, &h.cwd, &total) < 0)
		return err_sys(e, "hand over the command's words");
	if (pwrite(fd, &h, sizeof(h), 0) != sizeof(h) || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return err_sys(e, "hand over the command's words");
	*ret = fd_steal(&fd);
	return 0;
}

/* The next string, or NULL when there is none that ends. */
static char *next_word(char **at, const char *end)
{
	char *s = *at, *nul = s < end ? memchr(s, '\0', (size_t)(end - s)) : NULL;

	if (nul)
		*at = nul + 1;
	return nul;
}

static char **take_words(char **at, const char *end, uint32_t n)
{
	char **v;

	if (n > (size_t)(end - *at)) /* each is a byte at least */
		return NULL;
	v = calloc((size_t)n + 1, sizeof(*v));
	for (uint32_t i = 0; v && i < n; i++) {
		v[i] = *at;
		if (!next_word(at, end)) {
			free(v);
			return NULL;
		}
	}
	return v;
}

int spawn_words_read(int fd, struct spawn_words *ret, struct err *e)
{
	struct words_head h;
	struct spawn_words w;
	char *map, *at, *end, **dir;
	size_t n;

	if (spawn_map(fd, SPAWN_WORDS_MAX, &map, &n, e) < 0)
		return -1;
	if (n < sizeof(h))
		goto bad;
	memcpy(&h, map, sizeof(h));
	at = map + sizeof(h);
	end = map + n;
	w = (struct spawn_words){ .argc = h.argc, .envc = h.envc };
	w.argv = take_words(&at, end, h.argc);
	w.env = w.argv ? take_words(&at, end, h.envc) : NULL;
	dir = w.env && h.cwd <= 1 ? take_words(&at, end, h.cwd) : NULL;
	if (dir && at == end) {
		w.cwd = dir[0];
		free(dir);
		*ret = w;
		return 0;
	}
	free(dir);
	free(w.env);
	free(w.argv);
bad:
	if (map)
		munmap(map, n);
	return err_set(e, ERR_SYS, "the command's words can't be read");
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

int spawn_recv_hello(int sock, struct spawn_hello *ret, int *ret_fd)
{
	int r = recv_exactly(sock, ret, sizeof(*ret), ret_fd, 1);

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
