/* Inside the seccomp files only: the classes that stand in the table of call numbers, and the
 * generated data.
 *
 * A class is either a verdict (its number is the verdict's) or the name of a check whose verdict
 * depends on the request or on the call's arguments. One byte a call, so the table of one
 * architecture is 512 bytes of constant data. */
#pragma once

#include "box/seccomp.h"
#include "box/spec.h"

enum sc_class {
	/* 0 .. SC_VERDICT_N - 1: that verdict, whatever the arguments. */
	SC_CLASS_FIRST = SC_VERDICT_N,
	/* The request decides; sc_class_of() turns these into one of the others. */
	SC_IF_CONNECT = SC_CLASS_FIRST, /* mediated under the untrusted profile, else allowed */
	SC_IF_MEMFD,			/* hidden under supervised limits, else allowed */
	SC_IF_MEMFD_FLAGS,		/* the same, and then its flags are looked at */
	SC_IF_SETUP,			/* in a set-up box a lie, else allowed */
	/* The arguments decide. */
	SC_ARG_CLONE,	/* no namespace flags in argument 0 */
	SC_ARG_UNSHARE, /* nothing but FILES, FS, SYSVSEM */
	SC_ARG_IOCTL,	/* not the terminal requests that reach other processes or load line
			   disciplines */
	SC_ARG_SOCKET,	/* families, and protocols within them */
	SC_ARG_SOCKET_CONNECTED, /* the same under untrusted: unix sockets of connected types only
				  */
	SC_ARG_SOCKETPAIR,	 /* unix only */
	SC_ARG_SOCKETPAIR_CONNECTED,
	SC_ARG_PERSONALITY, /* a few harmless values */
	SC_ARG_MODE1,	    /* no set-id bits in a mode at argument 1 */
	SC_ARG_MODE2,	    /* ... at argument 2 */
	SC_ARG_OPEN1,	    /* flags at 1, mode at 2, which counts only when the flags create */
	SC_ARG_OPEN2,	    /* flags at 2, mode at 3 */
	SC_ARG_MKNOD1,	    /* no device and no set-id bits in a mode at argument 1 */
	SC_ARG_MKNOD2,	    /* ... at argument 2 */
	SC_ARG_MKNOD_LIE1,  /* a device in a mode at argument 1 is a lie */
	SC_ARG_MKNOD_LIE2,  /* ... at argument 2 */
	SC_ARG_SELF,	    /* argument 0 is pid 0: the caller itself */
	SC_ARG_PRLIMIT,	    /* the same, or nothing is set */
	SC_ARG_SETPRIORITY, /* PRIO_PROCESS of 0 */
	SC_ARG_IOPRIO,	    /* IOPRIO_WHO_PROCESS of 0 */
	SC_ARG_FCNTL,	    /* no leases */
	SC_ARG_RENAME,	    /* leaves no whiteout, which is a device node */
	SC_ARG_MMAP,	    /* no pages of the machine's pool of huge ones */
	SC_ARG_MEMFD,	    /* the same */
	SC_ARG_SETSOCKOPT,  /* no program for the kernel to compile */
	SC_CLASS_N
};

/* Values of the kernel's interface that the checks compare with. Written out, because one program
 * is built for two architectures and not by the target's headers; they are the same on both
 * (include/uapi/asm-generic and linux). */
#define SC_NS_FLAGS                                                                                \
	0x7E020000u /* CLONE_NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET. NEWTIME is no    \
		       flag of clone(2) */
#define SC_UNSHARE_OK 0x00040600u   /* CLONE_FS, CLONE_FILES, CLONE_SYSVSEM */
#define SC_SETID_BITS 06000u	    /* S_ISUID, S_ISGID */
#define SC_DEVICE_BIT 020000u	    /* of S_IFCHR and S_IFBLK, and of no other kind of node */
#define SC_OPEN_CREATES 0x00400040u /* O_CREAT, __O_TMPFILE */
#define SC_X32_BIT 0x40000000u

/* One group of calls by name, in seccomp_policy.c; only the generator links it. */
struct sc_group {
	uint8_t class;
	const char *names; /* separated by blanks */
};
extern const struct sc_group sc_groups[];
extern const size_t sc_n_groups;

/* Generated when cloche is built (seccomp_gen.c). */
struct sc_prebuilt_program {
	const struct sock_filter *code;
	uint16_t len;
};
#define SC_VARIANTS 8 /* index: untrusted | setup << 1 | hide_memfd << 2 */
extern const uint8_t sc_table[SC_ARCH_N][SC_NR_MAX];
extern const char sc_name_text[]; /* names, each ended by NUL; offset 0 is "" */
extern const uint16_t sc_name_at[SC_ARCH_N]
				[SC_NR_MAX]; /* offset into sc_name_text, 0: no such call */
extern const struct sc_prebuilt_program sc_programs[SC_ARCH_N][SC_VARIANTS];

static inline unsigned sc_variant(const struct sc_request *rq)
{
	return rq->untrusted | rq->setup << 1 | rq->hide_memfd << 2;
}

/* The class of call `nr` (any value) under a request, rules included; never an SC_IF_ one. */
uint8_t sc_class_of(const uint8_t table[SC_NR_MAX], const struct sc_request *rq, int64_t nr);
/* The builder behind sc_build. */
int sc_build_table(enum sc_arch arch, const uint8_t table[SC_NR_MAX], const struct sc_request *rq,
		   struct sc_program *ret, struct err *e);
