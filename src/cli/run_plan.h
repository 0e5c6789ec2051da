/* See run_plan.c. */
#pragma once

#include "base/str.h"
#include "box/spec.h"

void run_plan_header(const struct box_spec *s, struct buf *out);
void run_plan_locks(const struct box_spec *s, struct buf *out);
