/* Layers of hostile images, unpacked into a directory below /dev/shm or /tmp, over a layer that has links and a file. The first byte chooses
 * the size of the pieces; checksums are mended as in fuzz_tar. What lies beside the layer's directory must stay as it was, no file may have a
 * set-id bit, no device may be there but whiteouts. Or archives of a workspace's files: then there is nothing but files, links and directories. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/unpack.h"
#include "tar_served.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int base = -1, lower = -1;
static bool files;
static char place[64];

/* Looks at all and removes it. */
static void clear(int dir)
{
	int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fdopendir(fd);
	struct dirent *ent;

	must(d != NULL);
	while ((ent = readdir(d))) {
		struct stat st;
		int sub;

		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		must(fstatat(fd, ent->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0);
		must(S_ISDIR(st.st_mode) || !(st.st_mode & 06000));
		must(!S_ISBLK(st.st_mode) && (!S_ISCHR(st.st_mode) || st.st_rdev == 0));
		must(!files || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode));
		if (!S_ISDIR(st.st_mode)) {
			must(unlinkat(fd, ent->d_name, 0) == 0);
			continue;
		}
		must(fchmodat(fd, ent->d_name, 0700, 0) == 0);
		sub = openat(fd, ent->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		must(sub >= 0);
		clear(sub);
		close(sub);
		must(unlinkat(fd, ent->d_name, AT_REMOVEDIR) == 0);
	}
	closedir(d);
}

static void finish(void)
{
	clear(lower);
	unlinkat(base, "lower", AT_REMOVEDIR);
	unlinkat(base, "outside", 0);
	rmdir(place);
}

static void prepare(void)
{
	snprintf(place, sizeof(place), "/dev/shm/cloche-fuzz-XXXXXX");
	if (!mkdtemp(place)) {
		snprintf(place, sizeof(place), "/tmp/fuzz-unpack-XXXXXX");
		must(mkdtemp(place) != NULL);
	}
	base = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(base >= 0 && mknodat(base, "outside", S_IFREG | 0644, 0) == 0);
	must(mkdirat(base, "lower", 0755) == 0);
	lower = openat(base, "lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	must(mkdirat(lower, "usr", 0755) == 0 && mkdirat(lower, "usr/lib", 0711) == 0 && symlinkat("usr/lib", lower, "lib") == 0);
	must(symlinkat("../outside", lower, "out") == 0 && symlinkat("/", lower, "root") == 0 && mknodat(lower, "f", S_IFREG | 0644, 0) == 0);
	atexit(finish);
}

static void outside_is_untouched(void)
{
	struct stat st;

	must(fstatat(base, "outside", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && st.st_nlink == 1);
	must((st.st_mode & 07777) == 0644);
	must(fstat(base, &st) == 0 && st.st_nlink == 3);
	must(fstatat(lower, "f", &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 && st.st_nlink == 1);
	must(fstat(lower, &st) == 0 && st.st_nlink == 3 && fstatat(lower, "usr/lib", &st, 0) == 0 && st.st_nlink == 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct img_unpack_how how = { .limits = { .entries = 200, .bytes = 1 << 20, .archive_bytes = 1 << 20 } };
	struct img_unpack_how over = how;
	struct served s;
	struct tar_source source = { serve, &s };
	struct img_unpacked done;
	struct err e = { 0 };
	uint8_t *copy;
	int layer;

	if (size < 2 || size > 65536 || !(copy = malloc(size - 1)))
		return 0;
	if (base < 0)
		prepare();
	memcpy(copy, data + 1, size - 1);
	for (size_t at = 0; at + 512 <= size - 1; at += 512)
		if (!memcmp(copy + at + 257, "ustar", 5))
			mend(copy + at);
	over.lowers = &lower;
	over.n_lowers = data[0] & 1; /* alone, or over the other */
	over.files = files = (data[0] & 3) == 2;
	s = (struct served){ copy, size - 1, data[0] ? data[0] * 16u : 1 };
	must(mkdirat(base, "layer", 0700) == 0);
	layer = openat(base, "layer", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (img_unpack(layer, &source, &over, &done, &e) < 0) {
		must((e.kind == ERR_REFUSED || e.kind == ERR_SYS) && e.msg[0]);
		for (const char *c = e.msg; *c; c++)
			must((unsigned char)*c >= 0x20 && *c != 0x7f);
	} else {
		must(done.entries <= how.limits.entries && done.bytes <= how.limits.bytes);
	}
	must(fchmod(layer, 0700) == 0);
	clear(layer);
	files = false;
	close(layer);
	must(unlinkat(base, "layer", AT_REMOVEDIR) == 0);
	outside_is_untouched();
	free(copy);
	return 0;
}
