#include "session/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

static const char *const names[] = {
	[SES_PROTOCOL] = "protocol",
	[SES_OPTION] = "option",
	[SES_MOUNT_REFUSED] = "mount_refused",
	[SES_PATH] = "path",
	[SES_NOT_FOUND] = "not_found",
	[SES_EXISTS] = "exists",
	[SES_TOO_LARGE] = "too_large",
	[SES_UNSUPPORTED] = "unsupported",
	[SES_BUSY] = "busy",
	[SES_CANCELLED] = "cancelled",
	[SES_CLOSED] = "closed",
	[SES_SYSTEM] = "system",
};
static_assert(sizeof(names) / sizeof(names[0]) == SES_ERROR_TYPE_N, "a name for each type");

const char *ses_error_name(enum ses_error_type type)
{
	return names[type];
}

int ses_error_set(struct ses_error *e, enum ses_error_type type, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memset(e, 0, sizeof(*e));
	e->type = type;
	str_printable(e->message, sizeof(e->message), text);
	return -1;
}

int ses_error_about(struct ses_error *e, const char *option, const char *allowed, ...)
{
	char text[sizeof(e->allowed)];
	va_list ap;

	va_start(ap, allowed);
	vsnprintf(text, sizeof(text), allowed, ap);
	va_end(ap);
	str_printable(e->option, sizeof(e->option), option);
	str_printable(e->allowed, sizeof(e->allowed), text);
	return -1;
}

int ses_error_err(struct ses_error *e, const struct err *why)
{
	enum ses_error_type type = why->kind == ERR_PATH	? SES_PATH
				   : why->kind == ERR_NOT_FOUND ? SES_NOT_FOUND
				   : why->kind == ERR_EXISTS	? SES_EXISTS
				   : why->kind == ERR_TOO_LARGE ? SES_TOO_LARGE
								: SES_SYSTEM;

	return ses_error_set(e, type, "%s", why->msg);
}
