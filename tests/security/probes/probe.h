/* The attacker: one static program that is shown to a box and tries things there. See main.c. */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* An attack returns 0 when it SUCCEEDED (the lock is open) and an errno when the kernel refused it. It runs in a child of its own,
 * so it may be killed, which is an answer too. */
struct attack {
	const char *name;
	int (*run)(void);
};

#define ERR(call) ((long)(call) < 0 ? errno : 0)
#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

/* Runs one attack in a child and prints "NAME RESULT NUMBER": `ok 0`, `EPERM 1`, `SIGSYS 31`. */
void attempt(const char *name, int (*run)(void));
/* All of a table, or those named. Returns a main()'s value: 2 when a name is unknown. */
int attempt_table(const struct attack *table, size_t n, int argc, char **argv);
/* Prints a result that this process got itself. */
void report(const char *name, int err);
const char *errname(int err);

int cmd_flood(int argc, char **argv);   /* sys.c: N refused and recorded calls */
int cmd_denials(int argc, char **argv); /* sys.c: refused calls of all kinds from many threads */
int cmd_sys(int argc, char **argv);     /* sys.c: calls that are refused while the box goes on */
int cmd_end(int argc, char **argv);     /* sys.c: calls that end a box */
int cmd_init(int argc, char **argv);    /* init.c: attacks on process 1 */
int cmd_as_init(int argc, char **argv); /* init.c: be a process 1 without locks and run the same attacks: the control */
int cmd_read(int argc, char **argv);
int cmd_write(int argc, char **argv);
int cmd_setid(int argc, char **argv);
int cmd_devices(int argc, char **argv);
int cmd_fds(int argc, char **argv);
int cmd_swap(int argc, char **argv);
int cmd_family(int argc, char **argv);
int cmd_connect(int argc, char **argv);
int cmd_fifo(int argc, char **argv);
int cmd_inet(int argc, char **argv);
int cmd_own(int argc, char **argv);
int cmd_race(int argc, char **argv);
int cmd_stall(int argc, char **argv);
int cmd_tty(int argc, char **argv);
int cmd_grandchild(int argc, char **argv);
int cmd_storm(int argc, char **argv);
int cmd_crowd(int argc, char **argv);
int cmd_hit_and_run(int argc, char **argv);
int cmd_stubborn(int argc, char **argv);
int cmd_shared(int argc, char **argv);     /* shared.c: what a box shares with the machine */
int cmd_queue(int argc, char **argv);      /* shared.c: N MiB in sockets */
int cmd_passing(int argc, char **argv);    /* shared.c: descriptors on their way */
int cmd_timers(int argc, char **argv);     /* shared.c: as many timers as there are */
int cmd_own_filter(int argc, char **argv); /* shared.c */
int cmd_lies(int argc, char **argv); /* lies.c: what a set-up box says is done */
int cmd_sleep(int argc, char **argv);
