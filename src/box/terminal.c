#include "box/terminal.h"

#include <string.h>
#include <unistd.h>

struct winsize terminal_size(int fd)
{
	struct winsize w;

	memset(&w, 0, sizeof(w));
	if (ioctl(fd, TIOCGWINSZ, &w) < 0)
		memset(&w, 0, sizeof(w));
	return w;
}

bool terminal_elsewhere(int fd)
{
	pid_t group = fd >= 0 ? tcgetpgrp(fd) : -1;

	return group >= 0 && group != getpgrp();
}

void terminal_raw(struct terminal *t, int fd)
{
	struct termios raw;

	t->fd = fd;
	t->raw = false;
	/* A background job may not touch the terminal: it would be stopped, deadline and all. */
	if (tcgetattr(fd, &t->before) < 0 || tcgetpgrp(fd) != getpgrp())
		return;
	raw = t->before;
	cfmakeraw(&raw);
	t->raw = tcsetattr(fd, TCSANOW, &raw) == 0;
}

void terminal_restore(struct terminal *t)
{
	if (t->raw)
		tcsetattr(t->fd, TCSADRAIN, &t->before);
	t->raw = false;
}
