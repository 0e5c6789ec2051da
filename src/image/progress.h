/* What a user sees of a pull, a load or an import: a bar on a terminal, a line a phase elsewhere,
 * one JSON object a line when asked, or nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum img_show { IMG_SHOW_TEXT, IMG_SHOW_JSON, IMG_SHOW_NOTHING };

struct img_progress {
	enum img_show show;
	const char *verb; /* before each line: "cloche pull" */
	bool bar;	  /* stderr is a terminal */
	bool drawn;	  /* a bar stands on its line */
	uint64_t shown_at;
};

/* Chooses; `verb` has to live as long. */
void img_progress_init(struct img_progress *p, enum img_show show, const char *verb);

/* A phase of the whole begins: "resolve", "download", "publish" ... `text` is what a line says. */
void img_progress_phase(struct img_progress *p, const char *phase, const char *text);

/* A layer's: download, unpack, done, there. */
void img_progress_layer(struct img_progress *p, const char *phase, const char *digest,
			uint64_t bytes, uint64_t total);

struct img_sums {
	uint64_t bytes, total;	/* of what has to be downloaded */
	uint64_t read, to_read; /* of what has to be unpacked */
	size_t done, layers;
};
/* How far the whole is: draws the bar, now and then. */
void img_progress_tick(struct img_progress *p, const struct img_sums *sums);

/* A line for the user that is no error. */
void img_progress_note(struct img_progress *p, const char *text);
/* The bar's line is over: before anything else is printed. */
void img_progress_end(struct img_progress *p);
