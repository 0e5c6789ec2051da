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
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"

#define PTMX makedev(5, 2)

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
	/* Of devices, terminals only: to open another may do something (the master of a terminal
	 * would make a new one). */
	if (fd < 0 || fstat(fd, &st) < 0 ||
	    !(S_ISFIFO(st.st_mode) || (S_ISCHR(st.st_mode) && st.st_rdev != PTMX && isatty(fd))))
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
	r->mapped = cap ? (size_t)cap : 1;
	/* Only what is written is ever backed by memory. */
	r->store = mmap(NULL, r->mapped, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->store == MAP_FAILED) {
		r->store = NULL;
		return err_sys(e, "reserve %llu bytes for output (--max-output)",
			       (unsigned long long)cap);
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

void relay_store(struct relay *r, const char *data, size_t n)
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

/* While the first half is being filled, nothing stands where the ring will be. */
void relay_narrow(struct relay *r, uint64_t least)
{
	uint64_t cap = 2 * r->total < least ? least : 2 * r->total;

	if (r->total <= r->cap / 2 && cap < r->cap)
		r->cap = cap;
}

static void relay_write(struct relay *r)
{
	while (r->at < r->len && r->to >= 0) {
		size_t n = r->len - r->at;
		ssize_t w;

		if (!r->to_regular && n > PIPE_BUF) /* a ready pipe takes this much for sure, so the
						       write can't block */
			n = PIPE_BUF;
		w = write(r->to, r->chunk + r->at, n);
		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0 && errno == EAGAIN)
			return;
		if (w < 0) { /* nobody listens any more: let the box see that, as it would see it
				outside */
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

static bool is_terminal(int fd)
{
	int keep = errno;
	bool is = isatty(fd);

	errno = keep;
	return is;
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
	if (n <= 0) {
		if (n < 0 && !is_terminal(r->from)) /* whose end is told by EIO */
			r->failed = errno;
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
	/* What was printed on a terminal reaches its master a little later; a read waits for that,
	 * the question does not. */
	if (!isatty(r->from) && r->at >= r->len && ioctl(r->from, FIONREAD, &left) == 0 &&
	    left == 0) {
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

static void reverse(char *p, size_t n)
{
	for (size_t i = 0; i < n / 2; i++) {
		char c = p[i];

		p[i] = p[n - 1 - i];
		p[n - 1 - i] = c;
	}
}

/* How many bytes at the end begin a UTF-8 character that is not whole (at most 3). */
static size_t begun_at_end(const char *p, size_t n)
{
	for (size_t k = 1; k <= 3 && k <= n; k++) {
		unsigned char c = (unsigned char)p[n - k];

		if ((c & 0xc0) == 0x80)
			continue;
		return c >= 0xc2 && k < (c < 0xe0   ? 2U
					 : c < 0xf0 ? 3U
					 : c < 0xf5 ? 4U
						    : 0U)
			       ? k
			       : 0;
	}
	return 0;
}

/* How many bytes at the beginning end a character that began before (at most 3). */
static size_t ended_at_begin(const char *p, size_t n)
{
	size_t k = 0;

	while (k < 3 && k < n && ((unsigned char)p[k] & 0xc0) == 0x80)
		k++;
	return k;
}

void relay_take(struct relay *r, struct box_stream *s)
{
	size_t half = (size_t)(r->cap / 2), ring = (size_t)r->cap - half;
	uint64_t in_tail = r->total > half ? r->total - half : 0;
	size_t first = ring && in_tail > ring ? (size_t)(in_tail % ring)
					      : 0; /* where the ring's oldest byte stands */
	size_t tail = in_tail < ring ? (size_t)in_tail : ring,
	       head = r->total < half ? (size_t)r->total : half;

	*s = (struct box_stream){ .data = r->store,
				  .mapped = r->mapped,
				  .len = head + tail,
				  .head_len = head + tail,
				  .cut = in_tail > ring ? in_tail - ring : 0 };
	r->store = NULL;
	if (!s->cut)
		return;
	/* The ring is turned in place, so that the oldest byte comes first. */
	reverse(s->data + half, first);
	reverse(s->data + half + first, ring - first);
	reverse(s->data + half, ring);
	/* A character that the cut went through is left out whole: text that was valid stays so. */
	s->head_len = head - begun_at_end(s->data, head);
	first = ended_at_begin(s->data + head, tail);
	memmove(s->data + s->head_len, s->data + head + first, tail - first);
	s->len = s->head_len + tail - first;
	s->cut = r->total - s->len;
}

void relay_close(struct relay *r)
{
	from_end(r);
	if (r->own_to)
		fd_close(&r->to);
	free(r->chunk);
	r->chunk = NULL;
	if (r->store)
		munmap(r->store, r->mapped);
	r->store = NULL;
}
