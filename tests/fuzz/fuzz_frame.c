/* What a client sends: frames, and the requests in them. The input is read twice, in pieces whose size the first byte says and whole: both times
 * the same frames come out. What is taken keeps the promises of request.h; what is refused says one printable line. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "session/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static void refused(const struct ses_error *e)
{
	must(e->type < SES_ERROR_TYPE_N && e->message[0]);
	for (const char *s = e->message; *s; s++)
		must((unsigned char)*s >= 0x20 && *s != 0x7f);
	json_decref(ses_error_json(e));
}

static void taken(const struct request *r)
{
	static const char *const paths[] = { "path", "to", "file", "cwd" };

	must(r->id >= 1 && r->id <= REQUEST_ID_MAX && r->op < OP_ID_N && r->n <= FRAME_BYTES_MAX);
	must(!r->more || ses_ops[r->op].payload == PAYLOAD_PARTS || r->op == OP_MORE);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		must(!request_str(r, paths[i]) || (*request_str(r, paths[i]) && strlen(request_str(r, paths[i])) <= REQUEST_PATH_MAX));
	must(request_int(r, "port", 1) >= 1 && request_int(r, "port", 1) <= 65535 && request_int(r, "mode", 0) <= 0777);
	must(request_us(r, "timeout_s", 1) >= 1);
	if (r->op == OP_SIGNAL)
		must(request_signal(r) >= 1 && request_signal(r) <= 64);
}

/* A sum over all that came out. */
static uint64_t read_all(const uint8_t *data, size_t size, size_t piece)
{
	struct frame_reader in;
	struct ses_error e;
	uint64_t sum = 0;
	int rc = 0;

	if (frame_reader_open(&in) < 0)
		return 0;
	while (size > 0 && rc >= 0) {
		size_t room, n;
		char *to = frame_room(&in, &room);

		must(room > 0);
		n = piece < size ? piece : size;
		n = n < room ? n : room;
		memcpy(to, data, n);
		frame_fed(&in, n);
		data += n;
		size -= n;
		do {
			struct frame f = { 0 };
			struct request r;
			uint64_t id;

			rc = frame_next(&in, &f, &e);
			if (rc < 0)
				refused(&e);
			if (rc != 1)
				break;
			must(json_is_object(f.head) && f.n <= FRAME_BYTES_MAX);
			if (request_read(&f, &r, &id, &e) == 0)
				taken(&r);
			else
				refused(&e);
			sum = sum * 31 + f.n + id + 1;
			frame_free(&f);
		} while (1);
	}
	frame_reader_close(&in);
	return rc < 0 ? sum * 2 : sum * 2 + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	must(read_all(data + 1, size - 1, data[0] + 1U) == read_all(data + 1, size - 1, size));
	return 0;
}
