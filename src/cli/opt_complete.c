/* Completion scripts for bash, zsh and fish, from the tables: verbs, options, choices, files and
 * directories by type.
 *
 * The scripts are static text: completing never runs the program. All that comes from a table goes
 * through a quoting function of its shell, so that a help sentence can't become code in someone's
 * shell. Fixed parts of the scripts need only what the shell itself has. */
#include <string.h>

#include "base/str.h"
#include "cli/opt.h"

/* fish knows two escapes between single quotes. */
static void fish_quote(struct buf *out, const char *s)
{
	buf_str(out, "'");
	for (; *s; s++) {
		if (*s == '\'' || *s == '\\')
			buf_str(out, "\\");
		buf_add(out, s, 1);
	}
	buf_str(out, "'");
}

/* The first `n` of "a|b|c" as "a b c". */
static void choices_of(struct buf *out, const char *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_add(out, list[i] == '|' ? " " : list + i, 1);
}

static void choices(struct buf *out, const char *list)
{
	choices_of(out, list, strlen(list));
}

static void verb_names(const struct opt_verb *const *verbs, size_t n, struct buf *out)
{
	for (size_t i = 0; i < n; i++)
		buf_fmt(out, "%s%s", i ? " " : "", verbs[i]->name);
}

enum operand_kind { OPERAND_OTHER, OPERAND_VERB, OPERAND_FILE, OPERAND_CHOICE };

/* A word of a verb's usage line: "check [FILE]" has two. */
struct operand {
	const char *rest; /* of the line */
	const char *word;
	size_t n;
	unsigned at; /* from 1 on */
	enum operand_kind kind;
};

/* The next one: begin with a zeroed one. False behind the last. Those of a command are none. */
static bool next_operand(const struct opt_verb *verb, struct operand *o)
{
	const char *w;

	if (verb->takes_command)
		return false;
	if (!o->at++)
		o->rest = verb->operands;
	o->word = opt_next(&o->rest, ' ', &o->n);
	if (!o->word)
		return false;
	w = o->word + (*o->word == '[');
	o->kind = *w >= 'a' && *w <= 'z'       ? OPERAND_CHOICE
		  : strncmp(w, "VERB", 4) == 0 ? OPERAND_VERB
		  : strncmp(w, "FILE", 4) == 0 ? OPERAND_FILE
					       : OPERAND_OTHER;
	return true;
}

/* ---- bash ---- */

static const char bash_head[] = "# bash completion for cloche; made by `cloche completion bash`\n"
				"\n"
				"# Offers what fits $3 as a value of option $2 of verb $1.\n"
				"_cloche_value() {\n"
				"\tcase \"$1 $2\" in\n";

static const char bash_main[] =
	"_cloche_lines() {\n"
	"\tlocal line\n"
	"\twhile IFS= read -r line; do COMPREPLY+=(\"$line\"); done\n"
	"}\n"
	"\n"
	"_cloche_words() { _cloche_lines < <(compgen -W \"$1\" -- \"$2\"); }\n"
	"_cloche_files() { compopt -o filenames 2>/dev/null; _cloche_lines < <(compgen -f -- \"$1\"); }\n"
	"_cloche_dirs() { compopt -o filenames 2>/dev/null; _cloche_lines < <(compgen -d -- \"$1\"); }\n"
	"\n"
	"_cloche() {\n"
	"\tlocal cur=${COMP_WORDS[COMP_CWORD]} verb='' opt='' last='' command=0 operands=0 i w\n"
	"\tCOMPREPLY=()\n"
	"\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	"\t\tw=${COMP_WORDS[i]}\n"
	"\t\tif [[ -z $verb ]]; then verb=$w\n"
	"\t\telif [[ $w == = || $w == : ]]; then opt=$last # readline splits words at these\n"
	"\t\telif [[ -n $opt ]]; then opt=''\n"
	"\t\telif [[ $w == -- ]]; then command=$((i + 1)); break\n"
	"\t\telif [[ $w == --*=* ]]; then last=''\n"
	"\t\telif [[ $w == -* ]]; then\n"
	"\t\t\t[[ $w == --* ]] || w=-${w: -1}\n"
	"\t\t\tlast=$w\n"
	"\t\t\t_cloche_takes_value \"$verb\" \"$w\" && opt=$w\n"
	"\t\telif _cloche_takes_command \"$verb\"; then command=$i; break\n"
	"\t\telse operands=$((operands + 1)); last=''\n"
	"\t\tfi\n"
	"\tdone\n"
	"\tif [[ -z $verb ]]; then\n"
	"\t\t_cloche_words \"$_cloche_verbs --help --version\" \"$cur\"\n"
	"\t\treturn\n"
	"\tfi\n"
	"\tif ((command)); then\n"
	"\t\tif _cloche_takes_command \"$verb\" && ((command == COMP_CWORD)) && [[ $cur != */* ]]; then\n"
	"\t\t\t_cloche_lines < <(compgen -c -- \"$cur\")\n"
	"\t\telif _cloche_takes_command \"$verb\"; then\n"
	"\t\t\t_cloche_files \"$cur\"\n"
	"\t\telse\n"
	"\t\t\t_cloche_operand \"$verb\" $((operands + COMP_CWORD - command + 1)) \"$cur\"\n"
	"\t\tfi\n"
	"\t\treturn\n"
	"\tfi\n"
	"\tif [[ $cur == = || $cur == : ]]; then opt=$last cur=''; fi\n"
	"\tif [[ -n $opt ]]; then\n"
	"\t\t_cloche_value \"$verb\" \"$opt\" \"$cur\"\n"
	"\telif [[ $cur == --*=* ]]; then\n"
	"\t\t_cloche_value \"$verb\" \"${cur%%=*}\" \"${cur#*=}\"\n"
	"\t\tCOMPREPLY=(\"${COMPREPLY[@]/#/${cur%%=*}=}\")\n"
	"\telif [[ $cur == -* ]]; then\n"
	"\t\t_cloche_options \"$verb\" \"$cur\"\n"
	"\telif _cloche_takes_command \"$verb\"; then\n"
	"\t\t_cloche_lines < <(compgen -c -- \"$cur\")\n"
	"\telse\n"
	"\t\t_cloche_operand \"$verb\" $((operands + 1)) \"$cur\"\n"
	"\tfi\n"
	"}\n"
	"\n"
	"complete -F _cloche cloche\n";

static void bash_pattern(struct buf *out, const struct opt_verb *verb, const struct opt_row *row)
{
	buf_fmt(out, "\t'%s --%s'", verb->name, row->name);
	if (row->letter)
		buf_fmt(out, " | '%s -%c'", verb->name, row->letter);
	buf_str(out, ") ");
}

static void bash_case(struct buf *out, const struct opt_verb *verb, const struct opt_row *row)
{
	if (row->type != OPT_CHOICE && row->type != OPT_PATH && row->type != OPT_DIR)
		return;
	bash_pattern(out, verb, row);
	if (row->type == OPT_CHOICE) {
		buf_str(out, "_cloche_words '");
		choices(out, row->value);
		buf_str(out, "' \"$3\" ;;\n");
	} else if (row->type == OPT_PATH) {
		buf_str(out, "_cloche_files \"$3\" ;;\n");
	} else {
		buf_str(out, "_cloche_dirs \"$3\" ;;\n");
	}
}

static void bash_operands(struct buf *out, const struct opt_verb *verb)
{
	struct operand o = { 0 };

	while (next_operand(verb, &o)) {
		if (o.kind == OPERAND_OTHER)
			continue;
		buf_fmt(out, "\t'%s %u') ", verb->name, o.at);
		if (o.kind == OPERAND_VERB) {
			buf_str(out, "_cloche_words \"$_cloche_verbs\" \"$3\" ;;\n");
		} else if (o.kind == OPERAND_FILE) {
			buf_str(out, "_cloche_files \"$3\" ;;\n");
		} else {
			buf_str(out, "_cloche_words '");
			choices_of(out, o.word, o.n);
			buf_str(out, "' \"$3\" ;;\n");
		}
	}
}

static void bash_script(const struct opt_verb *const *verbs, size_t n, struct buf *out)
{
	buf_str(out, bash_head);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < verbs[i]->n_rows; k++)
			bash_case(out, verbs[i], &verbs[i]->rows[k]);
	buf_str(out,
		"\tesac\n}\n\n# Does option $2 of verb $1 take a value?\n_cloche_takes_value() {\n\tcase \"$1 $2\" in\n");
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < verbs[i]->n_rows; k++)
			if (verbs[i]->rows[k].type != OPT_FLAG) {
				bash_pattern(out, verbs[i], &verbs[i]->rows[k]);
				buf_str(out, "return 0 ;;\n");
			}
	buf_str(out, "\t*) return 1 ;;\n\tesac\n}\n\n_cloche_verbs='");
	verb_names(verbs, n, out);
	buf_str(out, "'\n\n_cloche_takes_command() {\n\tcase \"$1\" in\n");
	for (size_t i = 0; i < n; i++)
		if (verbs[i]->takes_command)
			buf_fmt(out, "\t%s) return 0 ;;\n", verbs[i]->name);
	buf_str(out,
		"\t*) return 1 ;;\n\tesac\n}\n\n# Offers what fits $3 as operand $2 of verb $1.\n_cloche_operand() {\n\tcase \"$1 $2\" in\n");
	for (size_t i = 0; i < n; i++)
		bash_operands(out, verbs[i]);
	buf_str(out, "\tesac\n}\n\n_cloche_options() {\n\tcase \"$1\" in\n");
	for (size_t i = 0; i < n; i++) {
		buf_fmt(out, "\t%s) _cloche_words '", verbs[i]->name);
		for (size_t k = 0; k < verbs[i]->n_rows; k++)
			buf_fmt(out, "--%s ", verbs[i]->rows[k].name);
		buf_str(out, "--help' \"$2\" ;;\n");
	}
	buf_str(out, "\tesac\n}\n\n");
	buf_str(out, bash_main);
}

/* ---- zsh ---- */

#define ZSH_SPEC "[]:\\" /* special in an _arguments spec */

/* Text inside the single quotes of a spec; `special` are the characters that mean something there.
 */
static void zsh_text(struct buf *out, const char *s, const char *special)
{
	for (; *s; s++) {
		if (*s == '\'') {
			buf_str(out, "'\\''");
			continue;
		}
		if (strchr(special, *s))
			buf_str(out, "\\");
		buf_add(out, s, 1);
	}
}

/* The options that rule each other out, as _arguments wants them: "(-v --volume --other)". */
static void zsh_excluded(struct buf *out, const struct opt_row *row)
{
	const char *list = row->conflicts, *w;
	bool first = true;
	size_t n;

	if (row->many && !row->conflicts)
		return;
	buf_str(out, "(");
	if (!row->many) {
		if (row->letter)
			buf_fmt(out, "-%c ", row->letter);
		buf_fmt(out, "--%s", row->name);
		first = false;
	}
	while ((w = opt_next(&list, ',', &n))) {
		buf_fmt(out, "%s--%.*s", first ? "" : " ", (int)n, w);
		first = false;
	}
	buf_str(out, ")");
}

static void zsh_spec(struct buf *out, const struct opt_row *row, bool letter)
{
	buf_str(out, "\t\t'");
	zsh_excluded(out, row);
	if (row->many)
		buf_str(out, "*");
	if (letter)
		buf_fmt(out, "-%c", row->letter);
	else
		buf_fmt(out, "--%s%s", row->name, row->type == OPT_FLAG ? "" : "=");
	buf_str(out, "[");
	zsh_text(out, row->help, ZSH_SPEC);
	buf_str(out, "]");
	if (row->type != OPT_FLAG) {
		buf_str(out, ":");
		zsh_text(out, row->type == OPT_CHOICE ? row->name : opt_value_name(row), ZSH_SPEC);
		buf_str(out, ":");
		if (row->type == OPT_CHOICE) {
			buf_str(out, "(");
			choices(out, row->value);
			buf_str(out, ")");
		} else if (row->type == OPT_PATH) {
			buf_str(out, "_files");
		} else if (row->type == OPT_DIR) {
			buf_str(out, "_files -/");
		} else {
			buf_str(out, " ");
		}
	}
	buf_str(out, "' \\\n");
}

static void zsh_operands(const struct opt_verb *const *verbs, size_t n, const struct opt_verb *verb,
			 struct buf *out)
{
	struct operand o = { 0 };

	buf_str(out, "\t\t");
	while (next_operand(verb, &o)) {
		if (o.kind == OPERAND_FILE)
			buf_fmt(out, "'%u:file:_files' ", o.at);
		if (o.kind != OPERAND_VERB && o.kind != OPERAND_CHOICE)
			continue;
		buf_fmt(out, "'%u:%s:(", o.at, verb->name);
		if (o.kind == OPERAND_VERB)
			verb_names(verbs, n, out);
		else
			choices_of(out, o.word, o.n);
		buf_str(out, ")' ");
	}
	buf_str(out, "'*: : ' ;;\n");
}

static void zsh_verb(const struct opt_verb *const *verbs, size_t n, const struct opt_verb *verb,
		     struct buf *out)
{
	buf_fmt(out, "\t%s)\n\t\t_arguments -s -S \\\n\t\t'(- *)'{-h,--help}'[show help]' \\\n",
		verb->name);
	for (size_t k = 0; k < verb->n_rows; k++) {
		zsh_spec(out, &verb->rows[k], false);
		if (verb->rows[k].letter)
			zsh_spec(out, &verb->rows[k], true);
	}
	if (verb->takes_command)
		buf_str(out, "\t\t'(-)1:command: _command_names -e' '*::argument: _normal' ;;\n");
	else
		zsh_operands(verbs, n, verb, out);
}

static void zsh_script(const struct opt_verb *const *verbs, size_t n, struct buf *out)
{
	buf_str(out, "#compdef cloche\n"
		     "# zsh completion for cloche; made by `cloche completion zsh`\n"
		     "\n"
		     "_cloche() {\n"
		     "\tlocal curcontext=$curcontext state line\n"
		     "\tlocal -A opt_args\n"
		     "\tlocal -a verbs\n"
		     "\tverbs=(\n");
	for (size_t i = 0; i < n; i++) {
		buf_fmt(out, "\t\t'%s:", verbs[i]->name);
		zsh_text(out, verbs[i]->summary, ":\\");
		buf_str(out, "'\n");
	}
	buf_str(out,
		"\t)\n"
		"\t_arguments -C '(- *)'{-h,--help}'[show help]' '(- *)--version[print the version]' \\\n"
		"\t\t'1: :->verb' '*:: :->rest' && return 0\n"
		"\tif [[ $state == verb ]]; then\n"
		"\t\t_describe verb verbs\n"
		"\t\treturn\n"
		"\tfi\n"
		"\tcurcontext=\"${curcontext%:*:*}:cloche-$words[1]:\"\n"
		"\tcase $words[1] in\n");
	for (size_t i = 0; i < n; i++)
		zsh_verb(verbs, n, verbs[i], out);
	buf_str(out, "\tesac\n"
		     "}\n"
		     "\n"
		     "if [[ $funcstack[1] == _cloche ]]; then\n"
		     "\t_cloche \"$@\"\n"
		     "else\n"
		     "\tcompdef _cloche cloche\n"
		     "fi\n");
}

/* ---- fish ---- */

static void fish_row(struct buf *out, const struct opt_verb *verb, const struct opt_row *row)
{
	buf_fmt(out, "complete -c cloche -n '__cloche_options %s' -l %s", verb->name, row->name);
	if (row->letter)
		buf_fmt(out, " -s %c", row->letter);
	if (row->type == OPT_CHOICE) {
		buf_str(out, " -x -a '");
		choices(out, row->value);
		buf_str(out, "'");
	} else if (row->type == OPT_PATH) {
		buf_str(out, " -r -F");
	} else if (row->type == OPT_DIR) {
		buf_str(out, " -x -a '(__fish_complete_directories)'");
	} else if (row->type != OPT_FLAG) {
		buf_str(out, " -x");
	}
	buf_str(out, " -d ");
	fish_quote(out, row->help);
	buf_str(out, "\n");
}

/* Which options take a value, so that the script knows where the command begins. */
static void fish_valued(struct buf *out, const struct opt_verb *verb)
{
	buf_fmt(out, "\t\tcase %s\n\t\t\tset valued", verb->name);
	for (size_t k = 0; k < verb->n_rows; k++) {
		if (verb->rows[k].type == OPT_FLAG)
			continue;
		buf_fmt(out, " --%s", verb->rows[k].name);
		if (verb->rows[k].letter)
			buf_fmt(out, " -%c", verb->rows[k].letter);
	}
	buf_str(out, "\n");
}

static const char fish_head[] =
	"# fish completion for cloche; made by `cloche completion fish`\n"
	"\n"
	"function __cloche_verb\n"
	"\tset -l words (commandline -opc)\n"
	"\ttest (count $words) -ge 2; and test \"$words[2]\" = $argv[1]\n"
	"end\n"
	"\n"
	"function __cloche_no_verb\n"
	"\ttest (count (commandline -opc)) -eq 1\n"
	"end\n"
	"\n"
	"# The words of the command behind the options, of a verb that takes one.\n"
	"function __cloche_command\n"
	"\tset -l words (commandline -opc)\n"
	"\tset -l valued\n"
	"\tswitch \"$words[2]\"\n";

static const char fish_tail[] =
	"\tend\n"
	"\tset -l skip 0\n"
	"\tset -l i 3\n"
	"\twhile test $i -le (count $words)\n"
	"\t\tset -l w $words[$i]\n"
	"\t\tif test $skip -eq 1\n"
	"\t\t\tset skip 0\n"
	"\t\telse if test \"$w\" = --\n"
	"\t\t\tset i (math $i + 1)\n"
	"\t\t\tprintf '%s\\n' -- $words[$i..-1]\n"
	"\t\t\treturn\n"
	"\t\telse if contains -- $w $valued\n"
	"\t\t\tset skip 1\n"
	"\t\telse if string match -qr '^-[^-].' -- $w; and contains -- -(string sub -s -1 -- $w) $valued\n"
	"\t\t\tset skip 1\n"
	"\t\telse if not string match -q -- '-*' $w\n"
	"\t\t\tprintf '%s\\n' $words[$i..-1]\n"
	"\t\t\treturn\n"
	"\t\tend\n"
	"\t\tset i (math $i + 1)\n"
	"\tend\n"
	"end\n"
	"\n"
	"# Options of the verb can still be given.\n"
	"function __cloche_options\n"
	"\t__cloche_verb $argv[1]; and test (count (__cloche_command)) -eq 0\n"
	"end\n"
	"\n"
	"function __cloche_complete_command\n"
	"\tset -l words (__cloche_command)\n"
	"\tif test \"$words[1]\" = --\n"
	"\t\tset -e words[1]\n"
	"\tend\n"
	"\tset -l token (commandline -ct)\n"
	"\tif test (count $words) -eq 0; and string match -qr '^(-|$)' -- \"$token\"\n"
	"\t\treturn\n"
	"\tend\n"
	"\tset -l line (string escape -- $words) $token\n"
	"\tcomplete -C\"$line\"\n"
	"end\n"
	"\n"
	"complete -c cloche -f\n"
	"complete -c cloche -n __cloche_no_verb -l help -s h -d 'show help'\n"
	"complete -c cloche -n __cloche_no_verb -l version -d 'print the version'\n";

/* Which operand the cursor is at, fish does not tell: one is offered when the choice before it is
 * made, and a choice until then. */
static void fish_operands(const struct opt_verb *const *verbs, size_t n,
			  const struct opt_verb *verb, struct buf *out)
{
	struct operand o = { 0 }, made = { 0 };

	while (next_operand(verb, &o)) {
		if (o.kind == OPERAND_OTHER)
			continue;
		buf_fmt(out, "complete -c cloche -n '__cloche_verb %s", verb->name);
		if (o.kind == OPERAND_CHOICE)
			made = o;
		if (made.n) {
			buf_fmt(out, "; and %s__fish_seen_subcommand_from ",
				o.kind == OPERAND_CHOICE ? "not " : "");
			choices_of(out, made.word, made.n);
		}
		if (o.kind == OPERAND_FILE) {
			buf_str(out, "' -F\n");
			continue;
		}
		buf_str(out, "' -a '");
		if (o.kind == OPERAND_VERB)
			verb_names(verbs, n, out);
		else
			choices_of(out, o.word, o.n);
		buf_str(out, "'\n");
	}
}

static void fish_script(const struct opt_verb *const *verbs, size_t n, struct buf *out)
{
	buf_str(out, fish_head);
	for (size_t i = 0; i < n; i++)
		if (verbs[i]->takes_command)
			fish_valued(out, verbs[i]);
	buf_str(out, "\t\tcase '*'\n\t\t\treturn\n");
	buf_str(out, fish_tail);
	for (size_t i = 0; i < n; i++) {
		buf_fmt(out, "complete -c cloche -n __cloche_no_verb -a %s -d ", verbs[i]->name);
		fish_quote(out, verbs[i]->summary);
		buf_str(out, "\n");
	}
	for (size_t i = 0; i < n; i++) {
		buf_fmt(out,
			"complete -c cloche -n '__cloche_options %s' -l help -s h -d 'show help'\n",
			verbs[i]->name);
		for (size_t k = 0; k < verbs[i]->n_rows; k++)
			fish_row(out, verbs[i], &verbs[i]->rows[k]);
		if (verbs[i]->takes_command)
			buf_fmt(out,
				"complete -c cloche -n '__cloche_verb %s' -a '(__cloche_complete_command)'\n",
				verbs[i]->name);
		else
			fish_operands(verbs, n, verbs[i], out);
	}
}

int opt_completion(const struct opt_verb *const *verbs, size_t n, const char *shell,
		   struct buf *out, struct err *e)
{
	static const char *const names[] = { "bash", "zsh", "fish", NULL };
	static void (*const scripts[])(const struct opt_verb *const *, size_t,
				       struct buf *) = { bash_script, zsh_script, fish_script };
	char shown[64];

	for (size_t i = 0; names[i]; i++)
		if (strcmp(shell, names[i]) == 0) {
			scripts[i](verbs, n, out);
			return 0;
		}
	str_printable(shown, sizeof(shown), shell);
	return err_set(e, ERR_USAGE,
		       "no completion for \"%s\": there is one for bash, zsh and fish", shown);
}
