/* The D-Bus client: messages as the specification has them, answers that make no sense, and the other side of a connection as bad as can be. */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/dbus.h"

static const struct dbus_method ping = { "a.b", "/c", "d.e", "Ping", NULL };

/* wire */

START_TEST(a_call_is_as_specified)
{
	static const uint8_t want[] = {
		'l', 1, 0, 1, 8, 0, 0, 0, 7, 0, 0, 0, 72, 0, 0, 0, /* head: a call, body of 8, serial 7, fields of 72 */
		1, 1, 'o', 0, 2, 0, 0, 0, '/', 'c', 0, 0, 0, 0, 0, 0, /* path */
		6, 1, 's', 0, 3, 0, 0, 0, 'a', '.', 'b', 0, 0, 0, 0, 0, /* destination */
		2, 1, 's', 0, 3, 0, 0, 0, 'd', '.', 'e', 0, 0, 0, 0, 0, /* interface */
		3, 1, 's', 0, 4, 0, 0, 0, 'P', 'i', 'n', 'g', 0, 0, 0, 0, /* member */
		8, 1, 'g', 0, 2, 'a', 'u', 0, /* signature */
		4, 0, 0, 0, 42, 0, 0, 0, /* the body: an array of one */
	};
	struct dbus_method m = ping;
	struct dbus_out out, body = { .len = 0 };
	struct dbus_array a;
	struct err e;

	m.signature = "au";
	a = dbus_array(&body, 4);
	dbus_u32(&body, 42);
	dbus_array_end(&body, a);
	ck_assert_int_eq(dbus_message(&out, &m, 7, &body, &e), 0);
	ck_assert_uint_eq(out.len, sizeof(want));
	ck_assert_mem_eq(out.data, want, sizeof(want));
}
END_TEST

START_TEST(arrays_of_structs_are_aligned)
{
	struct dbus_out o = { .len = 0 };
	struct dbus_array a;

	dbus_str(&o, "x"); /* 6 bytes */
	a = dbus_array(&o, 8); /* length at 8, elements from 16 on */
	dbus_array_end(&o, a);
	ck_assert_uint_eq(o.len, 16);
	ck_assert_uint_eq(o.data[8], 0); /* the space before the first element does not count */
	dbus_align(&o, 8);
	dbus_byte(&o, 1);
	dbus_u64(&o, 0x0102030405060708);
	ck_assert_uint_eq(o.len, 32);
	ck_assert_uint_eq(o.data[24], 8);
	ck_assert_uint_eq(o.data[31], 1);
}
END_TEST

START_TEST(what_does_not_fit_is_refused)
{
	static char text[DBUS_OUT_MAX + 1];
	struct dbus_out out, body = { .len = 0 };
	struct err e;

	memset(text, 'x', sizeof(text) - 1);
	dbus_str(&body, text);
	ck_assert(body.failed);
	assert_refused(dbus_message(&out, &ping, 1, &body, &e), &e, ERR_SYS);
	body = (struct dbus_out){ .len = 0 };
	text[DBUS_OUT_MAX - 20] = '\0';
	dbus_str(&body, text);
	ck_assert(!body.failed);
	assert_refused(dbus_message(&out, &ping, 1, &body, &e), &e, ERR_SYS);
	body = (struct dbus_out){ .len = 0 };
	text[300] = '\0';
	dbus_sig(&body, text);
	ck_assert(body.failed);
}
END_TEST

/* A message as a peer would send it: fields are put as they are told. */
struct field {
	uint8_t code;
	const char *type, *text;
	uint32_t number;
};

static void make(struct dbus_out *o, uint8_t kind, const struct field *f, size_t n, const char *body)
{
	struct dbus_out b = { .len = 0 };
	struct dbus_array a;

	if (body)
		dbus_str(&b, body);
	*o = (struct dbus_out){ .len = 0 };
	dbus_byte(o, 'l');
	dbus_byte(o, kind);
	dbus_byte(o, 1);
	dbus_byte(o, 1);
	dbus_u32(o, (uint32_t)b.len);
	dbus_u32(o, 9);
	a = dbus_array(o, 8);
	for (size_t i = 0; i < n; i++) {
		dbus_align(o, 8);
		dbus_byte(o, f[i].code);
		dbus_sig(o, f[i].type);
		if (f[i].type[0] == 'g')
			dbus_sig(o, f[i].text);
		else if (f[i].text)
			dbus_str(o, f[i].text);
		else
			dbus_u32(o, f[i].number);
	}
	dbus_array_end(o, a);
	dbus_align(o, 8);
	for (size_t i = 0; i < b.len; i++)
		dbus_byte(o, b.data[i]);
}

#define FIELDS(...) (const struct field[]){ __VA_ARGS__ }, sizeof((const struct field[]){ __VA_ARGS__ }) / sizeof(struct field)
#define REPLY_TO(n) { 5, "u", NULL, n }
#define ERROR_NAME(s) { 4, "s", s, 0 }
#define SIGNATURE(s) { 8, "g", s, 0 }

START_TEST(answers_are_read)
{
	struct dbus_out o;
	struct dbus_in in;
	struct err e;

	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(7), { 7, "s", "a.b", 0 }, SIGNATURE("o")), "/job/1");
	ck_assert_int_eq(dbus_parse(o.data, o.len, &in, &e), 0);
	ck_assert_int_eq(in.type, DBUS_RETURN);
	ck_assert_uint_eq(in.reply_to, 7);
	ck_assert_str_eq(in.error, "");
	make(&o, DBUS_ERROR, FIELDS(REPLY_TO(8), ERROR_NAME("x.NoSuchUnit"), SIGNATURE("s")), "no\n\033[1munit");
	ck_assert_int_eq(dbus_parse(o.data, o.len, &in, &e), 0);
	ck_assert_int_eq(in.type, DBUS_ERROR);
	ck_assert_str_eq(in.error, "x.NoSuchUnit");
	ck_assert_str_eq(in.text, "no??[1munit");
	/* a field of a later version, with a plain value */
	make(&o, DBUS_RETURN, FIELDS({ 77, "u", NULL, 1 }, REPLY_TO(7)), NULL);
	ck_assert_int_eq(dbus_parse(o.data, o.len, &in, &e), 0);
	ck_assert_uint_eq(in.reply_to, 7);
}
END_TEST

static void bad(const struct dbus_out *o)
{
	struct dbus_in in = { .reply_to = 1234 };
	struct err e;

	assert_refused(dbus_parse(o->data, o->len, &in, &e), &e, ERR_SYS);
	ck_assert_uint_eq(in.reply_to, 1234); /* untouched */
}

START_TEST(what_makes_no_sense_is_refused)
{
	static char name[300];
	struct dbus_out o, good;

	make(&good, DBUS_ERROR, FIELDS(REPLY_TO(7), ERROR_NAME("a.b"), SIGNATURE("s")), "text");
	for (size_t i = 0; i < good.len; i++) {
		o = good;
		o.len = i;
		bad(&o);
	}
	o = good;
	o.len++;
	bad(&o);
	static const struct {
		unsigned at;
		uint8_t value;
	} wrong[] = { { 0, 'B' }, { 1, 0 }, { 1, 5 }, { 3, 2 }, { 7, 0xff }, { 8, 0 }, { 15, 0xff }, { 12, 0xff } };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		o = good;
		o.data[wrong[i].at] = wrong[i].value;
		bad(&o);
	}
	make(&o, DBUS_RETURN, FIELDS({ 5, "s", "7", 0 }), NULL); /* a field of the wrong type */
	bad(&o);
	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(7), { 0, "u", NULL, 1 }), NULL);
	bad(&o);
	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(7), { 77, "v", NULL, 1 }), NULL);
	bad(&o);
	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(7), { 77, "uu", NULL, 1 }), NULL);
	bad(&o);
	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(0)), NULL);
	bad(&o);
	make(&o, DBUS_RETURN, FIELDS(SIGNATURE("s")), "x");
	bad(&o);
	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(7), ERROR_NAME("a.b")), NULL);
	bad(&o);
	make(&o, DBUS_ERROR, FIELDS(REPLY_TO(7)), NULL);
	bad(&o);
	make(&o, DBUS_ERROR, FIELDS(REPLY_TO(7), ERROR_NAME("a b")), NULL);
	bad(&o);
	memset(name, 'a', 256);
	make(&o, DBUS_ERROR, FIELDS(REPLY_TO(7), ERROR_NAME(name)), NULL);
	bad(&o);
	name[255] = '\0'; /* the control */
	make(&o, DBUS_ERROR, FIELDS(REPLY_TO(7), ERROR_NAME(name)), NULL);
	ck_assert_int_eq(dbus_parse(o.data, o.len, &(struct dbus_in){ 0 }, &(struct err){ 0 }), 0);
	make(&o, DBUS_ERROR, FIELDS(REPLY_TO(7), ERROR_NAME("a.b"), SIGNATURE("s")), NULL); /* no body */
	bad(&o);
	o = good;
	o.data[o.len - 3] = '\0'; /* a string's end is where its length says, and nowhere else */
	bad(&o);
	o = good;
	o.data[o.len - 1] = 'x';
	bad(&o);
}
END_TEST

/* Every byte of a good message set to every value: refused, or read as something that keeps the contract. */
START_TEST(no_byte_is_trusted)
{
	struct dbus_out good, o;
	struct dbus_in in;
	struct err e;
	unsigned refused = 0;

	make(&good, DBUS_ERROR, FIELDS(REPLY_TO(7), ERROR_NAME("a.b"), { 77, "s", "x", 0 }, SIGNATURE("s")), "text");
	for (size_t i = 0; i < good.len; i++)
		for (unsigned v = 0; v < 256; v++) {
			o = good;
			o.data[i] = (uint8_t)v;
			if (dbus_parse(o.data, o.len, &in, &e) < 0) {
				refused++;
				continue;
			}
			ck_assert_uint_le(strlen(in.error), DBUS_NAME_MAX);
			ck_assert(in.type != DBUS_ERROR || in.error[0]);
			ck_assert_uint_lt(strlen(in.text), sizeof(in.text));
		}
	ck_assert_uint_gt(refused, 1000);
}
END_TEST

/* the connection */

static char dir[32], path[64];

/* A server in a process of its own, which lets `serve` deal with its one client. */
static pid_t serve_with(void (*serve)(int fd), int backlog)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	pid_t pid;

	strcpy(dir, "/tmp/unit-dbus-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	ck_assert_int_eq(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(listen(s, backlog), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		alarm(15);
		if (serve)
			serve(accept(s, NULL, NULL));
		else
			pause();
		_exit(0);
	}
	close(s);
	return pid;
}

static void done(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	unlink(path);
	rmdir(dir);
}

static void take(int fd)
{
	char text[4096];

	(void)!read(fd, text, sizeof(text));
}

static void give(int fd, const void *data, size_t n)
{
	if (write(fd, data, n) != (ssize_t)n)
		_exit(1);
}

#define OK "OK 1234deadbeef\r\n"

static void give_reply(int fd, uint32_t to)
{
	struct dbus_out o;

	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(to), SIGNATURE("s")), "fine");
	give(fd, o.data, o.len);
}

static void give_signal(int fd, size_t body)
{
	static uint8_t zero[1 << 20];
	struct dbus_out o;

	make(&o, DBUS_SIGNAL, FIELDS({ 1, "o", "/a", 0 }, { 2, "s", "a.b", 0 }, { 3, "s", "C", 0 }), NULL);
	o.data[4] = (uint8_t)body;
	o.data[5] = (uint8_t)(body >> 8);
	o.data[6] = (uint8_t)(body >> 16);
	o.data[7] = (uint8_t)(body >> 24);
	give(fd, o.data, o.len);
	for (size_t n; body > 0; body -= n) {
		n = body < sizeof(zero) ? body : sizeof(zero);
		give(fd, zero, n);
	}
}

static void good_server(int fd)
{
	struct dbus_out o;

	take(fd);
	give(fd, OK, sizeof(OK) - 1);
	give_signal(fd, 100);
	give_signal(fd, 100000); /* more than the client's room */
	give_reply(fd, 55);	 /* to nothing that was asked */
	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(1)), NULL);
	for (size_t i = 0; i < o.len; i++) { /* in pieces */
		give(fd, o.data + i, 1);
		usleep(100);
	}
	take(fd);
	make(&o, DBUS_ERROR, FIELDS(REPLY_TO(2), ERROR_NAME("a.No"), SIGNATURE("s")), "not today");
	give(fd, o.data, o.len);
	pause();
}

static struct dbus bus;

START_TEST(calls_are_answered)
{
	pid_t pid = serve_with(good_server, 1);
	struct dbus_in in;
	struct err e;

	ck_assert_int_eq(dbus_open(&bus, path, 10000, &e), 0);
	ck_assert_int_eq(bus.peer, getpid()); /* who listened */
	ck_assert_int_eq(dbus_call(&bus, &ping, NULL, &in, &e), 0);
	ck_assert_str_eq(in.error, "");
	ck_assert_int_eq(dbus_call(&bus, &ping, NULL, &in, &e), 0);
	ck_assert_str_eq(in.error, "a.No");
	ck_assert_str_eq(in.text, "not today");
	dbus_close(&bus);
	ck_assert_int_eq(bus.fd, -1);
	done(pid);
}
END_TEST

static void deaf(int fd)
{
	pause();
}

static void mute(int fd)
{
	take(fd);
	give(fd, OK, sizeof(OK) - 1);
	pause();
}

static void leaves(int fd)
{
	take(fd);
}

static void leaves_midway(int fd)
{
	struct dbus_out o;

	take(fd);
	give(fd, OK, sizeof(OK) - 1);
	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(1)), NULL);
	give(fd, o.data, o.len - 1);
}

static void rejects(int fd)
{
	take(fd);
	give(fd, "REJECTED EXTERNAL\r\n", 19);
	pause();
}

static void endless_line(int fd)
{
	for (;;)
		give(fd, "OK OK OK OK ", 12);
}

static void garbage(int fd)
{
	take(fd);
	give(fd, OK "HTTP/1.1 400 Bad Request\r\n\r\n", sizeof(OK) - 1 + 28);
	pause();
}

static void too_long(int fd)
{
	struct dbus_out o;

	take(fd);
	give(fd, OK, sizeof(OK) - 1);
	make(&o, DBUS_RETURN, FIELDS(REPLY_TO(1)), NULL);
	o.data[6] = 1; /* 64 KiB */
	give(fd, o.data, o.len);
	pause();
}

static void chatty(int fd)
{
	take(fd);
	give(fd, OK, sizeof(OK) - 1);
	for (;;)
		give_signal(fd, 1 << 20);
}

static const struct {
	void (*serve)(int fd);
	unsigned ms;
	const char *says;
} bad_servers[] = {
	{ deaf, 100, "in time" },
	{ mute, 100, "in time" },
	{ leaves, 10000, "hung up" },
	{ leaves_midway, 10000, "hung up" },
	{ rejects, 10000, "refused" },
	{ endless_line, 10000, "endless" },
	{ garbage, 10000, "no sense" },
	{ too_long, 10000, "an answer of" },
	{ chatty, 10000, "not asked for" },
};

START_TEST(bad_servers_are_survived)
{
	pid_t pid = serve_with(bad_servers[_i].serve, 1);
	struct dbus_in in;
	struct err e = { 0 };

	ck_assert_int_eq(dbus_open(&bus, path, bad_servers[_i].ms, &e), 0);
	assert_refused(dbus_call(&bus, &ping, NULL, &in, &e), &e, ERR_SYS);
	ck_assert_msg(strstr(e.msg, bad_servers[_i].says) != NULL, "%s", e.msg);
	dbus_close(&bus);
	done(pid);
}
END_TEST

START_TEST(nobody_there)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	pid_t pid;
	struct err e;
	char longer[200];
	int full[8];

	assert_refused(dbus_open(&bus, "/nonexistent/private", 100, &e), &e, ERR_MISSING);
	ck_assert_int_eq(e.num, ENOENT);
	ck_assert_int_eq(bus.fd, -1);
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_refused(dbus_open(&bus, longer, 100, &e), &e, ERR_MISSING);
	/* One that never accepts: its queue is full. */
	pid = serve_with(NULL, 0);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	for (int i = 0; i < 8; i++) {
		full[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)connect(full[i], (struct sockaddr *)&sa, sizeof(sa));
	}
	assert_refused(dbus_open(&bus, path, 100, &e), &e, ERR_SYS);
	ck_assert_ptr_nonnull(strstr(e.msg, "in time"));
	for (int i = 0; i < 8; i++)
		close(full[i]);
	done(pid);
}
END_TEST

/* As root: a socket of another user's is not talked to. */
START_TEST(not_to_strangers)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct err e;
	int s;

	if (geteuid() != 0)
		return;
	strcpy(dir, "/tmp/unit-dbus-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	s = socket(AF_UNIX, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(s, (struct sockaddr *)&sa, sizeof(sa)), 0);
	ck_assert_int_eq(seteuid(12345), 0);
	ck_assert_int_eq(listen(s, 1), 0); /* whose credentials the kernel keeps */
	ck_assert_int_eq(seteuid(0), 0);
	assert_refused(dbus_open(&bus, path, 100, &e), &e, ERR_REFUSED);
	ck_assert_ptr_nonnull(strstr(e.msg, "12345"));
	ck_assert_int_eq(listen(s, 1), 0); /* the control */
	ck_assert_int_eq(dbus_open(&bus, path, 100, &e), 0);
	dbus_close(&bus);
	close(s);
	unlink(path);
	rmdir(dir);
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_test(tc, a_call_is_as_specified);
	tcase_add_test(tc, arrays_of_structs_are_aligned);
	tcase_add_test(tc, what_does_not_fit_is_refused);
	tcase_add_test(tc, answers_are_read);
	tcase_add_test(tc, what_makes_no_sense_is_refused);
	tcase_add_test(tc, no_byte_is_trusted);
	tcase_add_test(tc, calls_are_answered);
	tcase_add_loop_test(tc, bad_servers_are_survived, 0, (int)(sizeof(bad_servers) / sizeof(bad_servers[0])));
	tcase_add_test(tc, nobody_there);
	tcase_add_test(tc, not_to_strangers);
}

int main(void)
{
	return unit_main("dbus", fill);
}
