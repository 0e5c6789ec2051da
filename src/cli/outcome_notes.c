#include "cli/outcome_notes.h"

#include <stdio.h>
#include <string.h>

void outcome_note(struct prepared *p, const char *text)
{
	if (p->n_notes < sizeof(p->notes) / sizeof(p->notes[0]))
		snprintf(p->notes[p->n_notes++], sizeof(p->notes[0]), "%s", text);
}

/* A program of another architecture is "Exec format error" to the kernel. */
static void note_platform(struct prepared *pr, const struct box_outcome *out)
{
	const struct img_platform *p = &pr->image.record.platform;
	char image[IMG_PLATFORM_TEXT], machine[IMG_PLATFORM_TEXT], text[200];
	struct img_platform here;
	struct err ignored;

	if (out->fault != FAULT_EXEC_FAILED || !pr->image.asked ||
	    img_platform_host(&here, &ignored) < 0 || strcmp(p->arch, here.arch) == 0)
		return;
	snprintf(text, sizeof(text), "the image is for %s, this machine is %s",
		 img_platform_text(p, image), img_platform_text(&here, machine));
	outcome_note(pr, text);
}

void outcome_notes(struct prepared *p, const struct box_outcome *out, bool captured)
{
	char text[200];

	note_platform(p, out);
	if (out->no_overlay)
		mount_deny_strict(&p->mounts, out->no_overlay);
	if (out->note[0])
		outcome_note(p, out->note);
	if (out->binds > 0) {
		snprintf(
			text, sizeof(text),
			"degraded: %u read-only director%s shown by bind, not through an overlay (mounts below, or a "
			"container in a container): sockets of the host in it can be reached",
			out->binds, out->binds == 1 ? "y is" : "ies are");
		outcome_note(p, text);
	}
	if (out->stream_errno && captured) {
		snprintf(text, sizeof(text), "the command's input or output is not whole: %s",
			 strerror(out->stream_errno));
		outcome_note(p, text);
	}
	if (out->lost_denials > 0) {
		snprintf(
			text, sizeof(text),
			"%u refused calls were taken away by a signal before they could be recorded",
			out->lost_denials);
		outcome_note(p, text);
	}
	if (outcome_code(out) != 0 && out->fault != FAULT_CANCELLED)
		request_hints(p);
}
