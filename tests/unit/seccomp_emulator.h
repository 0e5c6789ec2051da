/* The kernel's machine for classic filters, for tests. */
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <string.h>

#define PATH_MAX_STEPS 48 /* instructions on the longest way through a program */

struct run {
	uint32_t ret;
	bool args; /* an argument was looked at */
};

/* The kernel's rules for one run of a classic filter; stops the test on anything a program of ours must not have. */
static struct run emulate(const struct sock_filter *code, unsigned len, const struct seccomp_data *d)
{
	struct run r = { 0 };
	uint32_t a = 0, word;
	unsigned steps = 0;

	for (unsigned pc = 0; pc < len; pc++) {
		const struct sock_filter *f = &code[pc];

		if (++steps > PATH_MAX_STEPS)
			ck_abort_msg("call %d: longer than %d steps", d->nr, PATH_MAX_STEPS);
		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (f->k % 4 != 0 || f->k + 4 > sizeof(*d))
				ck_abort_msg("load at %u", f->k);
			memcpy(&word, (const char *)d + f->k, sizeof(word));
			a = word;
			r.args = r.args || f->k >= offsetof(struct seccomp_data, args);
			break;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= f->k;
			break;
		case BPF_JMP | BPF_JA:
			pc += f->k;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += a == f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += a >= f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += (a & f->k) != 0 ? f->jt : f->jf;
			break;
		case BPF_RET | BPF_K:
			r.ret = f->k;
			return r;
		default:
			ck_abort_msg("instruction %u has code 0x%x", pc, f->code);
		}
	}
	ck_abort_msg("call %d: ran off the end", d->nr);
	return r;
}
