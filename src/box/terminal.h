/* The caller's terminal while a box has one of its own: raw mode, size, and putting it back. */
#pragma once

#include <stdbool.h>
#include <sys/ioctl.h>
#include <termios.h>

struct terminal {
	int fd;
	bool raw;
	struct termios before;
};

/* The size of the terminal on fd, zeros when it is none. */
struct winsize terminal_size(int fd);
/* Raw mode when fd is a terminal (else nothing). The caller puts it back. */
void terminal_raw(struct terminal *t, int fd);
void terminal_restore(struct terminal *t);
/* Is this the terminal that controls us, while another job has it? To read it would stop us,
 * deadline and all. */
bool terminal_elsewhere(int fd);
