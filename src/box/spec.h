/* A spec: everything one box is, as plain values. A front door fills it, the engine completes it
 * (root, rungs), launch runs it.
 *
 * Ownership: a spec owns nothing; all pointers stay the caller's and must outlive the box. Sizes
 * are bytes, times microseconds unless a name says otherwise. Zero-initialised fields mean "not
 * asked". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/rootfs.h"

#define BOX_MOUNTS_MAX 64
#define BOX_ENV_MAX 512
#define BOX_DEVICES_MAX 32
#define BOX_RULES_MAX 64
#define BOX_ULIMITS_MAX 16

#define BOX_SHARED_MAX 7 /* as many descriptors as one message takes, but one */

#define BOX_LIMIT_NONE UINT64_MAX /* a limit that the caller explicitly lifted, or never set */

enum box_mount_kind { BOX_MOUNT_DIR, BOX_MOUNT_FILE, BOX_MOUNT_TMPFS, BOX_MOUNT_KIND_N };

/* A mount the caller asked for, already checked by mount_check: `src` is canonical and (dev, ino)
 * is what was checked; the child opens it again without following links and compares. */
struct box_mount {
	enum box_mount_kind kind;
	const char *src; /* NULL for tmpfs */
	const char *dst; /* absolute, normalised */
	bool rw;
	bool ro_said;	  /* it is the option that made it read-only, not the profile */
	const char *said; /* the option's value as it was given */
	bool workspace;	  /* --workspace: rw directory with the id rules of BOX.md */
	bool git;	  /* --git: `src` has no links, else it is refused */
	bool yields;	  /* --tmp-size: left out where another mount is at, below or above it */
	uint64_t size;	  /* tmpfs */
	uint64_t dev, ino;
	uid_t owner; /* of src; decides the id-mapped mount of a root caller */
	gid_t group;
};

struct box_device {
	const char *path; /* below /dev, a character device */
	uint64_t rdev;	  /* as checked by the parent */
};

enum box_rule_action { BOX_RULE_ALLOW, BOX_RULE_DENY };
struct box_rule {
	enum box_rule_action action;
	int nr; /* system call number of this architecture */
};

struct box_ulimit {
	int resource; /* RLIMIT_* */
	uint64_t soft, hard;
};

enum box_network { BOX_NET_NONE, BOX_NET_HOST, BOX_NET_N };

struct box_limits {
	uint64_t memory;	/* bytes; default 512 MiB */
	uint64_t pids;		/* processes and threads; default 256 */
	double cpus;		/* 0: none */
	unsigned io_weight;	/* 1 to 10000; 0: not asked */
	uint64_t timeout_us;	/* 0: none. Starts when the command starts */
	uint64_t kill_after_us; /* 0: SIGKILL at the deadline; else TERM first, KILL this much later
				 */
	uint64_t output;	/* bytes a captured stream; default 64 MiB */
	uint64_t file_size;	/* RLIMIT_FSIZE; BOX_LIMIT_NONE */
	uint64_t open_files;	/* RLIMIT_NOFILE; default 1024 soft and 4096 hard */
	uint64_t workspace_max; /* bytes, sampled, of what a set-up box keeps too; BOX_LIMIT_NONE */
	uint64_t shm;		/* /dev/shm; default 64 MiB */
	uint64_t root;	 /* the throwaway root's size; default half of memory, at least 64 MiB */
	bool require;	 /* --require-limits: refuse below kernel enforcement */
	bool supervised; /* caller chose the supervised rung */
};

/* In /dev, which no mount of a caller's can cover. */
#define BOX_CODE_DIR "dev/cloche"
#define BOX_CODE BOX_CODE_DIR "/code"
#define BOX_CODE_MAX (64u << 20)
#define BOX_WORDS_MAX (16u << 20) /* of a command, with its environment */

/* What a set-up box writes is kept, in a directory of the caller's that holds these two: the upper
 * side of its root, and the overlay's own work directory. */
#define BOX_DRAFT_UPPER "tree"
#define BOX_DRAFT_WORK "work"
/* Where the host image has what a set-up box installs: its root is not kept, and its /usr is not
 * its own. */
#define BOX_DEPS "/opt/deps"

enum box_profile { BOX_PROFILE_DEFAULT, BOX_PROFILE_UNTRUSTED, BOX_PROFILE_N };

/* Ids from 0 to n-1 in the box that are others outside, one by one from uid and gid on; but the
 * box's own user and group, which are the outer ones. n 0: no ids but the user's. */
struct box_range {
	uint32_t n;
	uid_t uid;
	gid_t gid;
};

struct box_spec {
	struct rootfs root;
	const struct box_mount *root_check; /* what was checked at root.dir */
	int shared[BOX_SHARED_MAX]; /* detached mounts of the holder's (holder.h), this box's own,
				       for the first LOWER entries of root that are no copies */
	size_t n_shared;
	/* The workspace is a file system of the sandbox's, held in memory; its mount is in
	   place of what mounts[] says of its directory. */
	uint64_t workspace_size; /* bytes; 0: it is none */
	int workspace_mount;	 /* as above; -1: it can't be had any more */
	char *const *argv;	 /* NULL-terminated, argv[0] looked up in the box's PATH */
	char *const *env;     /* complete environment, NULL-terminated; no variable of the host */
	const char *store;    /* where skeletons are kept (box/skeleton.h), or NULL for none */
	const char *cwd;      /* absolute */
	bool make_cwd;	      /* the root may lack it: made */
	char *const *volumes; /* NULL-terminated, absolute: the image's places for data, made where
				 missing and writable whatever the root is; NULL for none */
	bool takes_code;      /* its command may come with a file, BOX_CODE (owner.h) */
	int stop_signal; /* what is sent at the deadline when kill_after_us is set; 0: SIGTERM */
	const char *home;
	const char *hostname; /* "cloche" */
	uid_t uid;	      /* inside */
	gid_t gid;
	uid_t outer_uid; /* what uid and gid are outside: the caller, or an unprivileged id when the
			    caller is root */
	gid_t outer_gid;
	struct box_range range;
	struct box_mount mounts[BOX_MOUNTS_MAX];
	size_t n_mounts;
	struct box_device devices[BOX_DEVICES_MAX];
	size_t n_devices;
	struct box_rule rules[BOX_RULES_MAX];
	size_t n_rules;
	struct box_ulimit ulimits[BOX_ULIMITS_MAX];
	size_t n_ulimits;
	struct box_limits limits;
	uint64_t cap_keep; /* capability bits kept inside the box's own user namespace */
	enum box_network network;
	enum box_profile profile;
	const char *apparmor; /* profile name, or NULL */
	bool setup; /* package managers work as the root of a single id (seccomp.h); its root is
		       kept in `draft` */
	int draft;  /* set-up boxes: the open directory; it and what is in it belong to outer_uid */
	bool deps_writable; /* BOX_DEPS has an upper side, thrown away */
	bool read_only;	    /* root read-only, tmpfs at /tmp, /run, HOME */
	bool no_proc;	    /* --proc=none */
	bool tty;	    /* own pseudo terminal */
	bool interactive;   /* forward stdin */
};
