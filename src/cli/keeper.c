/* A keeper: one call of a sandbox, from its words to its outcome. It owns its box as `cloche run`
 * owns its one, by the same code; what it adds is the control socket. It never waits for the loop:
 * whoever does not read what a keeper says is taken for gone. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sealed.h"
#include "box/launch.h"
#include "cli/outcome_json.h"
#include "cli/outcome_notes.h"
#include "cli/spawn.h"
#include "cli/title.h"
#include "engine/env.h"
#include "session/changes.h"
#include "session/runner.h"

#define OUTCOME_MAX (16u << 20)
#define CHANGES_MAX (256u << 20)

struct keeper {
	struct box_owner owner; /* first: it is what the box knows of a keeper */
	struct prepared *p;
	const struct run_options *o;
	struct spawn_call c;
	struct spawn_fds f;
	struct box_io io;
	struct ses_changes *changes;
	int held;      /* the workspace in memory, to track its changes; else -1 */
	int workspace; /* while its changes are tracked */
	size_t notes_from;
	bool claimed;
};

static struct keeper *keeper_of(struct box_owner *owner)
{
	return (struct keeper *)owner;
}

static struct box_order keeper_take(struct box_owner *owner)
{
	struct spawn_order o;
	ssize_t n = fd_recv(owner->fd, &o, sizeof(o), NULL, 0, NULL);

	if (n < 0 && (errno == EAGAIN || errno == ENOMEM || errno == ENOBUFS))
		return (struct box_order){ .kind = BOX_ORDER_NONE };
	if (n == sizeof(o) && o.kind == SPAWN_SIGNAL)
		return (struct box_order){ .kind = BOX_ORDER_SIGNAL, .sig = o.sig };
	if (n == sizeof(o) && o.kind == SPAWN_RESIZE)
		return (struct box_order){ .kind = BOX_ORDER_RESIZE,
					   .size = { .ws_row = o.rows, .ws_col = o.cols } };
	if (n == sizeof(o) && o.kind == SPAWN_CONNECT)
		return (struct box_order){ .kind = BOX_ORDER_CONNECT,
					   .port = o.port,
					   .tag = o.tag };
	return (struct box_order){ .kind = BOX_ORDER_CANCEL };
}

static void tell(const struct box_owner *owner, const struct spawn_event *ev, const int *fds,
		 size_t n)
{
	if (fd_send(owner->fd, ev, sizeof(*ev), fds, n) < 0)
		(void)shutdown(owner->fd, SHUT_RD); /* read as a hang-up, with all that follows */
}

static void keeper_started(struct box_owner *owner)
{
	tell(owner, &(struct spawn_event){ .kind = SPAWN_STARTED }, NULL, 0);
}

static void keeper_connected(struct box_owner *owner, uint64_t tag, int fd, int num)
{
	const struct spawn_event ev = { .kind = SPAWN_CONNECTED, .tag = tag, .num = num };

	tell(owner, &ev, &fd, fd >= 0);
}

static int take_words(struct keeper *k, struct err *e)
{
	struct box_spec *s = &k->p->spec;
	struct spawn_words w;

	if (spawn_words_read(k->f.words, &w, e) < 0)
		return -1;
	for (size_t i = 0; i < w.envc; i++)
		if (env_add(k->p, w.env[i], e) < 0)
			return -1;
	if (k->c.flags & SPAWN_PTY && !env_has(k->p, "TERM") && env_add(k->p, "TERM=xterm", e) < 0)
		return -1;
	if (w.cwd && request_cwd(k->p, w.cwd, e) < 0)
		return -1;
	if (k->c.flags & SPAWN_CODE)
		s->argv = runner_argv(k->c.language);
	else if (w.argc > 0)
		s->argv = w.argv;
	else
		return err_set(e, ERR_USAGE, "no command");
	return 0;
}

/* What this box gets of what those of its sandbox share. */
static void take_mounts(struct keeper *k, const struct holder holders[2])
{
	struct box_spec *s = &k->p->spec;

	s->n_shared = 0; /* an earlier box has used them up */
	s->workspace_mount = -1;
	for (int i = 0; i < 2; i++)
		holder_lend(&holders[i], s);
	fd_close(&k->held);
	if (s->workspace_mount >= 0)
		k->held = openat(s->workspace_mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Whoever asked to hear of changes hears why there is nothing to hear. */
static void track_begin(struct keeper *k)
{
	const struct box_spec *s = &k->p->spec;
	struct err e;

	for (size_t i = 0; i < s->n_mounts && k->c.flags & SPAWN_TRACK; i++) {
		if (!s->mounts[i].workspace)
			continue;
		k->workspace =
			s->workspace_size ? fd_steal(&k->held) : mount_open_checked(&s->mounts[i]);
		if (k->workspace < 0)
			err_sys(&e, "%s", s->mounts[i].src);
		else if (ses_changes_begin(k->workspace, &k->changes, &e) == 0)
			return;
		err_prefix(&e, "changed files are not told");
		outcome_note(k->p, e.msg);
	}
}

static int track_end(struct keeper *k)
{
	_cleanup_buf_ struct buf text = { 0 };
	uint64_t cut = 0;
	struct json j;
	struct err e;
	int fd = -1, r;

	if (!k->changes)
		return -1;
	buf_init(&text, CHANGES_MAX);
	json_init(&j, &text);
	json_obj(&j);
	json_key(&j, "files");
	r = ses_changes_end(k->changes, &j, &cut, &e);
	json_ku64(&j, "cut", cut);
	json_obj_end(&j);
	if (r == 0 && text.failed)
		r = err_set(&e, ERR_SYS, "there are too many");
	if (r == 0)
		r = spawn_memfd("changes", text.data, text.len, &fd, &e);
	if (r == 0)
		return fd;
	err_prefix(&e, "changed files are not told");
	outcome_note(k->p, e.msg);
	return -1;
}

/* The outcome goes out before the box's groups are taken down: nobody waits for that. */
static void keeper_over(struct box_owner *owner, const struct box_outcome *out)
{
	struct keeper *k = keeper_of(owner);
	const struct outcome_show show = { .timing = k->o->timing,
					   .queued_us = k->c.queued_us,
					   .notes_from = k->notes_from };
	_cleanup_buf_ struct buf text = { 0 };
	int fds[2];
	struct err e;

	outcome_notes(k->p, out, true);
	fds[0] = -1;
	fds[1] = track_end(k);
	buf_init(&text, OUTCOME_MAX);
	outcome_json(k->p, out, &show, &text);
	if (!text.failed && spawn_memfd("outcome", text.data, text.len, &fds[0], &e) == 0)
		tell(&k->owner, &(struct spawn_event){ .kind = SPAWN_OUTCOME }, fds,
		     fds[1] < 0 ? 1 : 2);
	fd_close(&fds[0]);
	fd_close(&fds[1]);
	fd_close(&k->owner.fd);
	/* What follows can wait, and the loop was woken on this very processor as often as not. */
	(void)sched_yield();
}

static int hand_over(struct keeper *k, struct box_claim *ret, struct err *e)
{
	const struct box_spec *s = &k->p->spec;
	char *const dir[] = { (char *)(uintptr_t)s->cwd, NULL };
	char *const *const lists[] = { s->argv, s->env, dir };

	if (sealed_words_make(lists, 3, BOX_WORDS_MAX, &ret->words, e) < 0)
		return -1;
	ret->code = fd_steal(&k->f.code);
	if (k->c.flags & SPAWN_PTY) {
		k->io.in = fd_steal(&k->f.in);
		k->io.out = fd_steal(&k->f.out);
		return 1;
	}
	ret->in = fd_steal(&k->f.in);
	ret->out = fd_steal(&k->f.out);
	ret->err = fd_steal(&k->f.err);
	return 1;
}

static int keeper_claim(struct box_owner *owner, struct box_claim *ret, struct err *e)
{
	struct keeper *k = keeper_of(owner);
	struct box_spec *s = &k->p->spec;
	int r = spawn_recv_call(owner->fd, &k->c, &k->f);

	if (r <= 0)
		return 0;
	k->claimed = true;
	fd_close(&owner->fd);
	owner->fd = fd_steal(&k->f.control);
	fcntl(owner->fd, F_SETFL, O_NONBLOCK);
	s->tty = k->c.flags & SPAWN_PTY;
	s->interactive = k->c.flags & SPAWN_STDIN;
	k->io.size = (struct winsize){ .ws_row = k->c.rows, .ws_col = k->c.cols };
	if (k->c.timeout_us != SPAWN_TIMEOUT_OWN)
		s->limits.timeout_us = k->c.timeout_us;
	r = take_words(k, e);
	fd_close(&k->f.words);
	if (r < 0) {
		err_at(e, STAGE_SPEC);
		return -1;
	}
	track_begin(k);
	return hand_over(k, ret, e) < 0 ? err_at(e, STAGE_COMMAND) : 1;
}

/* Of a call for which no box could be built. */
static void tell_why(struct keeper *k, struct box_outcome *out)
{
	struct box_claim none;
	struct err e;
	int r = keeper_claim(&k->owner, &none, &e);

	if (r < 0)
		outcome_refused(out, &e);
	if (r != 0)
		keeper_over(&k->owner, out);
}

_Noreturn void keeper_main(struct prepared *p, const struct run_options *o,
			   const struct holder holders[2], int claims)
{
	static struct box_outcome out;
	struct keeper k = { .owner = { .fd = claims,
				       .claim = keeper_claim,
				       .take = keeper_take,
				       .started = keeper_started,
				       .connected = keeper_connected,
				       .over = keeper_over },
			    .p = p,
			    .o = o,
			    .f = { -1, -1, -1, -1, -1, -1 },
			    .io = { .in = -1,
				    .out = -1,
				    .err = -1,
				    .title = cli_title.start,
				    .title_len = cli_title.len },
			    .held = -1,
			    .workspace = -1,
			    .notes_from = p->n_notes };
	struct pollfd wait = { .fd = claims, .events = POLLIN };
	struct err e;

	signal(SIGPIPE, SIG_IGN);
	p->spec.takes_code = true;
	k.io.owner = &k.owner;
	/* What could not be built ahead may be possible by the time that somebody asks for it: that
	 * box says why it is not. */
	for (int i = 0; i < BOX_RUNS_MAX && !k.claimed; i++) {
		if (i > 0 && poll(&wait, 1, -1) < 0)
			break;
		take_mounts(&k, holders);
		if (box_run(&p->spec, &k.io, &out, &e) < 0 || out.fault == FAULT_CANCELLED)
			_exit(0);
	}
	if (!k.claimed)
		tell_why(&k, &out);
	_exit(0);
}
