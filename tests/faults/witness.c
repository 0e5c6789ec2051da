/* witness [MODE...]: says from inside a box how its locks stand, one `name=value` a line, and exits with 7. The same box says the same
 * each time, whatever could go wrong on the way; a lock that is silently missing shows as another line.
 *
 * Modes: sleep (for ever, when all is said), escape (calls mount), connect (to a socket of its own), oom (fills memory), in (copies standard
 * input), leave (a child in a session of its own that sleeps for ever), pids (counts how many processes it may have).
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void file(const char *name, const char *path)
{
	char line[4096];
	FILE *f = fopen(path, "re");

	if (!f)
		printf("%s=errno %d\n", name, errno);
	while (f && fgets(line, sizeof(line), f))
		printf("%s=%s", name, line);
	if (f)
		fclose(f);
}

static void names(const char *name, const char *dir, int links)
{
	struct dirent *en;
	char path[512], to[256];
	DIR *d = opendir(dir);
	int self = d ? dirfd(d) : -1;

	while (d && (en = readdir(d))) {
		ssize_t n;

		if (en->d_name[0] == '.' || (links && atoi(en->d_name) == self && !strcmp(dir, "/proc/self/fd")))
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, en->d_name);
		n = links ? readlink(path, to, sizeof(to) - 1) : 0;
		to[n > 0 ? n : 0] = '\0';
		printf("%s=%s %s\n", name, en->d_name, to);
	}
	if (d)
		closedir(d);
}

static void told(const char *name, long r)
{
	printf("%s=%s\n", name, r >= 0 ? "ok" : strerror(errno));
}

/* What each lock refuses. */
static void attempts(void)
{
	int one = 1, s;
	pid_t pid;
	struct ifreq lo = { .ifr_name = "lo" };
	struct sockaddr_in port = { .sin_family = AF_INET, .sin_port = htons(80), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char path[] = "/tmp/wXXXXXX", stack[4096];

	told("landlock", mknod("/tmp/whiteout", S_IFCHR | 0600, makedev(0, 0)));
	told("write", mkstemp(path));
	told("setid", chmod(path, 04755));
	told("userns", unshare(CLONE_NEWUSER));
	told("clone", syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, stack + sizeof(stack), 0, 0, 0));
	told("ptrace", syscall(SYS_ptrace, 0, 0, 0, 0));
	told("clone3", syscall(SYS_clone3, 0, 0));
	told("keys", syscall(SYS_keyctl, 0, -3, 0, 0, 0));
	told("personality", syscall(SYS_personality, 0x0400000));
	told("vsock", socket(40, SOCK_STREAM, 0));
	told("sti", ioctl(0, TIOCSTI, ""));
	told("init", syscall(SYS_prlimit64, 1, 7, NULL, NULL));
	told("init-dir", access("/proc/1/root/.", F_OK));
	told("init-kill", kill(1, SIGTERM));
	told("caps", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 10, 0, 0));
	told("hostname", sethostname("x", 1));
	told("sys", open("/proc/sys/kernel/core_pattern", O_WRONLY));
	told("usr", open("/usr/x", O_WRONLY | O_CREAT, 0600));
	told("root", open("/x", O_WRONLY | O_CREAT, 0600));
	told("tty", open("/dev/tty", O_RDWR));
	told("memfd", syscall(SYS_memfd_create, "x", 0));
	s = socket(AF_INET, SOCK_DGRAM, 0);
	told("loopback", ioctl(s, SIOCGIFFLAGS, &lo) < 0 ? -1 : lo.ifr_flags & IFF_UP ? 0 : (errno = ENETDOWN, -1));
	told("port", bind(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&port, sizeof(port)));
	(void)one;
	pid = fork();
	if (pid == 0)
		_exit(0);
	told("fork", pid);
	waitpid(pid, &one, 0);
}

static void facts(void)
{
	char name[65] = "";
	cpu_set_t set;
	mode_t mask = umask(0);

	umask(mask);
	file("status", "/proc/self/status");
	file("limits", "/proc/self/limits");
	file("mount", "/proc/self/mountinfo");
	file("group", "/proc/self/cgroup");
	file("uid_map", "/proc/self/uid_map");
	file("cmdline", "/proc/cmdline");
	file("keys", "/proc/keys");
	names("ns", "/proc/self/ns", 1);
	names("fd", "/proc/self/fd", 1);
	names("top", "/", 0);
	names("dev", "/dev", 0);
	gethostname(name, sizeof(name) - 1);
	printf("name=%s\numask=%03o\nsession=%d\n", name, (unsigned)mask, getsid(0) == getpid());
	printf("cpus=%d\n", sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : -1);
	for (char **e = environ; *e; e++)
		printf("env=%s\n", *e);
}

static void count_pids(void)
{
	int n = 0;

	for (pid_t pid; n < 1000 && (pid = fork()) >= 0; n++)
		if (pid == 0)
			for (;;)
				pause();
	printf("pids=%d\n", n);
	fflush(stdout);
	signal(SIGTERM, SIG_IGN);
	kill(0, SIGTERM);
}

static void connect_own(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX, .sun_path = "/tmp/s" };
	int s = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0);

	told("bind", bind(s, (struct sockaddr *)&a, sizeof(a)));
	told("listen", listen(s, 1));
	told("connect", connect(c, (struct sockaddr *)&a, sizeof(a)));
}

static void fill(void)
{
	for (;;) {
		char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (p != MAP_FAILED)
			memset(p, 1, 1 << 20);
	}
}

int main(int argc, char **argv)
{
	facts();
	attempts();
	for (int i = 1; i < argc; i++) {
		fflush(stdout);
		if (!strcmp(argv[i], "sleep")) {
			for (;;)
				pause();
		} else if (!strcmp(argv[i], "escape")) {
			told("mount", mount("x", "/tmp", "tmpfs", 0, ""));
		} else if (!strcmp(argv[i], "connect")) {
			connect_own();
		} else if (!strcmp(argv[i], "pids")) {
			count_pids();
		} else if (!strcmp(argv[i], "oom")) {
			fill();
		} else if (!strcmp(argv[i], "leave")) {
			if (fork() == 0)
				for (setsid();;)
					pause();
		} else if (!strcmp(argv[i], "in")) {
			file("in", "/proc/self/fd/0");
		}
	}
	fflush(stdout);
	return 7;
}
