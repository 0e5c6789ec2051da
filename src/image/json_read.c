/* Reading JSON of others: the getters. Each checks type and bound, and names the field when it is
 * wrong. */
#include "image/json_read.h"

#include <string.h>

#include "base/str.h"

static int wrong(struct err *e, const char *where, const char *key, const char *what)
{
	return err_set(e, ERR_REFUSED, "%s%s%s %s", where, *where ? "." : "", key, what);
}

static int load(const char *data, size_t n, size_t max, json_t **ret, struct err *e)
{
	json_error_t je;
	char shown[JSON_ERROR_TEXT_LENGTH];
	json_t *j;

	if (n > max)
		return err_set(e, ERR_REFUSED, "has %zu bytes, more than the %zu allowed", n, max);
	j = json_loadb(data, n, JSON_REJECT_DUPLICATES, &je);
	if (!j)
		return err_set(e, ERR_REFUSED, "is no valid JSON: line %d: %s", je.line,
			       str_printable(shown, sizeof(shown), je.text));
	*ret = j;
	return 0;
}

int img_json_load(const char *data, size_t n, size_t max, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;

	if (load(data, n, max, &j, e) < 0)
		return -1;
	if (!json_is_object(j))
		return err_set(e, ERR_REFUSED, "is no JSON object");
	*ret = json_incref(j);
	return 0;
}

int img_json_load_array(const char *data, size_t n, size_t max, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;

	if (load(data, n, max, &j, e) < 0)
		return -1;
	if (!json_is_array(j))
		return err_set(e, ERR_REFUSED, "is no JSON array");
	*ret = json_incref(j);
	return 0;
}

/* NULL when missing or null. */
static json_t *member(const json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	return json_is_null(v) ? NULL : v;
}

int img_json_object(const json_t *o, const char *where, const char *key, json_t **ret,
		    struct err *e)
{
	json_t *v = member(o, key);

	if (v && !json_is_object(v))
		return wrong(e, where, key, "is no object");
	*ret = v;
	return 0;
}

int img_json_array(const json_t *o, const char *where, const char *key, size_t max, json_t **ret,
		   struct err *e)
{
	json_t *v = member(o, key);

	if (v && !json_is_array(v))
		return wrong(e, where, key, "is no array");
	if (json_array_size(v) > max)
		return err_set(e, ERR_REFUSED, "%s%s%s has %zu elements, more than %zu", where,
			       *where ? "." : "", key, json_array_size(v), max);
	*ret = v;
	return 0;
}

int img_json_str(const json_t *o, const char *where, const char *key, char *dst, size_t cap,
		 struct err *e)
{
	const json_t *v = member(o, key);
	const char *s = "";

	if (v && !json_is_string(v))
		return wrong(e, where, key, "is no string");
	if (v)
		s = json_string_value(v);
	if (strlen(s) >= cap)
		return wrong(e, where, key, "is too long");
	for (const char *p = s; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			return wrong(e, where, key, "has control characters");
	memcpy(dst, s, strlen(s) + 1);
	return 0;
}

int img_json_size(const json_t *o, const char *where, const char *key, uint64_t max, uint64_t *ret,
		  struct err *e)
{
	const json_t *v = member(o, key);

	if (!json_is_integer(v))
		return wrong(e, where, key, v ? "is no integer" : "is missing");
	if (json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
		return wrong(e, where, key, "is out of range");
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}
