/* A record of the store from whoever could write there: read, it writes itself as something that reads the same; refused, it says one printable line.
 * The lines beneath it (text.h) give back what they were given. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "image/record.h"
#include "image/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(const struct err *e)
{
	if (e->kind != ERR_REFUSED || !e->msg[0])
		abort();
	for (const char *s = e->msg; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			abort();
}

static void check_record(const struct img_record *r)
{
	static struct img_record again;
	_cleanup_buf_ struct buf one = { 0 }, two = { 0 };
	struct err e = { 0 };

	buf_init(&one, 2 * IMG_RECORD_MAX);
	buf_init(&two, 2 * IMG_RECORD_MAX);
	for (size_t i = 0; i < r->n_layers; i++)
		if (strlen(r->layers[i].name) != IMG_LAYER_NAME - 1 || strchr(r->layers[i].name, '/'))
			abort();
	if (r->workdir[0] && (r->workdir[0] != '/' || strstr(r->workdir, "/../")))
		abort();
	if (img_record_write(r, &one, &e) < 0)
		abort();
	if (img_record_read(one.data, one.len, &again, &e) < 0 || img_record_write(&again, &two, &e) < 0)
		abort();
	if (one.len != two.len || memcmp(one.data, two.data, one.len))
		abort();
	img_record_free(&again);
}

static void check_value(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf line = { 0 };
	char *value = malloc(size + 1), *at, *got;
	const char *key;
	struct err e = { 0 };

	if (!value)
		return;
	buf_init(&line, IMG_RECORD_MAX);
	memcpy(value, data, size);
	value[size] = '\0';
	img_line(&line, "key", value);
	at = line.data;
	if (line.failed || img_line_next(&at, line.data + line.len, &key, &got, &e) != 1 || strcmp(key, "key") || !got || strcmp(got, value))
		abort();
	if (img_line_next(&at, line.data + line.len, &key, &got, &e) != 0)
		abort();
	free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct img_record r;
	struct err e = { 0 };

	if (size > 65536)
		return 0;
	if (img_record_read((const char *)data, size, &r, &e) < 0) {
		check_line(&e);
	} else {
		check_record(&r);
		img_record_free(&r);
	}
	check_value(data, size);
	return 0;
}
