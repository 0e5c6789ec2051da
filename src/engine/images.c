#include "engine/images.h"

#include "base/fd.h"
#include "base/path.h"
#include "state/dirs.h"

int images_open(bool make, struct img_store *ret, struct err *e)
{
	char store[STATE_PATH_MAX], path[STATE_PATH_MAX];
	_cleanup_fd_ int fd = -1;

	if (state_path(STATE_STORE, store, e) < 0)
		return -1;
	if (path_join(path, sizeof(path), store, "images") < 0)
		return err_sys(e, "the store of images");
	fd = state_open(STATE_STORE, make, e);
	return fd < 0 ? -1 : img_store_open(path, make, ret, e);
}
