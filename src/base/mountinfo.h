/* Reading /proc/PID/mountinfo, line by line (proc_pid_mountinfo(5)). Uses the heap for lines; not
 * for between clone and exec. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct mountinfo {
	FILE *file;
	char *line;
	size_t room;
	/* of the line that mountinfo_next stopped at */
	long id;
	char target[4096]; /* unescaped */
	char type[64];	   /* "ext4", "fuse.sshfs" */
};

/* 0, or -1 with errno. */
int mountinfo_open(struct mountinfo *m, const char *path);
/* False at the end. Lines that make no sense are passed over. */
bool mountinfo_next(struct mountinfo *m);
void mountinfo_close(struct mountinfo *m);
#define _cleanup_mountinfo_ __attribute__((cleanup(mountinfo_close)))
