/* What the checks of mounts say: paths made fit for a line, and notes. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "box/mount_check.h"

const char *mount_show(struct mount_shown *s, const char *path)
{
	size_t n = strlen(path), room = sizeof(s->text) - 4;

	if (n < sizeof(s->text))
		return str_printable(s->text, sizeof(s->text), path);
	memcpy(s->text, "...", 3);
	str_printable(s->text + 3, sizeof(s->text) - 3, path + n - room);
	return s->text;
}

void mount_note(struct mount_check *c, const char *fmt, ...)
{
	va_list ap;

	if (c->n_notes == MOUNT_NOTES_MAX)
		return;
	va_start(ap, fmt);
	vsnprintf(c->notes[c->n_notes++], sizeof(c->notes[0]), fmt, ap);
	va_end(ap);
}
