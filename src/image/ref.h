/* Image references as the ecosystem writes them, and their one normalised form.
 *
 *	[HOST[:PORT]/]NAME[/NAME...][:TAG][@sha256:HEX]
 *
 * The first part is a registry when it has a '.' or a ':' or is "localhost"; else the image is
 * Docker Hub's ("docker.io"), where a bare NAME means library/NAME. Without tag and digest the tag
 * is "latest"; with both the digest decides and the tag is only shown. `host` is the host's own
 * programs; local/NAME is an image that was derived here.
 *
 * Every field is checked, character by character, before a path or an address is made of it: a
 * reference never holds ".." as a part, an empty part, a control character or a space. */
#pragma once

#include "base/err.h"

#define IMG_HOST_MAX 262 /* a name of 253, ':' and a port */
#define IMG_REPO_MAX 255 /* what registries take */
#define IMG_TAG_MAX 128
#define IMG_DIGEST_LEN 71 /* "sha256:" and 64 digits */
#define IMG_REF_CAP (IMG_HOST_MAX + IMG_REPO_MAX + IMG_TAG_MAX + IMG_DIGEST_LEN + 4)

enum img_ref_kind {
	IMG_REF_HOST,	  /* the host's own /usr; all fields empty */
	IMG_REF_LOCAL,	  /* derived here: `repo` is NAME, `host` and `digest` are empty */
	IMG_REF_REGISTRY, /* `host` and `repo` are set, and `tag` or `digest` or both */
};

struct img_ref {
	enum img_ref_kind kind;
	char host[IMG_HOST_MAX + 1]; /* lower case; an IPv6 address in brackets; with its port */
	char repo[IMG_REPO_MAX + 1];
	char tag[IMG_TAG_MAX + 1];
	char digest[IMG_DIGEST_LEN + 1];
};

/* Reads what a user wrote. 0, or -1 with ERR_USAGE and one line. */
int img_ref_parse(const char *text, struct img_ref *ret, struct err *e);
/* The normalised form; parsing it gives the same reference. Returns dst. */
const char *img_ref_format(const struct img_ref *ref, char dst[IMG_REF_CAP]);
/* 0 when `text` is "sha256:" and 64 lower-case hexadecimal digits; else -1 with ERR_USAGE. Other
 * algorithms are refused by name. */
int img_digest_check(const char *text, struct err *e);
