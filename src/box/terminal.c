#include "box/terminal.h"

#include <string.h>
#include <unistd.h>

#define CTRL_D 4

struct winsize terminal_size(int fd, int other)
{
	struct winsize w;

	memset(&w, 0, sizeof(w));
	if (ioctl(fd, TIOCGWINSZ, &w) < 0 && ioctl(other, TIOCGWINSZ, &w) < 0)
		memset(&w, 0, sizeof(w));
	return w;
}

bool terminal_elsewhere(int fd)
{
	pid_t group = fd >= 0 ? tcgetpgrp(fd) : -1;

	return group >= 0 && group != getpgrp();
}

bool terminal_keeps_quiet(int fd)
{
	struct termios t;

	return terminal_elsewhere(fd) && tcgetattr(fd, &t) == 0 && (t.c_lflag & TOSTOP);
}

void terminal_raw(struct terminal *t, int fd)
{
	*t = (struct terminal){ .fd = fd, .wanted = isatty(fd) };
	terminal_again(t);
}

void terminal_again(struct terminal *t)
{
	struct termios raw;

	if (!t->wanted || t->raw || terminal_elsewhere(t->fd))
		return;
	/* A shell may give the terminal back in the modes that it found: the first ones are the
	 * caller's. */
	if (!t->known && tcgetattr(t->fd, &t->before) < 0)
		return;
	t->known = true;
	raw = t->before;
	cfmakeraw(&raw);
	t->raw = tcsetattr(t->fd, TCSANOW, &raw) == 0;
}

void terminal_restore(struct terminal *t)
{
	if (t->raw && !terminal_elsewhere(t->fd))
		tcsetattr(t->fd, TCSADRAIN, &t->before);
	t->raw = false;
}

void terminal_type_end(int master, bool again)
{
	struct termios t;
	char c = CTRL_D;

	if (tcgetattr(master, &t) == 0) { /* of the other end, the program's */
		if (again && !(t.c_lflag & ICANON))
			return;
		if ((t.c_lflag & ICANON) && t.c_cc[VEOF])
			c = (char)t.c_cc[VEOF];
	}
	(void)!write(master, &c, 1);
}
