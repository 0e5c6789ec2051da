#include "engine/request.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "box/device_check.h"
#include "box/git_share.h"
#include "box/limits.h"
#include "box/locks.h"
#include "box/seccomp.h"
#include "engine/env.h"
#include "engine/ids.h"
#include "engine/range.h"
#include "state/dirs.h"

#define MIB (1ULL << 20)
#define SHM_DEFAULT (64 * MIB)

void request_defaults(struct request *r)
{
	memset(r, 0, sizeof(*r));
	r->limits = (struct box_limits){ .memory = 512 * MIB,
					 .pids = 256,
					 .output = 64 * MIB,
					 .file_size = BOX_LIMIT_NONE,
					 .open_files = 0,
					 .workspace_max = BOX_LIMIT_NONE,
					 .shm = BOX_LIMIT_NONE };
	r->tmp = BOX_LIMIT_NONE;
}

int request_add(struct request_list *l, const char *value, const char *option, struct err *e)
{
	if (l->n >= REQUEST_MANY)
		return err_set(e, ERR_USAGE, "--%s is given more than %d times", option,
			       REQUEST_MANY);
	l->v[l->n++] = value;
	return 0;
}

static bool is_profile_name(const char *name)
{
	size_t n = strlen(name);

	for (const char *s = name; *s; s++)
		if ((unsigned char)*s < ' ' || *s == 0x7f)
			return false;
	return n >= 1 && n <= APPARMOR_NAME_MAX;
}

static int prepare_profile(const struct request *r, struct box_spec *s, struct err *e)
{
	s->read_only = r->read_only;
	s->tty = r->tty;
	s->interactive = r->interactive;
	s->setup = r->setup;
	s->draft = r->draft;
	s->deps_writable = r->deps_writable;
	s->no_proc = r->proc && strcmp(r->proc, "none") == 0;
	s->network = r->network && strcmp(r->network, "host") == 0 ? BOX_NET_HOST : BOX_NET_NONE;
	s->apparmor = r->apparmor;
	if (r->apparmor && !is_profile_name(r->apparmor))
		return err_set(e, ERR_USAGE,
			       "--apparmor: a profile's name has 1 to %d bytes, none of them a "
			       "control character",
			       APPARMOR_NAME_MAX);
	if (!r->profile)
		return 0;
	s->profile = BOX_PROFILE_UNTRUSTED;
	s->read_only = true;
	if (s->network == BOX_NET_HOST)
		return err_set(
			e, ERR_USAGE,
			"--security-profile untrusted and --network host contradict each other: leave one out");
	if (r->cap_add.n > 0)
		return err_set(
			e, ERR_USAGE,
			"--security-profile untrusted keeps no capability: leave --cap-add out");
	return 0;
}

static int prepare_limits(const struct request *r, struct box_spec *s, struct err *e)
{
	struct box_limits *l = &s->limits;

	*l = r->limits;
	if (l->memory < 4 * MIB)
		return err_set(e, ERR_USAGE, "--memory: no program starts in less than 4m");
	if (l->pids < 1)
		return err_set(e, ERR_USAGE, "--pids: at least 1");
	if (l->require && l->supervised)
		return err_set(
			e, ERR_USAGE,
			"--require-limits and --supervised contradict each other: leave one out");
	if (l->kill_after_us && !l->timeout_us)
		return err_set(e, ERR_USAGE, "--kill-after needs --timeout");
	if (l->workspace_max != BOX_LIMIT_NONE && !r->workspace && !r->setup)
		return err_set(e, ERR_USAGE, "--workspace-max needs --workspace");
	/* What a box keeps in memory file systems counts against its memory; smaller than it, so
	 * that a full disk is ENOSPC and no kill. */
	l->root = l->memory / 2;
	if (l->shm == BOX_LIMIT_NONE)
		l->shm = l->memory / 2 < SHM_DEFAULT ? l->memory / 2 : SHM_DEFAULT;
	if (l->shm == 0) /* to the kernel that is no limit at all */
		return err_set(e, ERR_USAGE, "--shm-size: the size is zero");
	if (l->shm > l->memory)
		return err_set(e, ERR_USAGE, "--shm-size is larger than --memory");
	if (r->tmp == 0)
		return err_set(e, ERR_USAGE, "--tmp-size: the size is zero");
	if (r->tmp != BOX_LIMIT_NONE && r->tmp > l->memory)
		return err_set(e, ERR_USAGE, "--tmp-size is larger than --memory");
	return 0;
}

static int cap_set(const struct request_list *l, const char *option, bool all_ok, uint64_t *ret,
		   struct err *e)
{
	uint64_t set = 0;

	for (size_t i = 0; i < l->n; i++) {
		int cap = locks_cap_number(l->v[i]);

		if (all_ok && strcasecmp(l->v[i], "ALL") == 0)
			set = UINT64_MAX;
		else if (all_ok && strcasecmp(l->v[i], "NONE") == 0)
			continue;
		else if (cap < 0)
			return err_set(
				e, ERR_USAGE,
				"--%s %s: no such capability; names are those of capabilities(7), such as NET_RAW%s",
				option, l->v[i], all_ok ? ", or ALL, or NONE" : "");
		else
			set |= 1ULL << cap;
	}
	*ret = set;
	return 0;
}

/* Everything is dropped unless asked otherwise. To drop single ones means to keep the others of
 * docker's fourteen, and to drop NONE to keep all; under `untrusted` none is kept. */
static int prepare_caps(const struct request *r, struct box_spec *s, struct err *e)
{
	uint64_t add = 0, drop = 0;

	if (cap_set(&r->cap_add, "cap-add", false, &add, e) < 0 ||
	    cap_set(&r->cap_drop, "cap-drop", true, &drop, e) < 0)
		return -1;
	s->cap_keep = r->setup ? locks_cap_setup() & ~drop : add;
	if (r->cap_drop.n > 0 && drop != UINT64_MAX && s->profile != BOX_PROFILE_UNTRUSTED)
		s->cap_keep |= locks_cap_defaults() & ~drop;
	return 0;
}

static int prepare_lists(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;

	if (r->ulimits.n > BOX_ULIMITS_MAX || r->rules.n > BOX_RULES_MAX ||
	    r->devices.n > BOX_DEVICES_MAX)
		return err_set(
			e, ERR_USAGE,
			"too many --ulimit, --seccomp-rule or --device: at most %d, %d and %d",
			BOX_ULIMITS_MAX, BOX_RULES_MAX, BOX_DEVICES_MAX);
	for (size_t i = 0; i < r->ulimits.n; i++)
		if (limit_ulimit_parse(r->ulimits.v[i], &s->ulimits[s->n_ulimits++], e) < 0)
			return -1;
	for (size_t i = 0; i < r->rules.n; i++)
		if (sc_rule_parse(r->rules.v[i], &s->rules[s->n_rules++], e) < 0)
			return -1;
	for (size_t i = 0; i < r->devices.n; i++)
		if (device_check(&p->mounts, r->devices.v[i], &s->devices[s->n_devices++], e) < 0)
			return err_at(e, STAGE_MOUNT);
	return 0;
}

static int parse_mounts(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;
	const bool tmp = r->tmp != BOX_LIMIT_NONE;
	size_t n = r->volumes.n + r->tmpfs.n + (r->workspace != NULL) + tmp;

	if (n > BOX_MOUNTS_MAX)
		return err_set(e, ERR_USAGE, "more than %d mounts", BOX_MOUNTS_MAX);
	if (r->workspace &&
	    mount_parse_workspace(&p->mounts, r->workspace, &s->mounts[s->n_mounts++], e) < 0)
		return err_at(e, STAGE_WORKSPACE);
	for (size_t i = 0; i < r->volumes.n; i++)
		if (mount_parse_volume(&p->mounts, r->volumes.v[i],
				       s->profile == BOX_PROFILE_UNTRUSTED,
				       &s->mounts[s->n_mounts++], e) < 0)
			return err_at(e, STAGE_MOUNT);
	for (size_t i = 0; i < r->tmpfs.n; i++)
		if (mount_parse_tmpfs(&p->mounts, r->tmpfs.v[i], &s->mounts[s->n_mounts++], e) < 0)
			return err_at(e, STAGE_MOUNT);
	if (tmp)
		s->mounts[s->n_mounts++] = (struct box_mount){ .kind = BOX_MOUNT_TMPFS,
							       .rw = true,
							       .dst = "/tmp",
							       .said = "/tmp",
							       .size = r->tmp,
							       .yields = true };
	if (r->git && !r->workspace)
		return err_set(e, ERR_USAGE, "--git needs --workspace");
	return 0;
}

static int prepare_mounts(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;

	if (parse_mounts(r, p, e) < 0)
		return -1;
	if (r->git && git_share(&p->mounts, r->workspace, s, e) < 0)
		return err_at(e, STAGE_WORKSPACE);
	if (s->n_mounts > 0 && mount_check_all(&p->mounts, s, e) < 0)
		return -1;
	if (r->workspace && !r->git && git_is_linked(r->workspace))
		mount_note(&p->mounts,
			   "the workspace's .git leads to a repository outside; --git shares what "
			   "commits need of it");
	return 0;
}

/* The front door may have found it already, to pull what is missing. */
static int prepare_image(const struct request *r, struct prepared *p, struct err *e)
{
	if (p->image.asked != r->image && image_find(r, &p->image, e) < 0)
		return -1;
	return image_root(p, e) < 0 || image_command(r, p, e) < 0 ? -1 : 0;
}

static int prepare_root(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;

	if (r->rootfs && r->image)
		return err_set(e, ERR_USAGE,
			       "--image and --rootfs contradict each other: leave one out");
	if (image_wanted(r))
		return prepare_image(r, p, e);
	image_drop(&p->image);
	if (r->entrypoint || r->platform)
		return err_set(
			e, ERR_USAGE,
			"--%s needs an image: the host's own programs and a directory have none",
			r->entrypoint ? "entrypoint" : "platform");
	if (r->rootfs) {
		if (mount_check_rootfs(&p->mounts, r->rootfs, &p->rootfs, e) < 0)
			return err_at(e, STAGE_IMAGE);
		s->root = (struct rootfs){ .kind = ROOTFS_DIR,
					   .name = r->rootfs,
					   .dir = p->rootfs.src };
		s->root_check = &p->rootfs;
	}
	return 0;
}

/* With what was installed beside it, where the image says so. */
static int prepare_host(struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;
	const struct rootfs deps = s->root;

	if (image_host(&p->host, s->uid, s->gid, s->network == BOX_NET_HOST, &s->root, e) < 0)
		return -1;
	if (!deps.lowers)
		return 0;
	s->root.name = deps.name;
	s->root.dir = deps.dir;
	s->root.lowers = deps.lowers;
	s->root.layers = deps.layers;
	return 0;
}

/* A caller without a home gets along without. */
static void prepare_store(struct prepared *p)
{
	struct err none;

	if (p->spec.root.kind == ROOTFS_HOST && state_path(STATE_STORE, p->store, &none) == 0)
		p->spec.store = p->store;
}

int request_cwd(struct prepared *p, const char *cwd, struct err *e)
{
	char clean[4096];

	if (path_normalise(cwd, clean, e) < 0)
		return err_prefix(e, "-w %s", cwd);
	p->spec.cwd = env_keep(p, clean);
	return 0;
}

static int prepare_cwd(const struct request *r, struct prepared *p, struct err *e)
{
	p->spec.cwd = r->workspace ? MOUNT_WORKSPACE : p->spec.home;
	if (!r->workspace && p->image.asked && p->image.record.workdir[0])
		p->spec.cwd = p->image.record.workdir;
	/* Docker makes it as well, whoever has named it. */
	p->spec.make_cwd = p->image.asked != NULL;
	return r->cwd ? request_cwd(p, r->cwd, e) : 0;
}

static void prepare_notes(struct prepared *p)
{
	const size_t max = sizeof(p->notes) / sizeof(p->notes[0]);

	for (size_t i = 0; i < p->mounts.n_notes && p->n_notes < max; i++)
		snprintf(p->notes[p->n_notes++], sizeof(p->notes[0]), "%s", p->mounts.notes[i]);
}

/* Does a command of this text install packages? Words at its beginning and behind what separates
 * commands of a shell. */
static bool installs(const char *text)
{
	static const char *const managers[] = { "apt", "apt-get",  "aptitude", "dnf",
						"yum", "microdnf", "apk" };

	while (*text) {
		const char *name;
		size_t n;

		text += strspn(text, " \t\n;&|(");
		n = strcspn(text, " \t\n;&|()");
		for (name = text; memchr(name, '/', n);) {
			size_t skip = (size_t)((const char *)memchr(name, '/', n) - name) + 1;

			name += skip;
			n -= skip;
		}
		for (size_t i = 0; i < sizeof(managers) / sizeof(managers[0]); i++)
			if (strlen(managers[i]) == n && memcmp(managers[i], name, n) == 0)
				return true;
		text = name + n;
		text += strcspn(text, "\n;&|(");
	}
	return false;
}

bool request_installs(char *const *v)
{
	bool any = installs(v[0]);

	for (size_t i = 1; v[i] && i < 8 && !any; i++)
		any = strcmp(v[i - 1], "-c") == 0 && installs(v[i]);
	return any;
}

static void hint_packages(struct prepared *p)
{
	if (request_installs(p->spec.argv))
		snprintf(
			p->notes[p->n_notes++], sizeof(p->notes[0]),
			"package managers work in `cloche setup`, once, and what they install is in the image that it makes: "
			"cloche setup --image %.100s --name NAME -- COMMAND",
			p->image.asked ? p->image.asked : "IMAGE");
}

void request_hints(struct prepared *p)
{
	const size_t max = sizeof(p->notes) / sizeof(p->notes[0]);

	if (!p->spec.argv[0])
		return;
	if (!p->spec.setup && p->n_notes < max)
		hint_packages(p);
	for (size_t i = 0; p->spec.argv[i] && i < 8 && p->n_notes < max; i++)
		if (mount_hint(&p->mounts, &p->spec, p->spec.argv[i], p->notes[p->n_notes],
			       sizeof(p->notes[0])))
			p->n_notes++;
}

/* The caller's words stand in it: one line, whatever they hold. */
static int fail(struct err *e, const struct err *why)
{
	*e = *why;
	str_printable(e->msg, sizeof(e->msg), why->msg);
	return -1;
}

static void clear(const struct request *r, struct prepared *p)
{
	struct box_spec *s = &p->spec;

	memset(s, 0, sizeof(*s));
	p->n_env = p->n_notes = p->n_kept = 0;
	p->user[0] = '\0';
	s->argv = r->argv;
	s->hostname = "cloche";
}

int request_check(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;
	struct err why;

	clear(r, p);
	if (mount_check_init(&p->mounts, &why) < 0 || prepare_profile(r, s, &why) < 0 ||
	    prepare_limits(r, s, &why) < 0 || prepare_caps(r, s, &why) < 0 ||
	    prepare_lists(r, p, &why) < 0) {
		err_at(&why, STAGE_SPEC);
		return fail(e, &why);
	}
	if (parse_mounts(r, p, &why) < 0 || mount_check_sources(&p->mounts, s, &why) < 0) {
		err_at(&why, STAGE_MOUNT);
		return fail(e, &why);
	}
	mount_check_free(&p->mounts);
	return 0;
}

static int prepare(const struct request *r, struct prepared *p, struct err *e)
{
	struct box_spec *s = &p->spec;

	clear(r, p);
	if (mount_check_init(&p->mounts, e) < 0 || prepare_profile(r, s, e) < 0 ||
	    prepare_limits(r, s, e) < 0 || prepare_caps(r, s, e) < 0 || prepare_root(r, p, e) < 0 ||
	    prepare_lists(r, p, e) < 0)
		return err_at(e, STAGE_SPEC);
	if (ids_prepare(r, p, e) < 0 || range_prepare(r, s, e) < 0)
		return err_at(e, STAGE_SPEC);
	if (s->root.kind == ROOTFS_HOST && prepare_host(p, e) < 0)
		return -1;
	prepare_store(p);
	if (prepare_cwd(r, p, e) < 0 || env_prepare(r, p, e) < 0)
		return err_at(e, STAGE_SPEC);
	if (prepare_mounts(r, p, e) < 0)
		return err_at(e, STAGE_MOUNT);
	prepare_notes(p);
	return 0;
}

int request_prepare(const struct request *r, struct prepared *p, struct err *e)
{
	struct err why;

	return prepare(r, p, &why) < 0 ? fail(e, &why) : 0;
}
