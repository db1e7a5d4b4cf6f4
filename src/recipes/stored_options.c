/*
 * stored_options.c -- options stored in a checkpoint, and those that a resumed run reads
 *
 * A resumed run reads the options that describe the training, under their names or aliases:
 * numbers, switches, choices and texts other than paths, from the tables that td_train_options_json
 * writes.  It does not read paths, options that apply to one run only, and options of the command's
 * other tables.  Values are checked in the same way as those of a --config file.
 */
#include "recipes/stored_options.h"

#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/torch_checkpoint.h"

enum { N_STORED_GROUPS = 5 }; /* network, data, precision, training, detection */

td_status td_train_options_json(const td_train_opts *opts, td_text *out)
{
    td_model_opts model = opts->model;
    const struct {
        const td_field *fields;
        const void *base;
    } groups[N_STORED_GROUPS] = {
        { td_model_fields(), &model },       { td_input_fields(), &opts->input },
        { td_amp_fields(), &opts->amp },     { td_train_fields(), opts },
        { td_boxes_fields(), &opts->boxes },
    };
    if (model.model || model.model_text)
        model.arch = NULL; /* the graph was trained, not --arch */
    td_text_add(out, "{");
    for (int i = 0; i < N_STORED_GROUPS; i++) {
        td_text part = { 0 };
        td_fields_json(groups[i].fields, groups[i].base, &part);
        const td_status st = td_text_status(&part);
        if (st == TD_OK) {
            td_text_add(out, "%s", i ? ", " : "");
            td_text_add_bytes(out, part.data + 1, part.len - 2); /* without its braces */
        }
        td_text_release(&part);
        TD_TRY(st);
    }
    td_text_add(out, "}");
    return td_text_status(out);
}

/* Options that apply to one run only; the checkpoint contains the graph of --model. */
static bool is_of_one_run(const char *name)
{
    static const char *const names[] = {
        "resume",       "pretrained_weights",
        "run_epochs",   "run_iters",
        "prof",         "evaluate",
        "require",      "final_weights",
        "final_state",  "train_logits",
        "dump_after",   "dump_dir",
        "log",          "model",
        "overwrite",    "amp_stats",
        "trace",        "memory_limit",
        "model_output",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

bool td_option_is_stored(const td_field *f)
{
    return !td_field_is_path(f) && !is_of_one_run(f->name);
}

/* The row of a name or alias, and the table and struct it belongs to; NULL: none. */
static const td_field *find_row(td_train_opts *o, const char *name, td_field_group *group)
{
    td_field_group groups[7];
    td_train_groups(o, groups);
    for (int i = 0; i < N_STORED_GROUPS; i++) {
        const td_field *f = td_field_find(groups[i].fields, name);
        if (f && f->kind < TD_KIND_TITLE && f->kind != TD_KIND_END) {
            *group = groups[i];
            return f;
        }
    }
    return NULL;
}

/* --- options that a resumed run reads --------------------------------------------------------- */

static td_status add_option(const char *name, const td_json *value, td_text *out)
{
    int64_t whole;
    double real;
    const char *text;
    bool flag;
    td_text_add(out, out->len > 1 ? ", \"%s\": " : "\"%s\": ", name);
    if (td_json_as_int(value, &whole) == TD_OK) {
        td_text_add(out, "%lld", (long long)whole);
    } else if (td_json_as_number(value, &real) == TD_OK) {
        td_text_add(out, "%.17g", real);
    } else if (td_json_as_text(value, &text) == TD_OK) {
        td_text_add(out, "\"");
        td_text_add_json(out, text);
        td_text_add(out, "\"");
    } else if (td_json_as_bool(value, &flag) == TD_OK) {
        td_text_add(out, flag ? "true" : "false");
    } else {
        return td_error(TD_EFORMAT, "'%s' is not a number, a string or a Boolean", name);
    }
    td_error_clear();
    return td_text_status(out);
}

static td_status filter(const td_json *config, td_text *out)
{
    td_train_opts o;
    td_field_group group;
    td_train_defaults(&o);
    if (td_json_kind_of(config) != TD_JSON_OBJECT)
        return td_error(TD_EFORMAT, "the options are no JSON object");
    td_text_add(out, "{");
    for (size_t i = 0; i < td_json_count(config); i++) {
        const char *name = td_json_key(config, i);
        const td_json *value = td_json_member(config, i);
        const td_field *f = find_row(&o, name, &group);
        if (!f)
            return td_error(TD_EFORMAT, "'%s' is not an option that a checkpoint can contain",
                            name);
        if (td_option_is_stored(f) && td_json_kind_of(value) != TD_JSON_NULL)
            TD_TRY(add_option(f->name, value, out));
    }
    td_text_add(out, "}");
    return td_text_status(out);
}

static td_status parse(const td_tensors *t, td_json **out)
{
    const char *config = td_tensors_meta(t, "tandem.config");
    config = config ? config : "{}";
    return td_json_parse(config, strlen(config), "tandem.config", out);
}

td_status td_train_stored_options(const char *checkpoint, char **json)
{
    td_status st = TD_OK;
    td_run_state s;
    td_tensors *t;
    td_json *config = NULL;
    td_text out = { 0 };
    *json = NULL;
    TD_TRY(td_checkpoint_open(checkpoint, &t));
    TD_OUT(td_checkpoint_state(t, checkpoint, &s));
    st = parse(t, &config);
    if (st == TD_OK)
        st = filter(config, &out);
    if (st != TD_OK)
        st = td_error_context(st, "'%s': tandem.config", checkpoint);
out:
    td_json_free(config);
    td_tensors_free(t);
    if (st == TD_OK)
        return td_text_take(&out, TD_OK, json);
    td_text_release(&out);
    return st;
}

/* --- options that it does not read ------------------------------------------------------------ */

/*
 * Was this path given for the checkpoint's run, but not for this one?  The workspace is the
 * checkpoint's folder.
 */
static bool is_left_out(const td_field *f, const td_field_group *group, const char *then)
{
    return td_field_is_path(f) && !is_of_one_run(f->name) && strcmp(f->name, "workspace") != 0 &&
           !td_options_chosen(group->fields, group->base, f->name) && *then &&
           !(f->def_text && strcmp(then, f->def_text) == 0);
}

static void add_left_out(const td_json *config, td_train_opts *o, td_text *out)
{
    td_field_group group;
    const char *then;
    for (size_t i = 0; i < td_json_count(config); i++) {
        const td_field *f = find_row(o, td_json_key(config, i), &group);
        if (!f || td_json_as_text(td_json_member(config, i), &then) != TD_OK ||
            !is_left_out(f, &group, then))
            continue;
        td_text_add(out, "%s--", out->len ? ", " : "");
        for (const char *p = f->name; *p; p++)
            td_text_add_bytes(out, *p == '_' ? "-" : p, 1);
        td_text_add(out, " '%s'", then);
    }
    td_error_clear();
}

td_status td_stored_paths_warn(const td_tensors *t, const char *path, const td_train_opts *opts)
{
    td_train_opts o = *opts;
    td_json *config;
    td_text list = { 0 };
    TD_TRY_MSG(parse(t, &config), "'%s'", path);
    add_left_out(config, &o, &list);
    const td_status st = td_text_status(&list);
    if (st == TD_OK && list.len)
        td_log(TD_LOG_WARN, "train",
               "'%s' was written by a run with %s: paths are not read from a checkpoint, give "
               "these options again to keep them",
               path, td_text_get(&list));
    td_json_free(config);
    td_text_release(&list);
    return st;
}
