/*
 * verb.c -- runs a verb: options, errors, exit codes, the result
 *
 * Order of options: defaults, a preset, the options stored in a resumed checkpoint, --config, the
 * command line; later ones win.  The command line is parsed first, to find the files it names, and
 * last, so that it wins over them.
 */
#include "cli/verb.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "cli/scripts.h"
#include "cli/unused_options.h"
#include "tandem/input.h"
#include "tandem/model.h"

/* clang-format off */
static const td_field common_fields[] = {
    TD_BOOL_AS(td_common, help, "help", "h", false, "print this page"),
    TD_BOOL   (td_common, print_config, false,
               "print the options in effect as YAML for --config and exit"),
    TD_TEXT   (td_common, config, NULL, "FILE",
               "read options from a YAML or JSON file, or from 'name = value' lines"),
    TD_END,
};

static const td_field json_fields[] = {
    TD_BOOL   (td_common, json, false, "print the result as one JSON object"),
    TD_END,
};
/* clang-format on */

/* The verb whose name begins so, in any case, or is spelled nearly so; NULL: none. */
static const char *nearest_verb(const char *name)
{
    const char *nearest = NULL;
    const size_t n = strlen(name);
    int best = (int)n / 3 + 1;
    for (int i = 0; td_verb_at(i); i++) {
        const char *verb = td_verb_at(i)->name;
        if (n > 2 && strncasecmp(verb, name, n) == 0)
            return verb;
        const int distance = td_text_distance(name, verb);
        if (distance < best || (distance == best && !nearest)) {
            best = distance;
            nearest = verb;
        }
    }
    return nearest;
}

td_status td_verb_find(const char *name, const td_verb **out)
{
    for (int i = 0; td_verb_at(i); i++) {
        *out = td_verb_at(i);
        if (strcmp((*out)->name, name) == 0)
            return TD_OK;
    }
    *out = NULL;
    const char *replacement = td_script_replacement(name);
    const char *nearest = nearest_verb(name);
    if (replacement)
        return td_error(TD_EUSAGE, "'%s' is not a verb: %s", name, replacement);
    if (nearest)
        return td_error(TD_EUSAGE, "unknown verb '%s', did you mean '%s'?", name, nearest);
    if (*name == '-')
        return td_error(TD_EUSAGE, "found the option '%s', wanted a verb: options follow it", name);
    return td_error(TD_EUSAGE, "unknown verb '%s'", name);
}

/* --- tables ----------------------------------------------------------------------------------- */

void td_verb_tables(const td_verb *verb, void *opts, td_common *c,
                    td_field_group groups[TD_TABLES_MAX])
{
    int n = 0;
    if (verb->groups)
        verb->groups(opts, groups);
    while (groups[n].fields)
        n++;
    if (verb->has_json)
        groups[n++] = (td_field_group){ "Result", json_fields, c };
    groups[n++] = (td_field_group){ "Common", common_fields, c };
    groups[n] = (td_field_group){ NULL, NULL, NULL };
}

/* Apply the options stored in a file that the command line names. */
static td_status take_stored_options(const td_verb *verb, void *opts, const td_field_group *groups,
                                     td_arena *arena)
{
    char *json = NULL;
    if (!verb->stored_options)
        return TD_OK;
    TD_TRY(verb->stored_options(opts, arena, &json));
    td_status st = json ? td_options_config_json(groups, json, "stored options", arena) : TD_OK;
    td_free(json);
    return st;
}

/*
 * Read --config.  The common options are accepted on the command line only: a file cannot print
 * help or name another file.
 */
static td_status read_config(const char *path, const td_field_group *groups, td_arena *arena)
{
    td_field_group allowed[TD_TABLES_MAX] = { 0 };
    for (int n = 0; groups[n].fields && groups[n].fields != common_fields; n++)
        allowed[n] = groups[n];
    return td_options_config(allowed, path, arena);
}

/* Apply the files that the command line names; `c`: the common options of the command line. */
static td_status take_files(const td_verb *verb, void *opts, const td_common *c,
                            const td_field_group *groups, td_arena *arena)
{
    TD_TRY(take_stored_options(verb, opts, groups, arena));
    return c->config ? read_config(c->config, groups, arena) : TD_OK;
}

/* Print the verb's groups, without those whose options are resolved into others. */
static td_status print_config(const td_verb *verb, void *opts, td_text *out)
{
    td_field_group groups[TD_TABLES_MAX] = { 0 };
    if (verb->groups)
        verb->groups(opts, groups);
    if (verb->n_config_groups)
        groups[verb->n_config_groups].fields = NULL;
    td_options_yaml(groups, out);
    return td_text_status(out);
}

typedef struct {
    int argc;
    char **argv;
    const char **rest;
    int n_rest;
} line;

/* The argument DATA sets --data: the command line must not give both with different values. */
static td_status check_data(const line *l, const td_field_group *groups, int at)
{
    for (; groups->fields; groups++) {
        if (groups->fields != td_input_fields())
            continue;
        const char *data = ((const td_input_opts *)groups->base)->data;
        if (data && l->n_rest > at && strcmp(data, l->rest[at]) != 0)
            return td_error(TD_EUSAGE, "DATA '%s' and --data '%s' exclude each other", l->rest[at],
                            data);
    }
    return TD_OK;
}

static const td_model_opts *model_of(const td_field_group *groups)
{
    while (groups->fields && groups->fields != td_model_fields())
        groups++;
    return groups->fields ? groups->base : NULL;
}

/* Refuse an unknown --arch on the command line, before ranks are joined or files are read. */
static td_status check_arch(const td_field_group *groups)
{
    td_arch_info info;
    const td_model_opts *model = model_of(groups);
    if (!model || !td_options_given_on_line(td_model_fields(), model, "arch"))
        return TD_OK;
    return td_arch_find(model->arch, &info);
}

/*
 * Refuse --arch on the command line together with --model, which may come from a file.  If --model
 * was a preset's name, it has been resolved.
 */
static td_status check_network(const td_field_group *groups)
{
    const td_model_opts *model = model_of(groups);
    if (!model || !model->model || !td_options_given_on_line(td_model_fields(), model, "arch"))
        return TD_OK;
    return td_error(TD_EUSAGE, "--arch %s and --model %s exclude each other: both name a network",
                    model->arch, model->model);
}

static bool is_truth(const char *word)
{
    static const char *const words[] = { "true", "false", "yes", "no", "on", "off", "0", "1" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(word, words[i]) == 0)
            return true;
    return false;
}

static bool is_weight_file(const char *word)
{
    return td_text_ends(word, ".safetensors") || td_text_ends(word, ".pth") ||
           td_text_ends(word, ".pth.tar") || td_text_ends(word, ".pt");
}

/* The option that takes a weight file; NULL: none. */
static const char *weight_option(const td_field_group *groups)
{
    static const char *const names[] = { "weights", "pretrained-weights", "output" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (const td_field_group *g = groups; g->fields; g++) {
            const td_field *f = td_field_find(g->fields, names[i]);
            if (f && f->kind == TD_KIND_TEXT)
                return names[i];
        }
    return NULL;
}

/* The option before an argument, "--amp" in "--amp true"; NULL: none, or it has its value. */
static const char *option_before(const line *l, const char *arg)
{
    for (int i = 1; i < l->argc; i++)
        if (l->argv[i] == arg)
            return td_text_starts(l->argv[i - 1], "--") && !strchr(l->argv[i - 1], '=')
                       ? l->argv[i - 1]
                       : NULL;
    return NULL;
}

/* A dash of typography before an option, as word processors and web pages put it: U+2010 to U+2015,
   U+2212; *rest: what follows */
static bool has_wrong_dash(const char *word, const char **rest)
{
    *rest = word;
    while (strncmp(*rest, "\xe2\x80", 2) == 0 && (*rest)[2] >= '\x90' && (*rest)[2] <= '\x95')
        *rest += 3;
    while (strncmp(*rest, "\xe2\x88\x92", 3) == 0)
        *rest += 3;
    return *rest > word;
}

/* There are too many arguments: report one that is meant for an option, otherwise the last. */
static td_status unexpected(const td_verb *verb, const line *l, const td_field_group *groups)
{
    const char *weights = verb->n_args_max <= 1 ? weight_option(groups) : NULL;
    for (int i = 0; i < l->n_rest; i++) {
        const char *word = l->rest[i], *before = option_before(l, word), *name;
        if (has_wrong_dash(word, &name))
            return td_error(TD_EUSAGE,
                            "%s: '%s' begins with a dash that is not '-', did you mean "
                            "'--%s'?",
                            verb->name, word, name + strspn(name, "-"));
        if (before && is_truth(word))
            return td_error(TD_EUSAGE, "%s: unexpected argument '%s', did you mean '%s=%s'?",
                            verb->name, word, before, word);
        if (weights && is_weight_file(word))
            return td_error(TD_EUSAGE, "%s: unexpected argument '%s', did you mean '--%s %s'?",
                            verb->name, word, weights, word);
    }
    return td_error(TD_EUSAGE, "%s: unexpected argument '%s'", verb->name,
                    l->rest[verb->n_args_max]);
}

static td_status check_args(const td_verb *verb, const td_common *c, const line *l,
                            const td_field_group *groups)
{
    if (c->print_config && l->n_rest == 0)
        return TD_OK;
    if (l->n_rest < verb->n_args_min)
        return td_error(TD_EUSAGE, "%s requires %s", verb->name, verb->arguments);
    if (verb->n_args_max >= 0 && l->n_rest > verb->n_args_max)
        return unexpected(verb, l, groups);
    return TD_OK;
}

static td_status parse(const td_verb *verb, line *l, const td_field_group *groups, td_arena *arena)
{
    if (verb->passes_arguments)
        return td_options_parse_head(groups, l->argc, l->argv, l->rest, &l->n_rest, arena);
    return td_options_parse(groups, l->argc, l->argv, l->rest, &l->n_rest, arena);
}

static void set_defaults(const td_field_group *groups)
{
    for (; groups->fields; groups++)
        td_fields_default(groups->fields, groups->base);
}

/* Parse the command line over the defaults, and check its options against each other. */
static td_status read_line(const td_verb *verb, const void *opts, const td_common *c, line *l,
                           const td_field_group *groups, td_arena *arena)
{
    set_defaults(groups);
    TD_TRY(parse(verb, l, groups, arena));
    if (c->help)
        return TD_OK;
    TD_TRY(check_data(l, groups, verb->data_at));
    TD_TRY(check_arch(groups));
    return verb->check ? verb->check(opts) : TD_OK;
}

/*
 * Read all options into `opts`.  The command line is parsed first, to find the files and the preset
 * that it names, and last, because it wins; --config is also read before the preset, because it may
 * name one.
 */
static td_status read_options(const td_verb *verb, void *opts, td_common *c, line *l,
                              const td_field_group *groups, td_arena *arena)
{
    TD_TRY(read_line(verb, opts, c, l, groups, arena));
    if (c->help)
        return TD_OK;
    const td_common requested = *c;
    if (verb->preset && c->config) {
        TD_TRY(read_config(c->config, groups, arena));
        TD_TRY(parse(verb, l, groups, arena));
    }
    if (verb->preset)
        TD_TRY(verb->preset(opts, groups, arena));
    TD_TRY(take_files(verb, opts, &requested, groups, arena));
    TD_TRY(parse(verb, l, groups, arena));
    return check_args(verb, c, l, groups);
}

/* Allocate the verb's options and room for the arguments, in `arena`. */
static td_status make_options(const td_verb *verb, line *l, void **opts, td_arena *arena)
{
    *opts = td_arena_alloc(arena, 1, verb->opts_bytes + 1);
    l->rest = td_arena_alloc(arena, (size_t)l->argc + 1, sizeof *l->rest);
    return *opts && l->rest ? TD_OK : TD_ENOMEM;
}

static td_status check_line(const td_verb *verb, line *l, td_arena *arena)
{
    td_field_group groups[TD_TABLES_MAX] = { 0 };
    td_common c = { 0 };
    void *opts;
    TD_TRY(make_options(verb, l, &opts, arena));
    td_verb_tables(verb, opts, &c, groups);
    TD_TRY(read_line(verb, opts, &c, l, groups, arena));
    return c.help ? TD_OK : check_args(verb, &c, l, groups);
}

td_status td_verb_check_line(const td_verb *verb, int argc, const char *const *argv)
{
    td_arena arena;
    line l = { .argc = argc, .argv = (char **)(uintptr_t)argv };
    td_arena_init(&arena);
    td_status st = check_line(verb, &l, &arena);
    td_arena_release(&arena);
    return st;
}

static td_status run(const td_verb *verb, int argc, char **argv, td_arena *arena, td_text *out,
                     int *code)
{
    td_field_group groups[TD_TABLES_MAX] = { 0 };
    td_common c = { 0 };
    line l = { .argc = argc, .argv = argv };
    void *opts;
    TD_TRY(make_options(verb, &l, &opts, arena));
    td_verb_tables(verb, opts, &c, groups);
    TD_TRY(read_options(verb, opts, &c, &l, groups, arena));
    if (c.help)
        return td_verb_page(verb, TD_PAGE_TEXT, out);
    bool is_done = false;
    td_call call = { .opts = opts,
                     .args = l.rest,
                     .n_args = l.n_rest,
                     .json = c.json,
                     .out = out,
                     .code = code,
                     .line = (const char *const *)argv,
                     .n_line = argc };
    if (verb->resolve)
        TD_TRY(verb->resolve(&call));
    TD_TRY(check_network(groups));
    if (c.print_config)
        return print_config(verb, opts, out);
    if (verb->start)
        TD_TRY(verb->start(&call, &is_done));
    if (is_done)
        return TD_OK;
    TD_TRY(td_unused_options_report(verb, verb->job ? verb->job(&call) : NULL, groups, argc, argv,
                                    arena));
    td_status st = verb->run(&call);
    return st == TD_OK ? td_text_status(out) : st;
}

int td_verb_main(const td_verb *verb, int argc, char **argv)
{
    td_arena arena;
    td_text out = { 0 };
    td_arena_init(&arena);
    int code = 0;
    td_status st = run(verb, argc, argv, &arena, &out, &code);
    code = st == TD_OK ? code : td_verb_failed(verb, st);
    code = td_verb_print(&out, code);
    td_text_release(&out);
    td_arena_release(&arena);
    return code;
}

/* --- stderr and stdout ------------------------------------------------------------------------ */

/* Print the error as one line; special characters in file names are escaped. */
static void print_failure(td_status st)
{
    char plain[1024]; /* size of the longest message; for use without free memory */
    td_text shown = { 0 };
    snprintf(plain, sizeof plain, "%s", td_error_message());
    td_text_add_visible(&shown, plain, false);
    const bool has_line = td_text_status(&shown) == TD_OK;
    td_text_make_printable(plain);
    const char *message = has_line ? td_text_get(&shown) : plain;
    fprintf(stderr, "tandem: %s: %s\n", st == TD_ESTOPPED ? "stopped" : "error",
            *message ? message : td_status_text(st));
    td_text_release(&shown);
}

int td_verb_failed(const td_verb *verb, td_status st)
{
    print_failure(st);
    if (st == TD_EUSAGE && verb)
        fprintf(stderr, "usage: tandem %s [OPTIONS]%s%s; 'tandem help %s' lists the options\n",
                verb->name, *verb->arguments ? " " : "", verb->arguments, verb->name);
    else if (st == TD_EUSAGE)
        fprintf(stderr,
                "usage: tandem VERB [OPTIONS] [ARGUMENTS]; 'tandem help' lists the verbs\n");
    switch (st) {
    case TD_EUSAGE:
        return 2;
    case TD_ESTOPPED:
        return 3;
    case TD_EREQUIRED:
        return 4;
    default:
        return 1;
    }
}

/* Print names unchanged to a file or pipe, and with special characters escaped to a terminal. */
static bool print_result(const td_text *out)
{
    td_text shown = { 0 };
    if (out->len && isatty(STDOUT_FILENO)) {
        td_text_add_visible(&shown, out->data, true);
        if (td_text_status(&shown) != TD_OK)
            td_text_release(&shown);
    }
    const td_text *t = shown.len ? &shown : out;
    const bool is_done =
        (t->len == 0 || fwrite(t->data, 1, t->len, stdout) == t->len) && fflush(stdout) == 0;
    td_text_release(&shown);
    return is_done;
}

int td_verb_print(const td_text *out, int code)
{
    if (print_result(out))
        return code;
    fprintf(stderr, "tandem: error: cannot write the result to standard output\n");
    return 1;
}
