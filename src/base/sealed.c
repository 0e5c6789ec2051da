#include "base/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int sealed_make(const char *name, const void *data, size_t n, int *ret, struct err *e)
{
	_cleanup_fd_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_sys(e, "make a memory file");
	if (fd_write_all(fd, data, n) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return err_sys(e, "fill a memory file");
	*ret = fd_steal(&fd);
	return 0;
}

int sealed_map(int fd, size_t max, char **ret, size_t *ret_n, struct err *e)
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

int sealed_words_make(char *const *const lists[], unsigned n, size_t max, int *ret, struct err *e)
{
	uint32_t counts[SEALED_LISTS_MAX] = { 0 };
	_cleanup_buf_ struct buf text = { 0 };

	buf_init(&text, max);
	for (unsigned i = 0; i < n; i++)
		while (lists[i] && lists[i][counts[i]])
			counts[i]++;
	buf_add(&text, counts, n * sizeof(counts[0]));
	for (unsigned i = 0; i < n; i++)
		for (uint32_t k = 0; k < counts[i]; k++)
			buf_add(&text, lists[i][k], strlen(lists[i][k]) + 1);
	if (text.failed) {
		errno = E2BIG;
		return err_sys(e, "hand over the words of the command");
	}
	return sealed_make("words", text.data, text.len, ret, e);
}

/* One block of n lists of pointers to the strings that begin at `at`, each ended by NULL; NULL when
 * they are not all there, or are not all that is there. */
static char **take_words(char *at, const char *end, unsigned n, const uint32_t counts[])
{
	size_t total = 0, k = 0;
	char **v;

	for (unsigned i = 0; i < n; i++) {
		if (counts[i] > (size_t)(end - at)) /* each word is a byte at least */
			return NULL;
		total += (size_t)counts[i] + 1;
	}
	v = mmap(NULL, total * sizeof(*v), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		 0);
	if (v == MAP_FAILED)
		return NULL;
	for (unsigned i = 0; i < n; i++, k++)
		for (uint32_t left = counts[i]; left > 0; left--) {
			char *nul = at < end ? memchr(at, '\0', (size_t)(end - at)) : NULL;

			if (!nul) {
				munmap(v, total * sizeof(*v));
				return NULL;
			}
			v[k++] = at;
			at = nul + 1;
		}
	if (at == end)
		return v;
	munmap(v, total * sizeof(*v));
	return NULL;
}

int sealed_words_read(int fd, size_t max, unsigned n, char **ret[], size_t ret_counts[],
		      struct err *e)
{
	uint32_t counts[SEALED_LISTS_MAX] = { 0 };
	size_t len = 0, head = n * sizeof(counts[0]);
	char *map = NULL, **words = NULL;

	if (sealed_map(fd, max, &map, &len, e) < 0)
		return -1;
	if (map && len >= head) {
		memcpy(counts, map, head);
		words = take_words(map + head, map + len, n, counts);
	}
	if (!words) {
		if (map)
			munmap(map, len);
		return err_set(e, ERR_SYS, "the words of the command can't be read");
	}
	for (unsigned i = 0; i < n; i++) {
		ret[i] = words;
		ret_counts[i] = counts[i];
		words += counts[i] + 1;
	}
	return 0;
}
