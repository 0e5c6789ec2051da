#include "image/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/str.h"

#define LINE_MAX 2048
#define EVERY_MS 100

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void img_progress_init(struct img_progress *p, enum img_show show, const char *verb)
{
	*p = (struct img_progress){ .show = show, .verb = verb };
	p->bar = show == IMG_SHOW_TEXT && isatty(STDERR_FILENO);
}

static void line(struct img_progress *p, const char *text)
{
	char shown[LINE_MAX], out[LINE_MAX + 128];
	int n;

	img_progress_end(p);
	n = snprintf(out, sizeof(out), "%s: %s\n", p->verb,
		     str_printable(shown, sizeof(shown), text));
	if (n > 0)
		fd_write_all(STDERR_FILENO, out, (size_t)n);
}

static void event(const char *name, const char *phase, const char *digest, const char *text,
		  uint64_t bytes, uint64_t total)
{
	_cleanup_buf_ struct buf out = { 0 };
	struct json j;

	buf_init(&out, 4 * LINE_MAX);
	json_init(&j, &out);
	json_obj(&j);
	json_kstr(&j, "event", name);
	json_kstr(&j, "phase", phase);
	if (digest) {
		json_kstr(&j, "digest", digest);
		json_ku64(&j, "bytes", bytes);
		json_ku64(&j, "total", total);
	}
	if (text)
		json_kstr(&j, "message", text);
	json_obj_end(&j);
	buf_str(&out, "\n");
	if (!out.failed)
		fd_write_all(STDOUT_FILENO, out.data, out.len);
}

void img_progress_phase(struct img_progress *p, const char *phase, const char *text)
{
	if (p->show == IMG_SHOW_JSON)
		event("phase", phase, NULL, text, 0, 0);
	else if (p->show == IMG_SHOW_TEXT)
		line(p, text);
}

void img_progress_layer(struct img_progress *p, const char *phase, const char *digest,
			uint64_t bytes, uint64_t total)
{
	if (p->show == IMG_SHOW_JSON)
		event("layer", phase, digest, NULL, bytes, total);
}

void img_progress_note(struct img_progress *p, const char *text)
{
	char noted[LINE_MAX];

	snprintf(noted, sizeof(noted), "note: %s", text);
	line(p, noted);
}

static void size_text(uint64_t bytes, char dst[16])
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB" };
	double v = (double)bytes;
	size_t i = 0;

	for (; v >= 999.5 && i + 1 < sizeof(units) / sizeof(units[0]); i++)
		v /= 1000;
	snprintf(dst, 16, v < 10 && i > 0 ? "%.1f %s" : "%.0f %s", v, units[i]);
}

static unsigned width(void)
{
	struct winsize w;

	if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) < 0 || w.ws_col < 20)
		return 80;
	return w.ws_col > 200 ? 200 : w.ws_col;
}

static void draw(const struct img_sums *s)
{
	uint64_t all = s->total + s->to_read, did = s->bytes + s->read;
	char text[100], have[16], total[16], bar[200], out[400];
	int n, room, full;

	size_text(s->bytes, have);
	size_text(s->total, total);
	n = snprintf(text, sizeof(text), "%s of %s, %zu of %zu layers", have, total, s->done,
		     s->layers);
	room = (int)width() - n - 6;
	if (room < 0)
		room = 0;
	if (room > 60)
		room = 60;
	full = all > 0 ? (int)((double)did / (double)all * room) : room;
	for (int i = 0; i < room; i++)
		bar[i] = i < full ? '=' : i == full ? '>' : ' ';
	bar[room] = '\0';
	n = snprintf(out, sizeof(out), "\r[%s] %s\033[K", bar, text);
	if (n > 0)
		fd_write_all(STDERR_FILENO, out, (size_t)n);
}

void img_progress_tick(struct img_progress *p, const struct img_sums *sums)
{
	uint64_t now = now_ms();

	if (!p->bar || now < p->shown_at + EVERY_MS)
		return;
	p->shown_at = now;
	p->drawn = true;
	draw(sums);
}

void img_progress_end(struct img_progress *p)
{
	if (p->drawn)
		fd_write_all(STDERR_FILENO, "\r\033[K", 4);
	p->drawn = false;
}
