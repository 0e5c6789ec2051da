/* `cloche serve`, the options of. */
#pragma once

struct serve_words {
	unsigned boxes, queue; /* 0: not given */
};

/* -1 when the verb should go on, else the exit code to return. */
int serve_parse(int argc, char **argv, struct serve_words *ret);
