#include "box/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

void relay_init(struct relay *r, int from, int to)
{
	struct stat st;

	*r = (struct relay){ .from = from, .to = to };
	r->to_regular = to >= 0 && fstat(to, &st) == 0 && S_ISREG(st.st_mode);
}

int relay_reopen(int fd, int flags, bool *ret_own)
{
	char path[32];
	struct stat st;
	int own = -1;

	*ret_own = false;
	if (fd < 0 || fstat(fd, &st) < 0 || !(S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)))
		return fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	own = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	*ret_own = own >= 0;
	return own >= 0 ? own : fd;
}

static void from_end(struct relay *r)
{
	if (!r->keep_from)
		fd_close(&r->from);
	r->from = -1;
}

int relay_capture(struct relay *r, uint64_t cap, struct err *e)
{
	r->capture = true;
	r->to = -1;
	r->cap = cap;
	/* Only what is written is ever backed by memory. */
	r->store = mmap(NULL, cap ? cap : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->store == MAP_FAILED) {
		r->store = NULL;
		return err_sys(e, "reserve %llu bytes for output (--max-output)", (unsigned long long)cap);
	}
	return 0;
}

unsigned relay_poll(const struct relay *r, struct pollfd p[2])
{
	bool full = r->at < r->len;

	p[0] = (struct pollfd){ .fd = full ? -1 : r->from, .events = POLLIN };
	p[1] = (struct pollfd){ .fd = full && !r->capture ? r->to : -1, .events = POLLOUT };
	return 2;
}

static void relay_store(struct relay *r, const char *data, size_t n)
{
	uint64_t half = r->cap / 2, ring = r->cap - half;

	if (r->cap == 0)
		r->total += n;
	while (n > 0 && r->cap > 0) {
		uint64_t at = r->total < half ? r->total : half + (r->total - half) % ring;
		uint64_t room = (r->total < half ? half : r->cap) - at;
		size_t k = n < room ? n : (size_t)room;

		memcpy(r->store + at, data, k);
		r->total += k;
		data += k;
		n -= k;
	}
}

static void relay_write(struct relay *r)
{
	while (r->at < r->len && r->to >= 0) {
		size_t n = r->len - r->at;
		ssize_t w;

		if (!r->to_regular && n > PIPE_BUF) /* a ready pipe takes this much for sure, so the write can't block */
			n = PIPE_BUF;
		w = write(r->to, r->chunk + r->at, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN)
			return;
		if (w < 0) { /* nobody listens any more: let the box see that, as it would see it outside */
			r->failed = errno == EPIPE ? 0 : errno;
			r->at = r->len = 0;
			if (r->own_to)
				fd_close(&r->to);
			r->to = -1;
			from_end(r);
			return;
		}
		r->at += (size_t)w;
		if (!r->to_regular)
			return;
	}
}

/* One read. False at the end, on an error, or when nothing is there. */
static bool relay_read(struct relay *r)
{
	ssize_t n;

	if (!r->chunk)
		r->chunk = malloc(RELAY_CHUNK);
	if (!r->chunk)
		return false;
	n = read(r->from, r->chunk, RELAY_CHUNK);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (n <= 0) { /* EIO is a terminal's end */
		from_end(r);
		return false;
	}
	if (r->capture) {
		relay_store(r, r->chunk, (size_t)n);
		return true;
	}
	r->at = 0;
	r->len = (size_t)n;
	return true;
}

void relay_move(struct relay *r, short in, short out)
{
	if (out)
		relay_write(r);
	if (in & POLLIN && r->from >= 0 && r->at >= r->len)
		relay_read(r);
	else if (in && !(in & POLLIN)) /* its end, with nothing left in it */
		from_end(r);
	if (r->own_to && r->from < 0 && r->at >= r->len)
		fd_close(&r->to);
}

void relay_drain(struct relay *r)
{
	int left = 0;

	if (r->from < 0)
		return;
	if (r->at >= r->len && ioctl(r->from, FIONREAD, &left) == 0 && left == 0) {
		from_end(r);
		return;
	}
	fcntl(r->from, F_SETFL, fcntl(r->from, F_GETFL) | O_NONBLOCK);
	if (r->capture) {
		while (r->from >= 0 && relay_read(r))
			;
		from_end(r);
	} else if (r->at >= r->len && !relay_read(r)) {
		from_end(r);
	}
}

int relay_take(struct relay *r, struct box_stream *s, struct err *e)
{
	uint64_t half = r->cap / 2, ring = r->cap - half, in_tail = r->total > half ? r->total - half : 0;
	uint64_t first = ring && in_tail > ring ? in_tail % ring : 0; /* where the ring's oldest byte stands */

	s->head_len = (size_t)(r->total < half ? r->total : half);
	s->tail_len = (size_t)(in_tail < ring ? in_tail : ring);
	s->cut = in_tail > ring ? in_tail - ring : 0;
	s->head = malloc(s->head_len + 1);
	s->tail = malloc(s->tail_len + 1);
	if (!s->head || !s->tail)
		return err_set(e, ERR_SYS, "out of memory for the output: lower --max-output");
	memcpy(s->head, r->store, s->head_len);
	memcpy(s->tail, r->store + half + first, s->tail_len - first);
	memcpy(s->tail + s->tail_len - first, r->store + half, first);
	return 0;
}

void relay_close(struct relay *r)
{
	from_end(r);
	if (r->own_to)
		fd_close(&r->to);
	free(r->chunk);
	r->chunk = NULL;
	if (r->store)
		munmap(r->store, r->cap ? r->cap : 1);
	r->store = NULL;
}
