/* The seccomp filter on paper: every program, for both architectures, run by an emulator over every call number and many arguments, and
 * held against sc_expect, which says the same in plain C; and against lists written out here, which know nothing of the policy's
 * table. What the kernel really does with the program is tested in test_seccomp_live.c.
 *
 * The emulator notes whether a run looked at arguments: a run that did not has the same answer for all arguments, so one is enough;
 * for the others the arguments are drawn from every constant that stands in the program, and its neighbours. */
#include "unit.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "box/seccomp.h"
#include "box/seccomp_table.h"
#include "seccomp_emulator.h"

#define VALUES_MAX 200

static const uint32_t audit_arch[SC_ARCH_N] = { [SC_X86_64] = 0xC000003E, [SC_AARCH64] = 0xC00000B7 };

/* Return values written out, not computed by the product's own table. */
static const uint32_t verdict_ret[SC_VERDICT_N] = {
	[SC_ENOSYS] = 0x00050026, [SC_ALLOW] = 0x7fff0000,      [SC_EPERM] = 0x00050001, [SC_EAFNOSUPPORT] = 0x00050061, [SC_ZERO] = 0x00050000,
	[SC_DENY] = 0x7fc00000,   [SC_END] = 0x7fc00000,        [SC_MEDIATE] = 0x7fc00000, [SC_KILL] = 0x80000000,
};

static const char *const ending_set[] = {
	"mount", "umount2", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
	"setns", "pivot_root", "bpf", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot",
	"swapon", "swapoff", "quotactl", "quotactl_fd", "acct",
};
/* Never allowed under any request without rules. */
static const char *const critical[] = {
	"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise", "process_mrelease", "clone3",
	"openat2", "io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "perf_event_open", "add_key",
	"request_key", "keyctl", "syslog", "open_by_handle_at", "chroot", "iopl", "ioperm", "settimeofday", "clock_settime",
	"sethostname", "setdomainname", "vhangup", "move_pages", "migrate_pages", "fanotify_init", "lookup_dcookie", "nfsservctl",
	"modify_ldt", "file_setattr", "lsm_set_self_attr", "uselib", "ustat", "sysfs", "_sysctl", "create_module",
};
/* Programs that people run stop working without these; all six arguments 0. */
static const char *const usual[] = {
	"read", "write", "openat", "open", "close", "stat", "statx", "newfstatat", "mmap", "mprotect", "brk", "clone", "fork", "vfork",
	"execve", "execveat", "exit_group", "wait4", "waitid", "futex", "futex_waitv", "rseq", "membarrier", "getrandom",
	"memfd_create", "faccessat2", "close_range", "epoll_pwait2", "pidfd_open", "pidfd_send_signal", "copy_file_range", "fchmodat2",
	"sched_setaffinity", "sched_getaffinity", "prlimit64", "setpriority", "prctl", "arch_prctl", "ioctl", "fcntl", "bind",
	"listen", "accept4", "sendmsg", "recvmsg", "inotify_init1", "io_submit", "sysinfo", "uname", "landlock_create_ruleset",
	"seccomp", "mseal", "map_shadow_stack", "set_robust_list", "timerfd_create", "signalfd4", "eventfd2", "shmget", "mq_open",
	"personality", "rt_sigreturn", "restart_syscall", "getdents64", "kill", "tgkill", "mkdir", "mkdirat", "chmod", "fchmodat",
	"mbind", "setxattrat", "pkey_alloc", "clock_nanosleep", "setsid", "unshare",
};
#define LEN(a) (sizeof(a) / sizeof((a)[0]))
/* Answered 0 without effect in a set-up box, and by the kernel in any other; all six arguments 0. */
static const char *const lies[] = {
	"chown", "fchown", "lchown", "fchownat", "setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setfsuid", "setfsgid",
	"setgroups", "capset",
};

static struct run run_one(enum sc_arch arch, const struct sc_program *p, int nr, const uint64_t args[6])
{
	struct seccomp_data d = { .nr = nr, .arch = audit_arch[arch] };

	memcpy(d.args, args, sizeof(d.args));
	return emulate(p->code, p->len, &d);
}

/* Jumps go forward and stay inside, nothing is out of reach, and the last instruction returns. */
static void check_shape(const struct sc_program *p)
{
	static bool reached[SC_PROG_MAX];

	memset(reached, 0, sizeof(reached));
	reached[0] = true;
	for (unsigned pc = 0; pc < p->len; pc++) {
		const struct sock_filter *f = &p->code[pc];
		unsigned to[2] = { pc + 1, pc + 1 };

		ck_assert_msg(reached[pc], "instruction %u can't be reached", pc);
		if (BPF_CLASS(f->code) == BPF_RET)
			continue;
		if (f->code == (BPF_JMP | BPF_JA)) {
			to[0] = to[1] = pc + 1 + f->k;
		} else if (BPF_CLASS(f->code) == BPF_JMP) {
			to[0] = pc + 1 + f->jt;
			to[1] = pc + 1 + f->jf;
		}
		for (int i = 0; i < 2; i++) {
			ck_assert_msg(to[i] > pc && to[i] < p->len, "instruction %u leaves the program", pc);
			reached[to[i]] = true;
		}
	}
}

static int compare_values(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Every constant that a program compares with once it has loaded arguments, its neighbours, and single bits. */
static size_t find_values(const struct sc_program *p, uint32_t ret[VALUES_MAX])
{
	size_t n = 0, out = 0;
	bool args = false;

	for (unsigned bit = 0; bit < 32; bit++)
		ret[n++] = 1u << bit;
	for (unsigned pc = 0; pc < p->len; pc++) {
		const struct sock_filter *f = &p->code[pc];

		args = args || (BPF_CLASS(f->code) == BPF_LD && f->k >= offsetof(struct seccomp_data, args));
		if (!args || BPF_CLASS(f->code) != BPF_JMP || f->code == (BPF_JMP | BPF_JA) || BPF_OP(f->code) == BPF_JGE)
			continue;
		ck_assert_uint_lt(n + 3, VALUES_MAX);
		ret[n++] = f->k;
		ret[n++] = f->k - 1;
		ret[n++] = f->k + 1;
	}
	qsort(ret, n, sizeof(ret[0]), compare_values);
	for (size_t i = 0; i < n; i++)
		if (out == 0 || ret[out - 1] != ret[i])
			ret[out++] = ret[i];
	return out;
}

struct subject {
	enum sc_arch arch;
	const struct sc_request *rq;
	const struct sc_program *p;
};

static struct run hold(const struct subject *s, int nr, const uint64_t args[6])
{
	struct run r = run_one(s->arch, s->p, nr, args);
	enum sc_verdict v = sc_expect(s->arch, s->rq, nr, args);

	if (r.ret != verdict_ret[v])
		ck_abort_msg("arch %d call %d (%s) args %llx %llx %llx %llx: program 0x%x, expected verdict %d", s->arch, nr,
			     sc_name(s->arch, nr) ? sc_name(s->arch, nr) : "?", (unsigned long long)args[0],
			     (unsigned long long)args[1], (unsigned long long)args[2], (unsigned long long)args[3], r.ret, v);
	return r;
}

/* Pairs of arguments over all values, the others 0 or 1, with and without garbage in the high words. */
static void hold_args(const struct subject *s, int nr, const uint32_t *values, size_t n)
{
	static const uint64_t high[] = { 0, 1ull << 32, 0xA5A5A5A500000000ull };

	for (int i = 0; i < 3; i++)
		for (int j = i + 1; j < 5; j++)
			for (size_t v = 0; v < n; v++)
				for (size_t w = 0; w < n; w++)
					for (size_t h = 0; h < LEN(high); h++) {
						uint64_t args[6] = { (v + w) % 2, 0, 0, 0, 0, 0 };

						args[i] = values[v] | high[h];
						args[j] = values[w] | (h == 1 ? 0 : high[h]);
						hold(s, nr, args);
					}
}

static void hold_sockets(const struct subject *s, int nr)
{
	static const uint64_t protocols[] = { 0, 1, 6, 17, 33, 58, 115, 132, 256, 262, 1ull << 32, (1ull << 32) | 132 };

	for (uint64_t family = 0; family < 48; family++)
		for (uint64_t type = 0; type < 16; type++)
			for (size_t i = 0; i < LEN(protocols); i++)
				for (int h = 0; h < 3; h++) {
					uint64_t args[6] = { family, type, protocols[i], 0, 0, 0 };

					args[0] |= h == 1 ? 0xdead00000000ull : 0;
					args[1] |= h == 2 ? 02004000 : 0; /* SOCK_CLOEXEC | SOCK_NONBLOCK */
					hold(s, nr, args);
				}
}

static void hold_program(enum sc_arch arch, const struct sc_request *rq, const struct sc_program *p)
{
	struct subject s = { arch, rq, p };
	uint32_t values[VALUES_MAX];
	size_t n = find_values(p, values);
	const uint64_t zero[6] = { 0 };
	int with_args = 0;

	check_shape(p);
	for (int nr = -1; nr <= 1200; nr++) {
		if (hold(&s, nr, zero).args) {
			with_args++;
			hold_args(&s, nr, values, n);
		}
		ck_assert(!hold(&s, nr == -1 ? INT32_MIN : 0x40000000 | nr, zero).args);
	}
	hold_sockets(&s, sc_number(arch, "socket"));
	hold_sockets(&s, sc_number(arch, "socketpair"));
	hold(&s, INT32_MAX, zero);
	ck_assert_int_ge(with_args, 10); /* the emulator did see argument checks */
}

static void hold_foreign(enum sc_arch arch, const struct sc_program *p)
{
	static const uint32_t foreign[] = { 0, AUDIT_ARCH_I386, AUDIT_ARCH_ARM, 0xC000003F, 0x4000003E, 0xC00000F3, 0xffffffff };

	for (int nr = -1; nr < 600; nr++) {
		struct seccomp_data d = { .nr = nr };

		for (size_t i = 0; i <= LEN(foreign); i++) {
			d.arch = i < LEN(foreign) ? foreign[i] : audit_arch[!arch];
			ck_assert_uint_eq(emulate(p->code, p->len, &d).ret, 0x80000000);
		}
	}
}

static struct sc_request variant(unsigned v)
{
	return (struct sc_request){ .untrusted = v & 1, .setup = v & 2, .hide_memfd = v & 4 };
}

static void build(enum sc_arch arch, const struct sc_request *rq, struct sc_program *p)
{
	struct err e = { 0 };

	ck_assert_msg(sc_build(arch, rq, p, &e) == 0, "%s", e.msg);
}

/* Loop test: _i counts architectures times variants. */
START_TEST(every_call_every_request)
{
	enum sc_arch arch = _i % SC_ARCH_N;
	struct sc_request rq = variant((unsigned)_i / SC_ARCH_N);
	static struct sc_program p;
	const struct sock_filter *ready;
	uint16_t len = 0;

	build(arch, &rq, &p);
	hold_program(arch, &rq, &p);
	hold_foreign(arch, &p);
	ready = sc_prebuilt(arch, &rq, &len);
	ck_assert_ptr_nonnull(ready);
	ck_assert_uint_eq(len, p.len);
	ck_assert_mem_eq(ready, p.code, len * sizeof(*ready));
	ck_assert_uint_lt(len, 300);
}
END_TEST

/* Rules on nearly every call. */
START_TEST(many_rules)
{
	enum sc_arch arch = _i;
	const char *never = "openat2 clone3 io_uring_setup io_uring_enter io_uring_register keyctl add_key request_key";
	struct box_rule rules[SC_NR_MAX];
	struct sc_request rq = { .rules = rules };
	static struct sc_program p;
	for (int nr = 0; nr < SC_NR_MAX; nr++)
		if (sc_name(arch, nr) != NULL && sc_verdict(arch, &rq, nr) != SC_END && sc_verdict(arch, &rq, nr) != SC_ARGS &&
		    (nr % 4 < 2 || !strstr(never, sc_name(arch, nr))))
			rules[rq.n_rules++] = (struct box_rule){ nr % 4 < 2 ? BOX_RULE_DENY : BOX_RULE_ALLOW, nr };
	build(arch, &rq, &p);
	ck_assert_ptr_null(sc_prebuilt(arch, &rq, &(uint16_t){ 0 }));
	hold_program(arch, &rq, &p);
}
END_TEST

/* Tables of random verdicts: trees of hundreds of ranges, which outgrow the reach of a conditional jump. */
START_TEST(random_tables)
{
	static const uint8_t verdicts[] = { SC_ENOSYS, SC_ALLOW, SC_EPERM, SC_EAFNOSUPPORT, SC_DENY, SC_END };
	struct sc_request rq = { 0 };
	const uint64_t zero[6] = { 0 };
	static struct sc_program p;
	uint8_t table[SC_NR_MAX];
	unsigned seed = (unsigned)_i + 1, far = 0;
	struct err e;

	for (int nr = 0; nr < SC_NR_MAX; nr++) {
		seed = seed * 1103515245 + 12345;
		table[nr] = verdicts[(seed >> 16) % (2 + (unsigned)_i % 5)];
	}
	ck_assert_int_eq(sc_build_table(SC_AARCH64, table, &rq, &p, &e), 0);
	check_shape(&p);
	for (int nr = -1; nr < SC_NR_MAX + 100; nr++) {
		uint8_t v = nr >= 0 && nr < SC_NR_MAX ? table[nr] : SC_ENOSYS;

		ck_assert_uint_eq(run_one(SC_AARCH64, &p, nr, zero).ret, verdict_ret[v]);
	}
	for (unsigned pc = 0; pc < p.len; pc++)
		far += p.code[pc].code == (BPF_JMP | BPF_JA);
	if (_i % 5 > 0)
		ck_assert_msg(far > 0, "%u instructions, no far jump: the test lost its subject", p.len);
}
END_TEST

/* One answer for everything is a program too. */
START_TEST(flat_table)
{
	struct sc_request rq = { 0 };
	const uint8_t table[SC_NR_MAX] = { 0 };
	const uint64_t zero[6] = { 0 };
	static struct sc_program p;
	struct err e;

	ck_assert_int_eq(sc_build_table(SC_AARCH64, table, &rq, &p, &e), 0);
	check_shape(&p);
	ck_assert_uint_eq(run_one(SC_AARCH64, &p, 5, zero).ret, verdict_ret[SC_ENOSYS]);
}
END_TEST

START_TEST(lists)
{
	enum sc_arch arch = _i % SC_ARCH_N;
	struct sc_request rq = variant((unsigned)_i / SC_ARCH_N);
	const uint64_t args[][6] = { { 0 }, { 1, 1, 1, 1, 1, 1 }, { ~0ull, ~0ull, ~0ull, ~0ull, ~0ull, ~0ull } };
	static struct sc_program p;
	bool ends[SC_NR_MAX] = { false }, lied[SC_NR_MAX] = { false };

	build(arch, &rq, &p);
	for (size_t i = 0; i < LEN(ending_set); i++) {
		int nr = sc_number(arch, ending_set[i]);

		ck_assert_msg(nr >= 0, "%s has no number", ending_set[i]);
		ends[nr] = true;
		for (size_t a = 0; a < LEN(args); a++)
			ck_assert_uint_eq(run_one(arch, &p, nr, args[a]).ret, verdict_ret[SC_END]);
	}
	for (int nr = 0; nr < SC_NR_MAX; nr++)
		ck_assert_msg((sc_verdict(arch, &rq, nr) == SC_END) == ends[nr], "call %d (%s)", nr, sc_name(arch, nr));
	for (size_t i = 0; i < LEN(critical); i++) {
		int nr = sc_number(arch, critical[i]);

		for (size_t a = 0; nr >= 0 && a < LEN(args); a++)
			ck_assert_msg(run_one(arch, &p, nr, args[a]).ret != verdict_ret[SC_ALLOW], "%s is allowed", critical[i]);
	}
	for (size_t i = 0; i < LEN(usual); i++) {
		int nr = sc_number(arch, usual[i]);
		uint32_t want = verdict_ret[rq.hide_memfd && strcmp(usual[i], "memfd_create") == 0 ? SC_ENOSYS : SC_ALLOW];

		if (nr >= 0)
			ck_assert_msg(run_one(arch, &p, nr, args[0]).ret == want, "%s is refused", usual[i]);
	}
	for (size_t i = 0; i < LEN(lies); i++) {
		int nr = sc_number(arch, lies[i]);

		for (size_t a = 0; nr >= 0 && a < LEN(args); a++)
			ck_assert_uint_eq(run_one(arch, &p, nr, args[a]).ret, verdict_ret[rq.setup ? SC_ZERO : SC_ALLOW]);
		if (nr >= 0)
			lied[nr] = true;
	}
	for (int nr = 0; nr < SC_NR_MAX; nr++)
		ck_assert_msg((run_one(arch, &p, nr, args[0]).ret == verdict_ret[SC_ZERO]) == (rq.setup && lied[nr]), "call %d (%s)", nr,
			      sc_name(arch, nr));
}
END_TEST

static uint32_t ask(enum sc_arch arch, const struct sc_program *p, const char *name, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	const uint64_t args[6] = { a, b, c, d };

	return run_one(arch, p, sc_number(arch, name), args).ret;
}

/* The checks of arguments once more, from their purpose and with the headers' own constants. */
START_TEST(arguments)
{
	static const uint32_t namespaces[] = { 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000 };
	const uint32_t allow = verdict_ret[SC_ALLOW], eperm = verdict_ret[SC_EPERM], deny = verdict_ret[SC_DENY];
	const uint64_t thread = 0x003d0f00, vfork = 0x4111, garbage = 0x7fff12340000ull;
	struct sc_request rq = { 0 };
	enum sc_arch arch = _i;
	static struct sc_program p;

	build(arch, &rq, &p);
	for (size_t i = 0; i < LEN(namespaces); i++) {
		ck_assert_uint_eq(ask(arch, &p, "clone", namespaces[i] | 17, 0, 0, 0), deny);
		ck_assert_uint_eq(ask(arch, &p, "clone", garbage << 16 | namespaces[i], 0, 0, 0), deny);
		ck_assert_uint_eq(ask(arch, &p, "unshare", namespaces[i], 0, 0, 0), deny);
	}
	ck_assert_uint_eq(ask(arch, &p, "clone", thread, garbage, 0, 0), allow);
	ck_assert_uint_eq(ask(arch, &p, "clone", vfork, 0, 0, 0), allow);
	ck_assert_uint_eq(ask(arch, &p, "unshare", 0x80, 0, 0, 0), deny); /* CLONE_NEWTIME */
	ck_assert_uint_eq(ask(arch, &p, "unshare", 0x400, 0, 0, 0), allow);
	for (uint64_t high = 0; high < 100000; high += 7) {
		ck_assert_uint_eq(ask(arch, &p, "ioctl", 0, high << 32 | 0x5412, 0, 0), eperm);
		ck_assert_uint_eq(ask(arch, &p, "ioctl", 0, high << 32 | 0x541C, 0, 0), eperm);
	}
	ck_assert_uint_eq(ask(arch, &p, "ioctl", 0, 0x5401, 0, 0), allow); /* TCGETS */
	/* What holds up others is refused; what asks for it is not, nor is another lock. */
	for (uint64_t high = 0; high < 3; high++) {
		ck_assert_uint_eq(ask(arch, &p, "fcntl", 0, high << 32 | 1024, 1, 0), eperm); /* F_SETLEASE */
		ck_assert_uint_eq(ask(arch, &p, "fcntl", 0, high << 32 | 1040, 1, 0), eperm); /* F_SETDELEG */
	}
	ck_assert_uint_eq(ask(arch, &p, "fcntl", 0, 1025, 0, 0), allow); /* F_GETLEASE */
	ck_assert_uint_eq(ask(arch, &p, "fcntl", 0, 1039, 0, 0), allow); /* F_GETDELEG */
	ck_assert_uint_eq(ask(arch, &p, "fcntl", 0, 6, garbage, 0), allow); /* F_SETLK */
	/* A mode that nothing reads may be any rubbish. */
	ck_assert_uint_eq(ask(arch, &p, "openat", 0, 0, 02000000, 06777), allow);
	ck_assert_uint_eq(ask(arch, &p, "openat", 0, 0, 0100 | 1, 0644), allow);
	ck_assert_uint_eq(ask(arch, &p, "openat", 0, 0, 0100 | 1, 04755), eperm);
	ck_assert_uint_eq(ask(arch, &p, "openat", 0, 0, garbage << 16 | 0100, garbage << 16 | 02755), eperm);
	ck_assert_uint_eq(ask(arch, &p, "openat", 0, 0, 020200000, 04600), eperm); /* O_TMPFILE */
	ck_assert_uint_eq(ask(arch, &p, "fchmodat", 0, 0, 0x10000 | 02755, 0), eperm);
	ck_assert_uint_eq(ask(arch, &p, "fchmod", 0, 01777, 0, 0), allow);
	/* Only the caller itself; a high word does not make another process of pid 0. */
	ck_assert_uint_eq(ask(arch, &p, "sched_setaffinity", 1, 8, 0, 0), eperm);
	ck_assert_uint_eq(ask(arch, &p, "sched_setaffinity", garbage << 16 | 0, 8, 0, 0), allow);
	ck_assert_uint_eq(ask(arch, &p, "prlimit64", 1, 0, garbage, 0), eperm);
	ck_assert_uint_eq(ask(arch, &p, "prlimit64", 1, 0, 1ull << 32, 0), eperm);
	ck_assert_uint_eq(ask(arch, &p, "prlimit64", 1, 0, 0, garbage), allow);
	ck_assert_uint_eq(ask(arch, &p, "prlimit64", 0, 0, garbage, 0), allow);
	ck_assert_uint_eq(ask(arch, &p, "setpriority", 0, 1, 0, 0), eperm);
	ck_assert_uint_eq(ask(arch, &p, "setpriority", 1, 0, 0, 0), eperm);
	ck_assert_uint_eq(ask(arch, &p, "setpriority", 2, 0, 0, 0), eperm);
	ck_assert_uint_eq(ask(arch, &p, "ioprio_set", 1, 1, 0, 0), eperm);
	ck_assert_uint_eq(ask(arch, &p, "ioprio_set", 1, 0, 0, 0), allow);
	ck_assert_uint_eq(ask(arch, &p, "personality", 0x0400000, 0, 0, 0), eperm);
	for (uint64_t family = 0; family < 64; family++) {
		bool usable = family == 1 || family == 2 || family == 10 || family == 16;

		ck_assert_uint_eq(ask(arch, &p, "socket", 1ull << 32 | family, 1, 0, 0),
				  verdict_ret[usable ? SC_ALLOW : SC_EAFNOSUPPORT]);
	}
	ck_assert_uint_eq(ask(arch, &p, "socket", 16, 3, 15, 0), verdict_ret[SC_EAFNOSUPPORT]);
	ck_assert_uint_eq(ask(arch, &p, "connect", 3, garbage, 16, 0), allow);
}
END_TEST

START_TEST(requests)
{
	const uint32_t allow = verdict_ret[SC_ALLOW], eperm = verdict_ret[SC_EPERM];
	struct sc_request rq = { .untrusted = true };
	enum sc_arch arch = _i;
	static struct sc_program p;

	build(arch, &rq, &p);
	ck_assert_int_eq(sc_verdict(arch, &rq, sc_number(arch, "connect")), SC_MEDIATE);
	ck_assert_uint_eq(ask(arch, &p, "connect", 3, 0, 0, 0), verdict_ret[SC_MEDIATE]);
	for (uint64_t type = 0; type < 16; type++) {
		uint32_t want = type == 1 || type == 5 ? allow : eperm;

		ck_assert_uint_eq(ask(arch, &p, "socket", 1, 02004000 | type, 0, 0), want);
		ck_assert_uint_eq(ask(arch, &p, "socketpair", 1, 02004000 | type, 0, 0), want);
	}
	ck_assert_uint_eq(ask(arch, &p, "socket", 2, 2, 0, 0), allow);

	rq = (struct sc_request){ .setup = true };
	build(arch, &rq, &p);
	ck_assert_uint_eq(ask(arch, &p, "fchmodat", 0, 0, 04755, 0), allow);
	ck_assert_uint_eq(ask(arch, &p, "openat", 0, 0, 0100, 04755), allow);
	ck_assert_uint_eq(ask(arch, &p, "mknodat", 0, 0, 0104755, 0), allow);
	for (uint64_t kind = 0; kind < 16; kind++) { /* of all kinds of node, the two of devices */
		uint32_t want = kind == 2 || kind == 6 ? verdict_ret[SC_ZERO] : allow;

		ck_assert_uint_eq(ask(arch, &p, "mknodat", 0, 0, kind << 12 | 06777, 0x103), want);
		ck_assert_uint_eq(ask(arch, &p, "mknodat", 0, 0, 0xdead0000 | kind << 12, 0x103), want);
	}

	rq = (struct sc_request){ .hide_memfd = true };
	build(arch, &rq, &p);
	ck_assert_uint_eq(ask(arch, &p, "memfd_create", 0, 0, 0, 0), verdict_ret[SC_ENOSYS]);
	ck_assert_uint_eq(ask(arch, &p, "memfd_secret", 0, 0, 0, 0), verdict_ret[SC_ENOSYS]);

	ck_assert_int_eq(sc_verdict(arch, &rq, sc_number(arch, "clone")), SC_DENY);
	ck_assert_int_eq(sc_verdict(arch, &rq, sc_number(arch, "ptrace")), SC_DENY);
	ck_assert_int_eq(sc_verdict(arch, &rq, sc_number(arch, "ioctl")), SC_ARGS);
	ck_assert_int_eq(sc_verdict(arch, &rq, -1), SC_ENOSYS);
	ck_assert_int_eq(sc_verdict(arch, &rq, SC_NR_MAX), SC_ENOSYS);
}
END_TEST

static void refuse(const char *text, const char *because)
{
	struct box_rule rule = { BOX_RULE_DENY, 12345 };
	struct err e = { 0 };

	ck_assert_msg(sc_rule_parse(text, &rule, &e) == -1, "\"%s\" is taken", text);
	ck_assert_int_eq(e.kind, ERR_USAGE);
	ck_assert_msg(strstr(e.msg, because) != NULL, "\"%s\" says: %s", text, e.msg);
	ck_assert_int_eq(rule.nr, 12345);
}

START_TEST(rules)
{
	enum sc_arch arch = sc_native();
	struct box_rule rule[3];
	struct sc_request rq = { .rules = rule, .n_rules = 3 };
	static struct sc_program p;
	struct err e;

	ck_assert_int_eq(sc_rule_parse("allow=ptrace", &rule[0], &e), 0);
	ck_assert_int_eq(sc_rule_parse("deny=socket", &rule[1], &e), 0);
	ck_assert_int_eq(sc_rule_parse("deny=process_vm_readv", &rule[2], &e), 0);
	build(arch, &rq, &p);
	ck_assert_uint_eq(ask(arch, &p, "ptrace", 0, 0, 0, 0), verdict_ret[SC_ALLOW]);
	ck_assert_uint_eq(ask(arch, &p, "socket", 1, 1, 0, 0), verdict_ret[SC_DENY]); /* to the listener, which records it */
	ck_assert_int_eq(sc_verdict(arch, &rq, sc_number(arch, "process_vm_readv")), SC_DENY); /* still recorded */
	ck_assert_int_eq(sc_verdict(arch, &rq, sc_number(arch, "process_vm_writev")), SC_DENY);

	rule[2] = (struct box_rule){ BOX_RULE_ALLOW, sc_number(arch, "socket") }; /* lifts the deny, not the check */
	build(arch, &rq, &p);
	ck_assert_uint_eq(ask(arch, &p, "socket", 1, 1, 0, 0), verdict_ret[SC_ALLOW]);
	ck_assert_uint_eq(ask(arch, &p, "socket", 40, 1, 0, 0), verdict_ret[SC_EAFNOSUPPORT]);

	refuse("allow=mount", "escape set");
	refuse("allow=bpf", "escape set");
	refuse("allow=ioctl", "already allowed");
	refuse("allow=clone", "already allowed");
	refuse("allow=clone3", "goes round");
	refuse("allow=openat2", "goes round");
	refuse("allow=io_uring_setup", "goes round");
	refuse("deny=execve", "every program needs");
	refuse("deny=exit_group", "every program needs");
	refuse("allow=no_such_call", "has that name");
	refuse("allow=", "has that name");
	refuse("ptrace", "allow=NAME");
	refuse("permit=ptrace", "allow=NAME");
	refuse("", "allow=NAME");

	rq.n_rules = 1;
	rule[0] = (struct box_rule){ BOX_RULE_ALLOW, sc_number(arch, "mount") };
	ck_assert_int_eq(sc_build(arch, &rq, &p, &e), -1);
	ck_assert_int_eq(e.kind, ERR_REFUSED);
	rule[0].nr = SC_NR_MAX + 5;
	ck_assert_int_eq(sc_build(arch, &rq, &p, &e), -1);
	rule[0].nr = sc_number(arch, "io_uring_enter");
	ck_assert_int_eq(sc_build(arch, &rq, &p, &e), -1);
	rq.untrusted = true;
	rule[0].nr = sc_number(arch, "connect"); /* no rule lifts the mediation */
	build(arch, &rq, &p);
	ck_assert_uint_eq(ask(arch, &p, "connect", 0, 0, 0, 0), verdict_ret[SC_MEDIATE]);
	rq = (struct sc_request){ .hide_memfd = true, .rules = rule, .n_rules = 1 };
	rule[0].nr = sc_number(arch, "memfd_create");
	ck_assert_int_eq(sc_build(arch, &rq, &p, &e), -1);
}
END_TEST

/* Numbers against the C library's headers for this machine, and a few of the other one written out. */
START_TEST(names)
{
	enum sc_arch arch = sc_native();

	ck_assert_int_eq(sc_number(arch, "openat"), SYS_openat);
	ck_assert_int_eq(sc_number(arch, "mount"), SYS_mount);
	ck_assert_int_eq(sc_number(arch, "clone"), SYS_clone);
	ck_assert_int_eq(sc_number(arch, "clone3"), SYS_clone3);
	ck_assert_int_eq(sc_number(arch, "bpf"), SYS_bpf);
	ck_assert_int_eq(sc_number(arch, "ioctl"), SYS_ioctl);
	ck_assert_int_eq(sc_number(arch, "prlimit64"), SYS_prlimit64);
	ck_assert_int_eq(sc_number(SC_AARCH64, "openat"), 56);
	ck_assert_int_eq(sc_number(SC_AARCH64, "mount"), 40);
	ck_assert_int_eq(sc_number(SC_AARCH64, "clone"), 220);
	ck_assert_int_eq(sc_number(SC_AARCH64, "open"), -1);
	ck_assert_int_eq(sc_number(SC_AARCH64, "mseal"), 462);
	ck_assert_int_eq(sc_number(arch, ""), -1);
	ck_assert_ptr_null(sc_name(arch, -1));
	ck_assert_ptr_null(sc_name(arch, SC_NR_MAX));
	for (int a = 0; a < SC_ARCH_N; a++)
		for (int nr = 0; nr < SC_NR_MAX; nr++)
			if (sc_name((enum sc_arch)a, nr) != NULL)
				ck_assert_int_eq(sc_number((enum sc_arch)a, sc_name((enum sc_arch)a, nr)), nr);
}
END_TEST

static void fill(TCase *t)
{
	tcase_add_loop_test(t, every_call_every_request, 0, SC_ARCH_N * 8);
	tcase_add_loop_test(t, many_rules, 0, SC_ARCH_N);
	tcase_add_loop_test(t, random_tables, 0, 100);
	tcase_add_test(t, flat_table);
	tcase_add_loop_test(t, lists, 0, SC_ARCH_N * 8);
	tcase_add_loop_test(t, arguments, 0, SC_ARCH_N);
	tcase_add_loop_test(t, requests, 0, SC_ARCH_N);
	tcase_add_test(t, rules);
	tcase_add_test(t, names);
}

int main(void)
{
	return unit_main("seccomp", fill);
}
