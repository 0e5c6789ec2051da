/* The verbs of cloche-image. argv[0] is the verb; each returns the exit code. */
#pragma once

int image_pull(int argc, char **argv);
int image_load(int argc, char **argv);
int image_import(int argc, char **argv);
int image_save(int argc, char **argv);
