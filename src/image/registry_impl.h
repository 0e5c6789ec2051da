/* What registry.c and registry_token.c share. */
#pragma once

#include "image/registry.h"

/* The name of who is asked, for messages. */
const char *img_endpoint_name(const struct img_fetch *f);
/* Gets what the challenges of f->x ask for and keeps it in the endpoint. */
int img_endpoint_authorize(struct img_fetch *f, struct err *e);
