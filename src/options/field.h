/*
 * options/field.h -- one table per struct: command-line options, op attributes, pass options,
 * config
 *
 * A row describes a member: name, kind, offset, default, range or value names, help.  A table
 * provides defaults, parsing with range checks, the text form, comparison, --help pages and the
 * configuration that is saved with a run.
 *
 *     typedef struct { int stride; double eps; bool nesterov; int mode; const char *path; } opts;
 *     static const td_field opts_fields[] = {
 *         TD_INT (opts, stride, 1, 1, 16, "pixels between windows"),
 *         TD_REAL(opts, eps, 1e-5, 0, 1, "added to the variance"),
 *         TD_BOOL(opts, nesterov, false, "look ahead"),
 *         TD_ENUM(opts, mode, 0, mode_names, "how"),          mode_names: "a", "b", NULL
 *         TD_TEXT(opts, path, NULL, "FILE", "where"),
 *         TD_END,
 *     };
 *
 * The name of an option is the member's; on the command line '_' and '-' are equal.  `alias` is
 * another name, or several separated by '|'; a single letter is a short option ("-b").
 */
#ifndef TD_OPTIONS_FIELD_H
#define TD_OPTIONS_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/text.h"
#include "tandem/options.h"

typedef enum {
    TD_KIND_END,
    TD_KIND_INT,  /* int; with `def_text` also a switch, which sets that value */
    TD_KIND_LONG, /* int64_t; suffixes k, M, G, Ki, Mi, Gi, with or without B */
    TD_KIND_REAL, /* double */
    TD_KIND_BOOL, /* bool; "--x" sets, "--no-x" clears, "--x=false" too */
    TD_KIND_ENUM, /* int or a C enum of its size, index into names */
    TD_KIND_TEXT, /* const char *, arena-owned when parsed */

    /* rows without a member, used only by command lines and config files */
    TD_KIND_TITLE,    /* `help` is the title of the rows below in pages and printed configurations;
                        `def` 1: an abbreviated name prefers other rows; `def_text`: names of the
                        section in earlier versions, "a|b", which are still accepted */
    TD_KIND_ALIAS,    /* another name of the option `def_text`, in its own table */
    TD_KIND_ACCEPTED, /* has no effect; `def_text` is the reason; `meta`: it takes a value */
    TD_KIND_REFUSED,  /* an error; `def_text` is the reason */
    TD_KIND_GIVEN     /* not an option: the offset of the struct's td_given */
} td_field_kind;

typedef struct td_field {
    const char *name;
    const char *alias; /* "b|batch", or NULL */
    td_field_kind kind;
    size_t offset;
    double def, min, max;     /* numbers; INT and LONG are exact below 2^53.  BOOL: a min above max
                                 marks a member that is the opposite of the option, `def` */
    const char *def_text;     /* TEXT: the default; INT: the value if the command line gives none */
    const char *const *names; /* ENUM, NULL-terminated; a name may be "folder|pytorch|dali-cpu" */
    const char *meta;         /* the value's name in --help, "FILE"; NULL: from the kind; for
                                a BOOL, "" means that another row is "no-" + this one */
    const char *help;         /* NULL hides the row from --help */
} td_field;

/* `meta` of a TEXT that is a list of integers; on a command line they may be separated by blanks */
#define TD_META_NUMBERS "N,..."

#define TD_INT(T, m, d, lo, hi, help_)                                                             \
    {                                                                                              \
#m, NULL, TD_KIND_INT, offsetof(T, m), d, lo, hi, NULL, NULL, NULL, help_                  \
    }
#define TD_INT_AS(T, m, name_, alias_, d, lo, hi, meta_, help_)                                    \
    {                                                                                              \
        name_, alias_, TD_KIND_INT, offsetof(T, m), d, lo, hi, NULL, NULL, meta_, help_            \
    }
#define TD_INT_OR_SWITCH_AS(T, m, name_, d, lo, hi, bare_, help_)                                  \
    {                                                                                              \
        name_, NULL, TD_KIND_INT, offsetof(T, m), d, lo, hi, bare_, NULL, NULL, help_              \
    }
#define TD_LONG(T, m, d, lo, hi, help_)                                                            \
    {                                                                                              \
#m, NULL, TD_KIND_LONG, offsetof(T, m), d, lo, hi, NULL, NULL, NULL, help_                 \
    }
#define TD_LONG_AS(T, m, name_, alias_, d, lo, hi, meta_, help_)                                   \
    {                                                                                              \
        name_, alias_, TD_KIND_LONG, offsetof(T, m), d, lo, hi, NULL, NULL, meta_, help_           \
    }
#define TD_REAL(T, m, d, lo, hi, help_)                                                            \
    {                                                                                              \
#m, NULL, TD_KIND_REAL, offsetof(T, m), d, lo, hi, NULL, NULL, NULL, help_                 \
    }
#define TD_REAL_AS(T, m, name_, alias_, d, lo, hi, meta_, help_)                                   \
    {                                                                                              \
        name_, alias_, TD_KIND_REAL, offsetof(T, m), d, lo, hi, NULL, NULL, meta_, help_           \
    }
#define TD_BOOL(T, m, d, help_)                                                                    \
    {                                                                                              \
#m, NULL, TD_KIND_BOOL, offsetof(T, m), d, 0, 1, NULL, NULL, NULL, help_                   \
    }
#define TD_BOOL_AS(T, m, name_, alias_, d, help_)                                                  \
    {                                                                                              \
        name_, alias_, TD_KIND_BOOL, offsetof(T, m), d, 0, 1, NULL, NULL, NULL, help_              \
    }
/* --x if "--no-x" is a separate row: `meta` "" omits "[no-]" from the help page */
#define TD_BOOL_ONLY(T, m, name_, alias_, d, help_)                                                \
    {                                                                                              \
        name_, alias_, TD_KIND_BOOL, offsetof(T, m), d, 0, 1, NULL, NULL, "", help_                \
    }
/* the option "no-x" of a positive member x; `d` is the option's default, the member's is !d */
#define TD_BOOL_NOT(T, m, name_, alias_, d, help_)                                                 \
    {                                                                                              \
        name_, alias_, TD_KIND_BOOL, offsetof(T, m), d, 1, 0, NULL, NULL, NULL, help_              \
    }
/* an ENUM's member is an int or a C enum, which has the size of one */
#define TD_ENUM_OFFSET(T, m)                                                                       \
    (offsetof(T, m) + 0 * sizeof(char[sizeof(((T *)0)->m) == sizeof(int) ? 1 : -1]))
#define TD_ENUM(T, m, d, names_, help_)                                                            \
    {                                                                                              \
#m, NULL, TD_KIND_ENUM, TD_ENUM_OFFSET(T, m), d, 0, 0, NULL, names_, NULL, help_           \
    }
#define TD_ENUM_AS(T, m, name_, alias_, d, names_, help_)                                          \
    {                                                                                              \
        name_, alias_, TD_KIND_ENUM, TD_ENUM_OFFSET(T, m), d, 0, 0, NULL, names_, NULL, help_      \
    }
#define TD_TEXT(T, m, d, meta_, help_)                                                             \
    {                                                                                              \
#m, NULL, TD_KIND_TEXT, offsetof(T, m), 0, 0, 0, d, NULL, meta_, help_                     \
    }
#define TD_TEXT_AS(T, m, name_, alias_, d, meta_, help_)                                           \
    {                                                                                              \
        name_, alias_, TD_KIND_TEXT, offsetof(T, m), 0, 0, 0, d, NULL, meta_, help_                \
    }
#define TD_TITLE(text_)                                                                            \
    {                                                                                              \
        "", NULL, TD_KIND_TITLE, 0, 0, 0, 0, NULL, NULL, NULL, text_                               \
    }
/* a title of rows that an abbreviated name means only if it fits no others */
#define TD_TITLE_SECONDARY(text_)                                                                  \
    {                                                                                              \
        "", NULL, TD_KIND_TITLE, 0, 1, 0, 0, NULL, NULL, NULL, text_                               \
    }
/* the same; config files may still use the section names that it had, "a|b" */
#define TD_TITLE_SECONDARY_RENAMED(text_, former_)                                                 \
    {                                                                                              \
        "", NULL, TD_KIND_TITLE, 0, 1, 0, 0, former_, NULL, NULL, text_                            \
    }
#define TD_ALIAS(name_, target_)                                                                   \
    {                                                                                              \
        name_, NULL, TD_KIND_ALIAS, 0, 0, 0, 0, target_, NULL, NULL, NULL                          \
    }
#define TD_ACCEPTED(name_, meta_, why_)                                                            \
    {                                                                                              \
        name_, NULL, TD_KIND_ACCEPTED, 0, 0, 0, 0, why_, NULL, meta_, NULL                         \
    }
#define TD_REFUSED(name_, why_)                                                                    \
    {                                                                                              \
        name_, NULL, TD_KIND_REFUSED, 0, 0, 0, 0, why_, NULL, NULL, NULL                           \
    }
/* for a struct that records which of its options were given (tandem/options.h) */
#define TD_GIVEN(T, m)                                                                             \
    {                                                                                              \
        "", NULL, TD_KIND_GIVEN,                                                                   \
            offsetof(T, m) + 0 * sizeof(char[sizeof(((T *)0)->m) == sizeof(td_given) ? 1 : -1]),   \
            0, 0, 0, NULL, NULL, NULL, NULL                                                        \
    }
#define TD_END                                                                                     \
    {                                                                                              \
        NULL, NULL, TD_KIND_END, 0, 0, 0, 0, NULL, NULL, NULL, NULL                                \
    }

/**
 * Does the row's value name a file or a folder?  A TEXT does unless its `meta` is in a list in
 * field.c ("NAME", "LIST", ...), so that a new row counts as a path by default.  Files read by the
 * program must not set such rows.
 */
bool td_field_is_path(const td_field *f);

/** Write every default into `base`. */
void td_fields_default(const td_field *fields, void *base);

/** The row with this name or alias, or NULL. */
const td_field *td_field_find(const td_field *fields, const char *name);

/**
 * Set one member from text.  TD_EUSAGE: invalid for the kind, or out of range (the message names
 * the option as `--name`, the value, and the range or the valid names).  Copies texts to `arena`.
 */
TD_CHECKED td_status td_field_set(const td_field *f, void *base, const char *value,
                                  td_arena *arena);

/** The same with messages that name the option as `subject`. */
TD_CHECKED td_status td_field_set_as(const td_field *f, void *base, const char *value,
                                     td_arena *arena, const char *subject);

/** Append one member's value in the form that td_field_set reads ("0.1", "true", "sgd"); reals are
    read back exactly. */
void td_field_get(const td_field *f, const void *base, td_text *out);

bool td_field_is_default(const td_field *f, const void *base);

/**
 * Was the option given on the command line, even with its default value, or is its value not the
 * default?  An option in a config file does not count as given: --print-config lists every option.
 */
bool td_field_is_given(const td_field *fields, const td_field *f, const void *base);

bool td_fields_equal(const td_field *fields, const void *a, const void *b);

/** Check that every value is in range; TD_EUSAGE names the first that is not. */
TD_CHECKED td_status td_fields_check(const td_field *fields, const void *base);

/** Append "{stride=2, pad=1}", without defaults; nothing if all are default.  For graph text. */
void td_fields_print(const td_field *fields, const void *base, td_text *out);

/**
 * Parse "name=value, name=value" (the inside of the braces) over the present values.
 * TD_EFORMAT: unknown name (the nearest is suggested), malformed, or out of range.
 */
TD_CHECKED td_status td_fields_parse(const td_field *fields, void *base, const char *text,
                                     td_arena *arena);

/** Append one JSON object with all values, numbers as numbers. */
void td_fields_json(const td_field *fields, const void *base, td_text *out);

/* --- command lines --------------------------------------------------------------------------- */

/** One struct of options and its table; a verb combines several (a NULL table ends the array). */
typedef struct td_field_group {
    const char *title; /* "Optimiser", the title of its part of --help */
    const td_field *fields;
    void *base;
} td_field_group;

/**
 * Parse argv[0 .. argc-1] over present values: --name value, --name=value, -b8, -b 8, unambiguous
 * prefixes, "--" ends options.  Other arguments are appended to `rest` (room for argc pointers).
 * TD_EUSAGE: unknown option with the nearest suggestion, ambiguous prefix listing the candidates,
 * missing value, value out of range.
 */
TD_CHECKED td_status td_options_parse(const td_field_group *groups, int argc, char **argv,
                                      const char **rest, int *n_rest, td_arena *arena);

/**
 * Call `visit` for every option of a command line, in order, without setting anything; pass its row
 * and its spelling, "--no-amp".  `is_head`: parse as td_options_parse_head.  TD_EUSAGE, TD_ENOMEM:
 * as parsing.
 */
typedef void (*td_option_visit)(void *ctx, const td_field *f, const char *subject);
TD_CHECKED td_status td_options_visit(const td_field_group *groups, int argc, char **argv,
                                      bool is_head, td_option_visit visit, void *ctx,
                                      td_arena *arena);

/**
 * Append every row of the tables, one per line, separated by tabs: `verb`, "--name", its kind (int,
 * number, switch, choice, text, alias, accepted, refused), "=value" (its default; for an alias, the
 * row it names), and all spellings separated by blanks.
 */
void td_options_list(const td_field_group *groups, const char *verb, td_text *out);

/**
 * The same up to the first argument that is not an option, or to "--": that argument and all that
 * follow are stored in `rest` unparsed.  For commands that pass on a command line.
 */
TD_CHECKED td_status td_options_parse_head(const td_field_group *groups, int argc, char **argv,
                                           const char **rest, int *n_rest, td_arena *arena);

/**
 * Read a --config file over the present values: YAML (including JSON), flat or in sections named
 * like the titles of help pages ("Data" is `data:`), or lines "name = value".  Names are the long
 * ones in any spelling, not abbreviated; a list is joined with commas.  TD_EUSAGE: an unknown name
 * with its line and the nearest one, a value out of range.  TD_EFORMAT, TD_ELIMIT: base/yaml.h.
 */
TD_CHECKED td_status td_options_config(const td_field_group *groups, const char *path,
                                       td_arena *arena);

/** Set one option by name, like a config file.  TD_EUSAGE, TD_ENOMEM. */
TD_CHECKED td_status td_options_set(const td_field_group *groups, const char *name,
                                    const char *value, td_arena *arena);

/** The same from a flat JSON object in memory; `what` names it in messages. */
TD_CHECKED td_status td_options_config_json(const td_field_group *groups, const char *json,
                                            const char *what, td_arena *arena);

/** Write all present values as YAML that td_options_config reads back unchanged. */
void td_options_yaml(const td_field_group *groups, td_text *out);

/**
 * The option part of a help page, one aligned row per visible field with default and range, in
 * lines of at most `columns`.  `usual`, "epochs,lr", names the rows to show first, in that order;
 * they are not repeated under their own title.  NULL: none.
 */
void td_options_help(const td_field_group *groups, const char *usual, int columns, td_text *out);

/** The same as a Markdown table. */
void td_options_markdown(const td_field_group *groups, const char *usual, td_text *out);

/** The same as the sections of a manual page, troff with the man macros. */
void td_options_man(const td_field_group *groups, const char *usual, td_text *out);

/**
 * Columns for help on stdout: the terminal's, limited to 60 .. 120; 80 when it is not a terminal.
 */
int td_help_columns(void);

typedef struct {
    int indent;       /* of all lines but the first, which continues a line */
    int columns;      /* maximum per line; a longer word gets its own line */
    const char *mark; /* appended to each continued line; "" or " \\" */
} td_wrap;

/** Append the words of `text` wrapped into lines; ends with a line end. */
void td_text_add_wrapped(td_text *out, const char *text, size_t n_text, const td_wrap *w);

/** `text` with troff's special characters escaped, line by line. */
void td_text_add_man(td_text *out, const char *text);

typedef enum { TD_SHELL_BASH, TD_SHELL_ZSH, TD_SHELL_FISH } td_shell;

/** Values that a shell completes for a TEXT option, separated by spaces. */
typedef struct {
    const char *option, *values; /* both NULL: the end of a list */
} td_option_values;

/**
 * The shell code that completes the options of one command.  bash: a `case` on the option's
 * spelling for its values, then the words; zsh: specifications for _arguments; fish: lines
 * "complete -c tandem -n CONDITION ...".  `lists` NULL: only the values of ENUMs.
 */
void td_options_completion(const td_field_group *groups, td_shell shell, const char *verb,
                           const td_option_values *lists, td_text *out);

#endif
