#include "cli/say.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

/* They wait a second for a reader who has stopped, and no longer: no box is left to wait for. */
void cli_say(const char *head, const char *text)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	char safe[640], line[700];
	int n = snprintf(line, sizeof(line), "cloche: %s: %s\n", head,
			 str_printable(safe, sizeof(safe), text));

	if (n > 0 && poll(&p, 1, 1000) > 0)
		(void)fd_write_all(STDERR_FILENO, line,
				   (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}
