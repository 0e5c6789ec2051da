/* A small strict reader of YAML, for the one file of configuration: maps, lists, strings, numbers,
 * true, false, null. What makes YAML surprising is refused, with line and column: anchors, aliases,
 * tags, merge keys, a key given twice, keys that are no plain words, a second document, control
 * characters.
 *
 * Everything has a bound: bytes, nodes, depth, a scalar's length. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

#define YAML_BYTES_MAX 65536
#define YAML_NODES_MAX 4096
#define YAML_DEPTH_MAX 8
#define YAML_SCALAR_MAX 4095

enum yaml_kind { YAML_MAP, YAML_LIST, YAML_SCALAR };

struct ses_yaml {
	enum yaml_kind kind;
	unsigned line, column; /* from 1 */
	char *key;	       /* in a map, else NULL */
	unsigned key_line, key_column;
	json_t *value; /* of a scalar */
	struct ses_yaml *child, *next;
};

/* Reads n bytes. *ret is the one document's root, or NULL for a file that says nothing; freed by
 * ses_yaml_free. Errors are ERR_USAGE, "LINE:COLUMN: ..." */
int ses_yaml_read(const char *text, size_t n, struct ses_yaml **ret, struct err *e);
void ses_yaml_free(struct ses_yaml *node);
/* The same as JSON; NULL without memory. */
json_t *ses_yaml_json(const struct ses_yaml *node);
/* Puts "LINE:COLUMN: " of a node, or of its key, in front of a message. Returns -1. */
int ses_yaml_at(const struct ses_yaml *node, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int ses_yaml_at_key(const struct ses_yaml *node, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
