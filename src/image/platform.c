/* Platforms: a table of spellings, and equality. There is no order among variants here: an image
 * for arm64/v9 may die of an illegal instruction on v8, and one for v8 in place of v9 is not what
 * was asked for. Who wants another variant names it. */
#include "image/platform.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/str.h"

static const struct {
	const char *arch, *variant;   /* as written; NULL: any variant, which is kept */
	const char *arch2, *variant2; /* as normalised */
} spellings[] = {
	{ "x86_64", NULL, "amd64", NULL },  { "x86-64", NULL, "amd64", NULL },
	{ "aarch64", NULL, "arm64", NULL }, { "armhf", "", "arm", "v7" },
	{ "armv7l", "", "arm", "v7" },	    { "i386", "", "386", "" },
	{ "i686", "", "386", "" },	    { "amd64", "v1", "amd64", "" },
	{ "arm64", "v8", "arm64", "" },	    { "arm64", "8", "arm64", "" },
	{ "arm", "", "arm", "v7" },	    { "arm", "7", "arm", "v7" },
};

void img_platform_normalise(struct img_platform *p)
{
	/* In one pass: a row that renames an architecture stands before those of the new name. */
	for (size_t i = 0; i < sizeof(spellings) / sizeof(*spellings); i++) {
		const char *variant = spellings[i].variant;

		if (strcmp(p->arch, spellings[i].arch) != 0 ||
		    (variant && strcmp(p->variant, variant) != 0))
			continue;
		snprintf(p->arch, sizeof(p->arch), "%s", spellings[i].arch2);
		if (variant)
			snprintf(p->variant, sizeof(p->variant), "%s", spellings[i].variant2);
	}
}

bool img_platform_equal(const struct img_platform *a, const struct img_platform *b)
{
	return !strcmp(a->os, b->os) && !strcmp(a->arch, b->arch) &&
	       !strcmp(a->variant, b->variant);
}

const char *img_platform_text(const struct img_platform *p, char dst[IMG_PLATFORM_TEXT])
{
	snprintf(dst, IMG_PLATFORM_TEXT, "%s/%s%s%s", p->os, p->arch, *p->variant ? "/" : "",
		 p->variant);
	return dst;
}

int img_platform_host(struct img_platform *ret, struct err *e)
{
	struct img_platform p = { .os = "linux" };
	struct utsname u;

	if (uname(&u) < 0)
		return err_sys(e, "uname");
	if (strcmp(u.machine, "x86_64") != 0 && strcmp(u.machine, "aarch64") != 0)
		return err_set(e, ERR_MISSING, "no images for a machine of type %.30s", u.machine);
	snprintf(p.arch, sizeof(p.arch), "%.30s", u.machine);
	img_platform_normalise(&p);
	*ret = p;
	return 0;
}

/* Copies up to the next '/' or the end; NULL when the part is empty, too long or of odd characters.
 */
static const char *take_part(const char *s, char dst[IMG_PLATFORM_CAP])
{
	size_t n = strcspn(s, "/");

	if (n == 0 || n >= IMG_PLATFORM_CAP ||
	    strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_.-") < n)
		return NULL;
	memcpy(dst, s, n);
	dst[n] = '\0';
	return s + n;
}

int img_platform_parse(const char *text, struct img_platform *ret, struct err *e)
{
	struct img_platform p = { .os = "linux" };
	char first[IMG_PLATFORM_CAP] = "", shown[64];
	const char *s = take_part(text, first);

	if (s && *s == '/') {
		memcpy(p.os, first, sizeof(first));
		s = take_part(s + 1, p.arch);
		if (s && *s == '/')
			s = take_part(s + 1, p.variant);
	} else {
		memcpy(p.arch, first, sizeof(first));
	}
	if (!s || *s)
		return err_set(e, ERR_USAGE,
			       "platform %s: write os/architecture[/variant], like linux/arm64",
			       str_printable(shown, sizeof(shown), text));
	if (strcmp(p.os, "linux") != 0)
		return err_set(e, ERR_USAGE, "platform %s: only linux images run here",
			       str_printable(shown, sizeof(shown), text));
	img_platform_normalise(&p);
	*ret = p;
	return 0;
}
