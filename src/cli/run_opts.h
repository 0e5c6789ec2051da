/* The options of `cloche run`: the table, and where each goes in a request. */
#pragma once

#include <stdbool.h>

#include "engine/request.h"

enum run_pull { PULL_MISSING, PULL_ALWAYS, PULL_NEVER };

struct run_options {
	struct request request;
	enum run_pull pull;
	const char *pull_timeout; /* a duration, as it was written; NULL: the pull's own */
	bool json, plan, timing, quiet;
	int progress; /* what a pull tells is copied there, one JSON object a line; 0: nowhere */
};

/* An opt_fn over struct run_options. */
struct opt_row;
int run_option(void *ctx, const struct opt_row *row, const char *value, struct err *e);
/* Of a choice that is one. */
enum run_pull run_pull_of(const char *value);
