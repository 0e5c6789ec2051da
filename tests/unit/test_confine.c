/* What cloche-image can still do once it has locked itself in, asked of the kernel: each probe in a process of its own, first free (it has to
 * succeed there), then behind either lock. And the child that unpacks, from its job to its account. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/confine.h"
#include "image/sha256.h"
#include "image/unpack_child.h"

static char dir[] = "/tmp/unit-confine-XXXXXX";
static int tree, below, outside;

static int ok(long r)
{
	return r < 0 ? errno : 0;
}

static int write_inside(void)
{
	_cleanup_fd_ int fd = openat(tree, "file", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	return fd < 0 ? errno : ok(write(fd, "x", 1));
}
static int whiteout_inside(void)
{
	unlinkat(tree, "white", 0);
	return ok(mknodat(tree, "white", S_IFCHR, 0));
}
static int link_across(void)
{
	mkdirat(tree, "sub", 0700);
	write_inside();
	unlinkat(tree, "sub/link", 0);
	return ok(linkat(tree, "file", tree, "sub/link", 0));
}
static int read_below(void)
{
	_cleanup_fd_ int fd = openat(below, "given", O_RDONLY | O_CLOEXEC);

	return ok(fd);
}
static int write_below(void)
{
	_cleanup_fd_ int fd = openat(below, "given", O_WRONLY | O_CLOEXEC);

	return ok(fd);
}
static int make_below(void)
{
	return ok(mkdirat(below, "made", 0700)) || ok(unlinkat(below, "made", AT_REMOVEDIR));
}
static int read_outside(void)
{
	_cleanup_fd_ int fd = openat(outside, "given", O_RDONLY | O_CLOEXEC);

	return ok(fd);
}
static int read_passwd(void)
{
	_cleanup_fd_ int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);

	return ok(fd);
}
static int write_outside(void)
{
	return ok(mkdirat(outside, "made", 0700)) || ok(unlinkat(outside, "made", AT_REMOVEDIR));
}
static int tcp_socket(void)
{
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return ok(fd);
}
static int tcp_listen(void)
{
	_cleanup_fd_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	return fd < 0 ? errno : ok(bind(fd, (struct sockaddr *)&to, sizeof(to))) || ok(listen(fd, 1));
}
static int packet_socket(void)
{
	_cleanup_fd_ int fd = socket(AF_ALG, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	return ok(fd);
}
static int unix_socket(void)
{
	_cleanup_fd_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return ok(fd);
}
static int run_program(void)
{
	execl("/bin/true", "true", (char *)NULL);
	return errno;
}
static int make_process(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return pid < 0 ? errno : ok(waitpid(pid, NULL, 0));
}
static void *nothing(void *arg)
{
	return arg;
}
static int make_thread(void)
{
	pthread_t t;
	int r = pthread_create(&t, NULL, nothing, NULL);

	return r ? r : pthread_join(t, NULL);
}
static int make_namespace(void)
{
	return ok(unshare(CLONE_NEWUSER));
}
static int clone_namespace(void)
{
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid < 0 ? errno : ok(waitpid(pid, NULL, 0));
}
static int trace_me(void)
{
	return ok(ptrace(PTRACE_TRACEME, 0, 0, 0));
}
static int signal_parent(void)
{
	return ok(kill(getppid(), 0));
}
static int code_memory(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? errno : 0;
}
static int more_memory(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? errno : 0;
}
static int ask_keys(void)
{
	return ok(syscall(SYS_keyctl, 0, -3, 1, 0, 0)); /* the session's keyring */
}
static int make_memfd(void)
{
	_cleanup_fd_ int fd = (int)syscall(SYS_memfd_create, "x", 1U);

	return ok(fd);
}

enum { UNPACKING = 1, SERVING = 2, STORING = 4, FETCHING = 8, ALL = 15 };
static const struct {
	const char *name;
	int (*probe)(void);
	int works; /* behind which locks */
} probes[] = {
	{ "write inside", write_inside, ALL },
	{ "whiteout inside", whiteout_inside, ALL },
	{ "link across directories inside", link_across, ALL },
	{ "read below", read_below, ALL },
	{ "write below", write_below, 0 },
	{ "make below", make_below, 0 },
	{ "read outside", read_outside, 0 },
	{ "write outside", write_outside, 0 },
	{ "read /etc/passwd", read_passwd, 0 },
	{ "tcp socket", tcp_socket, FETCHING },
	{ "tcp listen", tcp_listen, 0 },
	{ "unix socket", unix_socket, FETCHING },
	{ "socket of another family", packet_socket, 0 },
	{ "program", run_program, 0 },
	{ "process", make_process, SERVING },
	{ "thread", make_thread, SERVING | FETCHING },
	{ "namespace", make_namespace, 0 },
	{ "namespace by clone", clone_namespace, 0 },
	{ "trace", trace_me, 0 },
	{ "signal", signal_parent, 0 },
	{ "memory that is code", code_memory, FETCHING },
	{ "memory", more_memory, ALL },
	{ "keys", ask_keys, 0 },
	{ "memfd", make_memfd, 0 },
};

/* In a process of its own: its errno, or 0 when it worked. -1: the lock could not be had. */
static int try(int (*probe)(void), int lock)
{
	const struct img_confine how = { .work = lock == UNPACKING ? IMG_WORK_UNPACK
						 : lock == SERVING ? IMG_WORK_SERVE
						 : lock == STORING ? IMG_WORK_STORE
								   : IMG_WORK_FETCH,
					 .writes = &tree,
					 .n_writes = 1,
					 .reads = &below,
					 .n_reads = 1 };
	pid_t pid = fork();
	struct err e;
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		_exit(lock && img_confine(&how, &e) < 0 ? 255 : probe());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status))
		return 254;
	return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

static int open_dir(const char *name)
{
	int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;

	ck_assert_int_eq(mkdirat(at, name, 0700), 0);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	close(at);
	return fd;
}

static void set_up(void)
{
	int fd;

	snprintf(dir, sizeof(dir), "/tmp/unit-confine-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	tree = open_dir("tree");
	below = open_dir("below");
	outside = open_dir("outside");
	for (int i = 0; i < 2; i++) {
		fd = openat(i ? below : outside, "given", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(fd_write_all(fd, "given", 5), 0);
		close(fd);
	}
}

static void clear(const char *path)
{
	pid_t pid = fork();

	if (pid == 0) {
		execlp("sh", "sh", "-c", "chmod -R u+rwx \"$0\" && rm -rf \"$0\"", path, (char *)NULL);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
}

static void tear_down(void)
{
	clear(dir);
}

START_TEST(only_what_the_work_needs)
{
	struct err e;

	set_up();
	ck_assert_msg(img_confine_ready(&e) == 0, "%s", e.msg);
	for (size_t i = 0; i < sizeof(probes) / sizeof(probes[0]); i++) {
		int before = try(probes[i].probe, 0);

		/* The control; where the machine itself lacks it, there is nothing to take away. */
		if (before != 0)
			printf("control: %s: %s\n", probes[i].name, strerror(before));
		ck_assert(before == 0 || probes[i].probe == make_namespace || probes[i].probe == clone_namespace || probes[i].probe == trace_me ||
			  probes[i].probe == packet_socket || probes[i].probe == ask_keys);
		for (int lock = UNPACKING; lock <= FETCHING; lock *= 2) {
			int r = try(probes[i].probe, lock);

			ck_assert_msg(r >= 0 && r != 254, "%s: lock %d", probes[i].name, lock);
			ck_assert_msg((r == 0) == ((probes[i].works & lock) != 0), "%s behind lock %d: %s", probes[i].name, lock,
				      r ? strerror(r) : "works");
		}
	}
	tear_down();
}
END_TEST

/* A tar of one file and a directory that its owner may not write. */
static size_t make_tar(uint8_t *to)
{
	static const struct {
		const char *name, type;
		unsigned mode;
		const char *content;
	} entries[] = { { "d/", '5', 0500, "" }, { "d/f", '0', 0640, "hello" } };
	size_t n = 0;

	for (size_t i = 0; i < 2; i++) {
		char *h = (char *)to + n;
		unsigned sum = 0;

		memset(h, 0, 1024);
		snprintf(h, 100, "%s", entries[i].name);
		snprintf(h + 100, 8, "%07o", entries[i].mode);
		snprintf(h + 108, 8, "%07o", 0);
		snprintf(h + 116, 8, "%07o", 0);
		snprintf(h + 124, 12, "%011o", (unsigned)strlen(entries[i].content) & 0777);
		snprintf(h + 136, 12, "%011o", 1);
		h[156] = entries[i].type;
		memcpy(h + 257, "ustar\00000", 8);
		memset(h + 148, ' ', 8);
		for (int k = 0; k < 512; k++)
			sum += (uint8_t)h[k];
		snprintf(h + 148, 8, "%06o", sum);
		n += 512;
		if (*entries[i].content) {
			memcpy(to + n, entries[i].content, strlen(entries[i].content));
			n += 512;
		}
	}
	memset(to + n, 0, 1024);
	return n + 1024;
}

static int file_of(const void *data, size_t n)
{
	int fd = openat(outside, "layer", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_eq(fd_write_all(fd, data, n), 0);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

START_TEST(a_layer_is_unpacked)
{
	struct img_unpack_child c = IMG_UNPACK_NO_CHILD;
	struct img_unpack_job job = { .max_in = 1 << 20 };
	char want[IMG_DIGEST_LEN + 1];
	struct img_unpack_result r;
	uint8_t tar[8192];
	size_t n = make_tar(tar);
	struct stat st;
	struct err e;

	set_up();
	job.how.limits = img_unpack_default;
	job.tree = tree;
	job.in = file_of(tar, n);
	ck_assert_int_eq(img_sha256_of(tar, n, want, &e), 0);
	ck_assert_int_eq(img_unpack_start(&job, &c, &e), 0);
	ck_assert_msg(img_unpack_end(&c, &r, &e) == 0, "%s", e.msg);
	ck_assert_str_eq(r.decoded.out_digest, want);
	ck_assert_str_eq(r.decoded.in_digest, want);
	ck_assert_uint_eq(r.done.entries, 2);
	ck_assert_int_eq(fstatat(tree, "d", &st, 0), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0500);
	ck_assert_int_eq(lseek(job.in, 0, SEEK_CUR), (off_t)n); /* the progress that callers see */
	ck_assert_int_eq(c.pid, 0);

	/* Longer than allowed, and cut: its own words come back. */
	close(tree);
	tree = open_dir("again");
	job.tree = tree;
	job.max_in = n - 1;
	lseek(job.in, 0, SEEK_SET);
	ck_assert_int_eq(img_unpack_start(&job, &c, &e), 0);
	assert_refused(img_unpack_end(&c, &r, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "more than"));

	close(job.in);
	tear_down();
}
END_TEST

START_TEST(it_can_be_ended)
{
	struct img_unpack_child c = IMG_UNPACK_NO_CHILD;
	struct img_unpack_job job = { .max_in = 1 << 20 };
	int ends[2];
	struct err e;

	set_up();
	job.how.limits = img_unpack_default;
	job.tree = tree;
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	job.in = ends[0]; /* never ends */
	ck_assert_int_eq(img_unpack_start(&job, &c, &e), 0);
	img_unpack_kill(&c);
	ck_assert_int_eq(c.pid, 0);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	img_unpack_kill(&c);
	tear_down();
}
END_TEST

/* After img_confine_rights the process is who it was, and can no longer become more. */
START_TEST(rights)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		uid_t uid = geteuid();
		struct err e;

		if (img_confine_rights(&e) < 0)
			_exit(1);
		if (geteuid() != uid || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
			_exit(2);
		if (mount("none", "/tmp", "tmpfs", 0, NULL) == 0)
			_exit(3);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, only_what_the_work_needs);
	tcase_add_test(tc, a_layer_is_unpacked);
	tcase_add_test(tc, it_can_be_ended);
	tcase_add_test(tc, rights);
}

int main(void)
{
	return unit_main("confine", fill);
}
