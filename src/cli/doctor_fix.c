/* `cloche doctor --fix`: shows what it would do, asks, and installs what is scoped to this program
 * alone. Today that is one thing: an AppArmor profile that lets the installed cloche make user
 * namespaces where the host lets no unconfined program do so. Restrictions of the whole host are
 * never lifted, and packages and group memberships are left to their owner: for those it prints the
 * commands.
 *
 * What may go wrong: the profile names a path, so whoever may replace that file gains what the
 * profile grants; it is said before the question. A path that AppArmor would read as a pattern is
 * refused. A profile that the parser does not take replaces nothing. */
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/str.h"
#include "box/userns_why.h"
#include "cli/verbs.h"

#define PROFILE_FILE "/etc/apparmor.d/cloche"
#define PROFILE_TEMP "/etc/apparmor.d/cloche.new"

/* The path of this program, when it can stand in a profile as it is. */
static int program_path(char ret[PATH_MAX], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - 1);

	if (n <= 0)
		return err_sys(e, "can't tell where this program is installed");
	ret[n] = '\0';
	if (ret[0] != '/' ||
	    ret[strspn(ret,
		       "/abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")] !=
		    '\0')
		return err_set(
			e, ERR_REFUSED,
			"the program's path \"%.200s\" can't stand in a profile: install it at a plain path, "
			"/usr/local/bin/cloche",
			ret);
	return 0;
}

static void profile_text(const char *path, struct buf *out)
{
	bool abi = access("/etc/apparmor.d/abi/4.0", F_OK) == 0;

	buf_fmt(out,
		"# Lets cloche make user namespaces. It confines nothing: cloche and its boxes lock themselves in.\n"
		"%sinclude <tunables/global>\n\n"
		"profile cloche %s flags=(unconfined) {\n"
		"  userns,\n\n"
		"  include if exists <local/cloche>\n"
		"}\n",
		abi ? "abi <abi/4.0>,\n" : "", path);
}

static bool ask(const char *question)
{
	char line[16];

	printf("%s [y/N] ", question);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return false;
	return strcmp(line, "y\n") == 0 || strcmp(line, "Y\n") == 0 || strcmp(line, "yes\n") == 0;
}

/* Loads the temporary file: a profile that the parser refuses never takes the place of another. */
static int load_profile(void)
{
	static const char *const places[] = { "/usr/sbin/apparmor_parser",
					      "/sbin/apparmor_parser" };
	char name[] = "apparmor_parser", replace[] = "-r", file[] = PROFILE_TEMP,
	     env0[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
	char *argv[] = { name, replace, file, NULL }, *env[] = { env0, NULL };
	pid_t pid;

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (posix_spawn(&pid, places[i], NULL, NULL, argv, env) == 0)
			return doctor_wait(pid);
	return 127;
}

static int write_profile(const char *text, size_t len, struct err *e)
{
	_cleanup_fd_ int fd = -1;

	if (unlink(PROFILE_TEMP) < 0 && errno != ENOENT)
		return err_sys(e, "%s is in the way", PROFILE_TEMP);
	fd = open(PROFILE_TEMP, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return err_sys(e, "can't write %s", PROFILE_TEMP);
	if (fchmod(fd, 0644) < 0 || fd_write_all(fd, text, len) < 0 || fsync(fd) < 0) {
		err_sys(e, "can't write %s", PROFILE_TEMP);
		unlink(PROFILE_TEMP);
		return -1;
	}
	return 0;
}

static int install(const struct buf *text, struct err *e)
{
	int rc;

	if (write_profile(text->data, text->len, e) < 0)
		return -1;
	rc = load_profile();
	if (rc != 0) {
		unlink(PROFILE_TEMP);
		return err_set(
			e, ERR_MISSING,
			rc == 127
				? "there is no apparmor_parser: install the package apparmor; nothing was changed"
				: "apparmor_parser refused the profile; nothing was changed");
	}
	if (rename(PROFILE_TEMP, PROFILE_FILE) < 0) {
		err_sys(e, "the profile is loaded until the next boot, and can't be kept as %s",
			PROFILE_FILE);
		unlink(PROFILE_TEMP);
		return -1;
	}
	return 0;
}

/* The AppArmor profile. Returns true when it was installed. */
static bool mend_apparmor(struct err *e)
{
	_cleanup_buf_ struct buf text = { 0 };
	char path[PATH_MAX];

	e->kind = ERR_NONE;
	buf_init(&text, 16384);
	if (program_path(path, e) < 0)
		return false;
	profile_text(path, &text);
	if (text.failed) {
		err_set(e, ERR_SYS, "no memory");
		return false;
	}
	if (geteuid() != 0) {
		printf("An AppArmor profile for %s only. It needs root; run these:\n\nsudo tee %s >/dev/null <<'END'\n%sEND\n"
		       "sudo apparmor_parser -r %s\n\n",
		       path, PROFILE_FILE, text.data, PROFILE_FILE);
		return false;
	}
	printf("An AppArmor profile for %s only, %s as %s, then loaded:\n\n%s\n"
	       "Whoever may replace %s gains the right to make user namespaces. Undo: apparmor_parser -R %s && rm %s\n\n",
	       path, access(PROFILE_FILE, F_OK) == 0 ? "REPLACING what stands there" : "written",
	       PROFILE_FILE, text.data, path, PROFILE_FILE, PROFILE_FILE);
	if (!ask("Install it?")) {
		puts("Nothing was changed.");
		return false;
	}
	if (install(&text, e) < 0)
		return false;
	puts("Installed. It counts from the next start of cloche on.");
	return true;
}

int doctor_mend(const struct doctor_result *results)
{
	/* Root's own row is fine where only unprivileged callers are restricted. */
	bool profile = userns_apparmor_restricts(), any = false;
	struct err e = { .kind = ERR_NONE };

	for (size_t i = 0; i < doctor_n_rows; i++)
		profile |= results[i].status == DOCTOR_MISSING &&
			   strstr(results[i].fix, "doctor --fix");
	if (profile) {
		mend_apparmor(&e);
		if (e.kind != ERR_NONE)
			return cli_fail("doctor", &e);
	}
	for (size_t i = 0; i < doctor_n_rows; i++) {
		const struct doctor_result *r = &results[i];
		char text[sizeof(r->fix)];

		if (r->status != DOCTOR_DEGRADED && r->status != DOCTOR_MISSING)
			continue;
		if (!r->fix[0] || strstr(r->fix, "doctor --fix"))
			continue;
		if (!any)
			puts("For the rest, not done here because it is more than cloche's own:\n");
		any = true;
		printf("%s\n", doctor_rows[i].title);
		for (const char *p = r->fix; *p;) {
			size_t n = strcspn(p, "\n");

			printf("    %.*s\n", (int)n,
			       str_printable(text, n + 1 < sizeof(text) ? n + 1 : sizeof(text), p));
			p += n + (p[n] == '\n');
		}
	}
	if (!profile && !any)
		puts("There is nothing to mend.");
	return 0;
}
