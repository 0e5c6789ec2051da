/* probe: tries to break out and says what the kernel answered.
 *
 *   probe SUB-COMMAND [ARG...]
 *
 * Every attempt prints one line, NAME RESULT NUMBER, where RESULT is `ok` (the attack worked), an errno's name, or the signal that
 * ended the child that tried. The tests run the same program outside a box first: an attack that fails there too proves nothing.
 * Static, so that it runs in any root file system. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

static const struct {
	int err;
	const char *name;
} err_names[] = {
	{ EPERM, "EPERM" }, { ENOENT, "ENOENT" }, { ENODATA, "ENODATA" }, { ESRCH, "ESRCH" }, { EBADF, "EBADF" }, { EACCES, "EACCES" },
	{ EFAULT, "EFAULT" }, { EBUSY, "EBUSY" }, { EEXIST, "EEXIST" }, { EINVAL, "EINVAL" }, { EROFS, "EROFS" },
	{ ENXIO, "ENXIO" }, { ENODEV, "ENODEV" }, { ENOTDIR, "ENOTDIR" }, { EISDIR, "EISDIR" }, { ENOTTY, "ENOTTY" },
	{ ETXTBSY, "ETXTBSY" }, { ELOOP, "ELOOP" }, { ENOSYS, "ENOSYS" }, { EIO, "EIO" }, { EAGAIN, "EAGAIN" },
	{ EAFNOSUPPORT, "EAFNOSUPPORT" }, { EPROTONOSUPPORT, "EPROTONOSUPPORT" }, { ENETUNREACH, "ENETUNREACH" },
	{ ECONNREFUSED, "ECONNREFUSED" }, { EADDRINUSE, "EADDRINUSE" }, { EOVERFLOW, "EOVERFLOW" }, { EXDEV, "EXDEV" },
	{ ENOTSUP, "ENOTSUP" }, { ESOCKTNOSUPPORT, "ESOCKTNOSUPPORT" }, { EPROTOTYPE, "EPROTOTYPE" }, { ENOTBLK, "ENOTBLK" },
	{ ETIMEDOUT, "ETIMEDOUT" }, { EHOSTUNREACH, "EHOSTUNREACH" }, { ENOTCONN, "ENOTCONN" }, { ENOSPC, "ENOSPC" },
};

const char *errname(int err)
{
	if (err == 0)
		return "ok";
	for (size_t i = 0; i < COUNT(err_names); i++)
		if (err_names[i].err == err)
			return err_names[i].name;
	return "E?";
}

void report(const char *name, int err)
{
	printf("%s %s %d\n", name, errname(err), err);
	fflush(stdout);
}

void attempt(const char *name, int (*run)(void))
{
	int err = EIO, status, p[2];

	if (pipe(p) < 0) {
		report(name, errno);
		return;
	}
	pid_t pid = fork();
	if (pid == 0) {
		close(p[0]);
		err = run();
		if (write(p[1], &err, sizeof(err)) != sizeof(err))
			_exit(1);
		_exit(0);
	}
	close(p[1]);
	if (pid < 0)
		err = errno;
	else if (read(p[0], &err, sizeof(err)) != sizeof(err))
		err = EIO;
	close(p[0]);
	if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status)) {
		int sig = WTERMSIG(status);
		printf("%s %s %d\n", name, sig == SIGSYS ? "SIGSYS" : sig == SIGKILL ? "SIGKILL" :
		       sig == SIGSEGV ? "SIGSEGV" : "SIG?", sig);
		fflush(stdout);
		return;
	}
	report(name, err);
}

int attempt_table(const struct attack *table, size_t n, int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < n; i++)
			puts(table[i].name);
		return 0;
	}
	for (size_t i = 0; argc <= 1 && i < n; i++)
		attempt(table[i].name, table[i].run);
	for (int a = 1; a < argc; a++) {
		size_t i = 0;

		while (i < n && strcmp(table[i].name, argv[a]))
			i++;
		if (i == n) {
			fprintf(stderr, "probe: no attack %s\n", argv[a]);
			return 2;
		}
		attempt(table[i].name, table[i].run);
	}
	return 0;
}

int cmd_sleep(int argc, char **argv)
{
	/* argv carries the caller's marker, so that the host finds this process. */
	(void)argc;
	(void)argv;
	puts("sleeping");
	fflush(stdout);
	sleep(300);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} commands[] = {
	{ "sys", cmd_sys }, { "end", cmd_end }, { "init", cmd_init }, { "as-init", cmd_as_init },
	{ "read", cmd_read }, { "write", cmd_write }, { "setid", cmd_setid }, { "devices", cmd_devices },
	{ "fds", cmd_fds }, { "swap", cmd_swap }, { "family", cmd_family }, { "connect", cmd_connect },
	{ "fifo", cmd_fifo }, { "inet", cmd_inet }, { "own", cmd_own }, { "race", cmd_race }, { "tty", cmd_tty },
	{ "stall", cmd_stall }, { "flood", cmd_flood }, { "denials", cmd_denials },
	{ "grandchild", cmd_grandchild }, { "storm", cmd_storm }, { "crowd", cmd_crowd },
	{ "hit-and-run", cmd_hit_and_run }, { "stubborn", cmd_stubborn }, { "sleep", cmd_sleep },
	{ "shared", cmd_shared }, { "queue", cmd_queue }, { "passing", cmd_passing }, { "own-filter", cmd_own_filter },
	{ "timers", cmd_timers }, { "lies", cmd_lies },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 1 && i < COUNT(commands); i++)
		if (!strcmp(commands[i].name, argv[1]))
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "probe: no such sub-command\n");
	return 2;
}
