/* The image of `cloche run`: found in the store, or pulled into it first. */
#pragma once

#include "cli/run_opts.h"
#include "engine/image.h"

/* Finds what the options ask for, if they ask for an image, and holds it in p->image. Pulling is
 * done by cloche-image, on a budget of its own and before any of the box's clocks: p->pull_us is
 * how long it took, UINT64_MAX when nothing was pulled. -1 with stage image; or, before anything is
 * pulled, what else is wrong in the request. */
int run_image(const struct run_options *o, struct prepared *p, struct err *e);
/* Compiles the library of the image's Python ahead, where there is one that is not, and finds the
 * image anew: on a budget of its own too. What fails there is no harm to the box. */
int run_bytecode(const struct run_options *o, struct image_use *u, struct err *e);
