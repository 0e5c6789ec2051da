/* What the child does about limits itself: enters the groups, lowers its resource limits, narrows
 * its affinity. And the parser of --ulimit.
 *
 * limits_enter and limits_inside run between clone and exec: nothing here allocates. Limits are
 * collected in one table first, so that the caller's --ulimit rows meet our defaults before
 * anything is set: --ulimit nofile=8192 may pass our default of 4096, never the hard limit cloche
 * was started with.
 *
 * What may go wrong: RLIMIT_NPROC counts the processes of one uid in one user namespace, so it must
 * be set inside the box's own; a hard core limit of 0 can't be raised to the 1 that also stops
 * piped core handlers. */
#include "box/limits_rungs.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

static const struct {
	const char *name;
	int resource;
} ulimits[] = {
	{ "as", RLIMIT_AS },
	{ "cpu", RLIMIT_CPU },
	{ "data", RLIMIT_DATA },
	{ "fsize", RLIMIT_FSIZE },
	{ "locks", RLIMIT_LOCKS },
	{ "memlock", RLIMIT_MEMLOCK },
	{ "msgqueue", RLIMIT_MSGQUEUE },
	{ "nice", RLIMIT_NICE },
	{ "nofile", RLIMIT_NOFILE },
	{ "nproc", RLIMIT_NPROC },
	{ "rss", RLIMIT_RSS },
	{ "rtprio", RLIMIT_RTPRIO },
	{ "rttime", RLIMIT_RTTIME },
	{ "sigpending", RLIMIT_SIGPENDING },
	{ "stack", RLIMIT_STACK },
};
#define N_ULIMITS (sizeof(ulimits) / sizeof(ulimits[0]))
#define ULIMIT_NAMES                                                                               \
	"as cpu data fsize locks memlock msgqueue nice nofile nproc rss rtprio rttime sigpending stack"

enum { RESOURCES = 16 };

static int parse_value(const char *s, size_t n, uint64_t *ret)
{
	uint64_t v = 0;

	if ((n == 9 && memcmp(s, "unlimited", 9) == 0) || (n == 2 && memcmp(s, "-1", 2) == 0)) {
		*ret = BOX_LIMIT_NONE;
		return 0;
	}
	if (n == 0)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9' || v > (UINT64_MAX - 9) / 10)
			return -1;
		v = v * 10 + (uint64_t)(s[i] - '0');
	}
	*ret = v;
	return 0;
}

int limit_ulimit_parse(const char *text, struct box_ulimit *ret, struct err *e)
{
	const char *eq = strchr(text, '='), *colon;
	struct box_ulimit u = { .resource = -1 };
	size_t n;

	if (!eq || eq == text)
		return err_set(e, ERR_USAGE,
			       "--ulimit %.100s: NAME=SOFT[:HARD] is wanted, such as nofile=64:128",
			       text);
	n = (size_t)(eq - text);
	if (n == 4 && memcmp(text, "core", 4) == 0)
		return err_set(e, ERR_USAGE, "--ulimit %.100s: core dumps are always off in a box",
			       text);
	for (size_t i = 0; i < N_ULIMITS; i++)
		if (strlen(ulimits[i].name) == n && memcmp(ulimits[i].name, text, n) == 0)
			u.resource = ulimits[i].resource;
	if (u.resource < 0)
		return err_set(e, ERR_USAGE,
			       "--ulimit %.100s: no such limit; known are " ULIMIT_NAMES, text);
	colon = strchr(eq + 1, ':');
	n = colon ? (size_t)(colon - eq - 1) : strlen(eq + 1);
	if (parse_value(eq + 1, n, &u.soft) < 0)
		return err_set(e, ERR_USAGE,
			       "--ulimit %.100s: the soft limit must be a number or \"unlimited\"",
			       text);
	u.hard = u.soft;
	if (colon && parse_value(colon + 1, strlen(colon + 1), &u.hard) < 0)
		return err_set(e, ERR_USAGE,
			       "--ulimit %.100s: the hard limit must be a number or \"unlimited\"",
			       text);
	if (u.soft > u.hard)
		return err_set(e, ERR_USAGE,
			       "--ulimit %.100s: the soft limit is above the hard one", text);
	*ret = u;
	return 0;
}

int limits_enter(int *fds, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++) {
		ssize_t w = write(fds[i], "0", 1);

		if (w != 1) {
			err_sys(e, "entering the group of the limits");
			return err_at(e, STAGE_LIMITS);
		}
		fd_close(&fds[i]);
	}
	return 0;
}

int limits_leave(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (write(fds[i], "0", 1) != 1)
			return -1;
	return 0;
}

/* cpus taken in a row from the allowed ones, beginning anywhere, so that boxes spread. */
static int narrow(uint64_t want, struct err *e)
{
	unsigned long set[128] = { 0 }, out[128] = { 0 };
	const unsigned bits = 8 * sizeof(set[0]);
	long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(set), set);
	unsigned last = (unsigned)(bytes > 0 ? bytes : 0) * 8, have = 0, at = 0, begin;
	struct timespec t;

	/* More cpus than the set holds: the quota of the group still stands. */
	if (bytes <= 0)
		return 0;
	for (unsigned i = 0; i < last; i++)
		have += set[i / bits] >> (i % bits) & 1;
	if (have <= want)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &t);
	begin = (unsigned)(t.tv_nsec / 1000) % have;
	for (unsigned i = 0; i < last; i++) {
		if (!(set[i / bits] >> (i % bits) & 1))
			continue;
		if ((at + have - begin) % have < want)
			out[i / bits] |= 1ul << (i % bits);
		at++;
	}
	if (syscall(SYS_sched_setaffinity, 0, (size_t)bytes, out) < 0)
		return err_sys(e, "keeping to %u of %u cpus", (unsigned)want, have);
	return 0;
}

struct wanted {
	bool set;
	uint64_t soft, hard;
};

static void want_limit(struct wanted *w, uint64_t soft, uint64_t hard)
{
	*w = (struct wanted){ true, soft, hard };
}

static void collect(const struct box_spec *spec, unsigned held, struct wanted w[RESOURCES])
{
	const struct box_limits *l = &spec->limits;
	uint64_t cap = l->pids == 0 ? LIMITS_PIDS_DEFAULT : l->pids;

	want_limit(&w[RLIMIT_NOFILE], LIMITS_OPEN_FILES_SOFT, LIMITS_OPEN_FILES_HARD);
	/* A caller who may have real-time or better priority does not lend it: such a box would
	 * keep cloche itself from running. */
	want_limit(&w[RLIMIT_RTPRIO], 0, 0);
	want_limit(&w[RLIMIT_NICE], 0, 0);
	/* Timers and queued signals are counted for the user outside, who would be left with none.
	 */
	want_limit(&w[RLIMIT_SIGPENDING], LIMITS_SIGPENDING, LIMITS_SIGPENDING);
	if (!(held >> LIMIT_MEMORY & 1))
		/* Sockets and pipes are memory that no sampler sees: few descriptors keep it small.
		 */
		want_limit(&w[RLIMIT_NOFILE], LIMITS_OPEN_FILES_SOFT, LIMITS_OPEN_FILES_SOFT);
	if (l->open_files != 0 && l->open_files != BOX_LIMIT_NONE)
		want_limit(&w[RLIMIT_NOFILE], l->open_files, l->open_files);
	for (size_t i = 0; i < spec->n_ulimits && i < BOX_ULIMITS_MAX; i++)
		if (spec->ulimits[i].resource >= 0 && spec->ulimits[i].resource < RESOURCES)
			want_limit(&w[spec->ulimits[i].resource], spec->ulimits[i].soft,
				   spec->ulimits[i].hard);
	/* What --ulimit may not loosen comes after it. */
	if (l->file_size != 0 && l->file_size != BOX_LIMIT_NONE &&
	    (!w[RLIMIT_FSIZE].set || w[RLIMIT_FSIZE].hard > l->file_size))
		want_limit(&w[RLIMIT_FSIZE], l->file_size, l->file_size);
	if (!(held >> LIMIT_PIDS & 1) && cap != BOX_LIMIT_NONE) {
		cap += LIMIT_INIT_PIDS;
		if (!w[RLIMIT_NPROC].set || w[RLIMIT_NPROC].hard > cap)
			want_limit(&w[RLIMIT_NPROC], cap, cap);
	}
	/* 1, not 0: a limit of 0 does not keep the kernel from feeding a handler that core_pattern
	 * pipes to. */
	want_limit(&w[RLIMIT_CORE], 1, 1);
}

static int lower(int r, const struct wanted *w, struct err *e)
{
	struct rlimit have, set;

	if (!w->set)
		return 0;
	if (getrlimit(r, &have) < 0) {
		err_sys(e, "reading resource limit %d", r);
		return err_at(e, STAGE_LIMITS);
	}
	/* RLIM_INFINITY is the largest number in both libraries, as BOX_LIMIT_NONE is here. */
	set.rlim_max = w->hard < have.rlim_max ? w->hard : have.rlim_max;
	set.rlim_cur = w->soft < set.rlim_max ? w->soft : set.rlim_max;
	if (setrlimit(r, &set) < 0) {
		err_sys(e, "setting resource limit %d to %llu", r,
			(unsigned long long)set.rlim_max);
		return err_at(e, STAGE_LIMITS);
	}
	return 0;
}

int limits_files(const struct box_spec *spec, unsigned held, struct err *e)
{
	struct wanted w[RESOURCES] = { 0 };

	collect(spec, held, w);
	return lower(RLIMIT_NOFILE, &w[RLIMIT_NOFILE], e);
}

int limits_inside(const struct box_spec *spec, unsigned held, struct err *e)
{
	struct wanted w[RESOURCES] = { 0 };

	collect(spec, held, w);
	for (int r = 0; r < RESOURCES; r++)
		if (r != RLIMIT_NOFILE && lower(r, &w[r], e) < 0)
			return -1;
	if (spec->limits.cpus > 0 && narrow(limits_whole_cpus(spec->limits.cpus), e) < 0)
		return err_at(e, STAGE_LIMITS);
	return 0;
}
