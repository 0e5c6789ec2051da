/* Reading and writing the store's text files.
 *
 * What may go wrong: such a file may be anything by the time it is read. It is opened without
 * following a link and without waiting (a FIFO), is bounded before it is allocated, and each line
 * is checked before its value is looked at. */
#include "image/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

static bool is_plain(unsigned char c)
{
	return c >= ' ' && c < 0x7f && c != '%';
}

void img_line(struct buf *out, const char *key, const char *value)
{
	buf_str(out, key);
	if (value) {
		buf_str(out, " ");
		for (const char *s = value; *s;) {
			size_t n = 0;

			while (is_plain((unsigned char)s[n]))
				n++;
			buf_add(out, s, n);
			s += n;
			if (*s)
				buf_fmt(out, "%%%02X", (unsigned char)*s++);
		}
	}
	buf_str(out, "\n");
}

void img_line_u64(struct buf *out, const char *key, uint64_t value)
{
	buf_fmt(out, "%s %llu\n", key, (unsigned long long)value);
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static int decode(char *value, struct err *e)
{
	char *to = value;

	for (const char *s = value; *s;) {
		int high, low;

		if (is_plain((unsigned char)*s)) {
			*to++ = *s++;
			continue;
		}
		high = *s == '%' ? hex(s[1]) : -1;
		low = high < 0 ? -1 : hex(s[2]);
		if (low < 0 || high + low == 0)
			return err_set(e, ERR_REFUSED, "a value is not written as it should be");
		*to++ = (char)(high * 16 + low);
		s += 3;
	}
	*to = '\0';
	return 0;
}

int img_line_next(char **at, char *end, const char **ret_key, char **ret_value, struct err *e)
{
	char *key = *at, *value, *nl;
	size_t n;

	if (key >= end)
		return 0;
	nl = memchr(key, '\n', (size_t)(end - key));
	if (!nl)
		return err_set(e, ERR_REFUSED, "its last line has no end");
	if (memchr(key, '\0', (size_t)(nl - key)))
		return err_set(e, ERR_REFUSED, "a line has a NUL");
	*nl = '\0';
	n = strspn(key, "abcdefghijklmnopqrstuvwxyz_");
	if (n == 0 || (key[n] && key[n] != ' '))
		return err_set(e, ERR_REFUSED, "a line does not begin with a key");
	value = key[n] ? key + n + 1 : NULL;
	key[n] = '\0';
	if (value && decode(value, e) < 0)
		return err_prefix(e, "%s", key);
	*at = nl + 1;
	*ret_key = key;
	*ret_value = value;
	return 1;
}

int img_line_number(const char *key, const char *value, uint64_t max, uint64_t *ret, struct err *e)
{
	if (!value)
		return err_set(e, ERR_REFUSED, "%s: it has no value", key);
	if (parse_u64(value, 0, max, ret, e) < 0) {
		e->kind = ERR_REFUSED;
		return err_prefix(e, "%s", key);
	}
	return 0;
}

int img_line_copy(const char *key, const char *value, char *ret, size_t cap, struct err *e)
{
	size_t n = value ? strlen(value) : 0;

	if (n >= cap)
		return err_set(e, ERR_REFUSED, "%s: it has more than %zu bytes", key, cap - 1);
	if (n > 0)
		memcpy(ret, value, n);
	ret[n] = '\0';
	return 0;
}

int img_line_format(char **at, char *end, struct err *e)
{
	const char *key = "";
	char *value = NULL;
	int r = img_line_next(at, end, &key, &value, e);

	if (r < 0)
		return -1;
	if (r == 0 || strcmp(key, "format") != 0 || !value)
		return err_set(e, ERR_REFUSED, "it does not begin with its format");
	if (!strcmp(value, "1"))
		return 0;
	err_set(e, ERR_REFUSED, "it has a format that this version does not know");
	e->num = TEXT_NEWER;
	return -1;
}

int img_text_load(int dir, const char *name, size_t max, char **ret, size_t *ret_n, struct err *e)
{
	_cleanup_fd_ int fd =
		openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	char *text;
	ssize_t n;

	if (fd < 0 && errno == ENOENT)
		return err_set(e, ERR_MISSING, "there is no %s", name);
	if (fd < 0 && errno == ELOOP)
		return err_set(e, ERR_REFUSED, "%s is a link", name);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(e, "%s", name);
	if (!S_ISREG(st.st_mode))
		return err_set(e, ERR_REFUSED, "%s is no file", name);
	if ((uint64_t)st.st_size > max)
		return err_set(e, ERR_REFUSED, "%s has more than %zu bytes", name, max);
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return err_sys(e, "%s", name);
	n = fd_read_full(fd, text, (size_t)st.st_size);
	if (n < 0) {
		free(text);
		return err_sys(e, "%s", name);
	}
	text[n] = '\0';
	*ret = text;
	*ret_n = (size_t)n;
	return 0;
}
