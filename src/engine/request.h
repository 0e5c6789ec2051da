/* A request: what a front door was asked for, in its own words; and a spec made of it. All rules
 * that need more than one value (contradictions, defaults that follow from others, ids,
 * environment) are here, once, for every front door. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "box/mount_check.h"
#include "box/spec.h"
#include "engine/image.h"
#include "image/host.h"

#define REQUEST_MANY 64

struct request_list {
	const char *v[REQUEST_MANY];
	size_t n;
};

struct request {
	const char *image, *rootfs, *workspace, *cwd, *user, *apparmor, *profile, *network, *proc;
	const char *entrypoint; /* "": none, whatever the image says; NULL: not given */
	const char *platform;	/* of the image; NULL: any */
	struct request_list volumes, tmpfs, env, env_files, devices, cap_add, cap_drop, ulimits,
		rules;
	struct box_limits limits; /* request_defaults first */
	uint64_t tmp;	  /* bytes of a file system at /tmp; BOX_LIMIT_NONE: it is in the root */
	bool no_bytecode; /* the image as it is, without its bytecode layer (engine/bytecode.h) */
	bool setup;	  /* a set-up box (engine/setup.h): what it writes goes into `draft` */
	int draft;
	bool read_only, tty, interactive, git, uid_range;
	bool deps_writable; /* what setup has installed on the host image may be written over */
	char *const *argv;  /* may be empty where an image has a command of its own */
};

enum { ENV_FILE_MAX = 1 << 20 };

/* The text of an --env-file, which its pairs point into for good. */
struct env_text {
	struct env_text *next;
	char text[ENV_FILE_MAX];
};

/* What a spec points into. Large: keep it static, and zeroed before the first use. */
struct prepared {
	struct box_spec spec;
	struct image_host host;
	struct image_use image;
	uint64_t pull_us; /* how long the image was pulled; UINT64_MAX: it was not */
	char user[33];	  /* its name in the image, or "" */
	struct mount_check mounts;
	struct box_mount rootfs;
	const char *env[BOX_ENV_MAX + 1];
	size_t n_env;
	struct env_text *env_texts;
	char kept[1024]; /* the usual strings of env_keep: an ordinary start needs no heap, whose
			    first page costs six calls */
	size_t n_kept;
	char store[4096];
	char notes[8][320];
	size_t n_notes;
};

void request_defaults(struct request *r);
/* Appends; ERR_USAGE when there are too many. */
int request_add(struct request_list *l, const char *value, const char *option, struct err *e);
/* 0, or -1 with kind ERR_USAGE (words that contradict or can't be read), ERR_REFUSED or
 * ERR_MISSING, and the stage. */
int request_prepare(const struct request *r, struct prepared *ret, struct err *e);
/* The same of all that needs no image: what is wrong in the words is told before one is fetched. */
int request_check(const struct request *r, struct prepared *ret, struct err *e);
/* The working directory of one command of a box that is prepared already. */
int request_cwd(struct prepared *p, const char *cwd, struct err *e);
/* After a run that failed: notes on words of the command that name files which exist here and which
 * the box did not see, and on package managers, which need another kind of box. */
void request_hints(struct prepared *p);
/* Whether a command installs packages by the system's manager: by its first word, or what a shell
 * is given to run. */
bool request_installs(char *const *argv);
