/* The locks that the child puts on itself, after its file system stands and before anything foreign
 * runs. No heap. Order matters: locks_caps, then locks_landlock, then locks_seccomp; each is
 * verified or refuses. */
#pragma once

#include "base/err.h"
#include "box/seccomp.h"
#include "box/spec.h"

/* Drops every capability but `keep` from the bounding set, which is a call for each and takes no
 * right away that init still needs: it may come early. */
int locks_bounding(uint64_t keep, struct err *e);
/* After that: drops them from the permitted, effective, inheritable and ambient sets, sets
 * no_new_privs, and reads all of it back from the kernel, the bounding set too. */
int locks_caps(uint64_t keep, struct err *e);

/* Landlock, where the kernel has it (0 also where it has not): nothing outside the box's
 * root executed or written, no device nodes, no mounting, no signals or abstract unix sockets out
 * of the box.
 * `*ret_abi` is the kernel's ABI, 0 for none. */
int locks_landlock(int *ret_abi, struct err *e);
/* The kernel's ABI, asked once a process and its clones; 0: it has none; -1: it does not say. */
int locks_landlock_abi(struct err *e);

/* Loads the program; the listener's descriptor (close-on-exec) is the caller's. WAIT_KILLABLE_RECV
 * where the kernel has it. */
int locks_seccomp(const struct sock_filter *code, uint16_t len, int *ret_listener, struct err *e);

/* Arms the change to a loaded AppArmor profile at the next exec. Fails when AppArmor is not there
 * or the profile is not loaded. `attr` is what locks_apparmor_open gave before the host's /proc
 * went. */
#define APPARMOR_NAME_MAX 128
int locks_apparmor_open(struct err *e);
int locks_apparmor(int attr, const char *profile, struct err *e);

/* Capability number by name ("CAP_NET_RAW" or "net_raw", any case), or -1. Names are those of
 * capabilities(7). */
int locks_cap_number(const char *name);
const char *locks_cap_name(int cap);
/* The docker default set, for `--cap-drop` of single ones: 14 capabilities. */
uint64_t locks_cap_defaults(void);
/* What a set-up box keeps: to write where the mode says no (packages have directories of 0550,
 * which root fills), and to give files capabilities. */
uint64_t locks_cap_setup(void);
