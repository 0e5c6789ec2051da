#include "base/mountinfo.h"

#include <stdlib.h>
#include <string.h>

int mountinfo_open(struct mountinfo *m, const char *path)
{
	m->line = NULL;
	m->room = 0;
	m->file = fopen(path, "re");
	return m->file ? 0 : -1;
}

void mountinfo_close(struct mountinfo *m)
{
	free(m->line);
	if (m->file)
		fclose(m->file);
}

/* Blanks, tabs, newlines and backslashes stand as \ooo. */
static int unescape(const char *field, char *ret, size_t cap)
{
	size_t n = 0;

	for (; *field && *field != ' '; n++) {
		if (n + 1 >= cap)
			return -1;
		if (field[0] == '\\' && field[1] >= '0' && field[1] <= '3' && field[2] >= '0' &&
		    field[2] <= '7' && field[3] >= '0' && field[3] <= '7') {
			ret[n] = (char)((field[1] - '0') << 6 | (field[2] - '0') << 3 |
					(field[3] - '0'));
			field += 4;
		} else {
			ret[n] = *field++;
		}
	}
	ret[n] = '\0';
	return 0;
}

static int parse(struct mountinfo *m)
{
	char *at = m->line, *end, *type;

	m->id = strtol(at, &end, 10);
	if (end == at)
		return -1;
	for (int i = 0; i < 4 && at; i++) /* id, parent, device, root, target */
		at = strchr(at + 1, ' ');
	type = at ? strstr(at, " - ") : NULL;
	if (!type || unescape(at + 1, m->target, sizeof(m->target)) < 0)
		return -1;
	snprintf(m->type, sizeof(m->type), "%.*s", (int)strcspn(type + 3, " \n"), type + 3);
	return 0;
}

bool mountinfo_next(struct mountinfo *m)
{
	while (m->file && getline(&m->line, &m->room, m->file) > 0)
		if (parse(m) == 0)
			return true;
	return false;
}
