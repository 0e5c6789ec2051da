/* The environment of a box: a base, then files, then options; nothing of the caller that was not named. */
#include "request_env.h"

#include "engine/env.h"

/* The value of a name in the result, NULL when it is not there; there is never a second. */
static const char *value(const char *name)
{
	const char *found = NULL;
	size_t n = strlen(name);

	for (char *const *v = pr.spec.env; *v; v++)
		if (strncmp(*v, name, n) == 0 && (*v)[n] == '=') {
			ck_assert_msg(!found, "%s twice", name);
			found = *v + n + 1;
		}
	return found;
}

static size_t count(void)
{
	size_t n = 0;

	for (char *const *v = pr.spec.env; *v; v++)
		n++;
	return n;
}

static void is(const char *name, const char *want)
{
	const char *got = value(name);

	ck_assert_msg((got == NULL) == (want == NULL) && (!want || strcmp(got, want) == 0), "%s is \"%s\", not \"%s\"", name, got ? got : "unset",
		      want ? want : "unset");
}

START_TEST(the_base)
{
	static const char *const base[] = { "PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_CACHE_HOME", "MPLCONFIGDIR",
					    "JAVA_TOOL_OPTIONS" };

	setenv("SECRET_TOKEN", "x", 1);
	setenv("LD_PRELOAD", "/x.so", 1);
	setenv("TERM", "weird", 1);
	setenv("PATH", "/host/only", 1);
	setenv("HOME", "/host/home", 1);
	prepares();
	is("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	is("HOME", "/home/user");
	is("USER", "user");
	is("LOGNAME", "user");
	is("LANG", "C.UTF-8");
	is("TMPDIR", "/tmp");
	is("XDG_CACHE_HOME", "/home/user/.cache");
	is("TERM", NULL);
	for (char *const *v = pr.spec.env; *v; v++) {
		bool known = false;

		for (size_t i = 0; i < sizeof(base) / sizeof(base[0]); i++)
			known = known || (strncmp(*v, base[i], strlen(base[i])) == 0 && (*v)[strlen(base[i])] == '=');
		ck_assert_msg(known, "%s", *v);
	}
	fresh();
	rq.user = "root";
	rq.tty = true;
	prepares();
	is("HOME", "/root");
	is("USER", "root");
	is("TERM", "weird");
	fresh();
	rq.tty = true;
	unsetenv("TERM");
	prepares();
	is("TERM", "xterm");
}
END_TEST

START_TEST(options)
{
	setenv("COPIED", "from here", 1);
	setenv("EMPTY", "", 1);
	unsetenv("NOT_SET");
	add(&rq.env, "A=1");
	add(&rq.env, "B=");
	add(&rq.env, "C=a=b=c");
	add(&rq.env, "COPIED");
	add(&rq.env, "EMPTY");
	add(&rq.env, "NOT_SET");
	add(&rq.env, "LANG=de_DE.UTF-8");
	add(&rq.env, "A=2");
	add(&rq.env, "LINES=one\ntwo\x1b");
	add(&rq.env, "_x9=\xff");
	prepares();
	is("A", "2");
	is("B", "");
	is("C", "a=b=c");
	is("COPIED", "from here");
	is("EMPTY", "");
	is("NOT_SET", NULL);
	is("LANG", "de_DE.UTF-8");
	is("LINES", "one\ntwo\x1b");
	is("_x9", "\xff");
}
END_TEST

/* `-e NAME` copies what the caller has, not what an earlier option set. */
START_TEST(a_copy_is_the_callers)
{
	setenv("V", "caller", 1);
	add(&rq.env, "V=option");
	add(&rq.env, "V");
	prepares();
	is("V", "caller");
	fresh();
	unsetenv("V");
	add(&rq.env, "V=option");
	add(&rq.env, "V");
	prepares();
	is("V", "option");
}
END_TEST

START_TEST(bad_options)
{
	static const char *const bad[] = { "", "=", "=x", "1A=x", "A B=x", "A-B=x", "A.B=x", "A\nB=x", "\x1b[2J=x", "\xc3\xa4=x", " A=x", "A =x",
					   "9", "A-B", "PATH\t", "()", "BASH_FUNC_x%%=() { :; }" };
	static char big[140000], long_name[2000];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fresh();
		add(&rq.env, bad[i]);
		refused(ERR_USAGE, STAGE_SPEC, "-e ");
	}
	/* One string of execve(2) holds 128 KiB with its end; the kernel's answer would be E2BIG for the command. */
	memset(big, 'x', sizeof(big));
	memcpy(big, "A=", 2);
	big[(128 << 10) - 1] = '\0';
	fresh();
	add(&rq.env, big);
	prepares();
	is("A", big + 2);
	big[(128 << 10) - 1] = 'x';
	big[128 << 10] = '\0';
	refused(ERR_USAGE, STAGE_SPEC, "below 131072 bytes");
	memset(long_name, 'N', sizeof(long_name) - 1);
	long_name[1500] = '-';
	fresh();
	add(&rq.env, long_name);
	refused(ERR_USAGE, STAGE_SPEC, "letters, digits and _");
}
END_TEST

static void read_file(const char *text, size_t n)
{
	fresh();
	add(&rq.env_files, file_put("env", text, n));
}
#define FILE_OF(text) read_file(text, sizeof(text) - 1)

START_TEST(file_grammar)
{
	size_t base;

	prepares();
	base = count();
	FILE_OF("# comment\n\n  \t\nA=1\n  B=2\n\tC = x\n");
	refused(ERR_USAGE, STAGE_SPEC, "line 6");
	FILE_OF("# comment\n#X=1\n  # Y=1\n\n \t \nA=1\n  B=2 \nC='q \"q'\nD=a#b\nE=x=y\nF=\nA=3\n");
	prepares();
	ck_assert_uint_eq(count(), base + 6);
	is("A", "3");
	is("B", "2 ");
	is("C", "'q \"q'"); /* no quoting, as docker has it */
	is("D", "a#b");
	is("E", "x=y");
	is("F", "");
	is("X", NULL);
	FILE_OF("");
	prepares();
	ck_assert_uint_eq(count(), base);
	FILE_OF("\n\n\n");
	prepares();
	ck_assert_uint_eq(count(), base);
	FILE_OF("LAST=no newline");
	prepares();
	is("LAST", "no newline");
	FILE_OF("W=dos\r\n\r\nV=a\rb\r\nU=mac\rV=1");
	prepares();
	is("W", "dos");
	is("V", "a\rb"); /* only the end of a line is a line's end */
	is("U", "mac\rV=1");
	unlink(file_put("env", "", 0));
}
END_TEST

START_TEST(bad_files)
{
	static const struct {
		const char *text;
		const char *says;
	} rows[] = {
		{ "A=1\nNAME\n", "line 2: needs NAME=VALUE" }, { "export A=1\n", "line 1" },  { "\n\n=x\n", "line 3" },  { "1A=x", "line 1" },
		{ "\xef\xbb\xbf" "A=1\n", "line 1" },           { "A\x1b=1\n", "line 1" },    { "A=1\n-\n", "line 2" },
	};
	static char big[140000];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		read_file(rows[i].text, strlen(rows[i].text));
		refused(ERR_USAGE, STAGE_SPEC, rows[i].says);
		ck_assert_ptr_nonnull(strstr(e.msg, "--env-file"));
	}
	/* What stands behind a NUL would be lost without a word. */
	FILE_OF("A=1\n\0B=2\n");
	refused(ERR_USAGE, STAGE_SPEC, "NUL");
	FILE_OF("A=1\nB=2\0");
	refused(ERR_USAGE, STAGE_SPEC, "NUL");
	memset(big, 'x', sizeof(big));
	memcpy(big, "A=", 2);
	read_file(big, 128 << 10);
	refused(ERR_USAGE, STAGE_SPEC, "line 1");
	read_file(big, (128 << 10) - 1);
	prepares();
	unlink(file_put("env", "", 0));
}
END_TEST

START_TEST(files_that_cannot_be_read)
{
	char path[160];

	add(&rq.env_files, "/nonexistent/env");
	refused(ERR_SYS, STAGE_SPEC, "--env-file /nonexistent/env: No such file");
	fresh();
	add(&rq.env_files, "/nonexistent/\n\x1b[2J");
	refused(ERR_SYS, STAGE_SPEC, "--env-file");
	fresh();
	add(&rq.env_files, dir);
	refused(ERR_SYS, STAGE_SPEC, "directory");
	fresh();
	add(&rq.env_files, "/dev/zero"); /* has no end */
	refused(ERR_SYS, STAGE_SPEC, "too large");
	snprintf(path, sizeof(path), "%s/fifo", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fresh();
	add(&rq.env_files, path); /* nobody writes: it must not hang */
	(void)request_prepare(&rq, &pr, &e);
	unlink(path);
}
END_TEST

START_TEST(files_in_order_then_options)
{
	char first[160], second[160];

	setenv("V", "caller", 1);
	snprintf(first, sizeof(first), "%s", file_put("one", "A=1\nB=1\nC=1\nLANG=x\n", 19));
	snprintf(second, sizeof(second), "%s", file_put("two", "B=2\nC=2\n", 8));
	add(&rq.env, "C=3"); /* given before the files, still later than they */
	add(&rq.env_files, first);
	add(&rq.env_files, second);
	prepares();
	is("A", "1");
	is("B", "2");
	is("C", "3");
	is("LANG", "x");
	unlink(first);
	unlink(second);
}
END_TEST

START_TEST(as_many_as_a_spec_holds)
{
	static char text[BOX_ENV_MAX * 12];
	size_t base, n = 0;

	prepares();
	base = count();
	for (size_t i = 0; i < BOX_ENV_MAX - base; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "V%zu=x\n", i);
	read_file(text, n);
	prepares();
	ck_assert_uint_eq(count(), BOX_ENV_MAX);
	add(&rq.env, "V0=changed"); /* replaces */
	prepares();
	is("V0", "changed");
	add(&rq.env, "ONE_MORE=x");
	refused(ERR_USAGE, STAGE_SPEC, "more than 512");
	unlink(file_put("env", "", 0));
}
END_TEST

START_TEST(a_jvm_hears_of_the_memory)
{
	if (access("/usr/lib/jvm", F_OK) < 0)
		return;
	rq.limits.memory = 256 << 20;
	prepares();
	is("JAVA_TOOL_OPTIONS", "-XX:MaxRAM=268435456");
	add(&rq.env, "JAVA_TOOL_OPTIONS=");
	prepares();
	is("JAVA_TOOL_OPTIONS", "");
}
END_TEST

static void fill(TCase *tc)
{
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, the_base);
	tcase_add_test(tc, options);
	tcase_add_test(tc, a_copy_is_the_callers);
	tcase_add_test(tc, bad_options);
	tcase_add_test(tc, file_grammar);
	tcase_add_test(tc, bad_files);
	tcase_add_test(tc, files_that_cannot_be_read);
	tcase_add_test(tc, files_in_order_then_options);
	tcase_add_test(tc, as_many_as_a_spec_holds);
	tcase_add_test(tc, a_jvm_hears_of_the_memory);
}

int main(void)
{
	return unit_main("env", fill);
}
