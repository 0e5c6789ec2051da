/* A request, what becomes of it, and a directory of the test's own. */
#pragma once

#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/request.h"

static struct request rq;
static struct prepared pr;
static struct err e;
static char dir[64];
static char *command[] = { (char[]){ "true" }, NULL };

/* What a request keeps, it keeps until the program ends. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return 1;
}

static inline void fresh(void)
{
	mount_check_free(&pr.mounts);
	request_defaults(&rq);
	rq.argv = command;
}

static inline void setup(void)
{
	strcpy(dir, "/tmp/unit-request-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	fresh();
}

static inline void teardown(void)
{
	ck_assert_int_ge(dir[0] ? rmdir(dir) : 0, 0);
}

static inline const char *file_put(const char *name, const void *text, size_t n)
{
	static char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_msg(fd >= 0 && fd_write_all(fd, text, n) == 0, "%s: %s", path, strerror(errno));
	close(fd);
	return path;
}

static inline void prepares(void)
{
	ck_assert_msg(request_prepare(&rq, &pr, &e) == 0, "%s", e.msg);
}

/* Every error: its kind, its stage, and one printable line that says what. */
static inline void refused(enum err_kind kind, enum err_stage stage, const char *says)
{
	char safe[sizeof(e.msg)];

	memset(&e, 0x5a, sizeof(e));
	ck_assert_msg(request_prepare(&rq, &pr, &e) == -1, "passed, and should say: %s", says);
	ck_assert_msg(memchr(e.msg, '\0', sizeof(e.msg)) && strstr(e.msg, says), "\"%s\" does not say \"%s\"", e.msg, says);
	ck_assert_str_eq(str_printable(safe, sizeof(safe), e.msg), e.msg);
	ck_assert_msg(e.kind == kind, "kind %d: %s", (int)e.kind, e.msg);
	ck_assert_msg(e.stage == stage, "stage %s: %s", err_stage_name(e.stage), e.msg);
}

static inline void add(struct request_list *l, const char *value)
{
	ck_assert_int_eq(request_add(l, value, "test", &e), 0);
}
