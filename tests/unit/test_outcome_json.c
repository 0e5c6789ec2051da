/* The outcome as JSON, read back by a strict parser written here: names and types of all fields, null for what is unknown, and that no byte a box
 * chose makes it anything but one line of valid JSON. */
#include "unit.h"

#include <sys/mman.h>

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "box/seccomp.h"
#include "cli/outcome_json.h"

/* ---- the parser: a flat list of paths ("limits.memory.rung", "denied.0.what") and the text of each scalar ---- */

struct item {
	char path[96];
	const char *raw;
	size_t len;
};
static struct item items[800];
static size_t n_items;
static const char *at, *end;

static void bad(const char *why)
{
	ck_abort_msg("no JSON: %s at \"%.40s\"", why, at);
}

static char peek(void)
{
	return at < end ? *at : '\0';
}

static void eat(char c)
{
	if (peek() != c)
		bad("something else is due");
	at++;
}

static void string(void)
{
	eat('"');
	while (peek() != '"') {
		uint32_t cp;
		size_t n;

		if (at >= end || (unsigned char)*at < 0x20 || *at == 0x7f)
			bad("control character in a string");
		if (*at != '\\') {
			n = str_utf8(at, (size_t)(end - at), &cp);
			if (cp == STR_INVALID)
				bad("no UTF-8");
			at += n;
			continue;
		}
		at++;
		if (peek() == 'u')
			for (int i = 0; i < 4; i++) {
				at++;
				if (!peek() || !strchr("0123456789abcdefABCDEF", peek()))
					bad("escape");
			}
		else if (!peek() || !strchr("\"\\/bfnrt", peek()))
			bad("escape");
		at++;
	}
	at++;
}

static void number(void)
{
	const char *from = at;

	if (peek() == '-')
		at++;
	if (peek() == '0' && at[1] >= '0' && at[1] <= '9')
		bad("leading zero");
	while ((peek() >= '0' && peek() <= '9') || peek() == '.')
		at++;
	if (at == from || at[-1] == '.' || at[-1] == '-')
		bad("number");
}

static void value(const char *path);

static void members(const char *path, char close)
{
	char child[96], name[48];
	unsigned i = 0;

	for (at++; peek() != close || i; i++) {
		if (i && peek() == close)
			break;
		if (i)
			eat(',');
		if (close == '}') {
			const char *from = at + 1;

			string();
			snprintf(name, sizeof(name), "%.*s", (int)(at - 1 - from), from);
			eat(':');
		} else {
			snprintf(name, sizeof(name), "%u", i);
		}
		snprintf(child, sizeof(child), "%s%s%s", path, *path ? "." : "", name);
		for (size_t k = 0; k < n_items; k++)
			ck_assert_msg(strcmp(items[k].path, child) != 0, "%s twice", child);
		value(child);
	}
	at++;
}

static void value(const char *path)
{
	struct item *it = &items[n_items++];
	static const char *const words[] = { "null", "true", "false" };

	ck_assert_uint_lt(n_items, sizeof(items) / sizeof(items[0]));
	snprintf(it->path, sizeof(it->path), "%s", path);
	it->raw = at;
	if (peek() == '{' || peek() == '[') {
		members(path, peek() == '{' ? '}' : ']');
	} else if (peek() == '"') {
		string();
	} else if (peek() == '-' || (peek() >= '0' && peek() <= '9')) {
		number();
	} else {
		const char *from = at;

		for (size_t i = 0; i < 3 && at == from; i++)
			if ((size_t)(end - at) >= strlen(words[i]) && memcmp(at, words[i], strlen(words[i])) == 0)
				at += strlen(words[i]);
		if (at == from)
			bad("value");
	}
	it->len = (size_t)(at - it->raw);
}

/* ---- */

static struct box_outcome o;
static struct prepared p;
static bool timing;
static struct buf out;

static void emit(void)
{
	buf_free(&out);
	buf_init(&out, 8 << 20);
	outcome_json(&p, &o, &(struct outcome_show){ .streams = true, .timing = timing }, &out);
	ck_assert(!out.failed);
	ck_assert_uint_eq(strlen(out.data), out.len);
	ck_assert_ptr_eq(strchr(out.data, '\n'), out.data + out.len - 1);
	n_items = 0;
	at = out.data;
	end = out.data + out.len - 1;
	value("");
	ck_assert_ptr_eq(at, end);
}

static const char *raw(const char *path)
{
	static char text[8][400];
	static unsigned next;
	char *s = text[next++ % 8];

	for (size_t i = 0; i < n_items; i++)
		if (strcmp(items[i].path, path) == 0) {
			snprintf(s, sizeof(text[0]), "%.*s", (int)items[i].len, items[i].raw);
			return s;
		}
	return NULL;
}

static void is(const char *path, const char *want)
{
	const char *got = raw(path);

	ck_assert_msg((got == NULL) == (want == NULL) && (!want || strcmp(got, want) == 0), "%s is %s, not %s", path, got ? got : "absent",
		      want ? want : "absent");
}

static void stream(struct box_stream *s, const char *head, size_t head_len, const char *tail, size_t tail_len, uint64_t cut)
{
	if (s->data)
		munmap(s->data, s->mapped);
	*s = (struct box_stream){ .mapped = head_len + tail_len + 1, .len = head_len + tail_len, .head_len = head_len, .cut = cut };
	s->data = mmap(NULL, s->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(s->data, MAP_FAILED);
	memcpy(s->data, head, head_len);
	memcpy(s->data + head_len, tail, tail_len);
}

static void setup(void)
{
	o = (struct box_outcome){ .exit_code = 3, .wall_us = 12345, .start_us = 4000 };
	p = (struct prepared){ 0 };
	timing = false;
	for (int i = 0; i < LIMIT_N; i++)
		o.limits[i] = (struct limit_state){ BOX_LIMIT_NONE, BOX_LIMIT_NONE, "none", false };
}

static void teardown(void)
{
	outcome_free(&o);
	buf_free(&out);
}

static const char *const top[] = { "exit_code", "signal", "stdout", "stderr", "fault", "duration_ms", "truncated", "stdout_cut", "stderr_cut", "usage",
				   "limits", "image", "events", "denied", "notes" };

START_TEST(every_field_is_there)
{
	unsigned tops = 0;
	char path[96];

	emit();
	for (size_t i = 0; i < sizeof(top) / sizeof(top[0]); i++)
		ck_assert_msg(raw(top[i]), "%s", top[i]);
	for (size_t i = 0; i < n_items; i++)
		tops += items[i].path[0] && !strchr(items[i].path, '.');
	ck_assert_uint_eq(tops, sizeof(top) / sizeof(top[0]));
	for (int i = 0; i < LIMIT_N; i++)
		for (int k = 0; k < 4; k++) {
			snprintf(path, sizeof(path), "limits.%s.%s", limit_name((enum limit_name)i),
				 ((const char *[]){ "requested", "effective", "rung", "enforced" })[k]);
			ck_assert_msg(raw(path), "%s", path);
		}
	is("exit_code", "3");
	is("signal", "null");
	is("stdout", "\"\"");
	is("stdout_b64", NULL);
	is("fault", "null");
	is("duration_ms", "12.345");
	is("truncated", "false");
	is("stdout_cut", "null");
	is("stderr_cut", "null");
	is("denied", "[]");
	is("notes", "[]");
	is("timing_us", NULL);
	is("usage.queued_us", "0");
	is("usage.wall_us", "12345");
	is("usage.start_us", "4000");
}
END_TEST

START_TEST(unknown_is_null)
{
	static const char *const numbers[] = { "cpu_user_us", "cpu_sys_us", "memory_peak_bytes", "pids_peak", "read_bytes", "written_bytes" };
	char path[64];

	memset(&o.usage, 0xff, sizeof(o.usage));
	o.usage.filled_by[0] = '\0';
	emit();
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		snprintf(path, sizeof(path), "usage.%s", numbers[i]);
		is(path, "null");
	}
	is("events.pids_max", "null");
	is("events.oom_kills", "null");
	o.usage = (struct limit_usage){ 1, 2, 3, 4, 5, 6, 7, 8, "" };
	emit();
	is("usage.memory_peak_bytes", "1");
	is("usage.pids_peak", "2");
	is("events.pids_max", "3");
	is("events.oom_kills", "4");
	is("usage.cpu_user_us", "5");
	is("usage.cpu_sys_us", "6");
	is("usage.read_bytes", "7");
	is("usage.written_bytes", "8");
}
END_TEST

/* What never ran has no code and no numbers; a refused request has no limits either. */
START_TEST(nothing_ran)
{
	char path[64];

	o = (struct box_outcome){ .fault = FAULT_STARTUP_FAILED, .exit_code = -1 };
	memset(&o.usage, 0xff, sizeof(o.usage));
	err_set(&o.err, ERR_MISSING, "no such image");
	err_at(&o.err, STAGE_IMAGE);
	emit();
	is("exit_code", "null");
	is("fault.type", "\"startup_failed\"");
	is("fault.message", "\"no such image\"");
	is("fault.stage", "\"image\"");
	is("usage.wall_us", "null");
	is("usage.start_us", "null");
	is("usage.memory_peak_bytes", "null");
	is("duration_ms", "0");
	for (int i = 0; i < LIMIT_N; i++)
		for (int k = 0; k < 3; k++) {
			snprintf(path, sizeof(path), "limits.%s.%s", limit_name((enum limit_name)i),
				 ((const char *[]){ "requested", "effective", "rung" })[k]);
			is(path, "null");
		}
	o.err.stage = STAGE_NONE; /* a stage is always told */
	emit();
	is("fault.stage", "\"spec\"");
}
END_TEST

START_TEST(faults)
{
	static const struct {
		enum box_fault fault;
		const char *limit, *stage, *syscall, *code;
	} rows[] = {
		{ FAULT_TIMEOUT, "\"timeout\"", NULL, NULL, "124" },      { FAULT_OOM, "\"memory\"", NULL, NULL, "137" },
		{ FAULT_WORKSPACE_FULL, "\"workspace_max\"", NULL, NULL, "137" }, { FAULT_ESCAPE_BLOCKED, NULL, NULL, "\"mount\"", "159" },
		{ FAULT_KILLED, NULL, NULL, NULL, "137" },                { FAULT_INIT_LOST, NULL, NULL, NULL, "125" },
		{ FAULT_EXEC_FAILED, NULL, NULL, NULL, "127" },           { FAULT_STARTUP_FAILED, NULL, "\"mount\"", NULL, "null" },
		{ FAULT_CANCELLED, NULL, NULL, NULL, "130" },
	};
	char type[64];

	ck_assert_uint_eq(sizeof(rows) / sizeof(rows[0]), FAULT_N - 1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		o.fault = rows[i].fault;
		o.exit_code = -1;
		err_set(&o.err, ERR_SYS, "why");
		err_at(&o.err, STAGE_MOUNT);
		o.n_denied = 2;
		o.denied[0] = (struct box_denied){ .nr = sc_number(sc_native(), "ptrace"), .pid = 5, .comm = "gdb" };
		o.denied[1] = (struct box_denied){ .nr = sc_number(sc_native(), "mount"), .pid = 6, .ended = true, .comm = "evil" };
		emit();
		snprintf(type, sizeof(type), "\"%s\"", fault_name(rows[i].fault));
		is("fault.type", type);
		is("fault.message", "\"why\"");
		is("fault.limit", rows[i].limit);
		is("fault.stage", rows[i].stage);
		is("fault.syscall", rows[i].syscall);
		is("fault.comm", rows[i].syscall ? "\"evil\"" : NULL);
		is("fault.filled_by", rows[i].fault == FAULT_OOM ? "null" : NULL);
		is("exit_code", rows[i].code);
	}
	o.fault = FAULT_OOM;
	strcpy(o.usage.filled_by, "shm");
	emit();
	is("fault.filled_by", "\"shm\"");
}
END_TEST

START_TEST(denials)
{
	const uint8_t deny = SC_DENY;

	o.n_denied = 4;
	o.lost_denials = 4;
	o.unlisted_denials = 5;
	o.denied[0] = (struct box_denied){
		.nr = sc_number(sc_native(), "chroot"), .pid = 5, .comm = "gd\x1b", .alone = deny, .count = 7
	};
	o.denied[1] = (struct box_denied){ .nr = -1, .count = 1 };
	o.denied[2] = (struct box_denied){ .nr = sc_number(sc_native(), "unshare"), .pid = 2147483647, .comm = "bwrap", .alone = deny };
	o.denied[3] = (struct box_denied){ .nr = sc_number(sc_native(), "connect"), .alone = SC_MEDIATE, .mount = -1, .path = "/s\x1b" };
	p.spec.profile = BOX_PROFILE_DEFAULT;
	p.mounts.denied[0] = (struct denial){ .kind = DENIAL_MOUNT, .policy = "/etc", .what = "-v /etc:/x", .path = "/etc", .reason = "why" };
	p.mounts.denied[1] = (struct denial){
		.kind = DENIAL_READ, .policy = "not shared", .what = "x", .path = "/x", .allow_with = "-v /x:/x:ro"
	};
	p.mounts.n_denied = 2;
	emit();
	is("denied.0.kind", "\"syscall\"");
	is("denied.0.policy", "\"filter\"");
	is("denied.0.what", "\"chroot\"");
	is("denied.0.path", NULL);
	is("denied.0.pid", "5");
	is("denied.0.comm", "\"gd?\"");
	is("denied.0.count", "7");
	is("denied.0.allow_with", "\"--seccomp-rule allow=chroot\"");
	is("denied.0.reason", "null");
	is("denied.1.policy", "\"capability\"");
	is("denied.1.allow_with", "\"--cap-add SYS_CHROOT\"");
	is("denied.2.what", "null");
	is("denied.2.comm", "\"\"");
	is("denied.2.allow_with", "null");
	is("denied.2.reason", "\"a signal took its record away\"");
	is("denied.3.what", "\"unshare\"");
	is("denied.3.pid", "2147483647");
	is("denied.3.allow_with", "null");
	is("denied.4.policy", "\"mount\"");
	is("denied.4.path", "\"/s\\u001b\"");
	is("denied.5.kind", "\"mount\"");
	is("denied.5.policy", "\"/etc\"");
	is("denied.5.what", "\"-v /etc:/x\"");
	is("denied.5.pid", NULL);
	is("denied.5.allow_with", "null");
	is("denied.5.reason", "\"why\"");
	is("denied.6.kind", "\"read\"");
	is("denied.6.path", "\"/x\"");
	is("denied.6.allow_with", "\"-v /x:/x:ro\"");
	is("denied.7", NULL);
	is("events.lost_denials", "4");
	is("events.unlisted_denials", "5");
}
END_TEST

START_TEST(as_many_denials_as_there_are)
{
	o.n_denied = BOX_DENIED_MAX;
	for (int i = 0; i < BOX_DENIED_MAX; i++) {
		o.denied[i] = (struct box_denied){ .nr = i, .pid = i, .alone = SC_EPERM, .count = UINT64_MAX - 1 };
		memset(o.denied[i].comm, '\x1b', 15);
	}
	emit();
	ck_assert_ptr_nonnull(raw("denied.63.comm"));
}
END_TEST

START_TEST(limit_rows)
{
	o.limits[LIMIT_MEMORY] = (struct limit_state){ 512 << 20, 512 << 20, "cgroup1", true };
	o.limits[LIMIT_CPUS] = (struct limit_state){ 1500, 2000, "affinity", false };
	o.limits[LIMIT_TIMEOUT] = (struct limit_state){ 0, 0, "deadline", true };
	emit();
	is("limits.memory.requested", "536870912");
	is("limits.memory.rung", "\"cgroup1\"");
	is("limits.memory.enforced", "true");
	is("limits.cpus.requested", "1.5");
	is("limits.cpus.effective", "2");
	is("limits.cpus.enforced", "false");
	is("limits.timeout.requested", "0");
	is("limits.file_size.requested", "null");
	is("limits.file_size.rung", "\"none\"");
	o.limits[LIMIT_CPUS] = (struct limit_state){ BOX_LIMIT_NONE, BOX_LIMIT_NONE, "none", false };
	emit();
	is("limits.cpus.requested", "null");
	is("limits.cpus.effective", "null");
}
END_TEST

START_TEST(streams)
{
	stream(&o.out, "hello ", 6, "world\n", 6, 0);
	stream(&o.err_out, "ab", 2, "yz", 2, 1000000);
	emit();
	is("stdout", "\"hello world\\n\"");
	is("stdout_b64", NULL);
	is("stdout_cut", "null");
	is("stderr", "\"abyz\"");
	is("stderr_cut.at", "2");
	is("stderr_cut.bytes", "1000000");
	is("truncated", "true");
	/* A character that straddles the two halves is one character. */
	stream(&o.out, "\xe2\x82", 2, "\xac", 1, 0);
	emit();
	is("stdout", "\"\xe2\x82\xac\"");
	is("stdout_b64", NULL);
	/* One that the cut has broken is none, and the bytes are there beside. */
	stream(&o.out, "a\xe2", 2, "\x82z", 2, 7);
	emit();
	is("stdout", "\"a\xef\xbf\xbdz\"");
	is("stdout_b64", "\"YeKCeg==\"");
	stream(&o.out, "a\xe2", 2, "\xffz", 2, 7);
	emit();
	is("stdout_b64", "\"YeL/eg==\"");
	is("stdout_cut.at", "2");
	is("stderr_b64", NULL);
	stream(&o.out, "", 0, "\0\0", 2, 0);
	emit();
	is("stdout", "\"\\u0000\\u0000\"");
	is("stdout_b64", NULL);
}
END_TEST

START_TEST(signals)
{
	o.signal = 11;
	o.exit_code = 139;
	emit();
	is("signal", "11");
	is("exit_code", "139");
	is("fault", "null");
}
END_TEST

START_TEST(phases)
{
	static const char *const names[] = { "plan", "clone", "ids", "sources", "root", "join", "locks", "spawn", "run", "teardown" };
	char path[64];
	uint64_t us;

	timing = true;
	emit(); /* no mark was set */
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		ck_assert_str_eq(outcome_phase(&o, i, &us), names[i]);
		snprintf(path, sizeof(path), "timing_us.%s", names[i]);
		is(path, "null");
	}
	ck_assert_ptr_null(outcome_phase(&o, sizeof(names) / sizeof(names[0]), &us));
	for (int i = 0; i < MARK_N; i++)
		o.marks[i] = 1000000 + (uint64_t)i * 5000;
	o.marks[MARK_ENDED] = 0; /* the command never ended */
	o.marks[MARK_IDS] = 1;   /* a clock that goes back */
	emit();
	is("timing_us.plan", "5");
	is("timing_us.clone", "10");
	is("timing_us.ids", "null");
	is("timing_us.run", "null");
	is("timing_us.teardown", "null");
}
END_TEST

/* Names and notes are text of the box and of paths: any bytes, and still one line of JSON (emit checks that). */
START_TEST(hostile_bytes)
{
	unsigned seed = 4;
	char junk[600];

	for (int round = 0; round < 200; round++) {
		for (size_t i = 0; i < sizeof(junk); i++)
			junk[i] = (char)(rand_r(&seed) % (round % 2 ? 256 : 40) + (round % 3 == 0 ? 0x70 : 0));
		o.fault = FAULT_ESCAPE_BLOCKED;
		memcpy(o.err.msg, junk, 300);
		o.err.msg[300] = '\0';
		o.n_denied = 1;
		o.denied[0] = (struct box_denied){ .nr = rand_r(&seed) % 1000 - 400, .pid = rand_r(&seed), .ended = true };
		memcpy(o.denied[0].comm, junk + 300, 15);
		memcpy(p.notes[0], junk + 320, 250);
		p.notes[0][250] = '\0';
		p.n_notes = 1;
		stream(&o.out, junk, (size_t)rand_r(&seed) % 300, junk + 300, (size_t)rand_r(&seed) % 300, (uint64_t)rand_r(&seed) % 2);
		emit();
		ck_assert_ptr_nonnull(raw("denied.0.comm"));
		ck_assert_ptr_nonnull(raw("notes.0"));
	}
}
END_TEST

/* A buffer that is too small is a failure and not half an object that looks whole. */
START_TEST(too_little_room)
{
	size_t need;

	emit();
	need = out.len;
	for (size_t max = 0; max < need; max += 7) {
		buf_free(&out);
		buf_init(&out, max);
		outcome_json(&p, &o, &(struct outcome_show){ .streams = true }, &out);
		ck_assert(out.failed);
	}
	buf_free(&out);
	buf_init(&out, need);
	outcome_json(&p, &o, &(struct outcome_show){ .streams = true }, &out);
	ck_assert(!out.failed);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, every_field_is_there);
	tcase_add_test(tc, unknown_is_null);
	tcase_add_test(tc, nothing_ran);
	tcase_add_test(tc, faults);
	tcase_add_test(tc, denials);
	tcase_add_test(tc, as_many_denials_as_there_are);
	tcase_add_test(tc, limit_rows);
	tcase_add_test(tc, streams);
	tcase_add_test(tc, signals);
	tcase_add_test(tc, phases);
	tcase_add_test(tc, hostile_bytes);
	tcase_add_test(tc, too_little_room);
}

int main(void)
{
	return unit_main("outcome_json", fill);
}
