/* The caller's terminal: its size, raw mode while a box has a terminal of its own, and how a job
 * that may be stopped, or sent to the background, gets along with it.
 *
 * SIGTTOU must be blocked. Else to write or to set modes in the background would stop cloche,
 * deadline and all; blocked, both would go through, so they are asked about first. */
#pragma once

#include <stdbool.h>
#include <sys/ioctl.h>
#include <termios.h>

struct terminal {
	int fd;
	bool wanted; /* raw mode, whenever it is ours */
	bool raw, known;
	struct termios before; /* when known */
};

/* The size of the first of the two that is a terminal, zeros when none is. */
struct winsize terminal_size(int fd, int other);
/* Raw mode when fd is a terminal (else nothing), now or as soon as it is ours. */
void terminal_raw(struct terminal *t, int fd);
/* Takes up raw mode where it is wanted and not there. */
void terminal_again(struct terminal *t);
/* Puts it back as it was, unless another job has it. */
void terminal_restore(struct terminal *t);
/* Is this the terminal that controls us, while another job has it? To read it would stop us. */
bool terminal_elsewhere(int fd);
/* The same, and does it want background jobs to stop before they print (stty tostop)? */
bool terminal_keeps_quiet(int fd);
/* Types the character for the end of input into the terminal whose master this is. `again`: only
 * where it would be taken as that. */
void terminal_type_end(int master, bool again);
