/* The child runs on a stack of its own inside init's memory; init sleeps until it executes or exits
 * (CLONE_VFORK), so the two never run at once and the child may report by writing into init's
 * variables. It must not touch anything else of init's. */
#include "box/command.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "box/limits.h"
#include "box/locks.h"

struct command {
	const struct box_spec *spec;
	const int *stdio;
	bool tty;
	unsigned held;
	struct err *e;
};

static const char *env_path(char *const *env)
{
	for (; *env; env++)
		if (strncmp(*env, "PATH=", 5) == 0)
			return *env + 5;
	return "/usr/local/bin:/usr/bin:/bin";
}

/* execvpe(3) without its heap, its shell fallback and its view of the caller's PATH: always the
 * box's own. */
static void command_exec(const struct box_spec *spec, struct err *e)
{
	const char *file = spec->argv[0], *path = env_path(spec->env);
	int num = ENOENT;
	char full[4096];

	if (*file == '\0') /* else every directory of PATH would do */
		path = "";
	if (strchr(file, '/')) {
		execve(file, spec->argv, spec->env);
		num = errno;
		path = "";
	}
	while (*path) {
		size_t n = strcspn(path, ":");
		int k = snprintf(full, sizeof(full), "%.*s/%s", (int)n, path, file);

		path += n + (path[n] == ':');
		if (n == 0 || k < 0 || (size_t)k >= sizeof(full))
			continue;
		execve(full, spec->argv, spec->env);
		if (errno != ENOENT && errno != ENOTDIR)
			num = errno;
	}
	err_set(e, ERR_EXEC, "%s", strerror(num));
	e->num = num;
}

static int stdio_set(const struct command *c, struct err *e)
{
	_cleanup_fd_ int null = -1;

	if (c->stdio[0] < 0) {
		null = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (null < 0)
			return err_sys(e, "open /dev/null of the box");
	}
	for (int i = 0; i < 3; i++)
		if (dup2(i == 0 && c->stdio[0] < 0 ? null : c->stdio[i], i) < 0)
			return err_sys(e, "set descriptor %d", i);
	return 0;
}

static int command_prepare(const struct command *c, struct err *e)
{
	sigset_t none;

	if (setsid() < 0)
		return err_sys(e, "start a session");
	if (stdio_set(c, e) < 0)
		return -1;
	if (c->tty && ioctl(0, TIOCSCTTY, 0) < 0)
		return err_sys(e, "take the terminal");
	if (c->spec->apparmor) {
		_cleanup_fd_ int attr = locks_apparmor_open(e);

		if (attr < 0 || locks_apparmor(attr, c->spec->apparmor, e) < 0)
			return err_at(e, STAGE_LOCKS);
	}
	if (sys_close_range(3, ~0U) < 0)
		return err_sys(e, "close descriptors");
	if (limits_files(c->spec, c->held, e) < 0)
		return -1;
	umask(022);
	if (chdir(c->spec->cwd) < 0)
		return err_sys(e, "working directory %s of the box", c->spec->cwd);
	sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		return err_sys(e, "unblock signals");
	return 0;
}

static int command_child(void *arg)
{
	struct command *c = arg;

	if (command_prepare(c, c->e) == 0)
		command_exec(c->spec, c->e);
	err_at(c->e, STAGE_COMMAND);
	return 127;
}

int command_spawn(const struct box_spec *spec, const int stdio[3], bool tty, unsigned held,
		  pid_t *ret, struct err *e)
{
	static char stack[32768] __attribute__((aligned(16)));
	struct command c = { .spec = spec,
			     .stdio = stdio,
			     .tty = tty,
			     .held = held,
			     .e = e };
	pid_t pid;

	*e = (struct err){ 0 }; /* the child speaks by it alone */
	pid = clone(command_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &c);
	if (pid < 0) {
		err_fork(e, "start the command");
		return err_at(e, STAGE_COMMAND);
	}
	if (e->kind != ERR_NONE) {
		waitpid(pid, NULL, 0);
		return -1;
	}
	*ret = pid;
	return 0;
}
