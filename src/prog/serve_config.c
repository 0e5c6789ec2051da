/* `cloche config check`: reads cloche.yaml as `open` does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"
#include "cli/config.h"
#include "cli/verbs.h"
#include "prog/serve_verbs.h"
#include "session/config.h"

static json_t *names(const json_t *profiles)
{
	json_t *list = json_array();
	const char *name;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)profiles, name, v)
		json_array_append_new(list, json_string(name));
	return list;
}

static int put_json(json_t *o)
{
	_cleanup_buf_ struct buf out = { 0 };
	char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

	buf_init(&out, 1 << 20);
	if (text)
		buf_fmt(&out, "%s\n", text);
	else
		out.failed = true;
	free(text);
	json_decref(o);
	return cli_put(STDOUT_FILENO, &out);
}

/* "FILE:LINE:COLUMN: MESSAGE", where the file says something wrong. */
static int tell_wrong(const struct config_options *o, const struct err *e)
{
	unsigned line, column;
	const char *at = e->msg;
	int rc;

	if (!o->json) {
		struct err said = *e;

		said.kind = ERR_REFUSED; /* the words of the command were right */
		return cli_fail("config", &said);
	}
	while ((at = strchr(at, ':')) && sscanf(at, ":%u:%u: ", &line, &column) != 2)
		at++;
	rc = put_json(at ? json_pack("{s:b, s:i, s:i, s:s}", "ok", 0, "line", (int)line, "column",
				     (int)column, "error", e->msg)
			 : json_pack("{s:b, s:s}", "ok", 0, "error", e->msg));
	return rc ? rc : 1;
}

static int tell_right(const struct config_options *o, const struct ses_config *c)
{
	_cleanup_buf_ struct buf out = { 0 };

	if (o->json)
		return put_json(json_pack("{s:b, s:s, s:b, s:o, s:o, s:o, s:o}", "ok", 1, "file",
					  c->path, "there", c->there, "defaults",
					  c->defaults ? json_incref(c->defaults) : json_object(),
					  "vcpu", names(c->vcpu), "vdisk", names(c->vdisk), "vgpio",
					  names(c->vgpio)));
	buf_init(&out, 65536);
	if (!c->there)
		buf_fmt(&out, "%s: not there; sandboxes have the defaults of docs/OPTIONS.md\n",
			*c->path ? c->path : CONFIG_FILE);
	else
		buf_fmt(&out, "%s: ok (%zu defaults, %zu profiles)\n", c->path,
			json_object_size(c->defaults),
			json_object_size(c->vcpu) + json_object_size(c->vdisk) +
				json_object_size(c->vgpio));
	return cli_put(STDOUT_FILENO, &out);
}

int serve_config(int argc, char **argv)
{
	_cleanup_config_ struct ses_config c = { 0 };
	struct config_options o;
	struct err e;
	int rc = config_parse(argc, argv, &o);

	if (rc >= 0)
		return rc;
	if (ses_config_load(o.file, &c, &e) < 0)
		return tell_wrong(&o, &e);
	return tell_right(&o, &c);
}
