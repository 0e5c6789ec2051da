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

struct yaml_node {
	enum yaml_kind kind;
	unsigned line, column; /* from 1 */
	char *key;	       /* in a map, else NULL */
	unsigned key_line, key_column;
	json_t *value; /* of a scalar */
	struct yaml_node *child, *next;
};

/* Reads n bytes. *ret is the one document's root, or NULL for a file that says nothing; freed by
 * yaml_free. Errors are ERR_USAGE, "LINE:COLUMN: ..." */
int yaml_read(const char *text, size_t n, struct yaml_node **ret, struct err *e);
void yaml_free(struct yaml_node *node);
/* The same as JSON; NULL without memory. */
json_t *yaml_json(const struct yaml_node *node);
/* Puts "LINE:COLUMN: " of a node, or of its key, in front of a message. Returns -1. */
int yaml_at(const struct yaml_node *node, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int yaml_at_key(const struct yaml_node *node, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
