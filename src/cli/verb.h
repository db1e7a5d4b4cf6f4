/*
 * cli/verb.h -- the definition of a verb: texts, tables of options, a job
 *
 * A verb combines tables over one struct of options, runs a job of the library with that struct and
 * appends the result to a text; it does not parse.  main.c holds the table of verbs, verb.c all
 * that is common to them.
 *
 *     tandem VERB [OPTIONS] [ARGUMENTS]
 */
#ifndef TD_CLI_VERB_H
#define TD_CLI_VERB_H

#include "options/field.h"

#define TD_GROUPS_MAX 7

/* One run of a verb. */
typedef struct {
    void *opts;              /* the verb's own struct, parsed */
    const char *const *args; /* arguments that are not options */
    int n_args;
    bool json;
    td_text *out; /* the result, for stdout */
    int *code;    /* exit code of a run that did not fail; 0 unless set */

    const char *const *line; /* the command line after the verb */
    int n_line;
} td_call;

typedef struct {
    const char *name;
    const char *arguments;      /* "DATA", "IN OUT" */
    const char *summary;        /* one line */
    const char *about;          /* paragraphs for the help page */
    const char *examples;       /* one command per line */
    const char *usual;          /* options that help lists first, "epochs,lr"; NULL: none */
    int n_args_min, n_args_max; /* -1: no limit */
    int data_at;                /* which argument is DATA, from 0 */
    bool has_json;
    bool passes_arguments; /* the rest from the first argument on is another verb's command line */
    size_t opts_bytes;

    /* Fill groups[] from `opts` (a NULL table ends it); may be NULL. */
    void (*groups)(void *opts, td_field_group *groups);

    /* Called after the command line and --config were parsed once: apply the preset they name.
       --config and the command line win over it; may be NULL. */
    td_status (*preset)(void *opts, const td_field_group *groups, td_arena *arena);

    /* Called after the command line was parsed once: return the options stored in a file it
       names, as one JSON object for td_free, or NULL.  May also change defaults in `opts`, with
       texts in `arena`.  --config and the command line win over both. */
    td_status (*stored_options)(void *opts, td_arena *arena, char **json);

    /* Check the options of the command line against each other, before stored ones are applied. */
    td_status (*check)(const void *opts);

    /* Called after all options are read, before --print-config and `run`: set options from the
       arguments and from options of other programs; may be NULL. */
    td_status (*resolve)(const td_call *call);

    /* Called before options without effect are reported: a job that other processes do sets
       *is_done and call->code, and `run` is not called; may be NULL. */
    td_status (*start)(const td_call *call, bool *is_done);

    /* The name of the job in unused_options.c; returns NULL for the default job; may be NULL. */
    const char *(*job)(const td_call *call);
    int n_config_groups; /* number of groups that --print-config prints; 0: all */

    /* call->out is printed even if this fails: leave a valid result or nothing in it. */
    td_status (*run)(const td_call *call);
} td_verb;

/** The verb at index `i`; NULL past the end. */
const td_verb *td_verb_at(int i);

/** The verb of a name; TD_EUSAGE suggests the nearest. */
td_status td_verb_find(const char *name, const td_verb **out) TD_CHECKED;

/** Parse, run, print; returns the exit code. */
int td_verb_main(const td_verb *verb, int argc, char **argv);

/**
 * Check a command line of the verb by itself, without reading a file: TD_EUSAGE for options that
 * do not exist, have no such value or exclude each other, and for a wrong number of arguments.
 */
td_status td_verb_check_line(const td_verb *verb, int argc, const char *const *argv) TD_CHECKED;

/** Options common to all verbs. */
typedef struct {
    bool help, json, print_config;
    const char *config;
} td_common;

#define TD_TABLES_MAX (TD_GROUPS_MAX + 3)

/** The verb's tables and the common ones over `opts` and `c`. */
void td_verb_tables(const td_verb *verb, void *opts, td_common *c,
                    td_field_group groups[TD_TABLES_MAX]);

typedef enum { TD_PAGE_TEXT, TD_PAGE_MARKDOWN, TD_PAGE_MAN } td_page;

/** The list of verbs, as text or as a manual page. */
void td_verb_overview(td_page form, td_text *out);

/** The help page of a verb. */
td_status td_verb_page(const td_verb *verb, td_page form, td_text *out) TD_CHECKED;

/** The completion script of a shell: 0 bash, 1 zsh, 2 fish. */
td_status td_verb_completion(int shell, td_text *out) TD_CHECKED;

/** Report a failure on stderr; returns the exit code: 1, 2 usage, 3 stopped, 4 below --require. */
int td_verb_failed(const td_verb *verb, td_status st);

/** Write the result to stdout; returns `code`, or 1 when writing to stdout fails. */
int td_verb_print(const td_text *out, int code);

#endif
