/* Listing.
 *
 * How: the list is its own list of work. Each directory in it is opened by its path, beneath the
 * workspace and without links, one at a time; so no depth takes more than one descriptor, and
 * nothing is followed that has been exchanged for a link since it was listed.
 *
 * What may go wrong: a directory goes away, is closed to us, or becomes something else: it is
 * listed, its content is not. A box fills directories while they are read: there is a maximum. The
 * kernel's work is one step a component, of all directories together no more than STEPS_MAX. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"
#include "session/workspace_impl.h"

#define STEPS_MAX 20000000
#define BYTES_MAX (64u << 20) /* of paths and targets */

struct listing {
	const struct ses_workspace *w;
	struct ses_files files;
	uint64_t steps, bytes;
};

static int add(struct listing *l, int dir, const char *name, const char *path, struct err *e)
{
	struct ses_files *f = &l->files;
	struct ses_file *v;

	if (f->n == SES_LIST_MAX || l->bytes > BYTES_MAX)
		return ses_refuse(
			e, ERR_TOO_LARGE, "",
			"more than %d files, or %u bytes of paths; list a directory of it",
			SES_LIST_MAX, BYTES_MAX);
	if (f->n == f->cap) {
		size_t cap = f->cap ? 2 * f->cap : 64;

		v = reallocarray(f->v, cap, sizeof(*v));
		if (!v)
			return err_sys(e, "the list of files");
		f->v = v;
		f->cap = cap;
	}
	v = &f->v[f->n];
	if (ses_file_fill(dir, name, path, v) < 0)
		return errno == ENOMEM ? err_sys(e, "the list of files") : 0;
	f->n++;
	l->bytes += strlen(v->path) + (v->target ? strlen(v->target) : 0);
	return 0;
}

static int list_dir(struct listing *l, int fd, const char *path, struct err *e)
{
	char below[SES_PATH_CAP];
	struct ses_name name;
	struct ses_dir d;

	l->steps++;
	for (const char *s = path; *s; s++)
		l->steps += *s == '/';
	if (l->steps > STEPS_MAX)
		return ses_refuse(e, ERR_TOO_LARGE, "",
				  "its directories are too many and too deep");
	ses_dir(&d, fd);
	/* One that was removed meanwhile ends with an error, which is its end. What is deeper than
	 * paths are long can't be named. */
	while (ses_dir_next(&d, &name) > 0)
		if ((*path || !ses_replace_is_at(fd, name.name)) &&
		    path_join(below, sizeof(below), path, name.name) == 0 &&
		    add(l, fd, name.name, below, e) < 0)
			return -1;
	return 0;
}

static int list_below(struct listing *l, struct err *e)
{
	for (size_t i = 0; i < l->files.n; i++) {
		_cleanup_fd_ int fd = -1;
		const struct ses_file *f = &l->files.v[i];

		if (f->type == SES_DIRECTORY)
			fd = ses_open_dir(l->w->fd, f->path, false);
		if (fd < 0 && (errno == EMFILE || errno == ENFILE))
			return err_sys(e, "the list of files");
		if (fd >= 0 && list_dir(l, fd, f->path, e) < 0)
			return -1;
	}
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct ses_file *)a)->path, ((const struct ses_file *)b)->path);
}

int ses_list(const struct ses_workspace *w, const char *text, bool recursive, struct ses_files *ret,
	     struct err *e)
{
	SES_AS_OWNER(w);
	struct listing l = { .w = w };
	_cleanup_fd_ int fd = -1;
	char path[SES_PATH_CAP];

	if (ses_path(text, path, e) < 0)
		return -1;
	fd = ses_open_dir(w->fd, path, false);
	if (fd < 0)
		return ses_fail(e, path);
	if (list_dir(&l, fd, path, e) < 0 || (recursive && list_below(&l, e) < 0)) {
		ses_files_free(&l.files);
		return -1;
	}
	if (l.files.n > 0)
		qsort(l.files.v, l.files.n, sizeof(*l.files.v), by_path);
	*ret = l.files;
	return 0;
}

void ses_files_free(struct ses_files *f)
{
	for (size_t i = 0; i < f->n; i++)
		ses_file_free(&f->v[i]);
	free(f->v);
	*f = (struct ses_files){ 0 };
}
