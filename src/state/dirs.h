/* The program's own directories, per user: the store (what is kept), the runtime directory (what
 * belongs to running processes) and the configuration. `cloche run` makes the store alone, and runs
 * without it when it can't; nothing here is made before somebody asks for it.
 *
 *	           CLOCHE_HOME set        else
 *	store      $CLOCHE_HOME/store     $XDG_DATA_HOME/cloche, or ~/.local/share/cloche
 *	runtime    $CLOCHE_HOME/runtime   $XDG_RUNTIME_DIR/cloche, or /run/user/UID/cloche,
 *	                                  or /tmp/cloche-UID
 *	config     $CLOCHE_HOME/config    $XDG_CONFIG_HOME/cloche, or ~/.config/cloche
 *
 * A relative XDG variable is ignored, as its specification asks; a relative CLOCHE_HOME is refused.
 * A runtime base that is not a directory of the caller's own (su and sudo leave another user's
 * behind) is passed over. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

#define STATE_PATH_MAX 4096

enum state_dir { STATE_STORE, STATE_RUNTIME, STATE_CONFIG, STATE_DIR_N };

/* "store", "runtime", "config". */
const char *state_dir_name(enum state_dir which);

/* Where the directory is, or would be; makes nothing. */
int state_path(enum state_dir which, char ret[STATE_PATH_MAX], struct err *e);

/* Opens the directory, close-on-exec, and makes it (0700, with its parents) when `make`. It must be
 * a directory, not a link, of the caller's own and not writable by others; the runtime directory
 * must be closed to others altogether. Returns the descriptor, or -1 with *e (kind ERR_MISSING when
 * it does not exist and `make` is false). */
int state_open(enum state_dir which, bool make, struct err *e);
