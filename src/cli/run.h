/* `cloche run`. */
#pragma once

int cli_run(int argc, char **argv);
