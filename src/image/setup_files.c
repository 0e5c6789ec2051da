/* A file is laid over the image with all the directories on its way, which hide whatever the image
 * has of that name: so it is laid only where these are directories there, and none is a link. */
#include "image/setup_files.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/layers.h"

static const char apt_conf[] =
	"// A box that is being set up has one user id: apt can't become another.\n"
	"APT::Sandbox::User \"root\";\n"
	"// What was downloaded only to be installed stays out of the layer.\n"
	"APT::Keep-Downloaded-Packages \"false\";\n";
/* As policy-rc.d(8) of sysv-rc has it: 101 forbids the action, and packages go on without. */
static const char no_services[] = "#!/bin/sh\n"
				  "# No service is started while a box is set up.\n"
				  "exit 101\n";

/* Directories one by one, then the file, each a row. */
static const struct {
	const char *path;
	const char *text; /* NULL: a directory */
	mode_t mode;
} laid[] = {
	{ "etc", NULL, 0 },
	{ "etc/apt", NULL, 0 },
	{ "etc/apt/apt.conf.d", NULL, 0 },
	{ "etc/apt/apt.conf.d/00cloche", apt_conf, 0644 },
	{ "usr", NULL, 0 },
	{ "usr/sbin", NULL, 0 },
	{ "usr/sbin/policy-rc.d", no_services, 0755 },
};

/* The mode of the directory of the image, 0 when it is none. */
static mode_t dir_of(const struct layers *l, const char *path)
{
	struct layers_found f = { .dir = -1 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < l->n; i++)
		r = layers_find_in(l->fds[i], path, &f);
	if (r != 1)
		return 0;
	fd_close(&f.dir);
	return S_ISDIR(f.st.st_mode) ? f.st.st_mode & 07777 : 0;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);

	return strncmp(path, dir, n) == 0 && path[n] == '/';
}

void image_setup_files(struct image_host *h, struct rootfs *root)
{
	const char *missing = NULL;

	for (size_t i = 0; i < sizeof(laid) / sizeof(laid[0]); i++) {
		const char *text = laid[i].text;
		mode_t mode = laid[i].mode;

		if (missing && is_below(laid[i].path, missing))
			continue;
		missing = NULL;
		if (!text && (mode = dir_of(&root->layers, laid[i].path)) == 0) {
			missing = laid[i].path;
			continue;
		}
		if (h->n == IMAGE_HOST_ENTRIES)
			return;
		h->entries[h->n++] = (struct rootfs_entry){
			.kind = text ? ROOTFS_ENTRY_FILE : ROOTFS_ENTRY_DIR,
			.path = laid[i].path,
			.text = text,
			.len = text ? strlen(text) : 0,
			.mode = mode,
		};
	}
	root->entries = h->entries;
	root->n_entries = h->n;
}
