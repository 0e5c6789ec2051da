/* What cloche-serve does, by its first word. argv[0] is the verb; each returns the exit code. */
#pragma once

int serve_config(int argc, char **argv);
int serve_session(int argc, char **argv);
int serve_files(int argc, char **argv);
