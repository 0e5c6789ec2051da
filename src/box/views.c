#include "box/views.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <fcntl.h>

#include "base/fd.h"

#define VIEW_FILE_MAX (1 << 20)

unsigned views_cpus(const struct box_spec *spec)
{
	cpu_set_t set;
	unsigned have = 1, want;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		have = (unsigned)CPU_COUNT(&set);
	if (spec->limits.cpus <= 0)
		return have;
	want = (unsigned)spec->limits.cpus;
	if ((double)want < spec->limits.cpus)
		want++;
	return want < have ? want : have;
}

/* free(1), Python, Go and V8 read MemTotal, MemAvailable and Swap*; the rest is there so that
 * parsers find their lines. */
static size_t view_meminfo(char *to, size_t cap, uint64_t memory)
{
	unsigned long long kb = memory / 1024;

	return (size_t)snprintf(
		to, cap,
		"MemTotal:       %8llu kB\nMemFree:        %8llu kB\nMemAvailable:   %8llu kB\n"
		"Buffers:               0 kB\nCached:                0 kB\nSwapCached:            0 kB\n"
		"Active:                0 kB\nInactive:              0 kB\nSwapTotal:             0 kB\n"
		"SwapFree:              0 kB\nDirty:                 0 kB\nWriteback:             0 kB\n"
		"AnonPages:             0 kB\nMapped:                0 kB\nShmem:                 0 kB\n"
		"KReclaimable:          0 kB\nSlab:                  0 kB\nSReclaimable:          0 kB\n"
		"SUnreclaim:            0 kB\nPageTables:            0 kB\nCommitLimit:    %8llu kB\n"
		"Committed_AS:          0 kB\nHugePages_Total:       0\nHugePages_Free:        0\n"
		"Hugepagesize:       2048 kB\n",
		kb, kb, kb, kb);
}

/* A fresh random UUID (version 4): the host's would tie boxes to each other and to the machine. */
static size_t view_boot_id(char *to, size_t cap)
{
	unsigned char b[16];

	if (getrandom(b, sizeof(b), 0) != sizeof(b))
		memset(b, 0, sizeof(b));
	b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
	b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
	return (size_t)
		snprintf(to, cap,
			 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n",
			 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
			 b[12], b[13], b[14], b[15]);
}

size_t views_cut_cpuinfo(char *text, size_t len, unsigned cpus)
{
	unsigned seen = 0;
	size_t at = 0;

	while (at < len) {
		const char *nl = memchr(text + at, '\n', len - at);

		if (len - at >= 9 && memcmp(text + at, "processor", 9) == 0 && seen++ == cpus)
			return at;
		at = nl ? (size_t)(nl - text) + 1 : len;
	}
	return len;
}

size_t views_cut_stat(char *text, size_t len, unsigned cpus)
{
	size_t at = 0, keep = 0;
	unsigned seen = 0;

	while (at < len) {
		const char *nl = memchr(text + at, '\n', len - at);
		size_t end = nl ? (size_t)(nl - text) + 1 : len;
		/* Counted, not read: where the first cpu is offline its number is missing. */
		bool drop = end - at > 3 && memcmp(text + at, "cpu", 3) == 0 &&
			    text[at + 3] >= '0' && text[at + 3] <= '9' && seen++ >= cpus;

		if (!drop) {
			memmove(text + keep, text + at, end - at);
			keep += end - at;
		}
		at = end;
	}
	return keep;
}

static int view_host_file(const char *from, size_t (*cut)(char *, size_t, unsigned), unsigned cpus,
			  struct box_view *ret, struct err *e)
{
	char *text = malloc(VIEW_FILE_MAX);
	ssize_t n;

	if (!text)
		return err_set(e, ERR_SYS, "out of memory for a view of %s", from);
	n = fd_read_file_at(AT_FDCWD, from, text, VIEW_FILE_MAX);
	if (n < 0) {
		free(text);
		return err_sys(e, "read %s", from);
	}
	text[n++] = '\n';
	*ret = (struct box_view){ .path = from + 1,
				  .text = text,
				  .len = cut(text, (size_t)n, cpus) };
	return 0;
}

int views_make(const struct box_spec *spec, struct box_view ret[BOX_VIEWS_MAX], size_t *ret_n,
	       struct err *e)
{
	static char meminfo[1024], boot_id[48];
	size_t n = 0;

	ret[n++] = (struct box_view){ .path = "proc/sys/kernel/random/boot_id",
				      .text = boot_id,
				      .len = view_boot_id(boot_id, sizeof(boot_id)) };
	if (spec->limits.memory != BOX_LIMIT_NONE)
		ret[n++] = (struct box_view){ .path = "proc/meminfo",
					      .text = meminfo,
					      .len = view_meminfo(meminfo, sizeof(meminfo),
								  spec->limits.memory) };
	if (spec->limits.cpus > 0) {
		unsigned cpus = views_cpus(spec);

		if (view_host_file("/proc/cpuinfo", views_cut_cpuinfo, cpus, &ret[n], e) < 0)
			return -1;
		n++;
		if (view_host_file("/proc/stat", views_cut_stat, cpus, &ret[n], e) < 0)
			return -1;
		n++;
	}
	*ret_n = n;
	return 0;
}
