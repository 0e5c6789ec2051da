/* What may go wrong with a helper: it hangs (a deadline), it talks without end (a bound), it is not
 * there, it asks for a key ring that is locked. It is told on its input what is wanted and answers
 * on its output; what it says on its error output may hold secrets, and nobody reads it. */
#include "image/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

#define FILE_MAX (1u << 20)
#define ANSWER_MAX 65536
#define HELPER_MS 30000

extern char **environ;

/* The file, to be freed and wiped; NULL when there is none, and with *e when it can't be read. */
static char *load(const char *path, size_t *ret_n, struct err *e)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	char *text;
	ssize_t n;

	e->kind = ERR_NONE;
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return NULL;
	if (fd < 0 || fstat(fd, &st) < 0) {
		err_sys(e, "%.200s", path);
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
		err_set(e, ERR_REFUSED, "%.200s is no file of at most %u bytes", path, FILE_MAX);
		return NULL;
	}
	text = malloc(FILE_MAX);
	n = text ? fd_read_full(fd, text, FILE_MAX) : -1;
	if (n < 0) {
		err_sys(e, "%.200s", path);
		free(text);
		return NULL;
	}
	*ret_n = (size_t)n;
	return text;
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Reads until the end, the bound or the deadline. The count, or -1. */
static ssize_t read_answer(int fd, char *dst)
{
	uint64_t end = now_ms() + HELPER_MS;
	size_t n = 0;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = now_ms();
		ssize_t r;

		if (now >= end || n == ANSWER_MAX)
			return -1;
		r = poll(&p, 1, (int)(end - now));
		if (r < 0 && errno == EINTR)
			return -1;
		if (r <= 0)
			continue;
		r = read(fd, dst + n, ANSWER_MAX - n);
		if (r <= 0)
			return r < 0 ? -1 : (ssize_t)n;
		n += (size_t)r;
	}
}

static int start_helper(const char *program, int in, int out, pid_t *ret)
{
	char *const argv[] = { (char *)(uintptr_t)program, (char *)(uintptr_t) "get", NULL };
	posix_spawn_file_actions_t fa;
	int r = posix_spawn_file_actions_init(&fa);

	if (r != 0)
		return r;
	r = posix_spawn_file_actions_adddup2(&fa, in, STDIN_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_adddup2(&fa, out, STDOUT_FILENO);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&fa, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	if (r == 0)
		r = posix_spawnp(ret, program, &fa, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&fa);
	return r;
}

/* Asks the helper; the length of its answer, 0 when it knows nothing, -1 with why in `note`. */
static ssize_t ask(const char *helper, const char *server, char answer[ANSWER_MAX + 1],
		   char note[IMG_NOTE_MAX])
{
	_cleanup_fd_ int in = -1, tell = -1, out = -1, hear = -1;
	char program[IMG_HELPER_MAX + 32];
	int r, status;
	ssize_t n;
	pid_t pid;

	snprintf(program, sizeof(program), "docker-credential-%s", helper);
	if (fd_pipe(&in, &tell) < 0 || fd_pipe(&hear, &out) < 0) {
		snprintf(note, IMG_NOTE_MAX, "%s could not be asked", program);
		return -1;
	}
	/* A short line fits into the pipe: nobody has to read it for this to return. */
	fd_write_all(tell, server, strlen(server));
	fd_close(&tell);
	r = start_helper(program, in, out, &pid);
	if (r != 0) {
		snprintf(note, IMG_NOTE_MAX, "the credential helper %s could not be started (%s)",
			 program, strerror(r));
		return -1;
	}
	fd_close(&in);
	fd_close(&out);
	n = read_answer(hear, answer);
	if (n < 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (n < 0) {
		snprintf(note, IMG_NOTE_MAX,
			 "the credential helper %s gave no answer within %d s and %d bytes",
			 program, HELPER_MS / 1000, ANSWER_MAX);
		return -1;
	}
	answer[n] = '\0';
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return n;
	if (strstr(answer, "credentials not found"))
		return 0;
	snprintf(note, IMG_NOTE_MAX, "the credential helper %s failed", program);
	return -1;
}

static void take_answer(const char *host, struct img_auth *a, char note[IMG_NOTE_MAX])
{
	char *answer = malloc(ANSWER_MAX + 1), helper[IMG_HELPER_MAX + 1];
	ssize_t n;
	struct err e;

	memcpy(helper, a->helper, sizeof(helper));
	a->kind = IMG_AUTH_NONE;
	n = answer ? ask(helper, img_auth_server(host), answer, note) : 0;
	if (n > 0 && img_auth_helper_answer(answer, (size_t)n, a, &e) < 0)
		snprintf(note, IMG_NOTE_MAX,
			 "what the credential helper docker-credential-%s says %.100s", helper,
			 e.msg);
	if (answer)
		explicit_bzero(answer, ANSWER_MAX);
	free(answer);
}

/* What the file at `path` has. 1: something; 0: nothing, or no such file; -1. */
static int look(const char *path, const char *host, const char *repo, struct img_auth *ret,
		struct err *e)
{
	size_t n = 0;
	char *text = load(path, &n, e);
	int r;

	if (!text)
		return e->kind == ERR_NONE ? 0 : -1;
	r = img_auth_file(text, n, host, repo, ret, e);
	explicit_bzero(text, FILE_MAX);
	free(text);
	if (r < 0)
		return err_prefix(e, "%.200s", path);
	return ret->kind != IMG_AUTH_NONE;
}

/* The places of such files: a directory from the environment, or below the home directory. */
static const struct {
	const char *variable, *home, *file;
} places[] = {
	{ "DOCKER_CONFIG", NULL, "config.json" },
	{ "XDG_RUNTIME_DIR", NULL, "containers/auth.json" },
	{ "XDG_CONFIG_HOME", ".config", "containers/auth.json" },
	{ "HOME", NULL, ".docker/config.json" },
};

static bool place(size_t i, char ret[4096])
{
	const char *dir = getenv(places[i].variable);
	char under[4096];

	if ((!dir || *dir != '/') && places[i].home) {
		dir = getenv("HOME");
		if (!dir || *dir != '/' || path_join(under, sizeof(under), dir, places[i].home) < 0)
			return false;
		dir = under;
	}
	return dir && *dir == '/' && path_join(ret, 4096, dir, places[i].file) == 0;
}

int img_credentials(const char *host, const char *repo, struct img_auth *ret,
		    char note[IMG_NOTE_MAX], struct err *e)
{
	const char *only = getenv("REGISTRY_AUTH_FILE");
	_cleanup_auth_ struct img_auth a = { 0 };
	char path[4096];
	int r = 0;

	*note = '\0';
	if (only && *only)
		r = look(only, host, repo, &a, e);
	else
		for (size_t i = 0; r == 0 && i < sizeof(places) / sizeof(places[0]); i++)
			if (place(i, path))
				r = look(path, host, repo, &a, e);
	if (r < 0)
		return -1;
	if (a.kind == IMG_AUTH_HELPER)
		take_answer(host, &a, note);
	*ret = a;
	return 0;
}
