/* Image references from a hostile caller. What is taken has a normalised form that means the same again and holds nothing that a path or an
 * address could trip over; what is refused leaves the output alone and says one printable line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/ref.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct img_ref r, again;
	char form[IMG_REF_CAP];
	struct err e = { 0 };
	char *text;

	if (size > 4096 || !(text = malloc(size + 1)))
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	memset(&r, 0x5a, sizeof(r));
	if (img_ref_parse(text, &r, &e) < 0) {
		if (r.host[0] != 0x5a || e.kind != ERR_USAGE || !e.msg[0])
			abort();
		for (const char *s = e.msg; *s; s++)
			if ((unsigned char)*s < 0x20 || *s == 0x7f)
				abort();
	} else {
		img_ref_format(&r, form);
		if (form[strcspn(form, " \\%?#\"'")])
			abort();
		if (strstr(r.host, "..") || strstr(r.repo, "..") || strstr(form, "/.") || strstr(form, "//") || form[0] == '/' || form[0] == '-')
			abort();
		if (img_ref_parse(form, &again, &e) < 0 || memcmp(&r, &again, sizeof(r)))
			abort();
		if (r.kind == IMG_REF_REGISTRY && (!r.host[0] || !r.repo[0] || (!r.tag[0] && !r.digest[0])))
			abort();
	}
	free(text);
	return 0;
}
