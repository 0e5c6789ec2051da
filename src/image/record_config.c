/* The record of an image from its config. */
#include <string.h>

#include "image/config.h"

int img_record_of_config(const struct img_config *c, const char *id, const char *manifest,
			 struct img_record *ret, struct err *e)
{
	struct img_record r = { .platform = c->platform,
				.created = c->created,
				.stop_signal = c->stop_signal };

	if (strlen(id) >= sizeof(r.id) || strlen(manifest) >= sizeof(r.manifest))
		return err_set(e, ERR_REFUSED, "the image's id is no digest");
	memcpy(r.id, id, strlen(id) + 1);
	memcpy(r.manifest, manifest, strlen(manifest) + 1);
	memcpy(r.workdir, c->workdir, sizeof(r.workdir));
	memcpy(r.user, c->user, sizeof(r.user));
	if (img_words_copy(&c->env, &r.env, e) < 0 ||
	    img_words_copy(&c->entrypoint, &r.entrypoint, e) < 0 ||
	    img_words_copy(&c->cmd, &r.cmd, e) < 0 ||
	    img_words_copy(&c->volumes, &r.volumes, e) < 0) {
		img_record_free(&r);
		return -1;
	}
	*ret = r;
	return 0;
}
